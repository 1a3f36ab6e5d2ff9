"""Presets and tuners add to the options of a run what these do not say."""

import dataclasses

import pytest

import thespis
from tests.runs.test_config import sac
from tests.small import RUN
from thespis.core import ThespisError
from thespis.runs import config as configs
from thespis.tuning import PBT, TUNERS


def test_what_is_given_wins_over_the_preset_and_the_preset_over_defaults():
    config = sac(preset="qdax", gamma=0.5)
    assert config.options["std"] == "softplus"
    assert config.warm_up == "policy"
    assert config.hp.items() >= {"gamma": 0.5, "target_entropy": -0.5}.items()
    assert sac(preset="di-engine", hidden=(8, 8), steps=20_000).options["hidden"] == (8, 8)


@pytest.mark.parametrize(
    "given",
    [
        {"pbt": True, "pbt.best": 2},
        {"pbt": {"best": 2}},
        {"pbt": PBT(best=2)},
        {"tuner": "pbt", "pbt.best": "2"},
        {"pbt": "true", "pbt.best": 2},
    ],
)
def test_a_tuner_may_be_given_in_several_ways(given):
    config = sac(steps=20_000, members=8, **given)
    assert config.tuner == "pbt"
    assert config.tuning == PBT(best=2, interval=1000, fitness="eval/mean_reward")


def test_without_a_tuner_there_is_none():
    assert sac(members=8).tuner is None
    assert sac(members=8, pbt=False).tuner is None
    assert sac(members=8, pbt=None).tuning is None


def test_a_tuner_of_an_unknown_kind_is_to_be_added(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Mine(PBT):
        pass

    with pytest.raises(ThespisError, match="add its class to thespis.tuning.TUNERS first"):
        sac(members=4, pbt=Mine())
    monkeypatch.setitem(TUNERS, "mine", Mine)
    assert sac(members=4, pbt=Mine()).tuner == "mine"


def test_a_preset_may_say_how_to_tune(monkeypatch):
    mine = {"hp": {"gamma": 0.9, "tau": 0.1}, "pbt": {"tuned": ("gamma=uniform:0.9:1",), "best": 1}}
    monkeypatch.setitem(thespis.SAC.presets, "mine", mine)
    tuned = configs.make("sac", RUN | {"members": 4, "pbt": True, "preset": "mine"})
    assert (tuned.hp, tuned.pbt["tuned"]) == ({"tau": 0.1}, ("gamma=uniform:0.9:1",))
    hp = configs.make("sac", RUN | {"preset": "mine"}).hp
    assert (hp["gamma"], hp["tau"]) == (0.9, 0.1)
    control = configs.make("sac", RUN | {"members": 4, "tuner": "random", "preset": "mine"})
    assert (control.hp, control.pbt["tuned"]) == (tuned.hp, tuned.pbt["tuned"])
