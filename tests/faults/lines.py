"""Command lines that nobody meant: parsed as they would be, but nothing is trained."""

from __future__ import annotations

import os
import random
import typing
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any
from unittest import mock

from tests.faults.common import Result, chance, each, say

ODD = [
    *("", " ", "-", "--", "---", "=", "0", "-1", "1e400", "nan", "-inf", "1e6", "1_000", "²", "٣"),
    *("none", "None", "true", "no", "[]", "{}", "()", "'", '"', "\\", "\n", "\t", "\x1b[31m"),
    *("0-4", "4-0", "0-99999999999", "1,2,3", ",,", "1 2 3", "a=b", "a=b=c", "../..", "/dev/null"),
    *("/nowhere/at/all", "~", "*", "jax:pendulum", "jax:", ":", "a:b:c", "gamma=log:0:1", "émigré"),
    *("9" * 400, "x" * 3000, "💥", "\u202e", "--help", "-h", "-o", "--json", "--no-json", "1.5"),
]


class Accepted(Exception):
    """The line was accepted: running it is beyond this campaign."""


def accept(*given: Any, **more: Any):
    raise Accepted


@contextmanager
def nothing_is_done():
    """Configurations are made and checked; runs are neither trained nor opened."""
    from thespis import api
    from thespis.runs import config as configs

    functions = api.train, api.plan
    own = {
        p.name
        for f in functions
        for p in signature(f).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }

    def train(algo, env=None, **given):
        options = {name: x for name, x in given.items() if name not in own}
        configs.make(algo, {"env": env} | options)
        raise Accepted

    with (
        mock.patch.object(api, "train", train),
        mock.patch.object(api, "plan", train),
        mock.patch("thespis.sweeps.sweep.sweep", accept),
        mock.patch("thespis.envs.check.check_env", accept),
        mock.patch("thespis.xla.multihost.join", accept),
    ):
        yield


def vocabulary() -> dict[str, list]:
    """Every command and the options it knows."""
    from thespis.algos import ALGORITHMS
    from thespis.cli.command import COMMANDS
    from thespis.cli.training import tuner_options
    from thespis.runs.config import NOT_OPTIONS, Config
    from thespis.runs.config_names import ALIASES, COMPUTED
    from thespis.values import Option, fields

    every = [*fields(Config, skip=NOT_OPTIONS), *tuner_options(), Option("seed", int)]
    every += [Option(name, str) for name in (*ALIASES, *COMPUTED)]
    for algorithm in ALGORITHMS.values():
        for group, prefix in ((algorithm, "algo."), (algorithm.Hyper, "hp.")):
            every += fields(group, "", skip=("spec",)) + fields(group, prefix, skip=("spec",))
    small = ["json", "output", "member", "best", "episodes", "kind", "metric", "format", "state"]
    small += ["coordinator", "processes", "process", "wait", "out", "steps", "every", "video_mb"]
    every += [Option(name, str) for name in small]
    return {"commands": list(COMMANDS), "algos": list(ALGORITHMS), "options": every}


def value(r: random.Random, kind: Any) -> str:
    """Words that may follow an option of this type, or may not."""
    args = typing.get_args(kind)
    plain = [a for a in args if isinstance(a, str)]
    if plain and r.random() < 0.5:
        return r.choice(plain)
    if r.random() < 0.3:
        return r.choice(ODD)
    if kind is bool:
        return r.choice(["", "true", "false"])
    number = r.choice([r.randint(-3, 300), r.random(), 10 ** r.randint(-9, 12), -r.random()])
    return " ".join(str(number) for _ in range(r.choice([1, 1, 1, 2, 3])))


def mistyped(r: random.Random, word: str) -> str:
    """One letter more, less or another."""
    i = r.randrange(len(word) + 1)
    letter = r.choice("abcxyz-_.=0 é")
    return r.choice([word[:i] + letter + word[i:], word[: i - 1] + word[i:], word[:i] + letter])


def line(r: random.Random, known: dict[str, list]) -> list[str]:
    """A command line."""
    command = r.choice(["train"] * 20 + ["plan"] * 4 + known["commands"])
    words = [command]
    if command in ("train", "plan"):
        words += [r.choice(known["algos"])]
        envs = ["jax:pendulum", "jax:cartpole", "Pendulum-v1", "CartPole-v1"]
        words += ["--env", r.choice(ODD if r.random() < 0.1 else envs)]
    elif r.random() < 0.7:
        words.append(r.choice([*ODD, "runs", "nowhere", "runs/sac/jax-pendulum_1"]))
    for _ in range(r.choice([0, 1, 1, 2, 3, 5, 8])):
        option = r.choice(known["options"])
        name = option.name.replace("_", r.choice("-_"))
        name = mistyped(r, name) if r.random() < 0.1 else name
        given = value(r, option.kind)
        joined = r.random() < 0.3
        words += [f"--{name}={given}"] if joined else [f"--{name}", *given.split(" ")]
    if r.random() < 0.2:
        i = r.randrange(len(words))
        words[i] = r.choice([r.choice(ODD), mistyped(r, words[i])])
    if r.random() < 0.1:
        r.shuffle(words)
    return words


def campaign(count: int, seed: int, only: int | None, folder: Path) -> Result:
    result, known = Result(), vocabulary()
    os.chdir(folder)

    def try_one(i: int) -> None:
        words = line(chance("line", seed, i), known)
        try:
            said = say(*words, catch=(Accepted,))
        except Accepted:
            result.add("accepted", [], "")
            return
        faults = said.faults(0, 2)
        if said.code == 2 and len(said.err.splitlines()) != 1:
            faults.append(f"{len(said.err.splitlines())} lines: {said.err[:300]!r}")
        how = "one-line errors" if said.code == 2 else "printed help or a list"
        result.add(how if not faults else "fault", faults, f"line {i}, {words}"[:600])

    with nothing_is_done():
        each(count, only, try_one)
    return result
