"""Every mistake an environment can make is named, and what is right is not blamed."""

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box as Space
from jax import random

import thespis
from thespis.cli.command import main
from thespis.core import Box
from thespis.envs import names
from thespis.envs.check import check_env


class Walk(gymnasium.Env):
    """Drifts away from a random start by its actions; cut after 30 steps. All is right with it."""

    observation_space = Space(-100, 100, (2,), np.float32)
    action_space = Space(-1.0, 2.0, (1,), np.float32)
    drift = 1.0
    render_mode = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.place = self.np_random.uniform(-0.1, 0.1, 2)
        return self.seen(), {}

    def seen(self):
        return self.place.astype(np.float32)

    def step(self, action):
        self.time += 1
        self.place = self.place + np.array([self.drift, action[0]])
        return self.seen(), 1.0, False, self.time >= 30, {}


# --- one mistake each -----------------------------------------------------------------------


class OldReset(Walk):
    def reset(self, **given):
        return super().reset(**given)[0]


class ResetTakesNothing(Walk):
    def reset(self):
        return super().reset()


class OldStep(Walk):
    def step(self, action):
        obs, reward, _, cut, info = super().step(action)
        return obs, reward, cut, info


class LimitTerminates(Walk):
    """The time limit is said to be a termination, and cannot be seen."""

    drift = 0.0

    def step(self, action):
        obs, reward, _, cut, info = super().step(action)
        return obs, reward, cut, False, info


class OldLimit(Walk):
    def step(self, action):
        obs, reward, _, cut, _ = super().step(action)
        return obs, reward, cut, False, {"TimeLimit.truncated": cut}


class ResetsItself(Walk):
    """What it returns at an end is the first observation of the next episode."""

    def step(self, action):
        obs, *rest = super().step(action)
        if rest[2]:
            obs, _ = self.reset()
        return obs, *rest


class ResetsItselfAndSays(Walk):
    def step(self, action):
        obs, reward, over, cut, _ = super().step(action)
        info = {"final_observation": obs} if cut else {}
        return (self.reset()[0] if cut else obs), reward, over, cut, info


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


class OutOfBounds(Walk):
    observation_space = Space(-1, 1, (2,), np.float32)


class WrongShape(Walk):
    observation_space = Space(-100, 100, (3,), np.float32)


class CutsFractions(Walk):
    observation_space = Space(0, 255, (2,), np.uint8)


class NotFinite(Walk):
    observation_space = Space(-np.inf, np.inf, (2,), np.float32)

    def seen(self):
        return np.array([np.nan if self.time > 20 else 0, 1], np.float32)


class RewardNotFinite(Walk):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, np.inf if self.time > 20 else 0.0, *rest


class RewardIsVector(Walk):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, np.ones(2), *rest


class FlagIsNumber(Walk):
    def step(self, action):
        obs, reward, _, cut, info = super().step(action)
        return obs, reward, 0.5, cut, info


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


class EndlessActions(Walk):
    action_space = Space(-np.inf, np.inf, (1,), np.float32)


class FearsBounds(Walk):
    def step(self, action):
        assert abs(action[0] - 2.0) > 1e-6, "too far"
        return super().step(action)


class Endless(Walk):
    drift = 0.01

    def step(self, action):
        return *super().step(0 * action)[:3], False, {}


MISTAKES = {
    OldReset: ("reset", "not a pair", "(obs, info)"),
    ResetTakesNothing: ("reset", "TypeError", "reset(self, *, seed=None, options=None)"),
    OldStep: ("step", "4 values, not five", "terminated, truncated"),
    LimitTerminates: ("ends", "terminate after exactly 30 steps", "truncated = True"),
    Endless: ("ends", "no episode ended in 1,000 steps", "give it a time limit"),
    OldLimit: ("ends", "TimeLimit.truncated", "truncated = True"),
    ResetsItself: ("final observation", "looks like the first of another", "resets by itself"),
    ResetsItselfAndSays: ("final observation", "final_observation", "resets by itself"),
    ForgetsTheLast: ("final observation", "repeats the one before", "the last action led to"),
    EndsInZeros: ("final observation", "all zeros", "the last action led to"),
    OutOfBounds: ("observations", "outside [-1, 1]", "widen the bounds"),
    WrongShape: ("observations", "shape (2,), its space says (3,)", "declare"),
    CutsFractions: ("observations", "fractions would be cut off", "float32"),
    NotFinite: ("observations", "obs is not finite", "terminate before it diverges"),
    RewardNotFinite: ("step", "the reward is inf", "terminate before it diverges"),
    RewardIsVector: ("step", "not one number", "return a float"),
    FlagIsNumber: ("step", "terminated is 0.5", "bool"),
    IgnoresSeed: ("seed", "the same seed and actions give another observation", "np_random"),
    SeedsAtEveryReset: ("start states", "every episode of a copy begins in the same", "np_random"),
    OneSeedForAll: ("start states", "copies with different seeds begin alike", "super().reset"),
    SharedState: ("copies", "does other things when there are more", "keep all state in self"),
    EndlessActions: ("spaces", "finite", "TransformAction"),
    FearsBounds: ("step", "AssertionError: too far", "every action of its action_space"),
}


def verdicts(report) -> dict[str, str]:
    return {check.name: check.verdict for check in report.checks}


@pytest.mark.parametrize("Env", MISTAKES, ids=lambda Env: Env.__name__)
def test_a_mistake_is_named_and_how_to_fix_it(Env):
    name, message, fix = MISTAKES[Env]
    report = check_env(Env)
    wrong = {check.name: check for check in report.checks if check.verdict == "wrong"}
    assert not report.ok
    assert name in wrong, str(report)
    assert message in wrong[name].message
    assert fix in wrong[name].message + wrong[name].fix
    assert str(report).endswith("wrong")
    # One mistake spoils others only where it must: shared places spoil ends, too.
    assert len(wrong) == 1 or Env in (SharedState, IgnoresSeed), wrong


def test_what_is_right_is_not_blamed():
    report = check_env(Walk)
    assert set(verdicts(report).values()) == {"ok"}
    assert report.steps_per_second > 100
    assert str(report).endswith("nothing is wrong")


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


# --- tasks in JAX ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Drift:
    """The same walk as pure functions, all right unless told otherwise."""

    limit: int = 30
    fault: str = ""

    obs: ClassVar = jax.ShapeDtypeStruct((2,), jnp.float32)
    action: ClassVar = Box((-1.0,), (2.0,), (1,))

    def start(self, key) -> Any:
        place = random.uniform(key, (2,), jnp.float32, -0.1, 0.1)
        if self.fault == "start":
            place = np.asarray(place)
        return place, jnp.int32(0)

    def observe(self, state):
        place, time = state
        if self.fault == "shape":
            return place[:1]
        return jnp.where(time > 20, jnp.nan, place) if self.fault == "nan" else place

    def step(self, state, action):
        place, time = state
        place, time = place + jnp.concatenate([jnp.ones(1), action]), time + 1
        over = jnp.array(False)
        if self.fault == "state":
            time = time.astype(jnp.float32)
        if self.fault == "resets":
            over = place[1] > 5
            place = jnp.where(over, place % 0.1, place)
        if self.fault == "flag":
            over = time
        if self.fault == "limit":
            place, over = state[0] + jnp.concatenate([jnp.zeros(1), action]), time == 10
        return (place, time), jnp.ones(()), over


@pytest.mark.parametrize(
    ("fault", "name", "seen"),
    [
        ("start", "start", "TracerArrayConversionError"),
        ("shape", "observations", "observe gives float32[1], not float32[2]"),
        ("state", "step", "begins with [1] int32[] and goes on with [1] float32[]"),
        ("flag", "step", "terminated is int32[]"),
        ("nan", "finite", "the obs is nan at index 0, copy 0, step 21"),
        ("resets", "final observation", "looks like the first of another"),
        ("limit", "ends", "terminate after exactly 10 steps"),
    ],
)
def test_mistakes_of_tasks(fault, name, seen):
    wrong = {
        c.name: c.message for c in check_env(Drift(fault=fault)).checks if c.verdict == "wrong"
    }
    assert seen in wrong.pop(name)
    assert not wrong


def test_a_task_without_a_limit_is_told_so():
    class Unlimited(Drift):
        limit = property(lambda self: self.nothing)

    task = object.__new__(Unlimited)
    assert verdicts(check_env(task)) == {"spaces": "wrong"}


def test_right_tasks_are_not_blamed():
    assert set(verdicts(check_env(replace(Drift(), limit=20))).values()) == {"ok"}


# --- what there is --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*names()["jax"], "CartPole-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_what_is_built_in_passes(name):
    report = thespis.check_env(name)
    assert report.ok, str(report)


def test_vector_rewards_pass():
    pytest.importorskip("mo_gymnasium")
    assert check_env("mo:mo-mountaincarcontinuous-v0").ok


@pytest.mark.slow
def test_brax_passes():
    pytest.importorskip("brax")
    from thespis.envs.brax import Brax

    assert check_env(Brax("inverted_pendulum", limit=40)).ok


# --- the command ----------------------------------------------------------------------------

gymnasium.register("Walk-v0", Walk)
gymnasium.register("OldStep-v0", OldStep)


def test_the_command_tells_by_its_exit_code(capsys):
    assert main(["check-env", "Walk-v0"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert main(["check-env", "OldStep-v0", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["env"], told["ok"]) == ("OldStep-v0", False)
    assert [c["name"] for c in told["checks"] if c["verdict"] == "wrong"] == ["step"]
    assert main(["check-env", "Wlak-v0"]) == 2
    assert "did you mean Walk-v0" in capsys.readouterr().err
    assert main(["check-env"]) == 2
