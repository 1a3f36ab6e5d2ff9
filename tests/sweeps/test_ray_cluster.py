"""Ray is started or joined; what stands in the way is told in one line."""

import sys

import pytest

from thespis.errors import ThespisError
from thespis.sweeps.ray_cluster import connect


def test_a_missing_library_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ThespisError, match=r"pip install 'thespis\[ray\]'"):
        connect()
