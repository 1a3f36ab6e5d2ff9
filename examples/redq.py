"""REDQ: an algorithm of one's own in three methods. Chen et al. 2021, arxiv.org/abs/2101.05982.

Many critics learn; a random few of them make the target, and the actor maximises their mean. With
20 updates of the critics per step it needs far fewer steps than SAC. The library has it too
(`thespis train sac --preset redq`). In this folder:

    thespis train redq:REDQ --env jax:pendulum --steps 4000 --updates-per-step 20 --hidden 64 64
"""

from __future__ import annotations

from dataclasses import dataclass

from jax import random

from thespis import SAC


@dataclass(frozen=True)
class REDQ(SAC):
    """SAC with a randomised ensemble of critics."""

    critics: int = 10
    """Number of critics."""
    asked: int = 2
    """Critics, drawn at random, of which the target has the smallest value."""
    actor_every: int = 20
    """Updates of the critics per update of the actor and the temperature."""

    def reduce_target(self, out, then, key):
        chosen = random.choice(key, self.critics, (self.asked,), replace=False)
        return out[chosen].min(0)

    def reduce_actor(self, out, key):
        return out.mean(0)
