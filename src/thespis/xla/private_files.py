"""Folders of this user alone: what lies there is believed, so nobody else may write there.

Windows tells neither owners nor modes in this way: there, whatever lies in the folder is believed.
"""

from __future__ import annotations

import os
import stat
import sys
from functools import cache
from pathlib import Path

from thespis.errors import printable

OTHERS = stat.S_IWGRP | stat.S_IWOTH
OWNERS = hasattr(os, "geteuid")  # whether files have them
# Follows no links, waits for no pipes; 0 on Windows.
CAREFUL = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


def complaint(folder: Path) -> str | None:
    """Makes a folder if there is none -> why nothing in it can be believed, None if it can.

    Whoever may write to a folder above may put another one in its place.
    """
    try:
        for path in reversed([folder, *folder.parents]):
            if not path.exists():
                path.mkdir(0o700, exist_ok=True)
        if not OWNERS:
            return None
        real = folder.resolve()
        for path in (real, *real.parents):
            about = path.stat()
            if about.st_uid != os.geteuid() and (path == real or about.st_uid != 0):
                return f"{path} belongs to another user"
            kept = path != real and about.st_mode & stat.S_ISVTX  # as in /tmp
            if open_to_others(about) and not kept:
                return f"others may write to {path}"
        with os.scandir(real) as entries:  # some may be from when it was open to others
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                    return f"{entry.path} belongs to another user"
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    return None


def open_to_others(about: os.stat_result) -> bool:
    """Tells whether anybody but its owner may write to it; the owner's own group is nobody."""
    if about.st_mode & stat.S_IWOTH:
        return True
    return bool(about.st_mode & stat.S_IWGRP) and not alone_in(about.st_gid)


@cache
def alone_in(gid: int) -> bool:
    """Tells whether a group is the one that many systems give each user: without others."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and not {*group.gr_mem} - {user.pw_name}


def read(file: Path) -> bytes:
    """Returns what this user has written; `PermissionError` if anybody else may have written it."""
    handle = os.open(file, os.O_RDONLY | CAREFUL)
    with open(handle, "rb") as content:
        about = os.fstat(handle)  # of what is open, whatever the name leads to by now
        mine = not OWNERS or (about.st_uid == os.geteuid() and not about.st_mode & OTHERS)
        if not mine or not stat.S_ISREG(about.st_mode):
            say(f"{file} may have been written by others and is not used: delete it")
            raise PermissionError(file)
        return content.read()


def write(file: Path, data: bytes) -> None:
    """Writes it as a whole or not at all, whoever else writes it; nobody else may read it."""
    import tempfile  # which takes a while, and most commands write nothing

    handle, part = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(handle, "wb") as content:
            content.write(data)
        os.replace(part, file)
    finally:
        Path(part).unlink(missing_ok=True)


@cache
def say(text: str) -> None:
    """Prints one line, once."""
    print(f"note: {printable(text)}", file=sys.stderr)
