"""Serves a page to browsers on this machine, and nothing else.

It listens on loopback only and answers one address, which contains a random token. The page is made
in memory: no file is served, so no path can lead elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from thespis.errors import ThespisError
from thespis.report.report import choose, page

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")  # accepted host names: others may come from DNS rebinding
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LivePage:
    """The page of runs, rebuilt on request if something has changed."""

    def __init__(self, runs: Sequence[Path | str], video_mb: float = 16.0, every: float = 5.0):
        self.runs, self.video_mb, self.every = runs, video_mb, every
        self.edition, self.content = "", b""
        self.lock = threading.Lock()
        self.read()

    def read(self) -> tuple[str, bytes]:
        """Returns the identifier of the page's version, and the page."""
        with self.lock:
            chosen = choose(self.runs)
            edition = hashlib.sha256(repr(chosen.stamp).encode()).hexdigest()[:16]
            if edition != self.edition:
                text = page(chosen, None, self.video_mb, self.every, edition)
                self.edition, self.content = edition, text.encode()
            return self.edition, self.content


class Server(ThreadingHTTPServer):
    """Serves one page at `url` until `shutdown`; port 0 chooses a free one."""

    daemon_threads = True

    def __init__(self, live: LivePage, port: int = 0):
        self.live, self.token = live, secrets.token_urlsafe(32)
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise ThespisError(f"cannot serve on port {port}: {reason}; try --port 0") from error

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/?token={self.token}"

    def handle_error(self, request, client_address) -> None:
        """Ignores browsers that close the connection."""


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD requests for the page."""

    server: Server  # pyright: ignore
    timeout = 10  # seconds for a whole request, so that incomplete ones are closed
    server_version, sys_version = "Thespis", ""

    def do_GET(self) -> None:
        refusal = self.refusal()
        if refusal:
            return self.answer(*refusal)
        try:
            edition, content = self.server.live.read()
        except ThespisError as error:  # as when a run has just been deleted
            return self.answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return self.answer(HTTPStatus.OK, content, {"ETag": f'"{edition}"'})

    do_HEAD = do_GET

    def refusal(self) -> tuple[HTTPStatus, str] | None:
        """Returns the status and reason for refusing this request, or None."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].partition(":")[0] not in NAMES:
            return HTTPStatus.MISDIRECTED_REQUEST, "this page is for browsers on its own machine"
        address = urlsplit(self.path)
        token = parse_qs(address.query).get("token", [""])[0]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return HTTPStatus.FORBIDDEN, "open the whole address that thespis report printed"
        if (address.scheme, address.netloc, address.path) != ("", "", "/"):
            return HTTPStatus.NOT_FOUND, "there is only one page, at /"
        return None

    def answer(self, status: HTTPStatus, body: bytes | str, more: dict | None = None) -> None:
        content = body if isinstance(body, bytes) else f"{body}\n".encode()
        kind = {} if isinstance(body, bytes) else {"Content-Type": "text/plain; charset=utf-8"}
        self.send_response(status)
        headers = HEADERS | kind | {"Content-Length": str(len(content))} | (more or {})
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format, *args) -> None:
        """Writes nothing to the terminal: a request may contain anything."""
