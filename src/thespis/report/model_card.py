"""Writes the README.md of a run on the Hugging Face hub: a model card.

Names, commands and versions come from the run, which may be untrusted: they are escaped in Markdown
and quoted in YAML, and each is one line.
"""

from __future__ import annotations

import math
import re
from typing import Any

from thespis.errors import printable, shown
from thespis.report.facts import commands, facts
from thespis.report.source import Source
from thespis.report.table import decimal

PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")  # all of ASCII, which can be escaped in Markdown
CODE = " " * 4  # an indented line is code, whatever its content


def model_card(source: Source, name: str, curve: str | None, video: str | None) -> str:
    """Returns the model card of the run `name`; curve and video are paths on the hub."""
    known, config = facts(source, 0), source.config
    lines = [
        "---",
        metadata(source, known),
        "---",
        "",
        f"# {escaped(known['title'])}",
        "",
        f"An agent trained with Thespis: algorithm **{escaped(config['algo'])}**, task "
        f"**{escaped(config['env'])}**, {known['step']:,} steps"
        + (f", preset {escaped(config['preset'])}" if config.get("preset") else "")
        + (f", tuned by {escaped(config['tuner'])}" if config.get("tuner") else "")
        + ".",
        "",
        *results(known),
        *([f"![Learning curve]({curve})", ""] if curve else []),
        *moving(video),
        "## Use it",
        "",
        f"{CODE}pip install 'thespis[hub]'",
        f"{CODE}thespis pull {name}",
        f"{CODE}thespis eval runs/hub/{name}",
        f"{CODE}thespis play runs/hub/{name} -o video.gif",
        "",
        "Or in Python:",
        "",
        f"{CODE}import thespis",
        f'{CODE}policy = thespis.pull("{name}").policy()',
        f"{CODE}action = policy(observation)",
        "",
        "The weights are safetensors files; nothing here is unpickled or run.",
        "",
        *section("How it was trained", [f"{CODE}{code(x)}" for x in commands(config)]),
        *section("Versions", [f"- {escaped(k)} {escaped(v)}" for k, v in versions(config).items()]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def metadata(source: Source, known: dict[str, Any]) -> str:
    """Returns the card's YAML, which the hub uses to list and find the model."""
    import yaml

    algo, env = (shown(printable(source.config[key])) for key in ("algo", "env"))
    values = {"mean_reward": known["last"], "best_mean_reward": known["best"]}
    metrics = [{"type": k, "value": float(x)} for k, x in values.items() if math.isfinite(x)]
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"type": env, "name": env},
        "metrics": metrics,
    }
    data: dict[str, Any] = {
        "library_name": "thespis",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "deep-reinforcement-learning", "thespis", algo, env],
    }
    if metrics:
        data["model-index"] = [{"name": f"{algo} on {env}", "results": [result]}]
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000).rstrip()


def results(known: dict[str, Any]) -> list[str]:
    """Returns a sentence about the returns, and a table of several seeds or members."""
    rows = known["members"]
    if not rows:
        return ["It was never evaluated.", ""]
    over, at = "", ""
    if len(rows) == 1:
        at = f" (at step {int(rows[0]['at']):,})"
    elif known["tuned"]:
        over = f" of the best of {len(rows)} members"
    elif known["interval"]:
        low, high = known["interval"]
        over = f" (IQM of {len(rows)} seeds, 95 % interval {decimal(low)} to {decimal(high)})"
    last, best = (f"**{decimal(known[k])}**" for k in ("last", "best"))
    sentence = [f"Last return {last}{over}, best evaluation {best}{at}.", ""]
    if len(rows) == 1:
        return sentence
    return [
        *sentence,
        f"| {'member' if known['tuned'] else 'seed'} | last return | best | at step |",
        "|---|---:|---:|---:|",
        *(
            f"| {number_of(r)} | {decimal(r['last'])} | {decimal(r['best'])} | {int(r['at']):,} |"
            for r in rows
        ),
        "",
    ]


def number_of(row: dict[str, Any]) -> str:
    return escaped(row["name"].split()[-1])  # of "seed 7"


def moving(video: str | None) -> list[str]:
    """Returns the video as an image if it is a GIF, else as a video element."""
    if video is None:
        return []
    picture = video.endswith(".gif")
    # Without `muted` no browser starts it.
    moves = f'<video controls autoplay loop muted src="{video}"></video>'
    return [f"![Video]({video})" if picture else moves, ""]


def section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "", *lines, ""] if lines else []


def versions(config: dict[str, Any]) -> dict[str, Any]:
    return config.get("versions") or {}


def escaped(text: object) -> str:
    """Escapes text for Markdown: the result is one line, without links, tags and tables."""
    return PUNCTUATION.sub(r"\\\1", shown(printable(text))).replace(r"\<", "&lt;")


def code(text: str) -> str:
    """Returns a command on one line."""
    return " ".join(printable(text).split())
