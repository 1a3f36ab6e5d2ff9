"""What the site gets beyond the pages as they stand: the commands, and a complete navigation."""

import contextlib
import io
import re
from pathlib import Path

MARKER = "<!-- every command -->"


def on_config(config):
    """Leave out pages that do not exist; put those that stand nowhere at the end."""
    there = {path.name for path in Path(config.docs_dir).glob("*.md")}
    named = set()

    def kept(entries):
        found = []
        for entry in entries:
            if isinstance(entry, dict):
                title, inside = next(iter(entry.items()))
                inside = kept(inside) if isinstance(inside, list) else inside
                if inside and (isinstance(inside, list) or inside in there):
                    found.append({title: inside})
                    named.update([inside] if isinstance(inside, str) else [])
            elif entry in there:
                named.add(entry)
                found.append(entry)
        return found

    config.nav = kept(config.nav)
    if there - named:
        config.nav.append({"More": sorted(there - named)})
    return config


def on_page_markdown(markdown, **_):
    """Generate the commands; what lies outside these pages is named instead of linked."""
    markdown = re.sub(r"\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", markdown)
    return markdown.replace(MARKER, commands()) if MARKER in markdown else markdown


def commands() -> str:
    """The help of every verb, and of `train` for every algorithm."""
    from thespis.algos import ALGORITHMS
    from thespis.cli.command import VERBS

    calls = [[verb] for verb in VERBS] + [["train", algo] for algo in ALGORITHMS]
    order = lambda call: (list(VERBS).index(call[0]), len(call))
    parts = []
    for call in sorted(calls, key=order):
        name = " ".join(["thespis", *call])
        parts.append(f"## `{name}`\n\n```text\n{help_of(call)}\n```\n")
    return "\n".join(parts)


def help_of(call: list[str]) -> str:
    from thespis.cli.command import main

    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        code = main([*call, "--help"])
    assert code == 0, f"no help of {call}"
    return told.getvalue().strip()
