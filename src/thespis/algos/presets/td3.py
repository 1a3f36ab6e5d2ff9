"""Presets of TD3."""

from thespis.algos.presets.sac import FAST, LOCOMOTION, PBT_OF_QDAX, TUNED_BY_QDAX

PRESETS: dict[str, dict] = {
    "locomotion": LOCOMOTION,
    "fast": {
        "for": "fast learning on one core: batch norm, no targets, two small updates",
        "algo": {**FAST, "delay": 3},
        "train": {"learning_starts": 5000, "updates_per_step": 2},
    },
    "fast-td3": {
        "for": "FastTD3, for a hundred environments in JAX and more",
        "algo": {
            "critic_hidden": (1024, 512, 256),
            "hidden": (512, 256, 128),
            "head": "categorical",
            "value_bound": 250.0,
            "normalize_observations": True,
            "optimizer": "adamw",
            "noise_per_episode": True,
            "batch_size": 32_768,
        },
        "hp": {
            "actor_lr": 3e-4,
            "critic_lr": 3e-4,
            "weight_decay": 0.1,
            "tau": 0.1,
            "noise": 0.4,
            "noise_low": 0.001,
            "target_noise": 0.001,
        },
        "train": {
            "envs": 128,
            "updates_per_step": 2 / 128,
            "learning_starts": 32_768,
        },
    },
    "qdax": {
        "for": "the numbers of QDax, and its search spaces for PBT",
        "algo": {
            "order": "simultaneous",
            "critic_target": "every",
            "drop_truncated": True,
            "weight_init": "lecun",
        },
        "hp": {"actor_lr": 3e-4, "critic_lr": 3e-4},
        "train": {"warm_up": "policy"},
        "pbt": {
            **PBT_OF_QDAX,
            "tuned": (
                *TUNED_BY_QDAX,
                "noise_clip=uniform:0:1",
                "target_noise=uniform:0:1",
                "noise=uniform:0:0.2",
            ),
        },
    },
}
