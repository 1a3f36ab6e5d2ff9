"""Presets of MASAC."""

from thespis.algos.presets.sac import DI_ENGINE, RATES

PRESETS: dict[str, dict] = {
    "particles": {
        "for": "small teams such as PettingZoo's particles, 16 at a time",
        "algo": {"batch_size": 128},
        "hp": {"gamma": 0.95},
        "train": {"envs": 16, "updates_per_step": 0.16, "learning_starts": 5000},
    },
    "di-engine": {
        **DI_ENGINE,
        "algo": {
            "hidden": (64, 64),
            "critic": "state",
            "log_derivative": "epsilon",
            "entropy_unit": "actions",
            "store_logits": True,
        },
        "hp": {**RATES, "alpha": 0.2, "discrete_entropy": -1.0},
    },
}
