"""Values are read as people write them; what cannot be read is explained in one line."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from thespis.algos.sac import SAC
from thespis.cli.options import describe, parse
from thespis.errors import ThespisError
from thespis.values import Option, Word, convert, default_of, fields

OPTIONS = [
    Option("steps", int, "Steps.", 100),
    Option("rate", float, default=0.5),
    Option("hidden", tuple[int, ...], default=(64, 64)),
    Option("narrow", tuple[int, ...] | None),
    Option("kind", Literal["mean", "iqm"], default="mean"),
    Option("title", str),
    Option("learning_starts", int | None),
    Option("json", bool, "One line."),
]


def given(text: str) -> dict:
    return parse(text.split(), OPTIONS, 0)[1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("--steps 1e6", {"steps": 1_000_000}),
        ("--steps 1_000_000", {"steps": 1_000_000}),
        ("--steps=20", {"steps": 20}),
        ("--rate 3e-4", {"rate": 3e-4}),
        ("--rate -1.5", {"rate": -1.5}),
        ("--rate 1", {"rate": 1.0}),
        ("--hidden 64 32", {"hidden": (64, 32)}),
        ("--hidden=64,32", {"hidden": (64, 32)}),
        ("--hidden 64,32 --steps 3", {"hidden": (64, 32), "steps": 3}),
        ("--hidden 7", {"hidden": (7,)}),
        ("--narrow none", {"narrow": None}),
        ("--narrow 3 4", {"narrow": (3, 4)}),
        ("--kind iqm", {"kind": "iqm"}),
        ("--learning-starts 9", {"learning_starts": 9}),
        ("--learning_starts 9", {"learning_starts": 9}),
        ("--json", {"json": True}),
        ("--json --steps 2", {"json": True, "steps": 2}),
        ("--no-json", {"json": False}),
        ("--json=false", {"json": False}),
        ("--steps 1 --steps 2", {"steps": 2}),
        ("", {}),
    ],
)
def test_options_are_read_as_they_are_written(text, value):
    assert given(text) == value


def test_whole_numbers_stay_whole():
    assert type(given("--steps 1e6")["steps"]) is int


def test_words_without_dashes_are_positions():
    words, options = parse(["runs/a", "--title", "two words", "runs/b"], OPTIONS)
    assert words == ["runs/a", "runs/b"]
    assert options == {"title": "two words"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--steps many", "steps = many: give a whole number"),
        ("--steps 1.5", "steps = 1.5: give a whole number"),
        ("--steps inf", "steps = inf: give a whole number"),
        ("--rate fast", "rate = fast: give a number"),
        ("--rate nan", "rate = nan: give a number"),
        ("--hidden 64 wide", "hidden = wide: give a whole number"),
        ("--kind median", "kind = median: give one of mean, iqm"),
        ("--json=maybe", "json = maybe: give one of true, false"),
        ("--steps", "--steps needs a value, such as 100"),
        ("--hidden", "--hidden needs a value, such as 64 64"),
        ("--title", "--title needs a value"),
        ("--steps --json", "--steps needs a value, such as 100"),
        ("--learning-starts", "--learning-starts needs a value"),
        ("--stepz 3", "unknown option --stepz; did you mean steps?"),
        ("--no-steps", "unknown option --no-steps"),
        ("-x", "unknown option -x"),
        ("stray", "unexpected 'stray': options start with --"),
        ("--steps 1 2", "unexpected '2': options start with --, and --steps takes one value"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    with pytest.raises(ThespisError) as caught:
        given(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int, 1e6, 1_000_000),
        (int, np.int64(3), 3),
        (float, 1, 1.0),
        (float, np.float32(0.5), 0.5),
        (tuple[int, ...], [64, 64], (64, 64)),
        (tuple[int, ...], np.array([3, 4]), (3, 4)),
        (tuple[int, ...], 8, (8,)),
        (tuple[int, ...], (), ()),
        (int | None, None, None),
        (bool, True, True),
    ],
)
def test_values_from_python_are_brought_to_the_type(kind, value, expected):
    result = convert("field", kind, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, True), (int, 1.5), (int, None), (float, "x"), (float, [1.0]), (str, 3), (bool, 1)],
)
def test_values_from_python_of_another_type_are_refused(kind, value):
    with pytest.raises(ThespisError, match=r"field = .*: give"):
        convert("field", kind, value)


@pytest.mark.parametrize(
    ("option", "head"),
    [
        (Option("hidden", tuple[int, ...], default=(64, 64)), "  --hidden N ..."),
        (Option("factors", tuple[float, ...]), "  --factors X ..."),
        (Option("log_keys", tuple[str, ...], default=()), "  --log-keys TEXT ..."),
        (Option("output", str), "  -o, --output TEXT"),
    ],
)
def test_help_says_what_follows_an_option(option, head):
    assert describe([option]).startswith(head)
    assert "(default )" not in describe([option])


def test_help_comes_from_the_fields_of_a_class():
    options = fields(Documented, "algo.", skip=("spec",))
    assert [o.name for o in options] == ["algo.width", "algo.kind", "algo.silent"]
    text = describe(options)
    assert "--algo.width N" in text
    assert "How wide it is, told at such length that it fills" in text
    assert "(default 3)" in text
    assert "--algo.kind {a,b}" in text
    assert max(map(len, text.splitlines())) <= 100


@dataclass
class Documented:
    spec: int
    width: int = 3
    """How wide it is, told at such length that it fills more than a single line of the help that
    is shown."""
    kind: Literal["a", "b"] = "a"
    silent: bool = False


def test_defaults_are_those_of_the_fields_of_a_class():
    assert default_of(Documented, "width") == 3
    assert default_of(SAC, "n_step") == 1
    assert default_of(Documented, "depth") is None
    assert default_of(Documented, "depth", 7) == 7


def test_help_of_inherited_fields_is_there_too():
    helps = {o.name: o.help for o in fields(SAC)}
    assert helps["n_step"]
    assert helps["std"]


def test_none_is_nothing_except_where_it_is_a_word():
    assert convert("x", str | None, "none") is None
    assert convert("x", Word | None, "none") == "none"
    assert convert("x", Word | None, None) is None
