"""Thespis itself."""

from __future__ import annotations

import contextlib
import sys
import tempfile

import jax
import jax.numpy as jnp
from jax import random

import thespis
from thespis.algos import ALGORITHMS
from thespis.algos.dads import Extra
from thespis.cli import main
from thespis.core import Box, Row, Spec
from thespis.engine.loop import Clock, Loop
from thespis.engine.streams import Stream, member_keys
from thespis.replay.ring import Replay
from thespis.report.progress import Silent
from thespis.tuning import PBT
from thespis.values import ungrouped
from workers.common import (
    ACTION,
    BATCH,
    CAPACITY,
    DESCRIPTOR,
    MEMBER_ROWS,
    OBS,
    SKILLS,
    WARM_UP,
    Meter,
    arguments,
    at_once,
    measure,
    peak,
    report,
    report_first,
)
from workers.operations import products
from workers.products import blas, matmul


def random_replay(rows: int, skills: bool = False, members: int = 1, block=1_000) -> Replay:
    """One environment of every member; with or without a skill in every row.

    The same rows again and again, lest making them takes more memory than holding them.
    """
    k_obs, k_reward, k_action, k_skill = random.split(random.key(0), 4)
    lead, no = (block, members, 1), jnp.zeros((block, members, 1), bool)
    obs = random.normal(k_obs, (*lead, OBS))
    action = jnp.tanh(random.normal(k_action, (*lead, ACTION)))
    extra = None
    if skills:
        which = random.randint(k_skill, lead, 0, SKILLS)
        extra = Extra(jax.nn.one_hot(which, SKILLS), None)
    filled = Row(obs, random.normal(k_reward, lead), no, no, action, extra)
    again = lambda x: jnp.tile(x, (rows // block, *[1] * (x.ndim - 1)))
    filled = jax.tree.map(again, filled)
    return Replay(filled, jnp.asarray(0, jnp.int32), jnp.asarray(rows, jnp.int32))


def algorithm(args):
    spec = Spec(
        jax.ShapeDtypeStruct((OBS,), jnp.float32),
        Box((-1.0,) * ACTION, (1.0,) * ACTION, (ACTION,)),
        descriptor=f"0:{DESCRIPTOR}",
    )
    skilled, Algorithm = args.algo == "dads", ALGORITHMS[args.algo]
    choices = {"hidden": (args.hidden, args.hidden), "batch_size": BATCH}
    choices |= Algorithm.presets["qdax"]["algo"] | {"skills": SKILLS} if skilled else {}
    if args.variant:  # as small as the peers'
        sizes = choices | {"critic_hidden": choices["hidden"], "critics": 2}
        choices = Algorithm.presets[args.variant]["algo"] | sizes
    if args.preset:  # with its own sizes
        choices |= Algorithm.presets[args.preset]["algo"]
    return Algorithm(spec, **ungrouped(Algorithm, choices))


def updates(args) -> None:
    """Sampling and updating, scanned."""
    algo = algorithm(args)
    skilled = args.algo == "dads"
    hp = algo.Hyper()
    replay = random_replay(5_000, skilled)

    def draw(replay, hp, key, i):
        return algo.sample(replay.view(jnp.asarray(0)), None, hp, key, i)

    key, first = random.key(0), jnp.asarray(0)
    shapes = jax.eval_shape(algo.init, key, hp), hp, jax.eval_shape(draw, replay, hp, key, first)
    flops = products(
        jax.make_jaxpr(algo.update)(*shapes, key, first).jaxpr,
        getattr(algo, "actor_every", getattr(algo, "delay", 1)),
    )
    at_once = 60 if flops < 3e9 else 12  # multiples of the actors' periods

    @jax.jit
    def many(state, replay, hp, step):
        def one(state, i):
            k_sample, k_update = random.split(random.fold_in(random.key(0), i))
            batch = draw(replay, hp, k_sample, i)
            state, metrics, _ = algo.update(state, hp, batch, k_update, i)
            return state, metrics

        return jax.lax.scan(one, state, step + jnp.arange(at_once))

    state, step = jax.jit(algo.init)(random.key(0), hp), 0

    def run() -> int:
        nonlocal state, step
        state, metrics = many(state, replay, hp, step)
        jax.block_until_ready((state, metrics))
        step += at_once
        return at_once

    report("updates", measure(args.seconds, run), flops=flops)


def population(args) -> None:
    """The same of many members, as the loop does it; each has its own hyper-parameters."""
    algo = algorithm(args)
    loop = Loop(algo, env=None)
    n, seeds = at_once(args.members), jnp.arange(args.members)
    hps, _ = PBT().begin(random.key(0), algo.Hyper, {}, args.members)
    state = jax.jit(jax.vmap(algo.init))(member_keys(seeds, Stream.INIT, 0), hps)
    replay = jax.jit(random_replay, static_argnums=(0, 1, 2))(MEMBER_ROWS, False, args.members)
    row = jax.tree.map(lambda x: x[0], replay.rows)

    def many(state, clock, replay, hps, seeds, row):
        def one(_, carry):
            state, clock = carry
            keys = member_keys(seeds, Stream.TRAIN, clock.updates)
            batches = loop.draw(replay, hps, None, keys, clock)
            state, *_ = loop.learn(state, hps, row, batches, keys, clock)
            return state, loop.tick(clock, True)

        return jax.lax.fori_loop(0, n, one, (state, clock))

    program, carry = jax.jit(many, donate_argnums=(0, 1)), (state, Clock.zero())

    def run() -> int:
        nonlocal carry
        carry = jax.block_until_ready(program(*carry, replay, hps, seeds, row))
        return n * args.members

    report("updates", measure(args.seconds, run), peak=peak())


class Over(Exception):
    """Enough was measured."""


@contextlib.contextmanager
def watching(more):
    """A folder for a run that ends when there is to be no more, as what watches it tells."""

    def advance(self, step: int, *_) -> None:
        if not more(step):
            raise Over

    Silent.advance = advance
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Over):
        yield folder


def train(args, env: str, more, **given) -> None:
    given |= {"hidden": (args.hidden, args.hidden), "batch_size": BATCH, "steps": 100_000_000}
    with watching(more) as folder:
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


def cores(args) -> None:
    """Updates of a population per second, as a user runs it on so many devices."""
    meter = Meter(args.seconds, skip=2 * BATCH)
    more = {"members": args.members, "devices": args.devices, "threads": 1}
    more |= {"buffer_size": CAPACITY, "learning_starts": BATCH, "tuner": "random"}
    train(args, "jax:pendulum", meter.more, **more)
    meter.spent[0] *= args.members
    report("updates", meter)


def first(args) -> None:
    """By the command, as a user starts it."""

    def more(step: int) -> bool:
        if step > WARM_UP:
            report_first()
        return step <= WARM_UP

    # A row of metrics is due right after the first update, so that the run pauses there.
    given = f"--hidden {args.hidden} {args.hidden} --batch-size {BATCH} --steps 100000000"
    given += f" --learning-starts {WARM_UP} --log-freq {WARM_UP + 1} --json"
    with watching(more) as folder:
        command = f"thespis train {args.algo} --env {args.env} --out {folder} {given}"
        sys.argv = command.split()
        main()


if __name__ == "__main__":
    args = arguments()
    works = (updates, steps, ondevice, first, matmul, blas, population, cores)
    {work.__name__: work for work in works}[args.work](args)
