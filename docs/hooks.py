"""What the site gets beyond the pages as they stand: commands, modules, a complete navigation."""

import contextlib
import io
import re
from pathlib import Path

MARKER = "<!-- every command -->"
MODULES = re.compile(r"<!-- every module of (thespis\.\w+) -->")


def on_config(config):
    """Leave out pages that do not exist; put those that stand nowhere at the end."""
    docs = Path(config.docs_dir)
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
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


def on_page_markdown(markdown, page, config, **_):
    """Generate commands and modules; what lies outside these pages is named instead of linked."""
    docs = Path(config.docs_dir).resolve()
    here = (docs / page.file.src_uri).parent

    def link(found):
        inside = (here / found[2].partition("#")[0]).resolve().is_relative_to(docs)
        return found[0] if inside else found[1]

    markdown = re.sub(r"\[([^\]]*)\]\((\.\./[^)]*)\)", link, markdown)
    markdown = MODULES.sub(lambda found: modules(found[1]), markdown)
    return markdown.replace(MARKER, commands()) if MARKER in markdown else markdown


def modules(package: str) -> str:
    """A directive of mkdocstrings for every module of a package, by name."""
    folder = Path(__file__).parents[1] / "src" / package.replace(".", "/")
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py"))
    names = sorted(".".join(path.parts) for path in paths if path.stem != "__init__")
    return "\n\n".join(f"::: {package}.{name}" for name in names)


def commands() -> str:
    """The whole help of every command, and of `train` for every algorithm."""
    from thespis.algos import ALGORITHMS
    from thespis.cli.command import COMMANDS

    calls = [[command] for command in COMMANDS] + [["train", algo] for algo in ALGORITHMS]
    order = lambda call: (list(COMMANDS).index(call[0]), len(call))
    parts = []
    for call in sorted(calls, key=order):
        name = " ".join(["thespis", *call])
        parts.append(f"## `{name}`\n\n```text\n{help_of(call)}\n```\n")
    return "\n".join(parts)


def help_of(call: list[str]) -> str:
    from thespis.cli.command import main

    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        code = main([*call, "--help-all"])
    assert code == 0, f"no help of {call}"
    return told.getvalue().strip()
