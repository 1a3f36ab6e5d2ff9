"""An environment whose step takes 10 ms and no processor, as a simulator elsewhere does."""

import time

import gymnasium
import numpy as np
from gymnasium import spaces

SECONDS = 0.01


class Sleeping(gymnasium.Env):
    """Episodes of ten steps that observe nothing."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        time.sleep(SECONDS)
        self.steps += 1
        return np.zeros(3, np.float32), 0.0, False, self.steps == 10, {}
