"""An environment of all kinds of arrays. Worker processes import this, and so nothing large."""

import os
import signal

import gymnasium
import numpy as np
from gymnasium import spaces


class Varied(gymnasium.Env):
    """Observes all kinds of arrays, with episodes of random lengths; does what it is told."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-np.inf, np.inf, (3,), np.float64),
            "picture": spaces.Box(0, 255, (4, 4), np.uint8),
            "inner": spaces.Dict({"choice": spaces.Discrete(3, start=1)}),
            "action_mask": spaces.MultiBinary(2),
        }
    )
    action_space = spaces.Box(np.float32([-2, -1]), np.float32([6, 1]))
    speed = 1.0

    def __init__(self, fault="", at=4):
        self.fault, self.at, self.time = fault, at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.length = 0, int(self.np_random.integers(1, 8))
        return self.seen([0, 0]), {}

    def seen(self, action):
        draw = self.np_random
        return {
            "place": [self.time / 3, self.speed, draw.uniform()],
            "picture": draw.integers(0, 255, (4, 4)).astype(np.uint8),
            "inner": {"choice": 1 + int(draw.integers(3))},
            "action_mask": np.array([1, draw.integers(2)], np.int8),
        }

    def step(self, action):
        self.time += 1
        obs = self.seen(action)
        if self.fault and self.time == self.at:
            if self.fault == "raise":
                raise RuntimeError("the curtain\nfell")
            if self.fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "obs":
                obs["place"][1] = np.nan
        reward = np.nan if self.fault == "reward" and self.time == self.at else action[0] / 3
        ends = self.time >= self.length and not self.fault
        return obs, reward, ends and self.time % 2 == 0, ends, {}
