"""Tuners by their names."""

import pytest

from tests.tuning.rounds import fails
from thespis import values
from thespis.cli.options import parse
from thespis.tuning import (
    PBT,
    TUNERS,
    RandomSearch,
    tuner,
)


def test_tuners_by_name():
    assert tuner("pbt", best="3", replaced=0.5, tuned="rate gamma=uniform:0.9:1") == PBT(
        best=3, replaced=0.5, tuned=("rate", "gamma=uniform:0.9:1")
    )
    assert tuner("random") == RandomSearch()
    with fails("tuner = pbd", "pbt"):
        tuner("pbd")
    with fails("unknown option 'bets' of pbt", "did you mean best"):
        tuner("pbt", bets=1)


@pytest.mark.parametrize("kind", TUNERS.values())
def test_every_choice_can_be_written_on_the_command_line(kind):
    for option in values.fields(kind):
        assert option.help, option.name
    words = [o for o in values.fields(kind) if o.default is not None]
    argv = [w for o in words for w in (f"--{o.name}", *values.show(o.default).split())]
    _, given = parse(argv, values.fields(kind))
    assert kind(**given) == kind()


@pytest.mark.parametrize(
    "given",
    [{"exploit": "guess"}, {"explore": "not"}, {"replay": "all"}, {"min_age": 0.5}],
)
def test_choices_are_checked(given):
    (name,) = given
    with fails(name):
        tuner("pbt", **given)
