import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import pytest

from tests.report.pages import run
from thespis.errors import ThespisError
from thespis.report.serve import LivePage, Server


@pytest.fixture
def served(tmp_path):
    """A server of the page of one folder with one run, which is beside a secret."""
    (tmp_path / "secret.html").write_text("a secret")
    run(tmp_path / "runs" / "sac" / "x_1")
    with Server(LivePage([tmp_path / "runs"])) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path=None, method="GET", **headers):
    """Returns status, headers and text of an answer; by default that of the page's own address."""
    own = urlsplit(server.url)
    assert own.hostname
    connection = http.client.HTTPConnection(own.hostname, own.port, timeout=600)
    connection.request(method, path or f"/?{own.query}", headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def test_the_address_with_its_token_is_the_page(served):
    status, headers, text = ask(served)
    assert status == 200
    assert "<title>1 run in runs/</title>" in text
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    told = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.S)[0])
    assert headers["ETag"] == f'"{told["edition"]}"'
    assert told["live"] == 5.0


def test_head_tells_when_the_page_is_new(served, tmp_path):
    _, first, text = ask(served, method="HEAD")
    assert text == ""
    assert ask(served, method="HEAD")[1]["ETag"] == first["ETag"]
    run(tmp_path / "runs" / "td3" / "x_1", algo="td3")
    assert ask(served, method="HEAD")[1]["ETag"] != first["ETag"]
    assert "2 runs in runs/" in ask(served)[2]


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", "/?token=%C3%A4", "/index.html", "/../secret.html"]
)
def test_without_its_token_nothing_is_told(served, path):
    status, _, text = ask(served, path)
    assert status == 403
    assert "runs" not in text
    assert "secret" not in text


@pytest.mark.parametrize(
    "path", ["/secret.html", "/../secret.html", "/%2e%2e/secret.html", "/sac/x_1/config.json", "/."]
)
def test_with_its_token_nothing_but_the_page_is_served(served, path):
    status, _, text = ask(served, f"{path}?token={served.token}")
    assert status == 404
    assert "secret" not in text
    assert ask(served, method="POST")[0] == 501


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "localhost.:1"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(served, host):
    status, _, text = ask(served, Host=host)
    assert status == 421
    assert "<title>" not in text
    assert ask(served, Host="localhost:4000")[0] == 200  # as through a tunnel


def test_the_server_listens_on_loopback_alone_and_every_one_has_its_own_token(served):
    assert served.socket.getsockname()[0] == "127.0.0.1"
    with Server(served.live) as other:
        assert other.token != served.token
    assert len(served.token) >= 40


def test_a_port_that_is_taken_is_said_in_one_line(served):
    for port in (served.server_address[1], 70_000):
        with pytest.raises(
            ThespisError, match=rf"cannot serve on port {port}: .*[\w)]; try --port 0$"
        ):
            Server(served.live, port)


def test_half_a_request_keeps_nobody_waiting(served):
    with socket.create_connection(served.server_address[:2]) as slow:
        slow.sendall(b"GET /")
        assert ask(served)[0] == 200


@pytest.mark.posix
def test_a_run_that_is_gone_is_one_line_and_a_link_in_its_place_is_not_followed(served, tmp_path):
    config = tmp_path / "runs" / "sac" / "x_1" / "config.json"
    config.rename(tmp_path / "config.json")
    assert ask(served)[0] == 503
    config.symlink_to(tmp_path / "config.json")
    status, _, text = ask(served)
    assert status == 503
    assert "symbolic link" in text


@pytest.mark.posix
def test_ctrl_c_ends_the_command_cleanly(tmp_path):
    run(tmp_path / "x_1")
    command = [sys.executable, "-m", "thespis", "report", str(tmp_path), "--serve", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    url = json.loads(process.stdout.readline())["report"]
    assert url.startswith("http://127.0.0.1:")
    os.kill(process.pid, signal.SIGINT)
    _, complaints = process.communicate(timeout=600)
    assert (process.returncode, complaints) == (0, "")
