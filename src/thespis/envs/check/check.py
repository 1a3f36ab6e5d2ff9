"""Checks whether an environment follows the library's contract: `thespis check-env`.

Every environment is played with random actions through its adapter (play.py). The functions of JAX
tasks are also traced for the types they return (task.py), and Gymnasium environments are also
stepped directly, before the adapter converts anything (inside.py).
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
    """Plays an environment with random actions and reports mistakes: `print(check_env(MyEnv))`.

    `env` may be anything that `train` accepts: a name, a class, a factory function or a JAX task.
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
