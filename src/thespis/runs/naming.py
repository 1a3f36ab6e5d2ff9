"""The name of a run's folder: that of the environment, or a template given by the user."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from thespis.errors import ThespisError, did_you_mean, shown
from thespis.values import show

if TYPE_CHECKING:
    from thespis.runs.config import Config

FIELD = re.compile(r"\{([^{}]*)\}")
LONGEST = 200  # bytes of a name, to which a number is appended
LEFT_OUT = ("options", "hp", "pbt", "schedule", "trust", "name", "tags", "notes")


def default_out() -> str:
    """Returns the folder of the runs where none is given: $THESPIS_RUNS, or `runs` here."""
    return os.environ.get("THESPIS_RUNS") or "runs"


def folder_name(config: Config, env: str) -> str:
    """Returns a name that is valid on every file system, with its fields filled in."""
    if config.name is None:
        return safe(env)
    name = safe(filled(config.name, values_of(config) | {"env": env}))
    if not name:
        raise ThespisError(f"name = {shown(config.name)}: give letters or digits")
    return name


def filled(template: str, values: dict[str, Any]) -> str:
    """Puts values into the fields of a template such as {env}-{critic_lr}."""

    def text(match: re.Match) -> str:
        field = match[1].replace("-", "_")
        if field not in values:
            hint = did_you_mean(field, values) or "; give an option, such as {env} or {seed}"
            raise ThespisError(f"name = {shown(template)}: unknown field {match[0]}{hint}")
        return "none" if values[field] is None else show(values[field])

    if set("{}") & set(FIELD.sub("", template)):
        raise ThespisError(f"name = {shown(template)}: a brace is not closed; write {{env}}")
    return FIELD.sub(text, template)


def values_of(config: Config) -> dict[str, Any]:
    """Returns the fields that a name may contain, with their values."""
    run = {name: x for name, x in vars(config).items() if name not in LEFT_OUT}
    tuner = {f"pbt.{name}": x for name, x in config.pbt.items()}
    run |= {"seed": config.seeds[0], "members": config.members}
    return config.hp | config.options | tuner | run


def safe(text: str) -> str:
    """Replaces characters that file systems may not accept, and cuts a name that is too long."""
    text = re.sub(r"[^\w.+-]+", "-", text).strip(".-")
    return text.encode()[:LONGEST].decode(errors="ignore")
