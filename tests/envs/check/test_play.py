"""Environments are played at random, and what that shows of ends, resets and seeds is told."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest

from tests.envs.check.walks import Walk, check_blamed, verdicts
from thespis.envs.check import check_env


class LimitTerminates(Walk):
    """The time limit is said to be a termination, and cannot be seen."""

    drift = 0.0

    def step(self, action):
        obs, reward, _, cut, info = super().step(action)
        return obs, reward, cut, False, info


class Endless(Walk):
    drift = 0.01

    def step(self, action):
        return *super().step(0 * action)[:3], False, {}


class ResetsItself(Walk):
    """What it returns at an end is the first observation of the next episode."""

    def step(self, action):
        obs, *rest = super().step(action)
        if rest[2]:
            obs, _ = self.reset()
        return obs, *rest


class ForgetsTheLast(Walk):
    """The observation of an end is the one before it."""

    def step(self, action):
        before = self.seen()
        obs, *rest = super().step(action)
        return (before if rest[2] else obs), *rest


class EndsInZeros(Walk):
    def step(self, action):
        obs, *rest = super().step(action)
        return (0 * obs if rest[2] else obs), *rest


class IgnoresSeed(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=np.random.SeedSequence().generate_state(1).item())


class SeedsAtEveryReset(Walk):
    """Every episode of one copy is the same."""

    kept = None

    def reset(self, *, seed=None, options=None):
        self.kept = seed if seed is not None else self.kept
        return super().reset(seed=self.kept)


class OneSeedForAll(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None if seed is None else 0)


class SharedState(Walk):
    """The place is the class's, not the copy's."""

    shared: ClassVar[dict] = {}
    place = property(lambda self: self.shared["place"], lambda self, x: self.shared.update(place=x))


MISTAKES = {
    LimitTerminates: ("ends", "terminate after exactly 30 steps", "truncated = True"),
    Endless: ("ends", "no episode ended in 1,000 steps", "give it a time limit"),
    ResetsItself: ("final observation", "looks like the first of another", "Thespis resets"),
    ForgetsTheLast: ("final observation", "repeats the one before", "after the last action"),
    EndsInZeros: ("final observation", "all zeros", "after the last action"),
    IgnoresSeed: ("seed", "the same seed and actions give another observation", "np_random"),
    SeedsAtEveryReset: ("start states", "every episode of a copy begins in the same", "np_random"),
    OneSeedForAll: ("start states", "copies with different seeds begin in", "super().reset"),
    SharedState: ("copies", "behaves differently when there", "keep all state in self"),
}


@pytest.mark.parametrize("Env", MISTAKES, ids=lambda Env: Env.__name__)
def test_a_mistake_is_named_and_how_to_fix_it(Env):
    # One mistake spoils others only where it must: shared places spoil ends, too.
    check_blamed(Env, *MISTAKES[Env], spoils_others=Env in (SharedState, IgnoresSeed))


def test_what_cannot_be_known_is_said_to_be_so():
    report = check_env(lambda: gymnasium.wrappers.TimeLimit(Endless(), 10_000))
    unknown = {"ends", "autoreset", "final observation", "actions matter"}
    found = {name for name, verdict in verdicts(report).items() if verdict == "cannot say"}
    assert found == unknown
    assert "no episode ended in 2,499 steps; its limit is 10000" in str(report)


def test_a_clock_that_can_be_seen_may_end_the_task():
    class Countdown(LimitTerminates):
        def seen(self):
            return np.array([30 - self.time, self.place[1]], np.float32)

    assert check_env(Countdown).ok
