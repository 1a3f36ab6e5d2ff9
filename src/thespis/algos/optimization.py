"""How parameters learn: the optimiser, and learning rates that change over the run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array

from thespis.nn.norms import batch_norms, with_statistics
from thespis.nn.train_state import Adam, TrainState


@dataclass(frozen=True)
class Optimization:
    """Chooses the optimiser of actor and critics, and the schedule of their learning rates."""

    optimizer: Literal["adam", "adamw"] = "adam"
    """Optimiser of actor and critics; adamw has a weight_decay."""
    adam_b1: float = 0.9
    """Share of the mean of gradients that Adam keeps at every update."""
    adam_b2: float = 0.999
    """Share of the mean of their squares that Adam keeps."""
    max_grad_norm: float | None = None
    """Length that gradients are cut to; by default they are not."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How learning rates go to lr_end of themselves over the run."""

    def train_state(self, params: Any) -> TrainState:
        """Returns parameters with the optimiser that was chosen, before any update."""
        return TrainState.create(
            params, Adam(self.adam_b1, self.adam_b2, max_norm=self.max_grad_norm)
        )

    def scheduled(self, hp, step: Array) -> Any:
        """Returns hyper-parameters whose learning rates are those of an update of the run."""
        if self.lr_schedule == "constant":
            return hp
        done = jnp.minimum(step.astype(jnp.float32) / jnp.maximum(hp.schedule_updates, 1.0), 1.0)
        left = 1.0 - done if self.lr_schedule == "linear" else 0.5 * (1.0 + jnp.cos(jnp.pi * done))
        factor = hp.lr_end + (1.0 - hp.lr_end) * left
        return replace(hp, **{n: x * factor for n, x in vars(hp).items() if n.endswith("_lr")})

    def apply_gradient(self, trained: TrainState, loss, hp, lr) -> tuple[TrainState, Any]:
        """Takes one step down `loss(params) -> loss, (networks, aux)` -> state, (loss, aux).

        The networks are those that the loss asked, with new running statistics if they have any.
        """

        def of_norms(params):
            value, (networks, aux) = loss(params)
            return value, (batch_norms(networks), aux)

        decay = hp.weight_decay if self.optimizer == "adamw" else None
        trained, (value, (norms, aux)) = trained.apply_gradient(of_norms, lr, decay)
        return replace(trained, params=with_statistics(trained.params, norms)), (value, aux)
