"""Presets of SAC."""

RATES = {"actor_lr": 3e-4, "critic_lr": 3e-4, "alpha_lr": 3e-4}  # of other libraries

PRESETS: dict[str, dict] = {
    "sparse": {
        "for": "small or rare rewards, for which a temperature of 1 would pay more",
        "algo": {"noise_repeat": 16},
        "hp": {"alpha": 0.05},
        "train": {"learning_starts": 5000},
    },
    "locomotion": {
        "for": "walking robots: 10,000 random steps first",
        "train": {"learning_starts": 10_000},
    },
    "qdax": {
        "for": "the numbers of QDax, and its search spaces for PBT",
        "algo": {
            "std": "softplus",
            "temperature": "exp",
            "order": "simultaneous",
            "critic_loss": "half-mean",
            "drop_truncated": True,
            "weight_init": "lecun",
        },
        "hp": {**RATES, "gamma": 0.97, "target_entropy": -0.5},
        "train": {"warm_up": "policy"},
        "pbt": {
            "tuned": (
                "gamma=uniform:0.9:1",
                "actor_lr=uniform:3e-5:3e-3",
                "critic_lr=uniform:3e-5:3e-3",
                "alpha_lr=uniform:3e-5:3e-3",
                "reward_scale=uniform:0.1:10",
            ),
            "best": 0.2,
            "replaced": 0.4,
            "explore": "resample",
            "replay": "parent",
        },
    },
    "di-engine": {
        "for": "the numbers of DI-engine",
        "algo": {"hidden": (64, 64), "log_derivative": "epsilon", "init_w": 3e-3},
        "hp": {**RATES, "alpha": 0.2},
        "train": {"warm_up": "policy", "learning_starts": 10_000},
    },
}
