"""Hyper-parameters that several algorithms have, each declared once with its prior and range.

A `Hyper` class inherits them, and declares a field again to change its default. Fields are in the
order of the bases from right to left, in which populations draw them: it must not change.
"""

from __future__ import annotations

from thespis.algos.actor_critic import ActorCritic
from thespis.tuning.hyper import LogUniform, OneMinusLogUniform, prior


class LearningRates(ActorCritic.Hyper):
    actor_lr: float = prior(1e-3, LogUniform(3e-5, 3e-3), "learning rate of the actor", low=0)
    critic_lr: float = prior(1e-3, LogUniform(3e-5, 3e-3), "learning rate of the critics", low=0)


class SoftLearningRates(LearningRates):
    alpha_lr: float = prior(1e-3, LogUniform(3e-5, 3e-3), "learning rate of the temperature", low=0)


class Discounting(ActorCritic.Hyper):
    gamma: float = prior(0.99, OneMinusLogUniform(1e-3, 1e-1), "discount factor", low=0, high=1)
    tau: float = prior(
        0.005, LogUniform(1e-3, 1e-1), "Polyak rate of the target networks", low=0, high=1
    )
    reward_scale: float = prior(1.0, LogUniform(0.1, 10), "factor by which rewards are scaled")
