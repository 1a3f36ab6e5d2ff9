"""Presets of SQIL."""

from thespis.algos.presets.sac import RATES

PRESETS: dict[str, dict] = {
    "di-engine": {
        "for": "the numbers of DI-engine",
        "algo": {
            "hidden": (64, 64),
            "temperature": "log",
            "absorbing": False,
            "log_derivative": "epsilon",
            "init_w": 3e-3,
        },
        "hp": {**RATES, "alpha": 0.2, "target_entropy": -1.0},
        "train": {"warm_up": "policy", "learning_starts": 10_000},
    },
}
