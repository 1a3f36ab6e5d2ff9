"""Hyper-parameters that several algorithms have, each declared once with its prior and range.

A `Hyper` class inherits them; where its default differs it declares the field again. Fields come
in the order of the bases from right to left. Populations draw in that order, so it must not change.
"""

from __future__ import annotations

from thespis.algos.actor_critic import ActorCritic
from thespis.tuning.hyper import LogUniform, OneMinusLogUniform, prior


class LearningRates(ActorCritic.Hyper):
    actor_lr: float = prior(1e-3, LogUniform(3e-5, 3e-3), "actor's learning rate", low=0)
    critic_lr: float = prior(1e-3, LogUniform(3e-5, 3e-3), "critics' learning rate", low=0)


class SoftLearningRates(LearningRates):
    alpha_lr: float = prior(1e-3, LogUniform(3e-5, 3e-3), "temperature's learning rate", low=0)


class Discounting(ActorCritic.Hyper):
    gamma: float = prior(0.99, OneMinusLogUniform(1e-3, 1e-1), "discount", low=0, high=1)
    tau: float = prior(0.005, LogUniform(1e-3, 1e-1), "rate of the target", low=0, high=1)
    reward_scale: float = prior(1.0, LogUniform(0.1, 10), "factor of the reward")
