"""Training as users type it: a learning test has no settings of its own."""

from typing import Any

import thespis

SIZES = {"env", "steps", "seeds", "members", "seed", "envs", "hidden", "batch_size"}
METHODS = {"preset", "objective", "critic", "bc_steps", "pbt", "demos", "demo_episodes"}
WATCHING = {"out", "eval_freq", "eval_episodes", "stop_reward"}
SILENT = {"monitor_gradients", "monitor_policy"}


def train(algo: str, **given: Any) -> Any:
    """Defaults or a preset by name, which of the algorithm's methods, and sizes: nothing else."""
    more = given.keys() - SIZES - METHODS - WATCHING - SILENT
    assert not more, f"{', '.join(sorted(more))}: give it to a preset, or to the defaults"
    return thespis.train(algo, **given, progress=False)
