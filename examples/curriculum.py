"""A curriculum: a callback that moves the goal away as the agent learns to reach it.

    python examples/curriculum.py [STEPS]
    thespis train sac --env jax:pointmass --steps 10000 --callback curriculum:Curriculum

The second in this folder. Evaluations stay at the goal of the run, (1, 1).
"""

import sys

import numpy as np

import thespis


class Curriculum(thespis.Callback):
    """Moves the goal on once the agent does much better than standing still."""

    every = 500
    levels = ((0.3, 0.3), (0.6, 0.6), (1.0, 1.0))  # each is compiled when it is reached

    def __init__(self):
        self.level = 0

    def on_start(self, training):
        training.set_env(goal=self.levels[self.level])

    def on_step(self, training):
        training.log("curriculum/level", self.level)
        returns = [row.get("rollout/ep_rew_mean", -np.inf) for row in training.metrics]
        standing = -100 * np.linalg.norm(self.levels[self.level])  # for all of an episode's steps
        if np.mean(returns) > standing / 2 and self.level + 1 < len(self.levels):
            self.level += 1
            training.set_env(goal=self.levels[self.level])
            training.note(f"step {training.step}: level {self.level}")

    # With these a run that was stopped goes on at its level.
    def state(self):
        return {"level": self.level}

    def restore(self, state):
        self.level = state["level"]


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    run = thespis.train(
        "sac", env="jax:pointmass", steps=steps, hidden=(64, 64), callbacks=[Curriculum]
    )
    for step, level in zip(run.metrics["step"], run.metrics.get("curriculum/level", ())):
        if np.isfinite(level):
            print(f"until step {step:,.0f}: level {level:g}")
