"""Adapts mo-gymnasium's environments with vector rewards: `mo:mo-mountaincarcontinuous-v0`."""

from __future__ import annotations

import importlib.util
import warnings

from thespis import plugins
from thespis.envs.gymnasium import Gymnasium
from thespis.errors import ThespisError


def named(environment: str) -> Gymnasium:
    """Creates an environment by its id; the option `reward_weights` weights its rewards."""
    if importlib.util.find_spec("mo_gymnasium") is None:
        raise ThespisError(f"mo:{environment} needs mo-gymnasium: pip install 'thespis[mo]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Importing it registers its ids.
        import mo_gymnasium  # noqa: F401  # pyright: ignore[reportMissingImports]
    if ":" in environment:
        plugins.reach()
    return Gymnasium(environment)
