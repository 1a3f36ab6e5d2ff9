"""Names that are nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known names nearest to this one, if any is near."""
    lower = {key.lower(): key for key in known}
    near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(lower[key] for key in near)}?" if near else ""
