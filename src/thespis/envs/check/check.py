"""Whether an environment keeps the library's contract, and what to mend: `thespis check-env`.

Every environment is played at random through its adapter, the same for all kinds (play.py).
JAX tasks are asked for the types they return (task.py), and environments of Gymnasium are looked
at from inside, before the adapter has converted anything (inside.py).
"""

from __future__ import annotations

from typing import Any

from thespis import envs
from thespis.envs.autoreset import Autoreset
from thespis.envs.check.inside import look_inside
from thespis.envs.check.play import look_at_play
from thespis.envs.check.report import Report, Spoiled
from thespis.envs.check.task import look_at_task
from thespis.envs.gymnasium import Gymnasium, Unsuitable
from thespis.errors import one_line


def check_env(env: Any, seed: int = 0) -> Report:
    """Play an environment at random and say what is wrong with it: `print(check_env(MyEnv))`.

    `env` is whatever `train` takes: a name, a class, a function that makes one, or a JAX task.
    """
    try:
        made = envs.make(env)
    except Unsuitable as error:
        report = Report(str(env))
        report.add("spaces", ("wrong", one_line(error)))
        return report
    report = Report(envs.label(made))
    try:
        if isinstance(made, Autoreset):
            look_at_task(report, made)
        if isinstance(made, Gymnasium):
            look_inside(report, made, seed)
        look_at_play(report, made, seed)
    except Spoiled:
        pass
    return report
