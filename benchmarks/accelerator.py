"""Updates and steps per second on whatever device JAX has, written into a file to be kept.

python benchmarks/accelerator.py [--device gpu] [--env brax:ant] [--quick] [-o FILE]

SAC with environments on the device, few and many members and environments, float32 and bfloat16,
each measured for some seconds after it was compiled. `--quick` only shows that it runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import jax

import thespis
from thespis.errors import ThespisError
from thespis.runs import estimate
from thespis.runs.directory import versions

RESULTS = Path(__file__).parent / "results" / "accelerators"
FIXED: dict[str, Any] = {
    "algo": "sac",
    "steps": 100_000,
    "buffer_size": 100_000,
    "learning_starts": 10_000,
    "batch_size": 256,
    "eval_episodes": 1,
}
GRID = {  # every combination is a cell
    "members": (1, 16),
    "envs": (1, 64),
    "hidden": ((256, 256), (1024, 1024)),
    "dtype": ("float32", "bfloat16"),
}
QUICK = {"members": (2,), "envs": (1,), "hidden": ((8,),), "dtype": ("float32", "bfloat16")}


def cell(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns what one combination takes, of all members together; or why it was not measured."""
    try:
        plan = thespis.plan(**FIXED | settings)
    except ThespisError as error:
        return settings | {"error": str(error)}
    if plan.times is None:
        return settings | {"error": f"{plan.memory:,} bytes are too few: needs {plan.needed:,}"}
    config, times = plan.config, plan.times
    warm_up = config.learning_starts or 0
    learned = config.members * (config.steps - warm_up)
    return settings | {
        "steps_per_second": learned / times.learning,
        "updates_per_second": learned * config.updates_per_step / times.learning,
        "steps_per_second_without_updates": config.members * warm_up / times.warm_up,
        "seconds_of_compiling": times.compiling,
        "devices": plan.devices,
    }


def measure(grid: dict[str, tuple], given: dict[str, Any]) -> dict[str, Any]:
    """Returns the device, the versions and the figures of all cells, and prints them."""
    cells = []
    for values in itertools.product(*grid.values()):
        one = cell(dict(zip(grid, values, strict=True)) | given)
        cells.append(one)
        print(
            "  ".join(f"{k} {v:,.0f}" if type(v) is float else f"{k} {v}" for k, v in one.items())
        )
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "device_count": jax.device_count(),
        "matmul_precision": jax.config.jax_default_matmul_precision,  # type: ignore
        "versions": versions(),
        "seconds_of_each": estimate.SECONDS,
        "settings": FIXED,
        "cells": cells,
    }


def main(argv: list[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "gpu", "tpu"))
    parser.add_argument("--env", default="jax:pendulum")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args(argv)
    found = measure(QUICK if asked.quick else GRID, {"env": asked.env, "device": asked.device})
    if all("error" in one for one in found["cells"]):
        raise SystemExit(found["cells"][0]["error"])
    name = f"{found['device']}-{asked.env}-{found['date']}.json".lower()
    file = asked.output or RESULTS / "".join(c if c.isalnum() or c in ".-" else "-" for c in name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=2) + "\n")
    print(file)
    return file


if __name__ == "__main__":
    main()
