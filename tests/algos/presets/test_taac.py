"""Presets of TAAC are the settings of its paper, and what the learning benchmark chose."""

import pytest

from tests.algos import reference
from thespis.algos import TAAC
from thespis.runs import config as configs
from thespis.tuning import hyper

SIMPLE = {"n_step": 3, "batch_size": 256, "hidden": (256, 256), "normalize_rewards": True}
PAPER = {
    "simple-control": (SIMPLE, 1e-4, {"reward_clip": 5.0}),
    "locomotion": (
        SIMPLE | {"normalize_rewards": False, "advantage_clip": (0.0, None)},
        3e-4,
        {"target_entropy": -1.0},
    ),
    "terrain": (SIMPLE | {"n_step": 5, "batch_size": 4096}, 5e-4, {"reward_clip": 1.0}),
    "manipulation": (
        SIMPLE | {"batch_size": 4864, "hidden": (256,) * 3, "target_period": 40},
        1e-3,
        {"reward_clip": 1.0, "gamma": 0.98, "tau": 0.05, "target_entropy": -0.9163},
    ),
    "driving": (
        SIMPLE | {"n_step": 5, "batch_size": 64, "hidden": (256,)},
        1e-4,
        {"reward_clip": 5.0},
    ),
}
USUAL = {"gamma": 0.99, "tau": 0.005, "alpha": 1.0, "target_switch_entropy": 0.1985}


@pytest.mark.parametrize("name", PAPER)
def test_presets_are_the_papers_settings(name):
    options, rate, numbers = PAPER[name]
    preset = TAAC.presets[name]
    algo = TAAC(reference.spec(), **preset["algo"])
    assert {key: getattr(algo, key) for key in options} == options
    hyper.check(TAAC.Hyper, preset["hp"])
    hp = vars(TAAC.Hyper(**preset["hp"]))
    wanted = USUAL | dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), rate) | numbers
    assert {key: hp[key] for key in wanted} == wanted
    config = configs.make("taac", {"env": "jax:pendulum", "preset": name, "steps": 200_000})
    assert config.learning_starts == {"locomotion": 50_000, "terrain": 20_000}.get(name, 10_000)


def test_preset_fast_is_what_the_learning_benchmark_chose():
    """The arm `taac+fast` of benchmarks/learning.toml: `locomotion` with other choices."""
    fast, paper = TAAC.presets["fast"], TAAC.presets["locomotion"]
    other = {"normalize_observations": True, "critic.norm": "layer", "lr_schedule": "linear"}
    assert fast["algo"] == paper["algo"] | other | {"batch_size": 128}
    assert fast["hp"] == paper["hp"] | {"actor_lr": 1e-3, "critic_lr": 1e-3}
    assert fast["train"] == {"learning_starts": 5000, "updates_per_step": 2}
