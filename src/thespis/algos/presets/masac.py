"""Presets of MASAC."""

from thespis.algos.presets.sac import RATES

PRESETS: dict[str, dict] = {
    "particles": {
        "for": "small teams such as PettingZoo's particles, 16 at a time",
        "algo": {"batch_size": 128},
        "hp": {"gamma": 0.95},
        "train": {"envs": 16, "updates_per_step": 0.16, "learning_starts": 5000},
    },
    "di-engine": {
        "for": "the numbers of DI-engine",
        "algo": {
            "hidden": (64, 64),
            "critic": "state",
            "log_derivative": "epsilon",
            "entropy_unit": "actions",
            "store_logits": True,
        },
        "hp": {**RATES, "alpha": 0.2, "discrete_entropy": -1.0},
        "train": {"warm_up": "policy", "learning_starts": 10_000},
    },
}
