"""The command `thespis`. Heavy libraries are imported by the verb that needs them."""

from __future__ import annotations

import gc
import os
import sys

from thespis import __version__, plugins
from thespis.cli import showing, skills, training, using
from thespis.errors import ThespisError, or_all
from thespis.xla import compile_cache

HELP = """\
usage: thespis VERB ... [--help]

  train ALGO --env ENV    train an agent, several seeds at once, or a population (--pbt)
  plan ALGO --env ENV     what that would take: memory, placement, compilation, time
  resume RUN              go on exactly where a run stopped
  rerun RUN               train one agent with the hyper-parameters that won a population
  eval RUN                episodes of the trained policy, and their returns
  play RUN                a video of the trained policy, or a window
  demos RUN -o NAME       record the trained policy, for others to imitate
  plot RUN ... -o FILE    curves over seeds, comparisons over environments, populations
  export RUN              the trained policy for elsewhere: NumPy alone, or ONNX
  check-env ENV           whether an environment keeps the contract, and what to mend
  report RUN ...          a page with everything about a run, or several compared
  runs                    the runs there are, and how they are
  skills VERB RUN         what skills do, how good they are, and plans made of them
  list                    algorithms, presets, environments

example: thespis train sac --env jax:pendulum --steps 20000 --seed 0
"""

VERBS = {
    "train": training.train,
    "plan": training.plan,
    "resume": training.resume,
    "rerun": training.rerun,
    "eval": using.evaluate,
    "play": using.play,
    "demos": using.demos,
    "plot": showing.plot,
    "export": using.export,
    "check-env": showing.check_env,
    "report": showing.report,
    "runs": showing.runs,
    "skills": skills.main,
    "list": showing.list_,
}


def main(argv: list[str] | None = None) -> int:
    if argv is None:
        argv, compile_cache.keeping = sys.argv[1:], True
    gc.set_threshold(50_000)  # looking through all that imports and traces leave takes a while
    if not argv or argv[0] in ("--help", "--help-all", "-h", "help"):
        print(HELP, end="")
        return 0
    if argv[0] in ("--version", "version"):
        print(f"thespis {__version__}")
        return 0
    plugins.also[:] = [os.getcwd()]  # so that --env module:id finds the user's module
    try:
        if argv[0] not in VERBS:
            raise ThespisError(f"unknown verb {argv[0]!r}{or_all(argv[0], VERBS)}{as_algo(argv)}")
        return VERBS[argv[0]](["--output" if word == "-o" else word for word in argv[1:]]) or 0
    except ThespisError as error:
        print(f"thespis: {' '.join(str(error).splitlines())}", file=sys.stderr)
        leave(2)
        return 2
    except KeyboardInterrupt:
        print("thespis: interrupted", file=sys.stderr)
        leave(130)
        return 130
    except BrokenPipeError:  # nobody reads on, as after `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def as_algo(argv: list[str]) -> str:
    """What to say to those who forgot the verb `train`."""
    from thespis.algos import registry

    return f"; or is it: thespis train {argv[0]} ...?" if argv[0] in registry.names() else ""


def leave(code: int) -> None:
    """Let others who train along know that this process is going."""
    if hosts := sys.modules.get("thespis.xla.multihost"):
        hosts.leave(code)


if __name__ == "__main__":
    sys.exit(main())
