"""Hyper-parameters of every kind of prior, and rounds of tuners on them."""

from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest
from jax import random

from thespis.core import ThespisError
from thespis.tuning.hyper import LogUniform, OneMinusLogUniform, Uniform, prior


class Hyper(eqx.Module):
    rate: float = prior(3e-4, LogUniform(1e-5, 1e-2), "learning rate", low=0)
    gamma: float = prior(0.99, OneMinusLogUniform(1e-3, 1e-1), "discount", low=0, high=1)
    entropy: float = prior(-1.0, Uniform(-2, 0), "wanted entropy")
    start: float = prior(1.0, LogUniform(0.1, 1), "where it begins", low=0, initial=True)


NAMES = ["rate", "gamma", "entropy", "start"]


def begin(t, members=8, given=None, seed=0):
    return t.begin(random.key(seed), Hyper, given or {}, members)


def exchange(t, scores, age=10**6, seed=1, given=None):
    """-> parents, hps before, hps after, as NumPy arrays."""
    scores = np.asarray(scores, np.float32)
    scores = scores[:, None] if scores.ndim == 1 else scores
    age = np.full(len(scores), age, np.int32)
    played = round_of(t, tuple((given or {}).items()))(random.key(seed), scores, age)
    parents, before, after = jax.tree.map(np.asarray, played)
    table = lambda hps: np.stack([getattr(hps, name) for name in NAMES], 1)
    return parents, table(before), table(after)


@cache
def round_of(t, given):
    """A beginning and an exchange, as one program."""

    @jax.jit
    def play(key, scores, age):
        before, memory = begin(t, len(scores), dict(given))
        _, parents, after = t.exchange(memory, key, before, scores, age)
        return parents, before, after

    return play


def fails(*words):
    return pytest.raises(ThespisError, match=r"(?s)" + ".*".join(words))
