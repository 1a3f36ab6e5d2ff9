"""Presets of SAC are what they say."""

from tests.algos import reference
from thespis.algos import SAC


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
