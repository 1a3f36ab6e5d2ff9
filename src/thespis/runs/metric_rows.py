"""The rows of metrics.csv: their columns, and the values for every member."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from thespis.core import SelfRewarding, capability
from thespis.engine.evaluation import Episodes
from thespis.engine.loop import Learner
from thespis.engine.metric_sums import MetricSums
from thespis.runs.config import DEPENDENCE, DIVERSITY, RETURN, SIMILARITY
from thespis.xla.multihost import read


class Evaluation(NamedTuple):
    """The results of an evaluation of all members."""

    rows: list[dict[str, Any]]  # metrics of every member
    episodes: dict[str, np.ndarray]  # metrics of every episode [members, episodes]
    scores: dict[str, np.ndarray]  # metrics by which members may be compared [members]

    @classmethod
    def from_episodes(
        cls, played: Episodes, rewards: tuple[str, ...], similarity: np.ndarray | None
    ) -> Evaluation:
        """Returns the metrics of episodes; `rewards` are the names in a vector reward."""
        rest = {DIVERSITY: played.diversity, DEPENDENCE: played.dependence}
        episodes = {RETURN: played.returns, **{k: x for k, x in rest.items() if x is not None}}
        scores = {name: x.mean(1).astype(np.float32) for name, x in episodes.items()}
        if similarity is not None:
            scores[SIMILARITY] = similarity
        rows = [
            {
                **{name: x[m] for name, x in scores.items()},
                RETURN: returns.mean(),
                "eval/std_reward": returns.std(),
                "eval/mean_ep_length": played.lengths[m].mean(),
                **{f"{RETURN}/{n}": played.parts[m, :, i].mean() for i, n in enumerate(rewards)},
            }
            for m, returns in enumerate(played.returns)
        ]
        return cls(rows, episodes, scores)


def columns(
    algo: Any, measured: Iterable[str], hps: Any, varying: Iterable[str], imitates: bool
) -> list[str]:
    """Returns the names of all metrics but step and member, in the order of the file."""
    return [
        *(f"time/{k}" for k in ("transitions", "fps", "elapsed_s", "compile_s")),
        *(f"eval/{k}" for k in ("mean_reward", "std_reward", "mean_ep_length")),
        *(f"{RETURN}/{k}" for k in algo.spec.rewards),
        *([SIMILARITY] if imitates else []),
        *((DIVERSITY, DEPENDENCE) if capability(algo, SelfRewarding) else ()),
        *sorted([*measured, "train/n_updates", "replay/size"]),
        *(f"hparams/{k}" for k in vars(hps)),
        *(f"hparams_asked/{k}" for k in varying),
    ]


def training_rows(
    learner: Learner,
    sums: MetricSums,
    times: dict[str, float],
    used: dict[str, np.ndarray],
    asked: dict[str, np.ndarray],
) -> list[dict[str, Any]]:
    """Returns the metrics of every member that need no evaluation.

    `used` and `asked` are hyper-parameters [members]: those in updates, and those of the tuner.
    """
    transitions = read(learner.actors.transitions)
    members, envs = transitions.shape
    common = times | {
        "train/n_updates": int(learner.clock.updates),
        "replay/size": int(learner.replay.size) * envs,
    }
    return [
        {
            **common,
            "time/transitions": transitions[m].sum(),
            **sums.means(m),
            **{f"hparams/{name}": x[m] for name, x in used.items()},
            **{f"hparams_asked/{name}": x[m] for name, x in asked.items()},
        }
        for m in range(members)
    ]
