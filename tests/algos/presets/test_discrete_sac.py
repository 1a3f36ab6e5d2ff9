"""Presets of Discrete SAC are what they say."""

import jax.numpy as jnp
import numpy as np

from tests.algos import reference
from thespis.algos import DiscreteSAC
from thespis.nn.distributions import Categorical


def test_preset_di_engine():
    """The original's target, -n, as a multiple of the number of actions."""
    given_ = DiscreteSAC.presets["di-engine"]
    algo = DiscreteSAC(reference.discrete_spec(3), **given_["algo"])
    hp = DiscreteSAC.Hyper(**given_["hp"])
    got = vars(algo) | vars(hp)
    wanted = {
        "temperature": "log",
        "reduce": "min",
        "critic_entropy": True,
        "clip_q": False,
        "store_logits": True,
        "noise_repeat": 1,
        "epsilon_start": 0.0,
        "epsilon_end": 0.0,
        "epsilon_decay": 1e4,
        "drop_truncated": False,
        "ignore_done": False,
        "critics": 2,
        "hidden": (64, 64),
        "critic_hidden": None,
        "weight_init": "torch",
        "gamma": 0.99,
        "tau": 0.005,
        "alpha": 0.2,
        "reward_scale": 1.0,
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "alpha_lr": 3e-4,
        "batch_size": 256,
        "n_step": 1,
        "normalize_observations": False,
    }
    assert {name: got[name] for name in wanted} == wanted
    np.testing.assert_allclose(
        algo.target_entropies(hp, Categorical.from_logits(jnp.zeros((1, 3)))), [-3]
    )
    assert given_["train"] == {"warm_up": "policy", "learning_starts": 10_000}
