"""Presets of TD7 are what they say, and its defaults are those of the authors' code."""

from tests.algos import reference
from thespis.algos import TD7


def test_preset_locomotion():
    assert TD7.presets["locomotion"]["train"] == {"learning_starts": 25_000}


def test_the_defaults_are_those_of_the_paper():
    algo, hp = TD7(reference.spec()), TD7.Hyper()
    wanted = {"embedding": 256, "hidden": (256, 256), "batch_size": 256, "delay": 2}
    wanted |= {"target_every": 250, "head": "huber", "actor_reduce": "mean", "critics": 2}
    assert {name: getattr(algo, name) for name in wanted} == wanted
    assert (algo.critic_network.activation, algo.actor_network.activation) == ("elu", "relu")
    rates = {"actor_lr": 3e-4, "critic_lr": 3e-4, "encoder_lr": 3e-4, "gamma": 0.99}
    wanted = rates | {"noise": 0.1, "target_noise": 0.2, "noise_clip": 0.5, "priority_alpha": 0.4}
    assert {name: getattr(hp, name) for name in wanted} == wanted
