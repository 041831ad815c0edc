"""A chat endpoint in a thread: it answers what the test says, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hangup(Exception):
    """Raised by a script: the connection breaks without an answer."""


class Answer:
    """What a script returns for an answer that is not `200` with JSON; a longer `Content_Length` cuts its body."""

    def __init__(self, status: int, body: Any = None, **headers: str) -> None:
        self.status, self.headers = status, headers
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


Script = Callable[[dict[str, Any]], Any]


def said(text: str | list[Any] | None, finish: str = "stop", **message: Any) -> dict[str, Any]:
    """A reply in the form of a chat completion."""
    return {
        "model": "served-model-1",
        "system_fingerprint": "fp_1",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 3},
    }


class FakeEndpoint(ThreadingHTTPServer):
    """Answers POST with `script(body)` and GET with `script({})`.

    Attributes:
        asked: Bodies, in the order of arrival; `paths` and `headers` likewise.
        most: Requests at once.
    """

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()
        self.now = self.most = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that have gone are what some tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: FakeEndpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(body)

    def do_GET(self) -> None:
        self._answer({})

    def _answer(self, body: dict[str, Any]) -> None:
        server = self.server
        with server.lock:
            server.asked.append(body)
            server.paths.append(self.path)
            server.headers.append(dict(self.headers))
            server.now += 1
            server.most = max(server.most, server.now)
        try:
            answer = server.script(body)
            answer = answer if isinstance(answer, Answer) else Answer(200, answer)
        except Hangup:
            self.close_connection = True
            return
        finally:
            with server.lock:
                server.now -= 1
        self.send_response(answer.status)
        headers = {"Content-Length": str(len(answer.body))} | {
            name.replace("_", "-"): value for name, value in answer.headers.items()
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)
        # One that promised more than it has ends its connection: the body is cut.
        self.close_connection = self.close_connection or headers["Content-Length"] != str(len(answer.body))

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def endpoint(script: Script) -> Iterator[FakeEndpoint]:
    """The server, for the length of a block."""
    server = FakeEndpoint(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def last_user(body: dict[str, Any]) -> str:
    """The last message of a request."""
    return str(body["messages"][-1]["content"])
