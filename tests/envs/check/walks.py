"""A walk with which all is right, and what must be said of those with one mistake."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box as Space

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


def verdicts(report) -> dict[str, str]:
    return {check.name: check.verdict for check in report.checks}


def check_blamed(Env, name, message, fix, spoils_others=False):
    """A mistake is named, and how to fix it."""
    report = check_env(Env)
    wrong = {check.name: check for check in report.checks if check.verdict == "wrong"}
    assert not report.ok
    assert name in wrong, str(report)
    assert message in wrong[name].message
    assert fix in wrong[name].message + wrong[name].fix
    assert str(report).endswith("wrong")
    assert len(wrong) == 1 or spoils_others, wrong
