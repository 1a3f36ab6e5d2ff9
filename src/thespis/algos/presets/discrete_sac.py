"""Presets of Discrete SAC."""

from thespis.algos.presets.sac import DI_ENGINE, RATES

PRESETS: dict[str, dict] = {
    "di-engine": {
        **DI_ENGINE,
        "algo": {
            "hidden": (64, 64),
            "entropy_unit": "actions",
            "store_logits": True,
            "noise_repeat": 1,
        },
        "hp": {
            **RATES,
            "tau": 0.005,
            "alpha": 0.2,
            "target_entropy": -1.0,
            "epsilon_start": 0.0,
            "epsilon_decay": 1e4,
        },
    },
}
