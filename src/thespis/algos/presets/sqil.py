"""Presets of SQIL."""

from thespis.algos.presets.sac import DI_ENGINE, RATES

PRESETS: dict[str, dict] = {
    "di-engine": {
        **DI_ENGINE,
        "algo": {
            "hidden": (64, 64),
            "temperature": "log",
            "absorbing": False,
            "log_derivative": "epsilon",
            "init_w": 3e-3,
        },
        "hp": {**RATES, "alpha": 0.2, "target_entropy": -1.0},
    },
}
