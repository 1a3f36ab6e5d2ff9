"""Exports are compared on few observations."""

import pytest

from thespis.export import writer


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(writer, "OBSERVATIONS", 40)
