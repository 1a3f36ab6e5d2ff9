"""The command `thespis`: its options, and a module per group of commands."""

from thespis.cli.command import main

__all__ = ["main"]
