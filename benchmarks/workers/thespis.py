"""Thespis itself."""

from __future__ import annotations

import contextlib
import tempfile

import jax
import jax.numpy as jnp
from jax import random

import thespis
from thespis.algos import ALGORITHMS
from thespis.algos.dads import Extra
from thespis.core import Box, Row, Spec
from thespis.replay import Replay
from thespis.show.progress import Silent
from workers.common import (
    ACTION,
    BATCH,
    CAPACITY,
    DESCRIPTOR,
    OBS,
    SKILLS,
    WARM_UP,
    Meter,
    arguments,
    measure,
    report,
    report_first,
)
from workers.products import matmul


def random_replay(rows: int, skills: bool = False) -> Replay:
    """One member, one environment; with or without a skill in every row."""
    k_obs, k_reward, k_action, k_skill = random.split(random.key(0), 4)
    lead, no = (rows, 1, 1), jnp.zeros((rows, 1, 1), bool)
    obs = random.normal(k_obs, (*lead, OBS))
    action = jnp.tanh(random.normal(k_action, (*lead, ACTION)))
    extra = None
    if skills:
        which = random.randint(k_skill, lead, 0, SKILLS)
        extra = Extra(jax.nn.one_hot(which, SKILLS), None)
    filled = Row(obs, random.normal(k_reward, lead), no, no, action, extra)
    return Replay(filled, jnp.asarray(0, jnp.int32), jnp.asarray(rows, jnp.int32))


def updates(args, at_once: int = 50) -> None:
    """Sampling and updating, scanned."""
    spec = Spec(
        jax.ShapeDtypeStruct((OBS,), jnp.float32),
        Box((-1.0,) * ACTION, (1.0,) * ACTION, (ACTION,)),
        descriptor=f"0:{DESCRIPTOR}",
    )
    skilled, Algorithm = args.algo == "dads", ALGORITHMS[args.algo]
    more = Algorithm.presets["qdax"]["algo"] | {"skills": SKILLS} if skilled else {}
    algo = Algorithm(spec, hidden=(args.hidden, args.hidden), batch_size=BATCH, **more)
    hp = algo.Hyper()

    @jax.jit
    def many(state, replay, hp, step):
        def one(state, i):
            k_sample, k_update = random.split(random.fold_in(random.key(0), i))
            batch = algo.sample(replay.of(jnp.asarray(0)), None, hp, k_sample, i)
            state, metrics, _ = algo.update(state, hp, batch, k_update, i)
            return state, metrics

        return jax.lax.scan(one, state, step + jnp.arange(at_once))

    state, replay, step = jax.jit(algo.init)(random.key(0), hp), random_replay(5_000, skilled), 0

    def run() -> int:
        nonlocal state, step
        state, metrics = many(state, replay, hp, step)
        jax.block_until_ready((state, metrics))
        step += at_once
        return at_once

    report("updates", measure(args.seconds, run))


class Over(Exception):
    """Enough was measured."""


def train(args, env: str, more, **given) -> None:
    """`thespis.train`, until there is to be no more; what watches a run tells how far it is."""

    def advance(self, step: int, *_) -> None:
        if not more(step):
            raise Over

    Silent.advance = advance
    given |= {"hidden": (args.hidden, args.hidden), "batch_size": BATCH, "steps": 100_000_000}
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Over):
        thespis.train(args.algo, env, out=folder, progress=False, **given)


def steps(args) -> None:
    meter = Meter(args.seconds, skip=2 * WARM_UP)
    train(args, args.env, meter.more, learning_starts=WARM_UP)
    report("steps", meter)


def ondevice(args) -> None:
    meter = Meter(args.seconds, skip=2 * BATCH)
    more = {"envs": args.envs, "buffer_size": CAPACITY, "learning_starts": BATCH}
    train(args, "jax:pendulum", meter.more, **more)
    report("steps", meter)


def first(args) -> None:
    def more(step: int) -> bool:
        if step > WARM_UP:
            report_first()
        return step <= WARM_UP

    # A row of metrics is due right after the first update, so that the run pauses there.
    train(args, args.env, more, learning_starts=WARM_UP, log_freq=WARM_UP + 1)


if __name__ == "__main__":
    args = arguments()
    works = (updates, steps, ondevice, first, matmul)
    {work.__name__: work for work in works}[args.work](args)
