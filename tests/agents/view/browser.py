"""Headless Chromium, driven through its DevTools protocol over two pipes: no port, no library."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
         "--remote-debugging-pipe"]  # fmt: skip

READY = "document.body && document.body.dataset.ready"
"""How our own page says that it is ready."""


class Browser:
    """One page of a browser.

    Attributes:
        console: Whatever the page wrote to the console, and exceptions that nobody caught.
        requests: Addresses that it asked for, but for its own and for `data:`.
    """

    def __init__(self, read: int, write: int, said: Path) -> None:
        self._read, self._write, self._said = read, write, said
        self._last, self._left = 0, b""
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session: str | None = None
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self._call(f"{domain}.enable", {})

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        session = getattr(self, "_session", None)
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._event(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            data = os.read(self._read, 2**20)
            assert data, f"the browser has gone; its last words: {self._said.read_text(errors='replace')[-2000:]}"
            self._left += data
        line, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _event(self, event: dict[str, Any]) -> None:
        name, params = event.get("method"), event.get("params", {})
        if name in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(params)[:1000])
        elif name == "Network.requestWillBeSent" and not params["request"]["url"].startswith("data:"):
            self.requests.append(params["request"]["url"])

    def open(
        self, address: str, width: int = 1280, height: int = 900, *, dark: bool = False, ready: str = READY
    ) -> None:
        """Load an address in a window of that size, and wait until `ready`, an expression, is true there."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._call("Page.navigate", {"url": "about:blank"})
        self._call("Page.navigate", {"url": address})
        self.wait(ready)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; of a promise, what it gives."""
        params = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self._call("Runtime.evaluate", params)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 60.0) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(f"Boolean({script})"):
                return
            time.sleep(0.01)
        raise AssertionError(f"never true: {script}; console: {self.console}")

    def press(self, key: str) -> None:
        """Press one key and release it."""
        text = {"text": key} if len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", {"type": "keyDown", "key": key, **text})
        self._call("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})

    def picture(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", {"format": "png"})["data"]))


@contextlib.contextmanager
def browser(home: Path) -> Iterator[Browser]:
    """A browser whose profile and home are in a folder of its own; it ends with the block."""
    assert CHROMIUM is not None
    their_read, write = os.pipe()
    read, their_write = os.pipe()
    # The browser reads from 3 and writes to 4: the shell copies its ends there, from numbers that 3 and 4 cannot hit.
    theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (their_read, their_write)]
    script = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
    command = ["bash", "-c", script, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={home / 'profile'}"]
    said = home / "browser.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            command, pass_fds=theirs, env={**os.environ, "HOME": str(home)},
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    for end in (their_read, their_write, *theirs):
        os.close(end)
    try:
        yield Browser(read, write, said)
    finally:
        os.close(write)  # a browser whose pipe ends, ends
        os.close(read)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
