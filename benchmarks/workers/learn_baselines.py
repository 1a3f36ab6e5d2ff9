"""Stable-Baselines3 and SBX learn: one interface, two libraries.

{"algo": "SAC", "policy": "MlpPolicy", "options": {"learning_starts": 10000}} is an arm.
"""

from __future__ import annotations

import gymnasium
from stable_baselines3.common.callbacks import BaseCallback

from workers.learning import Recorder, arguments, play, start_seed


class Evaluate(BaseCallback):
    """Evaluates every so many steps; `wait` waits for updates that are under way."""

    def __init__(self, args, recorder: Recorder, wait):
        super().__init__()
        self.args, self.recorder, self.wait = args, recorder, wait

    def _on_step(self) -> bool:
        step, args = self.num_timesteps, self.args
        if step % args.eval_freq == 0:
            self.wait(self.model)
            with self.recorder.evaluation(step) as found:
                greedy = lambda obs: self.model.predict(obs, deterministic=True)[0]
                seed = start_seed(args.seed, step)
                found["returns"], found["lengths"] = play(args.env, args.episodes, seed, greedy)
        return True


def main(library, *packages: str, wait=lambda model: None) -> None:
    args, recorder = arguments(), Recorder()
    arm = args.arm
    env = gymnasium.make(args.env)
    policy, options = arm.get("policy", "MlpPolicy"), arm.get("options", {})
    Algorithm = getattr(library, arm["algo"])
    model = Algorithm(policy, env, seed=args.seed, device="cpu", **options)
    model.learn(args.steps, callback=Evaluate(args, recorder, wait))
    recorder.end(*packages, "stable-baselines3", "numpy", "gymnasium", "mujoco")
