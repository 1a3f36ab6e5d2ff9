"""Coordinates, functions and what stands for them, as people write them."""

import pytest

from thespis import selection
from thespis.core import ThespisError

SIZES = {"observation": 5, "descriptor": 2}


def outer(obs):
    return obs


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0,1", ("observation", (0, 1))),
        ("3", ("observation", (3,))),
        ("2:", ("observation", (2, 3, 4))),
        (":2, 4", ("observation", (0, 1, 4))),
        ("1,0:3", ("observation", (1, 0, 2))),
        ("none", ("observation", ())),
        ("observation", ("observation", (0, 1, 2, 3, 4))),
        ("descriptor", ("descriptor", (0, 1))),
        ("descriptor[1:]", ("descriptor", (1,))),
        ("observation[0,4]", ("observation", (0, 4))),
    ],
)
def test_coordinates_are_read_as_people_write_them(text, meant):
    assert selection.choice("seen", text, SIZES) == meant


@pytest.mark.parametrize(
    "text", ["5", "4:6", "descriptor[2:]", "3:3", "x", "0.5", "place[0]", "-1"]
)
def test_what_is_not_there_is_refused_and_the_option_named(text):
    with pytest.raises(ThespisError, match=r"^seen = "):
        selection.choice("seen", text, SIZES)


def test_a_function_is_known_by_its_module_and_name():
    text = selection.named("descriptor", outer)
    assert selection.is_function(text)
    assert selection.function("descriptor", text) is outer
    assert not selection.is_function("0:2")


def test_a_function_that_cannot_be_found_again_is_refused():
    def inner(obs):
        return obs

    for unnamed in (inner, lambda obs: obs):
        with pytest.raises(ThespisError, match="define it in a module"):
            selection.named("descriptor", unnamed)


def test_what_python_gives_becomes_text():
    assert selection.named("descriptor", (0, 1)) == "0,1"
    assert selection.named("descriptor", range(3)) == "0,1,2"
    assert selection.named("descriptor", "2:") == "2:"
    with pytest.raises(ThespisError, match=r"descriptor = 7\.5"):
        selection.named("descriptor", 7.5)
