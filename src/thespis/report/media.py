"""Embeds videos and pictures of runs in a page, or links them."""

from __future__ import annotations

import base64
import mimetypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from thespis.report.source import Source
from thespis.runs import files

PICTURES = 4.0  # megabytes of plots that are embedded in the page; the rest is linked
DRAWN_HERE = ("learning_curve", "members", "family_tree", "schedules")  # the page has its own
SPACES = str.maketrans("_-", "  ")
VIDEOS, STILLS = (".mp4", ".webm", ".gif"), (".png", ".svg", ".jpg", ".jpeg", ".webp")


def videos(sources: Sequence[Source], megabytes: float, here: Path | None) -> list[dict[str, Any]]:
    return media(sources, "videos", VIDEOS, megabytes, here)


def pictures(sources: Sequence[Source], here: Path | None) -> list[dict[str, Any]]:
    return media(sources, "plots", STILLS, PICTURES, here) + logged(sources)


def logged(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Returns the newest images of callbacks, while there is room for them."""
    items, left = [], PICTURES * 2**20
    for source in sources:
        for name, step, member, content in source.logged.pictures:
            if (left := left - len(content)) < 0:
                return items
            words = [*run_of(source, sources), name, f"step {step:,}"]
            words += [source.name(member)] if len(source.seeds) > 1 else []
            items.append(
                {
                    "name": ", ".join(words),
                    "moves": False,
                    "inside": True,
                    "megabytes": len(content) / 2**20,
                    "file": name,
                    "source": embedded(Path("image.png"), content),
                }
            )
    return items


def run_of(source: Source, sources: Sequence[Source]) -> list[str]:
    """Returns the name of a run, if there are others."""
    return [f"{source.config['algo']} {source.folder.name}"] if len(sources) > 1 else []


def media(
    sources: Sequence[Source],
    folder: str,
    suffixes: tuple[str, ...],
    megabytes: float,
    here: Path | None,
) -> list[dict[str, Any]]:
    """Returns the files in a folder of the runs: embedded while there is room, else linked.

    A page that is served (`here` is None) cannot link files: it only names them. Neither are
    drawings linked that may contain scripts, which would run once they are opened by themselves.
    """
    items, left = [], megabytes * 2**20
    for source in sources:
        place = source.folder / folder
        for file in sorted(place.rglob("*")) if not place.is_symlink() else ():
            suffix, drawn = file.suffix.lower(), folder == "plots" and file.stem in DRAWN_HERE
            if suffix not in suffixes or drawn or file.name.startswith("."):
                continue
            try:
                with files.open_regular(file) as opened:  # which does not follow links
                    size = os.fstat(opened.fileno()).st_size
                    inside = size <= left
                    content = opened.read(size) if inside else b""
            except OSError:  # not a regular file, or just removed
                continue
            left -= size if inside else 0
            beside = link(file, here) if here and suffix != ".svg" else None
            item = {
                "name": ": ".join([*run_of(source, sources), file.stem.translate(SPACES)]),
                "moves": suffix in (".mp4", ".webm"),
                "inside": inside,
                "megabytes": size / 2**20,
                "file": str(file),
                "source": embedded(file, content) if inside else beside,
            }
            items.append(item)
    return items


def embedded(file: Path, content: bytes) -> str:
    """Returns the content as a data URL."""
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def link(file: Path, here: Path) -> str:
    """Returns a relative URL, so that the page and the run can be moved together."""
    return quote(os.path.relpath(file, here).replace(os.sep, "/"))
