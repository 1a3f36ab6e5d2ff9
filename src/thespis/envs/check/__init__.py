"""Checks whether an environment keeps the library's contract: `thespis check-env`."""

from thespis.envs.check.check import check_env

__all__ = ["check_env"]
