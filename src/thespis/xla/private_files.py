"""Folders whose content is trusted, because only this user may write to them.

Windows has neither owners nor modes of this kind: there, every folder is trusted.
"""

from __future__ import annotations

import os
import stat
import sys
from functools import cache
from pathlib import Path

from thespis.errors import printable

OTHERS = stat.S_IWGRP | stat.S_IWOTH
OWNERS = hasattr(os, "geteuid")  # whether files have owners
# Flags that follow no links and do not wait for pipes; 0 on Windows.
CAREFUL = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


def complaint(folder: Path) -> str | None:
    """Makes a folder if there is none, and returns why it cannot be trusted; None if it can.

    Parent folders count as well: whoever may write to one can replace what is in it.
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
            sticky = path != real and about.st_mode & stat.S_ISVTX  # as /tmp is
            if open_to_others(about) and not sticky:
                return f"others may write to {path}"
        reachable = real.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        with os.scandir(real) as entries:  # others may have written to it before
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                if about.st_uid != os.geteuid():
                    return f"{entry.path} belongs to another user"
                if reachable and stat.S_ISREG(about.st_mode) and open_to_others(about):
                    return f"others may write to {entry.path}"
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    return None


def open_to_others(about: os.stat_result) -> bool:
    """Tells whether anybody but the owner may write; a group of the owner alone does not count."""
    if about.st_mode & stat.S_IWOTH:
        return True
    return bool(about.st_mode & stat.S_IWGRP) and not alone_in(about.st_gid)


@cache
def alone_in(gid: int) -> bool:
    """Tells whether a group has no other members, as the private group of a user."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and not {*group.gr_mem} - {user.pw_name}


def read(file: Path) -> bytes:
    """Reads a file; raises `PermissionError` if anybody but this user may have written it."""
    handle = os.open(file, os.O_RDONLY | CAREFUL)
    with open(handle, "rb") as content:
        about = os.fstat(handle)  # of the open file, whatever has its name by now
        mine = not OWNERS or (about.st_uid == os.geteuid() and not about.st_mode & OTHERS)
        if not mine or not stat.S_ISREG(about.st_mode):
            say(f"{file} may have been written by others and is not used: delete it")
            raise PermissionError(file)
        return content.read()


def write(file: Path, data: bytes) -> None:
    """Writes a file atomically, readable by this user only."""
    import tempfile  # slow to import, and most commands write nothing

    handle, part = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(handle, "wb") as content:
            content.write(data)
        os.replace(part, file)
    finally:
        Path(part).unlink(missing_ok=True)


@cache
def say(text: str) -> None:
    """Prints a note, once per process."""
    print(f"note: {printable(text)}", file=sys.stderr)
