"""Tests of joining Ray: what cannot work is refused in one line, before anything starts."""

import os
import signal
import socket
import sys
from types import SimpleNamespace

import pytest

from thespis.cluster import connect
from thespis.errors import ThespisError


def refused(address) -> str:
    with pytest.raises(ThespisError) as refusal, connect.connect(address):
        pass
    text = str(refusal.value)
    assert "\n" not in text
    return text


def test_no_ray_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'thespis[ray]'" in refused(None)


def test_nobody_listens_at_the_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]  # bound, but nobody listens
        assert "no cluster there" in refused(f"127.0.0.1:{port}")


def test_the_address_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:99999999")
    assert "127.0.0.1:99999999: no cluster there" in refused(True)


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "http://127.0.0.1", ":1", "host:x"])
def test_an_address_that_is_none_of_a_cluster(address):
    assert "give HOST:PORT" in refused(address)


@pytest.mark.posix
def test_a_signal_while_ray_starts_is_heard_afterwards_and_not_by_ray(monkeypatch):
    heard = []

    def init(**how):
        utils.set_sigterm_handler(lambda *_: heard.append("ray"))
        signal.raise_signal(signal.SIGTERM)
        heard.append("started")

    utils = SimpleNamespace(
        set_sigterm_handler=lambda handler: signal.signal(signal.SIGTERM, handler)
    )
    ray = SimpleNamespace(init=init, _private=SimpleNamespace(utils=utils))
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("ours"))
    try:
        connect.start(ray, {"address": "local"})
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ["started", "ours"]


def test_nodes_with_other_versions():
    here = connect.versions()
    assert set(here) == {"python", "thespis", "jax", "jaxlib", "numpy", "ray"}
    connect.refuse_differences("10.0.0.2", dict(here), here)
    for name in here:
        with pytest.raises(ThespisError, match=f"node 10.0.0.2 has {name} 0.0, not"):
            connect.refuse_differences("10.0.0.2", here | {name: "0.0"}, here)


def test_workers_find_no_libraries_in_the_current_folder(monkeypatch, tmp_path):
    (tmp_path / "numpy.py").write_text("a stranger's")
    monkeypatch.chdir(tmp_path)
    ray, seen = SimpleNamespace(is_initialized=lambda: False), []
    monkeypatch.setattr(connect, "ray_module", lambda: ray)
    monkeypatch.setattr(connect.own_ray, "end", lambda ray: None)
    monkeypatch.setattr(connect, "start", lambda *_: seen.append((os.getcwd(), os.listdir())))
    for name in ("show_logs", "check_versions"):
        monkeypatch.setattr(connect, name, lambda *_: None)
    with connect.connect("local"):
        assert os.getcwd() == str(tmp_path)
    [(place, content)] = seen  # which Ray lets its workers search first
    assert content == []
    assert place != str(tmp_path)
