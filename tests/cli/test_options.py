"""Options of the command line are read as they were meant, and their help says what they take."""

from typing import Literal

import pytest

from thespis.cli.options import describe, flag, parse, placeholder
from thespis.errors import ThespisError
from thespis.values import Option

OPTIONS = [
    Option("steps", int, "Steps in all.", 1000),
    Option("hidden", tuple[int, ...], "Sizes of the hidden layers.", (64, 64)),
    Option("gamma", float | None, "Discount."),
    Option("warm_up", Literal["random", "policy"], "Who acts at first.", "random"),
    Option("json", bool, "Print JSON.", False),
    Option("tag", tuple[str, ...], "A tag.", (), repeated=True),
]


@pytest.mark.parametrize(
    ("line", "words", "chosen"),
    [
        ("run --steps 5", ["run"], {"steps": 5}),
        ("--steps=5 run", ["run"], {"steps": 5}),
        ("--warm-up policy", [], {"warm_up": "policy"}),
        ("--warm_up=policy", [], {"warm_up": "policy"}),
        ("--hidden 8 4 --json run", ["run"], {"hidden": (8, 4), "json": True}),
        ("--no-json", [], {"json": False}),
        ("--json false run", ["run"], {"json": False}),
        ("--json True", [], {"json": True}),
        ("--gamma -0.5", [], {"gamma": -0.5}),
        ("--gamma none", [], {"gamma": None}),
        ("--steps 5 --steps 6", [], {"steps": 6}),
        ("--tag a b --tag c", [], {"tag": ("a", "b", "c")}),
        ("a b", ["a", "b"], {}),
    ],
)
def test_options_are_read_wherever_they_stand(line, words, chosen):
    assert parse(line.split(), OPTIONS) == (words, chosen)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--stepps 5", r"unknown option --stepps; did you mean steps\?"),
        ("-steps 5", "unknown option -steps"),
        ("--steps", "--steps needs a value, such as 1000"),
        ("--gamma --json", "--gamma needs a value$"),
        ("--steps many", "steps = many: give a whole number"),
        ("--warm-up cold", "warm_up = cold: give one of random, policy"),
        ("run other", "unexpected 'other': options start with --"),
        ("run --json other", "unexpected 'other': options start with --$"),
        (
            "run --steps 5 other",
            "unexpected 'other': options start with --, and --steps takes one value$",
        ),
        ("--steps=5 run other", "unexpected 'other': options start with --$"),
        ("run --gamma --json other", "unexpected 'other': options start with --$"),
    ],
)
def test_what_is_wrong_is_named(line, message):
    with pytest.raises(ThespisError, match=message):
        parse(line.split(), OPTIONS, positional=1)


def test_an_option_that_has_two_names_is_suggested_by_the_shorter():
    options = [Option(name, int, "Sizes.") for name in ("hidden", "algo.hidden", "hp.gamma")]
    for line, names in {"--hiden 5": "hidden", "--algo.hiden 5": "algo.hidden"}.items():
        with pytest.raises(ThespisError, match=rf"; did you mean {names}(\?| or)"):
            parse(line.split(), options)
    with pytest.raises(ThespisError, match=r"; did you mean hidden\?$"):
        parse(["--hiden", "5"], options)


def test_negative_numbers_are_values():
    assert [flag(word) for word in ("--steps", "-o", "-0.5,1", "-1e-3", "-", "run")] == [
        *(True, True),
        *(False,) * 4,
    ]


def test_help_tells_the_value_and_the_default_in_80_columns():
    lines = describe([*OPTIONS, Option("output", str, "where it goes " * 8)]).splitlines()
    assert lines[0] == "  --steps N                   Steps in all. (default 1000)"
    assert lines[1] == "  --hidden N ...              Sizes of the hidden layers. (default 64 64)"
    assert "  --warm-up {random,policy}   Who acts at first. (default random)" in lines
    assert "  -o, --output TEXT           Where it goes" in "\n".join(lines)
    assert max(map(len, lines)) < 100
    assert placeholder(bool) == ""
