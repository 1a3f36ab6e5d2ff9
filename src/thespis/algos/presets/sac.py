"""Presets of SAC."""

from typing import Any

CALM = {"alpha": 0.01, "target_entropy": -0.5}  # little exploration beyond the policy's noise


def rates(lr: float) -> dict[str, float]:
    """Returns the same learning rate for actor, critics and temperature."""
    return {"actor_lr": lr, "critic_lr": lr, "alpha_lr": lr}


RATES = rates(3e-4)  # as in other libraries
LOCOMOTION = {
    "for": "walking robots: 10,000 random steps first",
    "train": {"learning_starts": 10_000},
}
PBT_OF_QDAX = {"best": 0.2, "replaced": 0.4, "explore": "resample", "replay": "parent"}
TUNED_BY_QDAX = (
    "gamma=uniform:0.9:1",
    "actor_lr=uniform:3e-5:3e-3",
    "critic_lr=uniform:3e-5:3e-3",
)
DI_ENGINE = {
    "for": "the numbers of DI-engine",
    "train": {"warm_up": "policy", "learning_starts": 10_000},
}


def networks(**choices: Any) -> dict[str, Any]:
    """Returns the same choices for the networks of actor and critics."""
    return {f"{who}.{name}": x for who in ("actor", "critic") for name, x in choices.items()}


BATCH = networks(norm="batch", input_norm="batch")
LAYER = {"critic.norm": "layer"}

# CrossQ, Bhatt et al. 2024, https://arxiv.org/abs/1902.05605, but for the sizes of critics and
# an actor that is updated every third time.
NO_TARGETS = {
    **BATCH,
    **networks(norm_place="after", renorm=100_000),
    "target_update": "none",
    "adam_b1": 0.5,
}
CROSSQ = {**NO_TARGETS, "actor_every": 3}
# What the learning benchmark chose, docs/learning.md.
FAST = {**NO_TARGETS, "critic.unit": "hidden", "batch_size": 128, "lr_schedule": "linear"}
# SimBa, Lee et al. 2025, https://arxiv.org/abs/2410.09754.
SIMBA = {
    **networks(body="simba", norm="layer", final_norm="layer", init="orthogonal"),
    "actor.blocks": 1,
    "normalize_observations": True,
    "std": "tanh",
    "log_std_range": (-10.0, 2.0),
    "optimizer": "adamw",
}
# XQC, Palenicek et al. 2025, https://arxiv.org/abs/2509.25174.
XQC = {
    **BATCH,
    **networks(unit="weights", init="orthogonal"),
    "actor_every": 3,
    "log_std_range": (-10.0, 2.0),
    "reward_norm": "std",
}
# SimbaV2, Lee et al. 2025, https://arxiv.org/abs/2502.15280.
SIMBAV2 = {
    **networks(body="simbav2"),
    "actor.blocks": 1,
    "normalize_observations": True,
    "head": "categorical",
    "reward_norm": "bounded",
    "std": "tanh",
    "log_std_range": (-10.0, 2.0),
    "lr_schedule": "linear",
    "order": "actor-first",
}
# FlashSAC, 2026, https://arxiv.org/abs/2604.04539.
FLASHSAC = {
    **BATCH,
    **networks(body="flash", unit="all", final_norm="rms", init="orthogonal", epsilon=1e-5),
    "actor_every": 2,
    "head": "categorical",
    "reward_norm": "bounded",
    "std": "tanh",
    "log_std_range": (-10.0, 2.0),
    "lr_schedule": "cosine",
    "noise_repeat": 16,
    "order": "actor-first",
}

PRESETS: dict[str, dict] = {
    "sparse": {
        "for": "small or rare rewards, for which a temperature of 1 would pay more",
        "algo": {"noise_repeat": 16},
        "hp": {"alpha": 0.05},
        "train": {"learning_starts": 5000},
    },
    "locomotion": LOCOMOTION,
    "fast": {
        "for": "fast learning on one core: a small CrossQ, two updates of half a batch per step",
        "algo": {**FAST, "actor_every": 3},
        "train": {"learning_starts": 5000, "updates_per_step": 2},
    },
    "crossq": {
        "for": "few steps: CrossQ, wide critics with batch norm and no targets",
        "algo": {**CROSSQ, "critic_hidden": (2048, 2048)},
        "train": {"learning_starts": 5000},
    },
    "crossq-cpu": {
        "for": "CrossQ with critics as small as SAC's, at SAC's price",
        "algo": CROSSQ,
        "train": {"learning_starts": 5000},
    },
    "droq": {
        "for": "few steps: DroQ, dropout in critics and 20 updates per step",
        "algo": {**LAYER, "critic.dropout": 0.01, "actor_reduce": "mean", "actor_every": 20},
        "hp": RATES,
        "train": {"learning_starts": 5000, "updates_per_step": 20},
    },
    "redq": {
        "for": "few steps: REDQ, ten critics and 20 updates per step",
        "algo": {"critics": 10, "subset": 2, "actor_reduce": "mean", "actor_every": 20},
        "hp": RATES,
        "train": {"learning_starts": 5000, "updates_per_step": 20},
    },
    "tqc": {
        "for": "truncated quantile critics, against values that are too high",
        "algo": {
            "critics": 5,
            "critic_hidden": (512, 512, 512),
            "head": "quantile",
            "target_reduce": "truncated",
            "actor_reduce": "mean",
        },
        "hp": RATES,
        "train": {"learning_starts": 10_000},
    },
    "simba": {
        "for": "SimBa, residual networks with layer norm, two updates per step",
        "algo": {**SIMBA, "critic.hidden": (512,), "actor.hidden": (128,)},
        "hp": {**CALM, **rates(1e-4)},
        "train": {"learning_starts": 5000, "updates_per_step": 2},
    },
    "simba-cpu": {
        "for": "a small SimBa for one core",
        "algo": {
            **SIMBA,
            "critic.hidden": (128,),
            "actor.hidden": (64,),
            "critic.blocks": 1,
        },
        "hp": CALM,
        "train": {"learning_starts": 5000},
    },
    "simbav2": {
        "for": "SimbaV2, networks on the unit sphere, two updates per step",
        "algo": {**SIMBAV2, "critic.hidden": (512,), "actor.hidden": (128,)},
        "hp": {**CALM, **rates(1e-4), "lr_end": 0.5, "gamma": 0.995},
        "train": {"learning_starts": 5000, "updates_per_step": 2},
    },
    "xqc": {
        "for": "XQC: batch norm, weights of unit length, categorical critics, two updates per step",
        "algo": {
            **XQC,
            "critic_hidden": (512,) * 4,
            "hidden": (256,) * 4,
            "head": "categorical",
            "lr_schedule": "linear",
        },
        "hp": {**CALM, **RATES, "gamma": 0.995},
        "train": {"learning_starts": 5000, "updates_per_step": 2},
    },
    "flashsac": {
        "for": "FlashSAC: residual networks with batch norm, weights of unit length",
        "algo": {
            **FLASHSAC,
            "critic.hidden": (256,),
            "actor.hidden": (128,),
            "batch_size": 512,
        },
        "hp": {**CALM, **RATES, "tau": 0.01, "lr_end": 0.5, "target_entropy": -0.478},
        "train": {"learning_starts": 10_000},
    },
    "flashsac-cpu": {
        "for": "a small FlashSAC for one core",
        "algo": {
            **FLASHSAC,
            **networks(blocks=1),
            "critic.hidden": (128,),
            "actor.hidden": (64,),
            "categorical_target": "two-hot",
        },
        "hp": {**CALM, "tau": 0.01, "lr_end": 0.5, "target_entropy": -0.478},
        "train": {"learning_starts": 5000},
    },
    "fast-sac": {
        "for": "FastSAC, for a thousand environments in JAX at once",
        "algo": {
            **networks(norm="layer", activation="silu"),
            "critic_hidden": (768, 384, 192),
            "hidden": (512, 256, 128),
            "head": "categorical",
            "value_bound": 20.0,
            "normalize_observations": True,
            "actor_every": 4,
            "actor_reduce": "mean",
            "std": "tanh",
            "log_std_range": (-5.0, 0.0),
            "init_w": 0.0,
            "optimizer": "adamw",
            "adam_b2": 0.95,
            "batch_size": 8192,
        },
        "hp": {
            **RATES,
            "weight_decay": 1e-3,
            "gamma": 0.97,
            "tau": 0.125,
            "alpha": 0.001,
            "target_entropy": 0.0,
        },
        "train": {
            "envs": 1024,
            "updates_per_step": 8 / 1024,
            "buffer_size": 2**20,
            "learning_starts": 10 * 1024,
        },
    },
    "xqc-cpu": {
        "for": "a small XQC for one core: batch norm, weights of unit length",
        "algo": XQC,
        "hp": CALM,
        "train": {"learning_starts": 5000},
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
            **PBT_OF_QDAX,
            "tuned": (*TUNED_BY_QDAX, "alpha_lr=uniform:3e-5:3e-3", "reward_scale=uniform:0.1:10"),
        },
    },
    "di-engine": {
        **DI_ENGINE,
        "algo": {"hidden": (64, 64), "log_derivative": "epsilon", "init_w": 3e-3},
        "hp": {**RATES, "alpha": 0.2},
    },
}
