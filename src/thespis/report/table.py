"""Formats tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from thespis.errors import printable


def summary(rows: Sequence[dict[str, Any]], title: str | None = None) -> Table:
    """Returns a table with one line per row and one column per key, in order of appearance.

    Whole numbers and steps have thousands separators, other numbers one decimal (or three digits
    below 10); missing values and NaN are a dash.
    """
    title = title and escape(printable(title))
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        numeric = any(isinstance(value, Real) for value in values)
        table.add_column(
            escape(printable(name)), justify="right" if numeric else "left", no_wrap=numeric
        )
        columns.append(cells(name, values))
    for line in zip(*columns, strict=True):
        table.add_row(*map(escape, line))
    return table


def cells(name: str, values: Sequence[Any]) -> list[str]:
    """Returns the values of one column as text."""
    real = [abs(float(v)) for v in values if isinstance(v, Real) and math.isfinite(v)]
    small = bool(real) and 0 < max(real) <= 1

    def text(value) -> str:
        if value is None or (isinstance(value, Real) and math.isnan(value)):
            return "–"
        if isinstance(value, bool) or not isinstance(value, Real):
            return printable(value)
        if isinstance(value, Integral) or (name.endswith(("step", "steps")) and value % 1 == 0):
            return f"{int(float(value)):,}"
        return f"{value:.3g}" if small else decimal(value)

    return [text(value) for value in values]


def decimal(number: Any) -> str:
    """Formats a return: one decimal, or three digits below 10, so that small ones differ."""
    if abs(number) >= 10 or not number:
        return f"{number:,.1f}"
    text = f"{number:.3g}"
    return f"{number:,.1f}" if float(text) == round(float(text), 1) else text


def short(number: Any) -> str:
    """Formats a count in few characters: 950, 20k, 1.5M."""
    if number is None:
        return "–"
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def fitting(console: Console, *tables: Table) -> None:
    """Prints the first table that fits the terminal's width; if none does, folds the last."""
    width = console.width

    def natural(table: Table) -> int:
        console.width = 1000
        try:
            return console.measure(table).maximum
        finally:
            console.width = width

    chosen = next((table for table in tables if natural(table) <= width), tables[-1])
    for column in chosen.columns:
        column.overflow = "fold"
    console.print(chosen)


def wide(console: Console, table: Table) -> None:
    """Prints a table in its full width, which the terminal may wrap but not cut."""
    narrow, console.width = console.width, 1000
    console.width = max(narrow, console.measure(table).maximum)
    console.print(table)
    console.width = narrow
