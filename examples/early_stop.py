"""Early stopping: a callback that ends the run when evaluations are steadily good.

python examples/early_stop.py [STEPS]
"""

import sys

import thespis


class SteadilyGood(thespis.Callback):
    """Ends the run when every member reached `reward` in `times` evaluations in a row."""

    def __init__(self, reward: float, times: int = 3):
        self.reward, self.times, self.count = reward, times, 0

    def on_evaluation(self, training):
        worst = min(row["eval/mean_reward"] for row in training.metrics)
        self.count = self.count + 1 if worst >= self.reward else 0
        training.log("early_stop/in_a_row", self.count)
        if self.count == self.times:
            training.stop(f"{self.times} evaluations in a row reached {self.reward:g}")

    def on_end(self, training, state):
        training.note(f"the run is {state} after {training.step} of {training.steps} steps")

    def state(self):
        return self.count

    def restore(self, state):
        self.count = state


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    stop = SteadilyGood(reward=-200.0)
    run = thespis.train("sac", env="jax:pendulum", steps=steps, hidden=(64, 64), callbacks=[stop])
    print(run.status)
