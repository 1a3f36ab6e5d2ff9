"""Thespis learns, by its own command; {"options": "sac --preset locomotion"} is an arm."""

from __future__ import annotations

import shlex
import sys
import tempfile

from workers.learning import Recorder, arguments


def main() -> None:
    args, recorder = arguments(), Recorder()
    import jax

    from thespis.cli import main as command
    from thespis.engine.evaluation import Evaluator

    plain = Evaluator.play

    def play(self, policies, *rest):
        jax.block_until_ready(policies)
        with recorder.evaluation(int(policies.step[0])) as found:
            played = plain(self, policies, *rest)
            found |= {"returns": played.returns[0], "lengths": played.lengths[0]}
        return played

    Evaluator.play = play
    options = {"env": args.env, "seed": args.seed, "steps": args.steps}
    options |= {"eval-freq": args.eval_freq, "eval-episodes": args.episodes}
    options |= {"checkpoint-freq": args.steps}  # the others keep none on the way
    with tempfile.TemporaryDirectory() as folder:
        words = [f"--{k}={v}" for k, v in (options | {"out": folder}).items()]
        sys.argv = ["thespis", "train", *shlex.split(args.arm["options"]), *words, "--json"]
        if code := command():
            sys.exit(code)
    recorder.end("thespis", "jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco")


if __name__ == "__main__":
    main()
