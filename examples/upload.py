"""Upload: a callback that copies the best policies to a store whenever there are better ones.

    python examples/upload.py [STEPS]

Here the store is a folder; `put` is where the client of yours would be called.
"""

import json
import shutil
import sys
from pathlib import Path

import thespis


class Upload(thespis.Callback):
    """Copies the best policies, with what is needed to load them, when a checkpoint is saved."""

    def __init__(self, store: str = "store"):
        self.store, self.best = Path(store), float("-inf")

    def on_checkpoint(self, training):
        reward = max(row.get("eval/mean_reward", float("-inf")) for row in training.metrics)
        if reward > self.best:
            self.best = reward
            self.put(training.folder, training.step, reward)
            training.note(f"step {training.step}: uploaded, mean reward {reward:.1f}")

    def put(self, folder, step, reward):
        target = self.store / folder.name / f"{step:09d}"
        shutil.copytree(folder / "best", target / "best", dirs_exist_ok=True)
        shutil.copy(folder / "config.json", target)
        (target / "about.json").write_text(json.dumps({"step": step, "reward": reward}))


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    run = thespis.train(
        "sac", env="jax:pendulum", steps=steps, hidden=(64, 64), callbacks=[Upload()]
    )
    for copy in sorted(Path("store", run.path.name).iterdir()):
        policy = thespis.load(copy).policy(which="best")
        print(copy, "acts", policy([1.0, 0.0, 0.0]))
