"""SBX: Stable-Baselines3 in JAX."""

import jax
import sbx
from flax.training.train_state import TrainState

from workers.learn_baselines import main


def wait(model) -> None:
    """Until the networks are there: TQC has two critics where others have one of two heads."""
    states = [x for x in vars(model.policy).values() if isinstance(x, TrainState)]
    assert len(states) > 1
    jax.block_until_ready(states)


if __name__ == "__main__":
    main(sbx, "sbx-rl", "jax", "jaxlib", "optax", "flax", wait=wait)
