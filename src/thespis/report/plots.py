"""Draws learning curves over seeds, from the files of runs."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from thespis.errors import ThespisError, one_line, printable
from thespis.report import statistics
from thespis.runs import directory, files, metrics
from thespis.values import show

# Okabe and Ito's colours without the yellow, which vanishes on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
LINES = ("-", "--", ":", "-.")  # the next style is used when all colours are taken
INK, GREY, FAINT = "#262626", "#8C8C8C", "#E8E8E8"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "figure.titlesize": 12,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.title_fontsize": 8.5,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.solid_joinstyle": "round",
    "text.parse_math": False,  # a $ in a name is a plain character
    "text.usetex": False,  # whatever a matplotlibrc in the current folder sets
    "pdf.fonttype": 42,  # publishers refuse Type 3 fonts
    "svg.hashsalt": "thespis",  # the same curves give the same file
}
WORDS = {
    "eval/mean_reward": "evaluation return",
    "eval/diversity_reward": "evaluation return of diversity",
    "eval/skill_dependence": "dependence on the skill",
    "rollout/ep_rew_mean": "training return",
}
STATISTICS = {"iqm": statistics.iqm, "mean": statistics.mean}
NEUTRAL = (  # settings that the label has anyway, or that do not influence learning
    *("algo", "env", "preset", "tuner", "objective", "options", "hp", "pbt"),
    *("seeds", "steps", "stop_reward", "patience", "device", "threads", "devices"),
    *("eval_freq", "eval_episodes", "log_freq", "log_keys", "checkpoint_freq"),
    *("wandb", "mlflow", "trackio", "identity", "resumes", "name", "tags", "notes"),
    *("command", "versions"),
)
UNDATED = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


@dataclass(frozen=True)
class Curve:
    """One line of a plot: (steps, values) of every seed. Curves of one `env` share a panel."""

    label: str
    runs: list[tuple[np.ndarray, np.ndarray]]
    env: str = ""


# --- from run folders to curves -------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Runs that are drawn as one curve: all their members are its seeds."""

    label: str
    env: str
    folders: list[Path]


def groups_of(run_folders: Iterable[Path | str]) -> list[Group]:
    """Groups runs that differ only in their seeds, or in settings that do not influence learning.

    Labels contain the settings in which groups differ. Runs that repeat a seed are not
    independent: each of them is a group of its own, named after its folder.
    """
    runs = [(f, directory.read_config(f)) for f in map(directory.find, run_folders)]
    differing = differences([config for _, config in runs])
    alike: dict[tuple, list[tuple[Path, dict]]] = {}
    for folder, config in runs:
        kind, settings = kind_of(config), settings_of(config)
        distinct = tuple((name, settings[name]) for name in differing[kind] if name in settings)
        alike.setdefault((kind, config["env"], distinct), []).append((folder, config))

    labels = [(", ".join([kind, *brief(distinct)]), env) for kind, env, distinct in alike]
    groups = []
    for (label, env), members in zip(labels, alike.values(), strict=True):
        seeds = [seed for _, config in members for seed in config.get("seeds", [])]
        if len(seeds) > len(set(seeds)):
            groups += [Group(f"{label} ({folder.name})", env, [folder]) for folder, _ in members]
            continue
        folders = [folder for folder, _ in members]
        unique = labels.count((label, env)) == 1
        groups.append(Group(label if unique else f"{label} ({folders[0].name})", env, folders))
    return [
        replace(group, label=printable(group.label), env=printable(group.env)) for group in groups
    ]


def kind_of(config: dict[str, Any]) -> str:
    """Returns algorithm, objective, preset and tuner, formatted for a label."""
    objective = config.get("options", {}).get("objective", config["algo"])  # of imitators
    objective = None if objective == config["algo"] else str(objective)
    more = objective, config.get("preset"), config.get("tuner")
    module, _, name = config["algo"].rpartition(":")
    name = name if module else name.upper().replace("_", " ")  # a user's class keeps its name
    return " ".join([name, *filter(None, more)])


def settings_of(config: dict[str, Any]) -> dict[str, str]:
    """Returns all other settings that influence learning, as text.

    All hyper-parameters that are tuned, or follow a schedule, are one setting.
    """
    hp, schedule = config.get("hp", {}), config.get("schedule") or []
    hypers = {name: show(value) for name, value in hp.items()}
    settings = config | config.get("options", {})
    settings |= {f"pbt.{name}": value for name, value in config.get("pbt", {}).items()}
    settings["schedule"] = f"{hypers} {schedule}" if schedule else ""
    if config.get("tuner"):
        settings["members"] = len(config["seeds"])
        settings["fixed"] = ", ".join(f"{name} = {value}" for name, value in hypers.items())
    elif not schedule:
        settings |= hypers
    text = lambda x: str(x).lower() if x is None or isinstance(x, bool) else show(x)
    skipped = lambda name: name in NEUTRAL or name.endswith("_given")
    return {name: text(value) for name, value in settings.items() if not skipped(name)}


def differences(configs: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Returns {kind: the settings in which its runs on one environment differ}."""
    differing: dict[str, list[str]] = {kind_of(config): [] for config in configs}
    values: dict[tuple[str, str, str], set[str]] = {}
    for config in configs:
        kind = kind_of(config)
        for name, value in settings_of(config).items():
            known = values.setdefault((kind, config["env"], name), set())
            known.add(value)
            if len(known) > 1 and name not in differing[kind]:
                differing[kind].append(name)
    return differing


def brief(settings: Sequence[tuple[str, str]]) -> list[str]:
    """Returns at most three settings in words, or two and how many more there are."""

    def words(name: str, value: str) -> str:
        if name == "schedule":
            return value and "scheduled"
        if name == "fixed":
            return value
        parts = value.split()
        return f"{name} = {value if len(parts) <= 4 else f'{parts[0]} … {parts[-1]}'}"

    texts = [text for text in (words(*setting) for setting in settings) if text]
    return texts if len(texts) <= 3 else [*texts[:2], f"{len(texts) - 2} more"]


def curves_of(run_folders: Iterable[Path | str], metric: str = "eval/mean_reward") -> list[Curve]:
    """Returns one curve over all members of every group of runs."""
    curves = [
        Curve(g.label, [run for f in g.folders for run in _members(f, metric)], g.env)
        for g in groups_of(run_folders)
    ]
    if not curves:
        raise ThespisError("no runs to plot: name at least one run folder")
    return curves


def _members(folder: Path, metric: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns (steps, values) of every member with values of this metric."""
    runs = list(members_of(table_with(folder, metric), metric).values())
    if not runs:
        raise ThespisError(f"{folder} has no {metric} yet: wait for its first value")
    return runs


def read_table(folder: Path) -> dict[str, np.ndarray]:
    """Reads the columns of metrics.csv; {} if it has no lines yet."""
    path, members = folder / "metrics.csv", len(directory.read_config(folder)["seeds"])
    columns = metrics.read(path, members) if os.path.lexists(path) else {}
    return columns if columns and len(columns["step"]) else {}


def table_with(folder: Path, metric: str) -> dict[str, np.ndarray]:
    """Reads the columns of metrics.csv, which must have lines and this metric."""
    columns = read_table(folder)
    if not columns:
        raise ThespisError(f"{folder} has no data yet: wait for its first lines in metrics.csv")
    if metric not in columns:
        names = [name for name in columns if name not in ("step", "member")]
        near = difflib.get_close_matches(metric, names, n=3, cutoff=0.3) or names
        path = folder / "metrics.csv"
        raise ThespisError(f"{path} has no metric {metric!r}: try {', '.join(near)}")
    return columns


def members_of(
    table: dict[str, np.ndarray], metric: str, against: str = "step"
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Returns {member: (steps or another column, values)} of those that have finite values."""
    x, member, value = table[against], table["member"], table[metric]
    present, members = np.isfinite(value) & np.isfinite(x), {}
    for m in np.unique(member[present]):
        selected = present & (member == m)
        # Sorted by step; if a step was written twice, the later line is used.
        steps, last = np.unique(x[selected][::-1], return_index=True)
        members[int(m)] = steps, value[selected][::-1][last]
    return members


# --- from curves to a picture ---------------------------------------------------------------


def learning_curve(
    curves: Sequence[Curve],
    path: Path | str,
    metric: str = "eval/mean_reward",
    statistic: Literal["iqm", "mean"] = "iqm",
    title: str | None = None,
) -> Path:
    """Draws every seed, their statistic and its 95 % bootstrap band; .png, .svg or .pdf."""
    path = Path(path)
    if not curves or not all(curve.runs for curve in curves):
        raise ThespisError("nothing to plot: a curve has no runs")
    if statistic not in STATISTICS:
        raise ThespisError(f"no statistic {statistic!r}: choose {' or '.join(STATISTICS)}")

    envs = list(dict.fromkeys(curve.env for curve in curves))
    labels = list(dict.fromkeys(curve.label for curve in curves))
    columns = 2 if len(envs) == 4 else min(len(envs), 3)
    rows = math.ceil(len(envs) / columns)
    width, height = (6.4, 4.0) if len(envs) == 1 else (3.6 * columns, 2.9 * rows + 0.4)

    with sheet(path, (width, height)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        for env, panel in zip(envs, panels.flat, strict=False):
            here = [curve for curve in curves if curve.env == env]
            for curve in here:
                _draw(panel, curve, *look(labels.index(curve.label)), STATISTICS[statistic])
            steps_axis(panel, max(steps[-1] for curve in here for steps, _ in curve.runs))
            value_axis(panel)
            panel.set_title(env)
            panel.set_ylabel(WORDS.get(metric, metric))
        for panel in panels.flat[len(envs) :]:
            panel.set_axis_off()
        if title and len(envs) == 1:
            panels[0, 0].set_title(title)
        elif title:
            figure.suptitle(title)
        name = "IQM" if statistic == "iqm" else statistic
        banded = any(len(curve.runs) > 1 for curve in curves)
        meaning = f"{name} over seeds with 95 % bootstrap interval" if banded else None
        _legend(figure, curves, labels, meaning)
    return path


def look(index: int) -> tuple[str, str]:
    """Returns the colour and the line style of the curve with this number."""
    return PALETTE[index % len(PALETTE)], LINES[index // len(PALETTE) % len(LINES)]


def _draw(panel, curve: Curve, colour: str, line: str, statistic) -> None:
    for steps, values in curve.runs:
        panel.plot(steps, values, _mark(steps), color=colour, linewidth=0.7, alpha=0.3, zorder=2)
    grid, values = statistics.on_grid(*zip(*curve.runs, strict=True))
    band = statistics.bootstrap(values, statistic)
    if band is not None:
        panel.fill_between(grid, *band, color=colour, alpha=0.18, linewidth=0, zorder=1)
    panel.plot(grid, statistic(values), line + _mark(grid), color=colour, linewidth=2, zorder=3)


def _mark(steps: np.ndarray) -> str:
    """Returns a dot for a single evaluation, of which a line would be invisible."""
    return "o" if len(steps) == 1 else ""


def steps_axis(panel, end: float, margin: float = 0.01) -> None:
    """Sets up the x axis for environment steps."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    end = max(end, 1)
    panel.set_xlabel("environment steps")
    panel.set_xlim(-0.01 * end, (1 + margin) * end)
    panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=True))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: thousands(x)))


def value_axis(panel) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    panel.grid(axis="y")


def rows_axis(panel, labels: Sequence[str]) -> None:
    """Sets up the y axis for named rows, the first at the top."""
    panel.set_yticks(range(len(labels)), labels)
    panel.set_ylim(len(labels) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)


@contextmanager
def sheet(path: Path | str, size: tuple[float, float]) -> Iterator[Any]:
    """Yields a figure in Thespis's style, and writes it to the file at the end."""
    path = Path(path)
    suffix = path.suffix[1:].lower()
    if suffix not in UNDATED:
        raise ThespisError(f"cannot write {path.name}: a plot is .png, .svg or .pdf")

    import matplotlib
    from matplotlib.figure import Figure

    large = np.errstate(over="ignore", invalid="ignore")  # numbers near 1e308 are told below
    with matplotlib.rc_context(STYLE), large:
        figure = Figure(figsize=size, layout="constrained")
        try:
            yield figure
            save(figure, path, suffix)
        except (ArithmeticError, ValueError) as error:
            text = f"cannot draw {path.name}: {one_line(error)}; check the values of the runs"
            raise ThespisError(text) from error


def save(figure: Any, path: Path, suffix: str) -> None:
    """Writes a figure to a file."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))  # pyright: ignore
    with files.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as file:
        options: Any = {"format": suffix, "metadata": UNDATED[suffix]}
        figure.savefig(Path(file.name), dpi=200, **options)


def legend(
    figure, lines: Sequence[tuple[str, str, str, float]], title: str | None = None, **options: Any
) -> None:
    """Adds a legend below the figure, of lines (name, colour, style, width)."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=c, ls=style, lw=width) for _, c, style, width in lines]
    options = {"ncols": len(lines), "handles": handles} | options
    names = [name for name, *_ in lines]
    shown = figure.legend(labels=names, loc="outside lower center", title=title, **options)
    shown.get_title().set_color(GREY)


def _legend(figure, curves: Sequence[Curve], labels: list[str], title: str | None) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles, lines = [], []
    for index, label in enumerate(labels):
        colour, style = look(index)
        seeds = sorted({len(curve.runs) for curve in curves if curve.label == label})
        band = [Patch(facecolor=colour, alpha=0.18)] * (seeds[-1] > 1)
        handles.append((*band, Line2D([], [], color=colour, ls=style, lw=2)))
        lines.append((f"{label} ({count(seeds)})", colour, style, 2))
    widest = max(1.8, 0.6 + 0.07 * max(len(name) for name, *_ in lines))  # inches
    columns = max(1, min(len(lines), int(figure.get_figwidth() / widest)))
    legend(figure, lines, title, ncols=columns, handles=handles)


def count(seeds: list[int]) -> str:
    """Returns "1 seed", "5 seeds" or "3–5 seeds", from sorted numbers."""
    text = "–".join(map(str, seeds[:1] + seeds[1:][-1:]))
    return f"{text} seed{'s' * (text != '1')}"


def thousands(steps: float) -> str:
    """Returns 20k for 20000, and 1.5M for 1500000."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:g}{letter}"
    return f"{steps:g}"
