"""What compiling costs, by program."""

import jax
import jax.numpy as jnp
import pytest

from thespis.xla.compile_times import CompileTimes


@pytest.fixture
def times():
    times = CompileTimes()
    yield times
    times.close()


def test_seconds_of_compiling_are_counted_by_program(times):
    def wave(x):
        return jnp.sin(x) + 1.25

    assert times.seconds == 0
    jax.jit(wave)(jnp.ones(7))
    assert 0 < times.programs["wave"] <= times.seconds < 60


def test_running_what_is_compiled_costs_nothing(times):
    program, x = jax.jit(lambda x: jnp.cos(x) + 1.5), jnp.ones(7)
    program(x)
    before = times.seconds
    program(x).block_until_ready()
    assert times.seconds == before


def test_a_closed_times_counts_no_more():
    times = CompileTimes()
    times.close()
    jax.jit(lambda x: jnp.tan(x) + 1.75)(jnp.ones(7))
    assert times.seconds == 0
