"""Presets of MASAC are what they say."""

from tests.algos import reference
from thespis.algos import MASAC


def chosen(preset) -> dict:
    """Every static choice and hyper-parameter under a preset."""
    given = MASAC.presets[preset]
    return vars(MASAC(reference.team_spec(), **given["algo"])) | vars(MASAC.Hyper(**given["hp"]))


def test_preset_particles():
    got = chosen("particles")
    assert (got["batch_size"], got["gamma"]) == (128, 0.95)
    train = MASAC.presets["particles"]["train"]
    assert train == {"envs": 16, "updates_per_step": 0.16, "learning_starts": 5000}


def test_preset_di_engine():
    got = chosen("di-engine")
    wanted = {
        "hidden": (64, 64),
        "critic": "state",
        "log_derivative": "epsilon",
        "entropy_unit": "actions",
        "store_logits": True,
        "alpha": 0.2,
        "discrete_entropy": -1.0,
        **dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), 3e-4),
    }
    assert {name: got[name] for name in wanted} == wanted
    train = MASAC.presets["di-engine"]["train"]
    assert train == {"warm_up": "policy", "learning_starts": 10_000}
