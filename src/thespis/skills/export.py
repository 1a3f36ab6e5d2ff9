"""Exports skills: their networks as NumPy arrays, and a script that needs only NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis.errors import ThespisError
from thespis.nn.normalization import Running
from thespis.runs.files import replacing, write, writing
from thespis.runs.skilled import Skilled
from thespis.selection import DESCRIPTOR
from thespis.skills import standalone

PLAIN = "needs observations that are a single vector"


def export(skilled: Skilled, folder: Path | str) -> Path:
    """Writes a folder with the networks, skills.npz, and skills.py, which runs them."""
    folder, algo = Path(folder), skilled.algo
    state, box = skilled.state, algo.box
    layers = lambda name, net: {
        f"{name}.{kind}{i}": x
        for kind, xs in (("weight", net.weights), ("bias", net.biases))
        for i, x in enumerate(xs)
    }
    base, coordinates = algo.views["policy_sees"]
    if base != "observation":
        raise ThespisError("policy_sees = descriptor: only policies of observations are exported")
    parts: dict[str, Any] = {
        **layers("actor", state.actor.params),
        "policy_sees": np.array(coordinates, int),
        **dict(zip(("low", "high"), box.bounds, strict=True)),
    }
    if state.stats is not None:
        flat = jax.tree.map(
            lambda s: (s.mean, s.var), state.stats, is_leaf=lambda s: isinstance(s, Running)
        )
        if not isinstance(flat, tuple):
            raise ThespisError(f"{skilled.run.path}: export with normalize_observations {PLAIN}")
        parts |= {"obs.mean": flat[0], "obs.var": flat[1]}
    base, coordinates = algo.views["dynamics_sees"]
    metra = algo.objective == "metra"
    if metra and (base == DESCRIPTOR or algo.views.describes_all):  # else goals are not enough
        parts |= layers("representation", state.dynamics.params)
        parts |= {"representation_sees": np.array(coordinates, int)}
        parts |= {"one_hot": algo.skill_kind == "one-hot"}
        stats = state.input_stats
        if stats is not None:
            parts |= {"seen.mean": stats.mean, "seen.var": stats.var}
    elif not metra and not coordinates:  # else plans need more than the skill
        parts |= layers("dynamics", state.dynamics.params) | {"components": algo.components}
        stats = state.change_stats
        if stats is not None:
            parts |= {"change.mean": stats.mean, "change.var": stats.var}
    file = folder / "skills.npz"
    with writing(file):
        folder.mkdir(parents=True, exist_ok=True)
    arrays: Any = {name: np.asarray(x) for name, x in parts.items()}
    with replacing(file) as opened:
        np.savez(opened, **arrays)
    write(folder / "skills.py", Path(standalone.__file__).read_bytes())
    return folder
