"""Checks whether an environment follows the library's contract: `thespis check-env`."""

from thespis.envs.check.check import check_env

__all__ = ["check_env"]
