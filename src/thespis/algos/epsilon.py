"""Epsilon-greedy exploration: a random legal action, with a probability that decays."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array

from thespis.core import Key
from thespis.nn.distributions import Categorical
from thespis.tuning.hyper import LogUniform, Uniform, prior
from thespis.xla import fast_random

Schedule = Literal["linear", "exponential"]  # from epsilon_start to epsilon_end


def start_prior(default: float, special: bool = False) -> Any:
    """Declares the hyper-parameter epsilon_start."""
    about = "initial probability of a random discrete action"
    return prior(default, Uniform(0, 1), about, 0, 1, special=special)


def end_prior(default: float, special: bool = False) -> Any:
    """Declares the hyper-parameter epsilon_end."""
    about = "final probability of a random discrete action"
    return prior(default, Uniform(0, 0.1), about, 0, 1, special=special)


def decay_prior(default: float, special: bool = False) -> Any:
    """Declares the hyper-parameter epsilon_decay."""
    about = "steps from epsilon_start to epsilon_end"
    return prior(default, LogUniform(1e3, 1e5), about, low=1, special=special)


def epsilon_of(schedule: Schedule, hp, step) -> Array:
    """Returns the probability of a random action after `step` rows."""
    time = jnp.asarray(step, jnp.float32) / hp.epsilon_decay
    rest = jnp.maximum(1 - time, 0.0) if schedule == "linear" else jnp.exp(-time)
    return hp.epsilon_end + (hp.epsilon_start - hp.epsilon_end) * rest


def with_random_actions(policy: Categorical, chance, key: Key) -> Categorical:
    """Makes all legal actions equally likely with this chance, drawn for every entry."""
    random = fast_random.uniform(key, policy.logits.shape[:-1]) < chance
    return Categorical(jnp.where(random[..., None], 0.0, policy.logits), policy.legal)
