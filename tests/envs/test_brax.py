"""Brax as tasks: installed, missing, misspelt."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from thespis.core import ThespisError
from thespis.envs import brax as adapter
from thespis.envs import label, make


def test_a_missing_install_names_the_extra(monkeypatch):
    found = importlib.util.find_spec
    hide = lambda name, *rest: None if name == "brax" else found(name, *rest)
    monkeypatch.setattr(importlib.util, "find_spec", hide)
    adapter.load.cache_clear()
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[brax\]'"):
        make("brax:ant")


def test_unknown_names_are_told_their_neighbours():
    pytest.importorskip("brax")
    with pytest.raises(ThespisError, match=r"did you mean brax:ant\?$"):
        make("brax:aunt")
    with pytest.raises(ThespisError, match="did you mean spring"):
        make("brax:ant@sprung")


def test_names_carry_the_backend_unless_it_is_the_default():
    pytest.importorskip("brax")
    assert label("brax:ant") == label("brax:ant@spring") == "brax-ant"
    assert label("brax:ant@mjx") == "brax-ant-mjx"


def test_equals_brax_itself():
    envs = pytest.importorskip("brax.envs")
    task = make("brax:inverted_pendulum").task
    env = envs.get_environment("inverted_pendulum", backend="spring")
    start, step = jax.jit(task.start), jax.jit(task.step)
    state, action = start(random.key(0)), jnp.full(1, 0.5)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs, advance = jax.jit(env.reset)(random.PRNGKey(0)), jax.jit(env.step)
        np.testing.assert_allclose(task.observe(state), theirs.obs, rtol=1e-5)
        ends = []
        for _ in range(30):
            theirs = advance(theirs, action)
            state, reward, terminated = step(state, action)
            np.testing.assert_allclose(task.observe(state), theirs.obs, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(reward, theirs.reward, rtol=1e-4)
            assert bool(terminated) == bool(theirs.done)
            ends.append(bool(terminated))
    assert any(ends)
