"""A browser driven by W3C WebDriver, with nothing but the standard library."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


def missing() -> str | None:
    """What is not installed."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    absent = [] if browser else ["chromium"]
    absent += [] if shutil.which("chromedriver") else ["chromium-driver"]
    return f"install {' and '.join(absent)}, as with apt-get" if absent else None


class Browser:
    """A headless Chromium with an empty profile of its own."""

    def __init__(self):
        self.profile = tempfile.mkdtemp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = ["chromedriver", f"--port={self.port}", "--log-level=OFF"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.root = f"http://127.0.0.1:{self.port}"
        self.wait(lambda: self.call("GET", "/status")["ready"])
        binary = shutil.which("chromium") or shutil.which("google-chrome")
        options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={self.profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.root += f"/session/{made['sessionId']}"

    def call(self, method: str, path: str, body: dict | None = None):
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.root + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from error

    def wait(self, condition, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError, RuntimeError):
                if condition():
                    return
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.05)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.call("DELETE", "")
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    # --- pages ------------------------------------------------------------------------------

    def open(self, page: Path | str) -> None:
        """Opens a file, or an address."""
        address = page if isinstance(page, str) else page.absolute().as_uri()
        self.call("POST", "/url", {"url": address})

    def run(self, script: str, *given):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(given)})

    def errors(self) -> list[str]:
        """What the page complained of since this was last asked."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def command(self, name: str, **given):
        """One of the browser's own commands (DevTools)."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": name, "params": given})

    def size(self, width: int, height: int = 900, phone: bool = False) -> None:
        given = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": phone}
        self.command("Emulation.setDeviceMetricsOverride", **given)

    def dark(self, on: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    # --- the mouse --------------------------------------------------------------------------

    def place(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[int, int]:
        """Pixels of a point of an element, after it has been scrolled into view."""
        script = """const e = document.querySelector(arguments[0]);
            e.scrollIntoView({block: "center", behavior: "instant"});
            const b = e.getBoundingClientRect();
            return [b.left + arguments[1] * b.width, b.top + arguments[2] * b.height]"""
        left, top = self.run(script, selector, x, y)
        return round(left), round(top)

    def mouse(self, *actions: tuple) -> None:
        """`("move", x, y)`, `("down",)` and `("up",)`, one after another."""
        steps = []
        for name, *where in actions:
            if name == "move":
                x, y = where
                steps.append({"type": "pointerMove", "duration": 20, "x": x, "y": y})
            else:
                steps.append({"type": f"pointer{name.capitalize()}", "button": 0})
        mouse = {"type": "pointer", "id": "mouse", "actions": steps}
        self.call("POST", "/actions", {"actions": [mouse]})

    def keys(self, *keys: str) -> None:
        steps = [{"type": f"key{way}", "value": k} for k in keys for way in ("Down", "Up")]
        self.call(
            "POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]}
        )
