"""Three agents on the host that need no library: for runs of several agents that are recorded."""

import numpy as np
from gymnasium import spaces


class Walk:
    """Agents move along a line and are paid for being near 0; c leaves after three steps."""

    metadata = {"name": "walk", "render_modes": []}  # noqa: RUF012
    possible_agents = ["a", "b", "c"]  # noqa: RUF012
    max_cycles = 8

    def __init__(self, render_mode=None):
        self.render_mode, self.unwrapped, self.agents = render_mode, self, []

    def __str__(self):
        return "walk"

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.time = list(self.possible_agents), 0
        self.place = {agent: self.rng.uniform(-1, 1) for agent in self.agents}
        return self.seen(), {agent: {} for agent in self.agents}

    def seen(self):
        return {a: np.array([self.place[a], self.time / 8], np.float32) for a in self.agents}

    def step(self, actions):
        self.time += 1
        for agent, action in actions.items():
            self.place[agent] += 0.2 * float(action[0])
        obs, there = self.seen(), self.agents
        rewards = {agent: -abs(self.place[agent]) for agent in there}
        ended = {agent: agent == "c" and self.time >= 3 for agent in there}
        cut = dict.fromkeys(there, self.time >= self.max_cycles)
        self.agents = [agent for agent in there if not (ended[agent] or cut[agent])]
        return obs, rewards, ended, cut, {agent: {} for agent in there}

    def close(self):
        pass
