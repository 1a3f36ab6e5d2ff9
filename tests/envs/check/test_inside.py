"""What Gymnasium environments return is checked before anything converts it."""

import numpy as np
import pytest
from gymnasium.spaces import Box as Space

from tests.envs.check.walks import Walk, check_blamed


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


class OldLimit(Walk):
    def step(self, action):
        obs, reward, _, cut, _ = super().step(action)
        return obs, reward, cut, False, {"TimeLimit.truncated": cut}


class ResetsItselfAndSays(Walk):
    def step(self, action):
        obs, reward, over, cut, _ = super().step(action)
        info = {"final_observation": obs} if cut else {}
        return (self.reset()[0] if cut else obs), reward, over, cut, info


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


class FearsBounds(Walk):
    def step(self, action):
        assert abs(action[0] - 2.0) > 1e-6, "too far"
        return super().step(action)


MISTAKES = {
    OldReset: ("reset", "not a pair", "(obs, info)"),
    ResetTakesNothing: ("reset", "TypeError", "reset(self, *, seed=None, options=None)"),
    OldStep: ("step", "4 values, not five", "terminated, truncated"),
    OldLimit: ("ends", "TimeLimit.truncated", "truncated = True"),
    ResetsItselfAndSays: ("final observation", "final_observation", "Thespis resets"),
    OutOfBounds: ("observations", "outside [-1, 1]", "widen the bounds"),
    WrongShape: ("observations", "shape (2,), but observation_space has (3,)", "change"),
    CutsFractions: ("observations", "fractions would be cut off", "float32"),
    NotFinite: ("observations", "obs is not finite", "terminate before it diverges"),
    RewardNotFinite: ("step", "the reward is inf", "terminate before it diverges"),
    RewardIsVector: ("step", "not one number", "return a float"),
    FlagIsNumber: ("step", "terminated is 0.5", "bool"),
    FearsBounds: ("step", "AssertionError: too far", "every action of its action_space"),
}


@pytest.mark.parametrize("Env", MISTAKES, ids=lambda Env: Env.__name__)
def test_a_mistake_is_named_and_how_to_fix_it(Env):
    check_blamed(Env, *MISTAKES[Env])
