"""Presets of SAC are what they say."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.workers.operations import products
from tests.algos import reference
from thespis.algos import SAC
from thespis.core import Transition
from thespis.values import ungrouped


def chosen(preset) -> dict:
    """Every static choice and hyper-parameter under a preset."""
    given = SAC.presets[preset]
    return vars(SAC(reference.spec(), **given["algo"])) | vars(SAC.Hyper(**given["hp"]))


def test_preset_qdax():
    got = chosen("qdax")
    wanted = {
        "std": "softplus",
        "log_derivative": "exact",
        "critic_loss": "half-mean",
        "temperature": "exp",
        "target_entropy": -0.5,
        "order": "simultaneous",
        "drop_truncated": True,
        "ignore_done": False,
        "critics": 2,
        "hidden": (256, 256),
        "weight_init": "lecun",
        "init_w": None,
        "gamma": 0.97,
        "tau": 0.005,
        "alpha": 1.0,
        "reward_scale": 1.0,
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "alpha_lr": 3e-4,
        "normalize_observations": False,
        "n_step": 1,
    }
    assert {name: got[name] for name in wanted} == wanted
    assert SAC.presets["qdax"]["train"] == {"warm_up": "policy"}


def test_preset_di_engine():
    got = chosen("di-engine")
    wanted = {
        "std": "exp",
        "log_derivative": "epsilon",
        "critic_loss": "sum",
        "temperature": "log",
        "target_entropy": -1.0,
        "order": "sequential",
        "drop_truncated": False,
        "ignore_done": False,
        "critics": 2,
        "hidden": (64, 64),
        "critic_hidden": None,
        "weight_init": "torch",
        "init_w": 3e-3,
        "gamma": 0.99,
        "tau": 0.005,
        "alpha": 0.2,
        "reward_scale": 1.0,
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "alpha_lr": 3e-4,
        "batch_size": 256,
        "n_step": 1,
    }
    assert {name: got[name] for name in wanted} == wanted
    assert SAC.presets["di-engine"]["train"] == {"warm_up": "policy", "learning_starts": 10_000}


def test_preset_fast_is_what_the_learning_benchmark_chose():
    """The arm `fast` of benchmarks/learning.toml: `crossq-cpu` with four other choices."""
    fast, small = SAC.presets["fast"], SAC.presets["crossq-cpu"]
    other = {"critic.unit": "hidden", "batch_size": 128, "lr_schedule": "linear"}
    assert fast["algo"] == small["algo"] | other
    assert fast["train"] == small["train"] | {"updates_per_step": 2}


@pytest.mark.parametrize(("preset", "most"), [("crossq-cpu", 1.0), ("fast", 1.0), ("xqc-cpu", 1.3)])
def test_small_presets_cost_little_more_than_sac(preset, most):
    """Matrix products per environment step, which take most of the time at these sizes."""
    assert operations(preset) <= most * operations("locomotion")


def operations(preset) -> float:
    """Operations in the products of all updates that a step of HalfCheetah brings."""
    given = SAC.presets[preset]
    algo = SAC(reference.spec(17, 6), **ungrouped(SAC, given.get("algo", {})))
    hp, n, key, step = algo.Hyper(), algo.batch_size, jax.random.key(0), jnp.asarray(0)
    one, obs = jnp.zeros(n), jnp.zeros((n, 17))
    batch = Transition(obs, jnp.zeros((n, 6)), one, obs, one, one, one, one, one)
    state = jax.eval_shape(algo.init, key, hp)
    update = jax.make_jaxpr(algo.update)(state, hp, batch, key, step).jaxpr
    return products(update, algo.actor_every) * given["train"].get("updates_per_step", 1)
