"""The command `thespis`: finds a command by its name, and only then imports its module."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module

HELP = """\
usage: thespis COMMAND ... [--help], or thespis help COMMAND

  train ALGO --env ENV    train an agent, several seeds at once, or a population (--pbt)
  plan ALGO --env ENV     estimate memory, placement, compile time and training time
  config ALGO             print a file with all options, for train --config
  resume RUN              continue a run exactly where it stopped
  rerun RUN               train one agent with the hyper-parameters that won a population
  sweep ALGO,... --env .. train a table of algorithms, environments and choices
  eval RUN                play episodes with the trained policy and print their returns
  play RUN                make a video of the trained policy, or show it in a window
  zoo [NAME]              list the trained policies that come with Thespis, or play one
  demos RUN -o NAME       record demonstrations by the trained policy, to imitate
  plot RUN ... -o FILE    plot curves over seeds, comparisons over environments, populations
  export RUN              write the trained policy as plain NumPy code or as an ONNX model
  check-env ENV           check an environment for mistakes, and say how to fix them
  report RUN ...          write a page with everything about a run, or several compared
  runs                    list the runs and their states
  push RUN OWNER/NAME     upload a run to the Hugging Face hub, with a model card
  pull OWNER/NAME         download a run from the Hugging Face hub
  skills COMMAND RUN      plot, score, play and export skills, and plan with them
  completion SHELL        print a completion script for bash, zsh or fish
  list                    list algorithms, presets and environments

example: thespis train sac --env jax:pendulum --steps 20000 --seed 0
"""


ELSEWHERE = {"enjoy": "play RUN", "record_video": "play RUN -o FILE", "all_plots": "plot RUN"}


def imported_when_called(module: str, name: str) -> Callable[[list[str]], int | None]:
    return lambda argv: getattr(import_module(f"thespis.cli.{module}"), name)(argv)


COMMANDS = {
    "train": imported_when_called("training", "train"),
    "plan": imported_when_called("training", "plan"),
    "config": imported_when_called("training", "config"),
    "resume": imported_when_called("training", "resume"),
    "rerun": imported_when_called("training", "rerun"),
    "sweep": imported_when_called("sweeping", "sweep"),
    "eval": imported_when_called("using", "evaluate"),
    "play": imported_when_called("using", "play"),
    "zoo": imported_when_called("using", "zoo"),
    "demos": imported_when_called("using", "demos"),
    "plot": imported_when_called("showing", "plot"),
    "export": imported_when_called("using", "export"),
    "check-env": imported_when_called("showing", "check_env"),
    "report": imported_when_called("showing", "report"),
    "runs": imported_when_called("showing", "runs"),
    "push": imported_when_called("sharing", "push"),
    "pull": imported_when_called("sharing", "pull"),
    "skills": imported_when_called("skills", "main"),
    "completion": imported_when_called("completion", "completion"),
    "list": imported_when_called("showing", "list_"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs a command and returns the exit code of the process."""
    try:
        return run(argv)
    except KeyboardInterrupt:  # also while the modules of `run` are imported
        print("thespis: interrupted", file=sys.stderr)
        leave(130)
        return 130


def run(argv: list[str] | None) -> int:
    """Runs a command, whose mistakes are told in one line, and returns its exit code."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name == "help" and rest:  # thespis help train sac
        name, rest = rest[0], [*rest[1:], "--help"]
    if name in ("--help", "--help-all", "-h", "help"):
        print(HELP, end="")
        return 0

    from thespis import plugins
    from thespis.cli.common import HelpPrinted
    from thespis.errors import ThespisError, or_all
    from thespis.xla import compile_cache

    if name in ("--version", "version"):
        from thespis import __version__

        print(f"thespis {__version__}")
        return 0
    compile_cache.keeping = compile_cache.keeping or argv is None
    gc.set_threshold(50_000)  # collecting the garbage of imports and traces takes a while
    plugins.also[:] = [os.getcwd()]  # so that --env module:id finds the user's module
    try:
        if name not in COMMANDS:
            raise ThespisError(f"unknown command {name!r}{or_all(name, COMMANDS)}{as_algo(name)}")
        return COMMANDS[name](["--output" if word == "-o" else word for word in rest]) or 0
    except HelpPrinted:
        return 0
    except ThespisError as error:
        print(f"thespis: {' '.join(str(error).splitlines())}", file=sys.stderr)
        leave(2)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def as_algo(name: str) -> str:
    """Returns a hint if the command `train` was forgotten, or is one of another library."""
    from thespis.algos import registry

    known = f"train {name}" if name in registry.names() else ELSEWHERE.get(name)
    return f"; or is it: thespis {known} ...?" if known else ""


def leave(code: int) -> None:
    """Tells the other processes of a run on several hosts that this one is leaving."""
    if multihost := sys.modules.get("thespis.xla.multihost"):
        multihost.leave(code)


if __name__ == "__main__":
    sys.exit(main())
