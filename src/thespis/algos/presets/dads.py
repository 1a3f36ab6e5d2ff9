"""Presets of DADS."""

from thespis.algos.presets import sac
from thespis.algos.presets.sac import RATES, rates

QDAX = sac.PRESETS["qdax"]

PRESETS: dict[str, dict] = {
    "qdax": {
        **QDAX,
        "algo": {
            **QDAX["algo"],
            "skills": 5,
            "skill_kind": "one-hot",
            "assignment": "equal",
            "policy_sees": "observation",
            "dynamics_sees": "none",
            "dynamics_data": "replay",
            "normalize_input": False,
        },
        "hp": {**QDAX["hp"], "dynamics_lr": 3e-4},
    },
    "off-dads": {
        "for": "the numbers of the paper on off-policy DADS",
        "algo": {"hidden": (512, 512), "dynamics_data": "weighted", "dynamics_period": 8},
        "hp": {**RATES, "dynamics_lr": 3e-4, "reward_scale": 10.0},
        "train": {"learning_starts": 2000, "buffer_size": 10_000, "updates_per_step": 64 / 500},
    },
    "metra": {
        "for": "METRA with the numbers of its paper",
        "algo": {
            "objective": "metra",
            "hidden": (1024, 1024),
            "policy_sees": "observation",
            "dynamics_sees": "observation",
            "dynamics_data": "replay",
            "normalize_input": False,
        },
        "hp": {
            **rates(1e-4),
            "dynamics_lr": 1e-4,
            "alpha": 0.01,
        },
        "train": {"envs": 8, "updates_per_step": 50 / 1600},
    },
}
