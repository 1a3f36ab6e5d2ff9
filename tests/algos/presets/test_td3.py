"""Presets of TD3 are what they say."""

from tests.algos import reference
from thespis.algos import SAC, TD3


def test_defaults_are_the_papers_and_preset_qdax_differs_where_that_does():
    shared = {
        "delay": 2,
        "critics": 2,
        "hidden": (256, 256),
        "batch_size": 256,
        "ignore_done": False,
        "gamma": 0.99,
        "tau": 0.005,
        "reward_scale": 1.0,
        "noise": 0.1,
        "target_noise": 0.2,
        "noise_clip": 0.5,
    }
    ours = {
        "order": "sequential",
        "critic_target": "delayed",
        "drop_truncated": False,
        "actor_lr": 1e-3,
        "critic_lr": 1e-3,
    }
    qdax = {
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "order": "simultaneous",
        "critic_target": "every",
        "drop_truncated": True,
        "weight_init": "lecun",
    }
    for preset, wanted in (({}, shared | ours), (TD3.presets["qdax"], shared | qdax)):
        got = vars(TD3(reference.spec(), **preset.get("algo", {})))
        got = got | vars(TD3.Hyper(**preset.get("hp", {})))
        assert {name: got[name] for name in wanted} == wanted
    assert TD3.presets["qdax"]["train"] == {"warm_up": "policy"}


def test_preset_fast_is_that_of_sac():
    """The arm `td3+fast` of benchmarks/learning.toml."""
    fast, of_sac = TD3.presets["fast"], SAC.presets["fast"]
    every = {"actor_every": 3}
    assert fast["algo"] | every == of_sac["algo"] | {"delay": 3}
    assert fast["train"] == of_sac["train"]
