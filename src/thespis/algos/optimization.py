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
    """The optimiser of actor and critics, and the schedule of their learning rates."""

    optimizer: Literal["adam", "adamw"] = "adam"
    """Optimiser of actor and critics; adamw uses weight_decay."""
    adam_b1: float = 0.9
    """Adam's decay of the first moment, beta 1."""
    adam_b2: float = 0.999
    """Adam's decay of the second moment, beta 2."""
    max_grad_norm: float | None = None
    """Maximum norm of gradients; by default they are not clipped."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Schedule of the learning rates, from their initial values to the fraction lr_end of these."""

    def train_state(self, params: Any) -> TrainState:
        """Returns the train state of new parameters, with the chosen optimiser."""
        return TrainState.create(
            params, Adam(self.adam_b1, self.adam_b2, max_norm=self.max_grad_norm)
        )

    def scheduled(self, hp, step: Array) -> Any:
        """Returns hyper-parameters with the learning rates of update number `step`."""
        if self.lr_schedule == "constant":
            return hp
        done = jnp.minimum(step.astype(jnp.float32) / jnp.maximum(hp.schedule_updates, 1.0), 1.0)
        left = 1.0 - done if self.lr_schedule == "linear" else 0.5 * (1.0 + jnp.cos(jnp.pi * done))
        factor = hp.lr_end + (1.0 - hp.lr_end) * left
        return replace(hp, **{n: x * factor for n, x in vars(hp).items() if n.endswith("_lr")})

    def apply_gradient(self, trained: TrainState, loss, hp, lr) -> tuple[TrainState, Any]:
        """Takes one gradient step on `loss(params) -> loss, (networks, aux)` -> state, (loss, aux).

        The networks are those after the forward pass: their running statistics are taken over.
        """

        def loss_and_norms(params):
            value, (networks, aux) = loss(params)
            return value, (batch_norms(networks), aux)

        decay = hp.weight_decay if self.optimizer == "adamw" else None
        trained, (value, (norms, aux)) = trained.apply_gradient(loss_and_norms, lr, decay)
        return replace(trained, params=with_statistics(trained.params, norms)), (value, aux)
