"""What broke a member is named by its first tensor, and its failing update is kept exactly."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from tests.small import RUN, arguments, arrays
from thespis.core import Box, ThespisError
from thespis.engine.loop import Clock
from thespis.runs import checkpoint, dump
from thespis.runs.build import blank, build
from thespis.runs.config import make

pytestmark = pytest.mark.usefixtures("kept")


@pytest.fixture(scope="module")
def healthy():
    """The arguments of one iteration's learning, two updates of it; all is well."""
    config = make("sac", RUN | {"normalize_observations": True, "updates_per_step": 2.0})
    loop, _ = build(config)
    key, hp = jax.random.key(0), jax.tree.map(np.float32, loop.algo.Hyper())
    shapes = blank(config, loop)
    batches = jax.eval_shape(
        loop.draw, shapes.replay, shapes_of(hp), None, shapes_of(key), shapes.clock
    )
    some = lambda x, axes: np.full(x.shape[axes:], 0.5).astype(x.dtype)
    batches = jax.tree.map(lambda x: some(x, 1), batches)
    row = jax.tree.map(lambda x: some(x, 2), shapes.replay.rows)
    state = jax.device_get(jax.jit(loop.algo.init)(key, hp))
    return loop, state, hp, row, batches, key, Clock.zero()


def shapes_of(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), tree)


def spoil(tree, where, value=np.nan):
    return eqx.tree_at(where, tree, replace_fn=lambda x: jax.tree.map(lambda y: y * value, x))


def test_nothing_is_found_where_all_is_well(healthy):
    assert dump.examine(*healthy) is None


@pytest.mark.parametrize(
    ("what", "tensor", "which", "where", "value"),
    [
        ("observation", "obs", "row", lambda row: row.obs, np.nan),
        ("reward", "reward", "row", lambda row: row.reward, np.inf),
        ("normaliser", "stats.var", "row", lambda row: row.obs, 1e30),
        ("observation", "next_obs", "batches", lambda b: b.next_obs, np.nan),
        ("reward", "reward", "batches", lambda b: b.reward, np.nan),
        ("target", "target_value", "state", lambda s: s.target, np.inf),
        ("critic", "critic_loss", "state", lambda s: s.critic.params, np.inf),
        ("critic", "critic.params.", "hp", lambda hp: hp.critic_lr, np.inf),
        ("actor", "actor.params.", "hp", lambda hp: hp.actor_lr, np.inf),
        ("temperature", "temperature.params", "hp", lambda hp: hp.alpha_lr, np.nan),
    ],
)
def test_the_first_tensor_is_named(healthy, what, tensor, which, where, value):
    names = ("loop", "state", "hp", "row", "batches", "key", "clock")
    given = dict(zip(names, healthy, strict=True))
    given[which] = spoil(given[which], where, value)
    found = dump.examine(**given)
    assert found.what == what
    assert found.tensor.startswith(tensor)
    assert (found.batch is None) == (which == "row")


@dataclasses.dataclass(frozen=True)
class Explosive:
    """One long episode whose rewards are finite, but too large to be squared, from 350 on."""

    name = "explosive"
    obs = jax.ShapeDtypeStruct((3,), jnp.float32)
    action = Box((-1.0,), (1.0,), (1,))
    limit: int = 1000

    def start(self, key):
        return jnp.zeros(())

    def observe(self, time):
        return jnp.stack([jnp.sin(time), jnp.cos(time), jnp.ones(())])

    def step(self, time, action):
        return time + 1, jnp.where(time >= 350, 1e25, action[0]), jnp.zeros((), bool)


def test_the_state_before_the_failing_update_is_kept_bit_for_bit(tmp_path):
    """Although the replay has overwritten rows since the moment from which it is found again."""
    given = arguments(eval_freq=10_000, log_freq=300)
    task = given | {"env": Explosive(), "out": tmp_path, "steps": 600}
    with pytest.raises(ThespisError, match=r"sac, step \d+, seed 0: the critic is not finite"):
        thespis.train("sac", **task)
    (path,) = tmp_path.glob("sac/explosive_1/faults/member_0/*")
    info = checkpoint.manifest(path)["info"]
    assert 351 < info["iteration"] < 500  # as soon as such a reward is drawn
    found = thespis.reproduce(path, env=Explosive())
    assert (found.what, found.tensor) == ("critic", "critic_loss")
    assert not np.isfinite(found.metrics["critic_loss"])
    assert (found.batch.reward > 1e24).any()

    before = thespis.train("sac", **(task | {"steps": info["iteration"]}))
    state = {k: x for k, x in sorted(arrays(before.path).items()) if k.startswith("state.")}
    kept = arrays_of(found.state)
    assert len(state) == len(kept)
    for x, y in zip(state.values(), kept.values(), strict=True):
        assert np.array_equal(x[0], y)

    with pytest.raises(ThespisError, match="was given as an object|unknown environment"):
        thespis.reproduce(path)


def arrays_of(state):
    paths = jax.tree_util.tree_leaves_with_path(state)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return dict(sorted((f"state.{name(path)}", np.asarray(x)) for path, x in paths))
