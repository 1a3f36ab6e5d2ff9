"""Presets of TAAC: all but the first two are the settings of its paper."""

LOCOMOTION = {
    "for": "the paper's settings for walking robots",
    "algo": {"stratified": True, "advantage_clip": (0.0, None)},
    "hp": {"actor_lr": 3e-4, "critic_lr": 3e-4, "alpha_lr": 3e-4, "target_entropy": -1.0},
    "train": {"learning_starts": 50_000},
}

PRESETS: dict[str, dict] = {
    "fast": {  # what the learning benchmark chose, docs/learning.md
        "for": "fast learning of walking robots on one core: layer norm, two small updates",
        "algo": {
            **LOCOMOTION["algo"],
            "normalize_observations": True,
            "critic.norm": "layer",
            "batch_size": 128,
            "lr_schedule": "linear",
        },
        "hp": {**LOCOMOTION["hp"], "actor_lr": 1e-3, "critic_lr": 1e-3},
        "train": {"learning_starts": 5000, "updates_per_step": 2},
    },
    "sparse": {
        "for": "small tasks with a goal that is seldom reached and worth about 100",
        "algo": {"batch_size": 64},
        "hp": {"actor_lr": 3e-4, "critic_lr": 3e-4, "alpha_lr": 1.5e-4, "reward_scale": 0.05},
        "train": {"learning_starts": 10_000},
    },
    "simple-control": {
        "for": "the paper's settings for small tasks, of 100k steps or more",
        "algo": {"stratified": True, "normalize_rewards": True},
        "hp": {"actor_lr": 1e-4, "critic_lr": 1e-4, "alpha_lr": 1e-4},
        "train": {"learning_starts": 10_000, "buffer_size": 100_000},
    },
    "locomotion": LOCOMOTION,
    "terrain": {
        "for": "the paper's settings for walking robots on rough ground, 32 at a time",
        "algo": {"stratified": True, "normalize_rewards": True, "batch_size": 4096, "n_step": 5},
        "hp": {"actor_lr": 5e-4, "critic_lr": 5e-4, "alpha_lr": 5e-4, "reward_clip": 1.0},
        "train": {
            "envs": 32,
            "learning_starts": 20_000,
            "buffer_size": 32 * 100_000,
            "updates_per_step": 1 / 160,
        },
    },
    "manipulation": {
        "for": "the paper's settings for robot arms, 38 at a time",
        "algo": {
            "stratified": True,
            "normalize_rewards": True,
            "hidden": (256, 256, 256),
            "batch_size": 4864,
            "target_period": 40,
        },
        "hp": {
            "actor_lr": 1e-3,
            "critic_lr": 1e-3,
            "alpha_lr": 1e-3,
            "reward_clip": 1.0,
            "gamma": 0.98,
            "tau": 0.05,
            "target_entropy": -0.9163,  # log 0.4
        },
        "train": {
            "envs": 38,
            "learning_starts": 10_000,
            "buffer_size": 38 * 20_000,
            "updates_per_step": 40 / 1900,
        },
    },
    "driving": {
        "for": "the paper's settings for cars in traffic, 4 at a time",
        "algo": {
            "stratified": True,
            "normalize_rewards": True,
            "hidden": (256,),
            "batch_size": 64,
            "n_step": 5,
        },
        "hp": {"actor_lr": 1e-4, "critic_lr": 1e-4, "alpha_lr": 1e-4},
        "train": {
            "envs": 4,
            "learning_starts": 10_000,
            "buffer_size": 4 * 100_000,
            "updates_per_step": 1 / 40,
        },
    },
}
