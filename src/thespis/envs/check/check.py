"""Checks whether an environment keeps the library's contract: `thespis check-env`.

Every environment is played at random through its adapter, the same for all kinds (play.py).
The functions of JAX tasks are traced for the types they return (task.py), and environments of
Gymnasium are also stepped directly, before the adapter converts anything (inside.py).
"""

from __future__ import annotations

from typing import Any

from thespis import envs
from thespis.envs.autoreset import Autoreset
from thespis.envs.check.inside import check_inside
from thespis.envs.check.play import check_play
from thespis.envs.check.report import Report, Stop
from thespis.envs.check.task import check_task
from thespis.envs.gymnasium import Gymnasium, Unsuitable
from thespis.errors import one_line


def check_env(env: Any, seed: int = 0) -> Report:
    """Plays an environment at random and reports what is wrong: `print(check_env(MyEnv))`.

    `env` is whatever `train` takes: a name, a class, a function that makes one, or a JAX task.
    """
    try:
        environment = envs.make(env)
    except Unsuitable as error:
        report = Report(str(env))
        report.add("spaces", "wrong", one_line(error))
        return report
    report = Report(envs.label(environment))
    try:
        if isinstance(environment, Autoreset):
            check_task(report, environment)
        if isinstance(environment, Gymnasium):
            check_inside(report, environment, seed)
        check_play(report, environment, seed)
    except Stop:
        pass
    return report
