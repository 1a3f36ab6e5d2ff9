"""Presets of SQIL are what they say."""

from tests.algos import reference
from thespis.algos import SQIL


def test_preset_di_engine():
    preset = SQIL.presets["di-engine"]
    algo = SQIL(reference.spec(), **preset["algo"])
    got = vars(algo.base) | vars(algo) | vars(SQIL.Hyper(**preset["hp"]))
    wanted = {
        "objective": "sqil",
        "absorbing": False,  # rewards are 0 and 1, ends or not
        "std": "exp",
        "log_derivative": "epsilon",
        "critic_loss": "sum",
        "order": "sequential",
        "temperature": "log",
        "target_entropy": -1.0,
        "alpha": 0.2,
        "hidden": (64, 64),
        "critics": 2,
        "weight_init": "torch",
        "init_w": 3e-3,
        "store_policy": False,
        "gamma": 0.99,
        "tau": 0.005,
        "reward_scale": 1.0,
        **dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), 3e-4),
        "batch_size": 256,
        "n_step": 1,
        "monitor_gradients": True,
        "monitor_policy": True,
    }
    assert {name: got[name] for name in wanted} == wanted
    assert preset["train"] == {"warm_up": "policy", "learning_starts": 10_000}
