"""Run folders in which something has changed: a bad byte, a lost file, a number of another kind.

Every command then succeeds, or ends with a one-line error. Damaged logs and plots never keep a run
from going on; and a run that goes on has the same numbers as if nothing had changed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from tests.faults.common import Result, Said, chance, each, say, undrawn
from tests.faults.kinds import differences, folder_of, words

MANY = ("one agent", "a population", "priorities")
STEPS, HALF = 200, 100
LOGS = ("metrics.csv", "status.json", "compiled.json", "report.html")
TEXTS = [
    "",
    "=0.5",
    "²",
    "nan",
    "-inf",
    "1e999",
    "x",
    "8",
    "-1",
    "0x10",
    '"',
    "\x1b[2J",
    "1,2",
    "\0",
]
VALUES: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1,
        7,
        1.5,
        1e300,
        10**30,
        float("nan"),
        "",
        "x",
        "\x1b[2J",
        "../..",
        [],
        {},
    ),
    *([1], ["x"], {"a": 1}, [[]], "jax:cartpole", "0"),
]


# --- changes: each takes random numbers and a path, and does something to it ------------------


def flip(r: random.Random, data: bytes) -> bytes:
    i = r.randrange(len(data))
    return data[:i] + bytes([data[i] ^ (1 << r.randrange(8))]) + data[i + 1 :]


def cut(r: random.Random, data: bytes) -> bytes:
    return data[: r.randrange(len(data))]


def without(r: random.Random, data: bytes) -> bytes:
    i = r.randrange(len(data))
    return data[:i] + data[i + r.randint(1, 40) :]


def with_more(r: random.Random, data: bytes) -> bytes:
    i = r.randrange(len(data) + 1)
    more = r.choice([r.randbytes(r.randint(1, 30)), b"\0" * 64, data[:100], b"\n", b",", b"\r\n"])
    return data[:i] + more + data[i:]


def zeros(r: random.Random, data: bytes) -> bytes:
    i = r.randrange(len(data))
    n = min(r.choice([1, 16, 512]), len(data) - i)
    return data[:i] + b"\0" * n + data[i + n :]


def empty(r: random.Random, data: bytes) -> bytes:
    return b""


def json_node(r: random.Random, data: bytes) -> bytes:
    """A value of a JSON file becomes another, is lost or is new."""
    tree = json.loads(data)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(tree)
    node, key = r.choice(places)
    if r.random() < 0.3:
        del node[key]
    elif r.random() < 0.1 and isinstance(node, dict):
        node["more"] = r.choice(VALUES)
    else:
        node[key] = r.choice(VALUES)
    return json.dumps(tree, indent=2).encode()


def csv_cell(r: random.Random, data: bytes) -> bytes:
    """A cell, a line or a column of a table becomes another."""
    rows = [line.split(",") for line in data.decode().split("\n")]
    i = r.randrange(len(rows))
    how = r.randrange(5)
    if how == 0:
        rows.insert(r.randrange(len(rows)), rows[i])
    elif how == 1:
        del rows[i]
    elif how == 2:
        j = r.randrange(len(rows[0]))
        rows = [row[:j] + row[j + 1 :] for row in rows]
    else:
        rows[i][r.randrange(min(len(rows[i]), 4 if how == 3 else 10**6))] = r.choice(TEXTS)
    return "\n".join(map(",".join, rows)).encode()


BYTES = [flip, flip, cut, without, with_more, zeros, empty]


def change(r: random.Random, folder: Path) -> tuple[str, str]:
    """Change something below a folder -> the file, and how."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    weight = lambda p: 6 if p.parent == folder else 1
    file = r.choices(files, [weight(p) for p in files])[0]
    name, data = str(file.relative_to(folder)), file.read_bytes()
    if r.random() < 0.15:
        return name, misplace(r, file)
    how = r.choice(BYTES)
    if file.suffix == ".json" and r.random() < 0.7:
        how = json_node
    if file.suffix == ".csv" and r.random() < 0.7:
        how = csv_cell
    if data:
        try:
            new = how(r, data)
        except (ValueError, TypeError, IndexError):  # another change has left no JSON and no table
            how = flip
            new = how(r, data)
        file.write_bytes(new)
    return name, how.__name__


def misplace(r: random.Random, file: Path) -> str:
    """A file that is lost, or something else than a file."""
    how = r.choice(["lost", "lost", "folder", "link to nowhere", "link to a device", "folder lost"])
    file.unlink()
    if how == "folder":
        file.mkdir()
    elif how == "link to nowhere":
        file.symlink_to("nowhere")
    elif how == "link to a device":
        file.symlink_to(os.devnull)
    elif how == "folder lost" and file.parent.name not in ("", file.parents[-1].name):
        if (file.parent / "config.json").exists():
            return "lost"
        shutil.rmtree(file.parent)
    return how


# --- the campaign ---------------------------------------------------------------------------


def commands(run: Path, out: Path) -> dict[str, Said]:
    """Every command that reads a run, in turn; the last goes on with it."""
    shutil.rmtree(out, ignore_errors=True)
    return {
        "runs": say("runs", "--out", run.parent, "--json"),
        "eval": say("eval", run, "--episodes", 2, "--json"),
        "plot": say("plot", run, "-o", out / "curves.png", "--json"),
        "report": say("report", run, "--json"),
        "export": say("export", run, "-o", out / "export", "--json"),
        "resume": say("resume", run, "--steps", STEPS, "--json"),
    }


def campaign(count: int, seed: int, only: int | None, folder: Path) -> Result:
    from tests import small  # noqa: F401 (keeps programs between runs)

    undrawn()
    result = Result()
    kinds = MANY if count >= 100 else MANY[1:2]
    halves, wholes, returns = {}, {}, {}
    for kind in kinds:
        for steps, runs in ((HALF, halves), (STEPS, wholes)):
            out = folder / f"{kind} {steps}"
            assert say("train", *words(kind, steps=steps), "--out", out).code == 0
            runs[kind] = folder_of(out)
        said = say("eval", halves[kind], "--episodes", 2, "--json")
        returns[kind] = json.loads(said.out)["returns"]

    def try_one(i: int) -> None:
        r = chance("folder", seed, i)
        kind = kinds[i % len(kinds)]
        run = folder / "runs" / "changed"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(halves[kind], run)
        changes = [change(r, run) for _ in range(r.choice([1, 1, 1, 2]))]
        said = commands(run, folder / "out")
        faults = [f"{command}: {x}" for command, ended in said.items() for x in ended.faults(0, 2)]
        if said["runs"].code != 0:
            faults.append(f"runs: ended with {said['runs'].code}: {said['runs'].err}")
        names, hows = {name for name, _ in changes}, {how for _, how in changes}
        chosen = any(name.startswith("config.json") for name in names)
        plain = not any(how.startswith(("folder", "link")) for how in hows)
        if all(name in LOGS or name.startswith(("tensorboard", "plots")) for name in names):
            if plain and said["resume"].code != 0:
                faults.append(f"a log keeps it from going on: {said['resume'].err}")
            if said["eval"].code == 0 and json.loads(said["eval"].out)["returns"] != returns[kind]:
                faults.append("eval tells other returns")
        if said["resume"].code == 0 and not chosen and not faults:
            found = differences(wholes[kind], run, exact=True)
            logs = names & {"metrics.csv", "lineage.csv"}
            faults += [x for x in found if not logs or x.startswith(("array", "status"))]
        codes = {ended.code for ended in said.values()}
        how = "all six succeeded" if codes == {0} else "one-line errors"
        result.add(how if not faults else "fault", faults, f"folder {i}, {kind}, {changes}")

    each(count, only, try_one)
    return result
