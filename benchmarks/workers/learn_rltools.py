"""RLtools learns, by its Python package; {"algo": "SAC", "options": {...}} is an arm.

It compiles itself for the environment with a C++ compiler, in every cell.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import rltools

from workers.learning import Recorder, arguments, play, start_seed


def main() -> None:
    args, recorder = arguments(), Recorder()
    box = gymnasium.make(args.env).action_space

    def factory():
        env = gymnasium.wrappers.RescaleAction(gymnasium.make(args.env), -1.0, 1.0)
        env.reset(seed=args.seed)
        return env

    Algorithm = getattr(rltools, args.arm["algo"])
    options = {"STEP_LIMIT": args.steps + 1, "enable_evaluation": False} | args.arm["options"]
    state = Algorithm(factory, **options).State(args.seed)

    def greedy(obs: np.ndarray) -> np.ndarray:
        actions = np.stack([state.action(x) for x in obs.astype(np.float32)])
        return box.low + (actions + 1) / 2 * (box.high - box.low)

    for step in range(1, args.steps + 1):
        state.step()
        if step % args.eval_freq == 0:
            with recorder.evaluation(step) as found:
                seed = start_seed(args.seed, step)
                found["returns"], found["lengths"] = play(args.env, args.episodes, seed, greedy)
    recorder.end("rltools", "numpy", "gymnasium", "mujoco")


if __name__ == "__main__":
    main()
