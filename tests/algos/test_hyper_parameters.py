"""Hyper-parameters that algorithms share are declared once, and drawn in an order that stays."""

import dataclasses

import pytest

from thespis.algos import ALGORITHMS, TD3
from thespis.algos.hyper_parameters import Discounting, LearningRates, SoftLearningRates
from thespis.tuning.hyper import declared

SHARED = {"weight_decay", "lr_end", "schedule_updates", "actor_lr", "critic_lr", "gamma", "tau"}


@pytest.mark.parametrize("Algorithm", ALGORITHMS.values())
def test_every_algorithm_has_them_in_one_order(Algorithm):
    """Populations draw in the order of the fields: another one would give other members."""
    names = [field.name for field in dataclasses.fields(Algorithm.Hyper)]
    rates = ["actor_lr", "critic_lr", "alpha_lr"][: 2 if issubclass(Algorithm, TD3) else 3]
    priorities = ["priority_alpha", "priority_beta", "priority_anneal"]
    first = [*priorities, "weight_decay", "lr_end", "schedule_updates", *rates]
    assert names[: len(first) + 3] == [*first, "gamma", "tau", "reward_scale"]
    assert set(names) >= SHARED


@pytest.mark.parametrize("Hyper", [LearningRates, SoftLearningRates, Discounting])
def test_defaults_are_legal_and_within_their_priors(Hyper):
    for name, about in declared(Hyper).items():
        assert about.low <= about.default <= about.high, name
        assert about.help, name


def test_a_default_of_ones_own_keeps_the_place_of_the_field():
    class Hyper(Discounting, LearningRates):
        gamma: float = 0.5

    plain = [f.name for f in dataclasses.fields(type("Plain", (Discounting, LearningRates), {}))]
    assert [f.name for f in dataclasses.fields(Hyper)] == plain
    assert Hyper().gamma == 0.5
