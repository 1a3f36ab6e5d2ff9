"""Presets of DADS are what they say."""

from tests.algos.test_dads import ENV, make
from thespis.algos import DADS
from thespis.runs import config as configs
from thespis.values import ungrouped


def test_preset_qdax():
    given = {"env": "jax:pointmass", "preset": "qdax", "steps": 2000, "envs": 10}
    config = configs.make("dads", given)
    algo = DADS(ENV.spec, **ungrouped(DADS, config.options))
    assert (algo.skills, algo.skill_kind, algo.assignment) == (5, "one-hot", "equal")
    assert (algo.components, algo.dynamics_std, algo.dynamics_period) == (4, "fixed", 1)
    assert (algo.views.size("policy_sees"), algo.views.size("dynamics_sees")) == (2, 0)
    assert (algo.order, algo.std, algo.dynamics_data) == ("simultaneous", "softplus", "replay")
    assert config.hp["gamma"] == 0.97


def test_preset_off_dads():
    config = configs.make("dads", {"env": "jax:pointmass", "preset": "off-dads", "steps": 20_000})
    algo = DADS(ENV.spec, **ungrouped(DADS, config.options))
    assert (algo.skill_kind, algo.dynamics_data, algo.alternatives) == ("uniform", "weighted", 100)
    assert (config.buffer_size, algo.hidden) == (10_000, (512, 512))
    assert algo.Hyper().importance_clip == 10


def test_preset_metra():
    config = configs.make("dads", {"env": "jax:pointmass", "preset": "metra", "steps": 20_000})
    algo = DADS(make().spec, **ungrouped(DADS, config.options))
    assert (algo.objective, algo.hidden, algo.dynamics_data) == ("metra", (1024, 1024), "replay")
    assert (algo.views.size("policy_sees"), algo.views.size("dynamics_sees")) == (3, 3)
    assert (config.envs, config.hp["dynamics_lr"], algo.Hyper().multiplier) == (8, 1e-4, 30)
