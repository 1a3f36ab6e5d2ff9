"""Stable-Baselines3 and SBX: one interface, two libraries."""

from __future__ import annotations

import gymnasium
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger

from workers.common import (
    ACTION,
    BATCH,
    OBS,
    WARM_UP,
    Meter,
    arguments,
    measure,
    report,
    report_first,
)


class Spaces(gymnasium.Env):
    """An environment that is never stepped, for updates on random data."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)


class Watch(BaseCallback):
    """Stops learning when the meter says so."""

    def __init__(self, meter: Meter):
        super().__init__()
        self.meter = meter

    def _on_step(self) -> bool:
        return self.meter.more(self.num_timesteps)


def agent(library, args, env):
    """SAC or TD3 with the library's defaults: one update per step, a replay of a million."""
    sizes, more, name = [args.hidden, args.hidden], {}, args.variant or args.algo
    policy = {"net_arch": {"pi": sizes, "qf": sizes}}
    if args.variant == "droq":
        policy |= {"dropout_rate": 0.01, "layer_norm": True}
        more, name = {"policy_delay": 20}, "sac"
    return getattr(library, {"crossq": "CrossQ"}.get(name, name.upper()))(
        "MlpPolicy",
        env,
        learning_starts=WARM_UP,
        batch_size=BATCH,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs=policy,
        seed=0,
        device="cpu",
        **more,
    )


def updates(library, args, at_once: int = 60) -> None:
    """Updates alone, `at_once` per call as a user would who wants the most of them.

    A multiple of the delays of actors: SBX compiles another program for every remainder.
    """
    model = agent(library, args, Spaces())
    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    for _ in range(5_000):
        action = np.tanh(normal(1, ACTION))
        model.replay_buffer.add(
            normal(1, OBS), normal(1, OBS), action, normal(1), np.zeros(1), [{}]
        )

    def run() -> int:
        model.train(gradient_steps=at_once, batch_size=BATCH)
        return at_once

    report("updates", measure(args.seconds, run))


def steps(library, args) -> None:
    """One environment, one update per step."""
    model = agent(library, args, args.env)
    meter = Meter(args.seconds, skip=2 * WARM_UP)
    model.learn(100_000_000, callback=Watch(meter))
    assert abs(model._n_updates - model.num_timesteps + WARM_UP) <= 1
    report("steps", meter)


def first(library, args) -> None:
    model = agent(library, args, args.env)
    model.learn(WARM_UP + 1)
    assert model._n_updates == 1
    report_first()


def main(library) -> None:
    args = arguments()
    {"updates": updates, "steps": steps, "first": first}[args.work](library, args)
