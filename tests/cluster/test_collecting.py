"""Collectors are sent what acting needs, and nothing else."""

import jax
import jax.numpy as jnp

import thespis
from thespis.cluster.collecting import inputs_read, needed, weight_shapes
from thespis.engine.loop import Loop
from thespis.envs.gymnasium import Gymnasium


def test_inputs_that_a_result_does_not_depend_on_are_not_read():
    f = lambda tree, unused: jnp.sin(tree["a"]) + jnp.zeros_like(tree["b"]).sum()
    one = jnp.ones(())
    assert inputs_read(f, {"a": one, "b": one}, one) == {0}


def test_only_what_acts_is_sent():
    env = Gymnasium("Pendulum-v1")
    algo = thespis.SAC(env.spec, hidden=(8, 8))
    shapes = weight_shapes(Loop(algo, env), 1)
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(shapes)]
    sent = [paths[i] for i in needed(Loop(algo, env))]
    assert len(sent) >= 6  # three layers
    assert all("actor" in path for path in sent)
    assert not any("opt" in path for path in sent)
