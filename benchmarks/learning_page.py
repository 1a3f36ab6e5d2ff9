"""Write docs/learning.md and its plots from the results of learning.py alone."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from learning_cells import Arm, Cell, Stage, Table

from thespis.report.plots import FAINT, INK, LINES, PALETTE, STYLE
from thespis.report.statistics import bootstrap, improvement, iqm, pooled_iqm, stratified

# Returns of a random policy and of TD3 after a million steps.
NORMAL = {
    "HalfCheetah": (-289.4, 10574.0),
    "Hopper": (18.8, 3226.0),
    "Walker2d": (2.8, 3946.0),
    "Ant": (-70.3, 3942.0),
}
STEPS = (10_000, 20_000, 50_000, 100_000)
SECONDS = (60, 120, 240, 480, 960, 1920)

HEAD = Path(__file__).with_name("learning_head.md")


@dataclass(frozen=True)
class Run:
    """One finished cell: means over episodes at every evaluation."""

    cell: Cell
    steps: np.ndarray
    seconds: np.ndarray
    returns: np.ndarray
    result: dict[str, Any]

    @classmethod
    def of(cls, cell: Cell, result: dict[str, Any]) -> Run:
        rows = [x for x in result["evaluations"] if x["step"] <= cell.steps]
        column = lambda name: np.array([np.mean(x[name]) for x in rows])
        return cls(cell, column("step"), column("cpu_seconds"), column("returns"), result)

    def at(self, points: Sequence[float], axis: str) -> np.ndarray:
        """Returns when so many steps were taken, or seconds spent; nan outside of what it has."""
        return np.interp(points, getattr(self, axis), self.returns, np.nan, np.nan)

    def score(self, points: Sequence[float], axis: str) -> np.ndarray:
        low, high = NORMAL[plain(self.cell.env)]
        return (self.at(points, axis) - low) / (high - low)


def plain(env: str) -> str:
    """HalfCheetah-v5 -> HalfCheetah."""
    return env.rpartition("-v")[0] or env


class Results:
    """What there is of a stage: the runs of every arm in every environment, in order of seeds."""

    def __init__(self, table: Table, stage: Stage, results: Path):
        self.stage = stage
        self.runs: dict[tuple[str, str], list[Run]] = {}
        for name in stage.arms:
            for env in stage.envs:
                cells = [Cell(table.arms[name], env, x, stage.steps) for x in stage.seeds]
                done = [Run.of(c, c.result(results)) for c in cells if c.done(results)]
                self.runs[name, env] = done

    @property
    def files(self) -> set[Path]:
        """Where its runs are from."""
        return {run.cell.path(Path()) for runs in self.runs.values() for run in runs}

    def whole(self, arm: str, envs: Sequence[str]) -> bool:
        return all(len(self.runs[arm, env]) == len(self.stage.seeds) for env in envs)

    def finished(self, *envs: str) -> list[str]:
        """Arms with all seeds in these environments, or in all."""
        return [arm for arm in self.stage.arms if self.whole(arm, envs or self.stage.envs)]

    def whole_runs(self, env: str) -> list[Run]:
        """Those of arms with all seeds in the environment."""
        return [run for arm in self.finished(env) for run in self.runs[arm, env]]

    def scores(self, arm: str, points: Sequence[float], axis: str) -> list[np.ndarray]:
        """Of every environment [seeds, points]."""
        found = [self.runs[arm, env] for env in self.stage.envs]
        return [np.stack([run.score(points, axis) for run in runs]) for runs in found]

    def returns(self, arm: str, env: str, points: Sequence[float], axis: str) -> np.ndarray:
        return np.stack([run.at(points, axis) for run in self.runs[arm, env]])

    @property
    def normal(self) -> bool:
        """Whether there are scores."""
        return all(plain(env) in NORMAL for env in self.stage.envs)


# --- tables -----------------------------------------------------------------------------------


def number(value: float, low: float | None, high: float | None, form: str) -> str:
    if np.isnan(value):
        return "–"
    if low is None:
        return format(value, form)
    return f"{value:{form}} ({low:{form}} … {high:{form}})"


def with_interval(scores: list[np.ndarray], form: str = ".2f") -> list[str]:
    """The pooled interquartile mean at every point, with its interval."""
    value, interval = pooled_iqm(scores), stratified([scores], pooled_iqm)
    low, high = interval or ([None] * len(value),) * 2
    return [number(*x, form) for x in zip(value, low, high, strict=True)]


def rows(head: Sequence[str], lines: list[list[str]]) -> str:
    """A table in Markdown; the first column is of words, the others of numbers."""
    aligned = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(head), aligned, *lines])


def by_steps(found: Results) -> str:
    stage, arms = found.stage, found.finished()
    marks, base = [x for x in STEPS if x <= stage.steps], arms[0]
    lines = []
    for arm in arms:
        runs = [run for env in stage.envs for run in found.runs[arm, env]]
        cost = f"{np.median([run.seconds[-1] for run in runs]):,.0f}"
        versus = "" if arm == base else chance(found, arm, base)
        cells = with_interval(found.scores(arm, marks, "steps"))
        lines.append([f"`{arm}`", *cells, versus, cost])
    head = ["arm", *(f"{x:,} steps" for x in marks), f"better than `{base}`", "CPU-seconds"]
    return rows(head, lines)


def chance(found: Results, arm: str, base: str) -> str:
    """How likely a run of an arm is to beat one of another, at the last step."""
    last = [found.stage.steps]
    pair = [found.scores(x, last, "steps") for x in (arm, base)]
    interval = stratified(pair, improvement)
    low, high = (float(x[0]) for x in interval) if interval else (None, None)
    return number(float(np.asarray(improvement(*pair))[0]), low, high, ".0%")


def by_seconds(found: Results) -> str:
    """Empty if no arm has come to one of the marks in all of its runs."""
    arms = found.finished()
    marks = [x for x in SECONDS if any(reached(found, arm, x) for arm in arms)]
    if not marks:
        return ""
    lines = [[f"`{arm}`", *with_interval(found.scores(arm, marks, "seconds"))] for arm in arms]
    return rows(["arm", *(f"{x:,} CPU-seconds" for x in marks)], lines)


def reached(found: Results, arm: str, seconds: float) -> bool:
    return not any(np.isnan(x).any() for x in found.scores(arm, [seconds], "seconds"))


def by_environment(found: Results) -> str:
    """Interquartile means of returns at the last step, and costs where there are no scores."""
    stage, lines = found.stage, []
    more = ["CPU-seconds"] if not found.normal else []
    for arm in stage.arms:
        cells = []
        for env in stage.envs:
            if arm not in found.finished(env):
                cells.append(f"{len(found.runs[arm, env])} of {len(stage.seeds)} seeds")
                continue
            values = found.returns(arm, env, [stage.steps], "steps")
            low, high = bootstrap(values, iqm) or ([None], [None])
            cells.append(number(float(iqm(values)[0]), low[0], high[0], ",.0f"))
        if spent := [run.seconds[-1] for env in stage.envs for run in found.runs[arm, env]]:
            cost = [f"{np.median(spent):,.0f}"] if more else []
            lines.append([f"`{arm}`", *cells, *cost])
    return rows(["arm", *stage.envs, *more], lines)


def every_cell(runs: list[Run]) -> str:
    marks = [x for x in STEPS if any(x <= run.steps[-1] for run in runs)]
    lines = []
    for run in runs:
        cells = [number(float(x), None, None, ",.0f") for x in run.at(marks, "steps")]
        r = run.result
        speed = np.median([x["gflops"] for x in r["evaluations"]])
        more = [f"{r['steps']:,}", f"{run.seconds[-1]:,.0f}", f"{speed:.0f}", r["began"][:10]]
        lines.append([f"`{run.cell.arm.name}`", run.cell.env, str(run.cell.seed), *cells, *more])
    head = ["arm", "environment", "seed", *(f"at {x:,}" for x in marks)]
    return rows([*head, "steps", "CPU-seconds", "GFLOP per CPU-second", "day"], lines)


# --- plots ------------------------------------------------------------------------------------


def curve(runs: Sequence[np.ndarray]) -> tuple[np.ndarray, float, float]:
    """From the latest start to the earliest end -> 100 points between."""
    start, end = max(x[0] for x in runs), min(x[-1] for x in runs)
    return np.linspace(start, end, 100), start, end


def draw(axes, found: Results, axis: str, env: str | None) -> None:
    """A line per arm: returns in one environment, or scores over all."""
    for i, arm in enumerate(found.stage.arms):
        envs = [env] if env else list(found.stage.envs)
        if not found.whole(arm, envs):
            continue
        runs = [run for env in envs for run in found.runs[arm, env]]
        points, start, end = curve([getattr(run, axis) for run in runs])
        if start >= end:
            continue
        values = found.returns(arm, env, points, axis) if env else None
        if values is None:
            scores = found.scores(arm, points, axis)
            middle, interval = pooled_iqm(scores), stratified([scores], pooled_iqm)
        else:
            middle, interval = iqm(values), bootstrap(values, iqm)
        unit = 1000 if axis == "steps" else 1
        style = {"color": PALETTE[i % len(PALETTE)], "ls": LINES[i // len(PALETTE)]}
        axes.plot(points / unit, middle, label=arm, lw=1.8, **style)
        if interval:
            axes.fill_between(points / unit, *interval, color=style["color"], alpha=0.12, lw=0)
    axes.set_xlabel("thousand steps" if axis == "steps" else "CPU-seconds")
    axes.grid(color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlim(left=0)


def plot(found: Results, path: Path) -> None:
    """Columns: the score over all environments, then each of them; rows: steps, CPU-seconds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    stage = found.stage
    columns: list[str | None] = [env for env in stage.envs if found.finished(env)]
    if found.normal and found.finished() and len(stage.envs) > 1:
        columns.insert(0, None)
    with plt.rc_context(STYLE):
        size = {"figsize": (3.4 * len(columns) + 0.4, 6.4), "squeeze": False}
        figure, grid = plt.subplots(2, len(columns), layout="constrained", **size)
        for row, axis in zip(grid, ("steps", "seconds"), strict=True):
            for axes, env in zip(row, columns, strict=True):
                draw(axes, found, axis, env)
                axes.set_title((env or "score over all"), color=INK)
        known = {}
        for axes in grid.flat:
            lines, labels = axes.get_legend_handles_labels()
            known |= dict(zip(labels, lines, strict=True))
        order = [x for x in stage.arms if x in known]
        handles = [known[x] for x in order]
        ncols = min(len(order), 5, 2 * len(columns))
        figure.legend(handles, order, loc="outside lower center", ncols=ncols)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, facecolor="white")
        plt.close(figure)


# --- the page ---------------------------------------------------------------------------------


def section(found: Results, docs: Path) -> str:
    stage, image = found.stage, f"img/learning-{found.stage.name}.png"
    parts = [f"## {stage.title or stage.name}"]
    counted = f"{', '.join(stage.envs)}; seeds {', '.join(map(str, stage.seeds))}"
    parts.append(f"{counted}; {stage.steps:,} steps.")
    if stage.reading:
        parts.append(stage.reading.strip())
    if any(len(run.steps) > 1 for env in stage.envs for run in found.whole_runs(env)):
        plot(found, docs / image)
        about = "Interquartile means over seeds, with 95 % intervals."
        parts.append(f"![Returns against steps and CPU-seconds]({image})\n\n{about}")
    if found.normal and found.finished():
        parts.append("Score at equal steps, and the median of what the whole run took:")
        parts.append(by_steps(found))
        if seconds := by_seconds(found):
            parts += ["Score at equal CPU-seconds:", seconds]
    parts += [f"Return after {stage.steps:,} steps:", by_environment(found)]
    missing = [
        f"`{arm}` ({sum(len(found.runs[arm, env]) for env in stage.envs)})"
        for arm in stage.arms
        if arm not in found.finished()
    ]
    if missing:
        total = len(stage.envs) * len(stage.seeds)
        words = f"Not complete, so without a score (cells done, of {total}): {', '.join(missing)}."
        parts.append(textwrap.fill(words, 130))
    return "\n\n".join(parts)


def arms_table(arms: list[Arm]) -> str:
    return rows(["arm", "what it is"], [[f"`{x.name}`", f"`{x.call}`"] for x in arms]).replace(
        "---:", "---"
    )


def merged(results: list[dict[str, Any]], what: Callable[[dict[str, Any]], str]) -> str:
    return "; ".join(sorted({what(x) for x in results}))


def everything(table: Table, results: Path) -> tuple[list[Run], int]:
    """All runs, in the order of the table, and the number of results that belong to no arm."""
    runs, unlike = [], 0
    for path in sorted(results.rglob("*.json")):
        result, arm = json.loads(path.read_text()), table.arms.get(path.parts[-3])
        if arm is None or arm.given != result["arm"]:
            unlike += 1
            continue
        runs.append(Run.of(Cell(arm, result["env"], result["seed"], result["steps"]), result))
    order = list(table.arms)
    return sorted(runs, key=lambda run: order.index(run.cell.arm.name)), unlike


def write(table: Table, results: Path, docs: Path) -> str:
    """Write the page and its plots -> what was written, in a line."""
    runs, unlike = everything(table, results)
    if not runs:
        return "there are no results yet"
    sections, seen = [], set()
    for stage in table.stages.values():
        found = Results(table, stage, results)
        if found.files - seen:  # else it would say again what others have said
            sections.append(section(found, docs))
            seen |= found.files
    env_of = lambda x: f"{x[0]} {x[1][0]:g} and {x[1][1]:g}"
    constants = ", ".join(map(env_of, NORMAL.items()))
    head = HEAD.read_text().format(
        eval_freq=table.eval_freq, episodes=table.episodes, constants=constants
    )
    parts = [head.strip(), *sections]
    used = [arm for arm in table.arms.values() if any(run.cell.arm == arm for run in runs)]
    parts += ["## Arms", arms_table(used)]
    told = [run.result for run in runs]
    machine = merged(told, lambda x: f"{x['cores']} cores of {x['processor']}")
    names = lambda x: " ".join(f"{k} {v}" for k, v in x["versions"].items())
    of = {x: [r for r in told if r["library"] == x] for x in sorted({r["library"] for r in told})}
    lines = [f"- {library}: {merged(found, names)}" for library, found in of.items()]
    ours = sorted({r["commit"] for r in told if r.get("commit")})
    speeds = [x["gflops"] for r in told for x in r["evaluations"]]
    loads = [x for r in told for x in r["load"]]
    parts += [
        "## Every cell",
        f"On {machine}, which other processes used as well ({min(loads):g} to {max(loads):g} ran "
        "or waited at a time). What that does to a CPU-second is told by the matrix products that "
        f"one makes, measured at every evaluation: {min(speeds):.0f} to {max(speeds):.0f} GFLOP, "
        f"{np.median(speeds):.0f} in the median.",
        "\n".join(lines) + (f"\n- commits of Thespis: {', '.join(ours)}" if ours else ""),
        "To train what is missing, or on another machine: `python benchmarks/learning.py` "
        "(`--list` shows what there is). Each result has the command of its worker.",
        every_cell(runs),
    ]
    if unlike:
        parts.append(f"Left out, as the table has no such arm or other options: {unlike} results.")
    (docs / "learning.md").write_text("\n\n".join(parts) + "\n")
    return f"{docs / 'learning.md'}: {len(runs)} cells"
