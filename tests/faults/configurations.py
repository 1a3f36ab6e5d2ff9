"""Arguments of `thespis.train` that nobody meant: checked as they would be, without training."""

from __future__ import annotations

import dataclasses
import json
import random
import typing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.common import Result, chance, each


def odd(r: random.Random) -> Any:
    """A value of any type."""
    import jax.numpy as jnp

    return r.choice(
        [
            *(None, True, False, 0, -1, 1, 2, 3.5, -0.0, 1e-300, 1e300, 10**30, float("nan")),
            *(float("inf"), 1j, "", "x", "none", "8 8", "\x1b[31m", b"bytes", (), [], {}, set()),
            *((8, 8), [8, None], [[1, 2]], {"a": 1}, {1: 2}, {"replay": "own"}, {3}, range(3)),
            *(np.float32(0.5), np.int64(8), np.array(4), np.array([8, 8]), np.array([[1.0]])),
            *(np.array(["a", "b"]), np.array([None]), np.zeros(0), np.bool_(True), np.nan),
            *(jnp.float32(0.5), jnp.array([8, 8]), Decimal("0.5"), Fraction(1, 2), Path("here")),
            *(len, int, object(), lambda: 1, iter([1, 2]), Ellipsis, NotImplemented, json),
        ]
    )


def near(r: random.Random, kind: Any) -> Any:
    """A value of this type, or nearly."""
    args = [a for a in typing.get_args(kind) if isinstance(a, str)]
    if args:
        return r.choice(args)
    number = r.choice([r.randint(0, 64), r.random(), float(r.randint(1, 300))])
    return r.choice([number, number, [number, number], str(number), np.asarray(number), True])


def arguments(r: random.Random, known: dict[str, Any], names: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {"env": r.choice(["jax:pendulum", "jax:cartpole"])}
    for _ in range(r.choice([0, 1, 1, 2, 3, 6])):
        name = r.choice(names)
        given[name] = odd(r) if r.random() < 0.6 else near(r, known.get(name))
    return given


def campaign(count: int, seed: int, only: int | None, folder: Path) -> Result:
    from tests.faults.lines import vocabulary
    from thespis.errors import ThespisError
    from thespis.runs import config as configs
    from thespis.runs import config_file

    result, words = Result(), vocabulary()
    known = {o.name: o.kind for o in words["options"]}
    known |= {"pbt": bool, "preset": str, "options": dict, "hp": dict, "schedule": tuple}
    names = sorted(known)

    def try_one(i: int) -> None:
        r = chance("configuration", seed, i)
        algo = r.choice([*words["algos"] * 3, odd(r)])
        given = arguments(r, known, names)
        how, faults = "accepted", []
        try:
            config = configs.make(algo, given)
            config_file.write(folder, config, "")
            found, _ = config_file.read(folder)
            kept = {"hp": config.hp, "demos": config.demos}  # which may be an object
            same = dataclasses.replace(found, **kept) == config
            if not same or found.hp | config.hp != found.hp:
                faults.append(f"config.json says something else: {found}")
        except ThespisError as error:
            how, text = "one-line errors", str(error)
            if len(text.splitlines()) != 1 or " object at 0x" in text or len(text) > 2000:
                faults.append(f"not a clear line: {text[:300]!r}")
        except Exception as error:
            how = "fault"
            faults.append(f"{type(error).__name__}: {str(error)[:300]!r}")
        result.add(how, faults, f"configuration {i}, {algo!r} {given!r}"[:600])

    each(count, only, try_one)
    return result
