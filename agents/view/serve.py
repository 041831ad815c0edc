"""The browser of episodes for runs that are going: the same page, from a server on this machine that follows files.

Who may read: whoever has the address, which holds a secret drawn at the start, and only from this machine (the server
listens on 127.0.0.1 alone). The `Host` of every request must be our own address: a page elsewhere whose name an
attacker lets resolve to 127.0.0.1 (DNS rebinding) sends its own name, and gets nothing. Nothing can be written.
"""

from __future__ import annotations

import re
import secrets
import threading
import webbrowser
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agents.commands import UsageError
from agents.trajectory import RecordError
from agents.view.collect import Collection
from agents.view.pack import Tokenizers
from agents.view.page import index_of, json_bytes, shell, wanted_of
from agents.view.wanted import Wanted

LOCALHOST = "127.0.0.1"


class Followed:
    """Episodes that grow while they are shown; requests come from several threads.

    Args:
        episodes: Made with `growing=True`.
    """

    def __init__(self, episodes: Collection) -> None:
        self._episodes = episodes
        self._lock = threading.Lock()
        self._packed: dict[int, bytes] = {}
        self._broken = ""

    def news(self, have: int) -> bytes:
        """JSON of the index without the parts up to number `have`, which the page has already."""
        said = ""
        with self._lock:
            try:
                for part in self._episodes.refresh():
                    self._packed[part.id] = part.packed
            except RecordError as error:
                self._broken = str(error)  # what stands in a file stays there
            except OSError as error:
                said = str(error)  # as when a file is replaced while we look
            index = index_of(self._episodes)
        alive = [head["id"] for head in index["parts"]]
        index["parts"] = [head for head in index["parts"] if head["id"] > have]
        if not index["parts"]:
            index["intents"] = {}
        self._packed = {number: self._packed[number] for number in alive}
        return json_bytes({**index, "alive": alive, "error": said or self._broken})

    def part(self, number: int) -> bytes | None:
        """Compressed JSON of the episodes of a part; `None` when it is gone."""
        return self._packed.get(number)

    def wanted(self) -> bytes:
        """Compressed JSON of what the tasks wanted, of all episodes so far."""
        with self._lock:
            return wanted_of(self._episodes)


class Server(ThreadingHTTPServer):
    """Serves one page, its index and its parts.

    Args:
        followed: What it serves.
        port: 0 for a free one.

    Raises:
        OSError: The port is taken.
    """

    daemon_threads = True

    def __init__(self, followed: Followed, port: int = 0) -> None:
        super().__init__((LOCALHOST, port), _Handler)
        self.followed, self.secret = followed, secrets.token_urlsafe(16)

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a request may name as its host."""
        return f"{LOCALHOST}:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def address(self) -> str:
        """Of the page."""
        return f"http://{self.hosts[0]}/{self.secret}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the page, the index or a part."""
        if self.headers.get_all("Host") not in [[host] for host in self.server.hosts]:
            return self._answer(HTTPStatus.FORBIDDEN, b"the request names another host\n")
        url = urlsplit(self.path)
        _, secret, path = [*url.path.split("/", 2), "", ""][:3]
        if not secrets.compare_digest(secret.encode(), self.server.secret.encode()):
            return self._answer(HTTPStatus.NOT_FOUND, b"nothing here: the address is the one that was printed\n")
        if path == "" and url.path.endswith("/"):
            return self._answer(HTTPStatus.OK, "".join(shell(live=True)).encode(), "text/html; charset=utf-8")
        if path == "index":
            have = parse_qs(url.query).get("have", ["-1"])[-1]
            known = int(have) if re.fullmatch(r"-1|\d{1,9}", have) else -1
            return self._answer(HTTPStatus.OK, self.server.followed.news(known), "application/json")
        if path == "wanted":
            return self._answer(HTTPStatus.OK, self.server.followed.wanted(), "application/octet-stream")
        found = re.fullmatch(r"part/(\d{1,9})", path)
        part = self.server.followed.part(int(found[1])) if found else None
        if part is None:
            return self._answer(HTTPStatus.NOT_FOUND, b"no such part\n")
        return self._answer(HTTPStatus.OK, part, "application/octet-stream")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Content-Security-Policy": "frame-ancestors 'none'",  # the rest stands in the page
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a page that follows asks every two seconds."""


def serve(
    sources: Sequence[str | Path], tokenizers: Tokenizers, wanted: Wanted, *, port: int = 0, show: bool = False
) -> int:
    """Serve until Ctrl-C; returns 0.

    Raises:
        UsageError: A source is not there, or the port is taken.
    """
    followed = Followed(Collection(sources, tokenizers, wanted, growing=True))
    try:
        server = Server(followed, port)
    except OSError as error:
        raise UsageError(f"port {port} cannot be had ({error.strerror}): leave --port out for a free one") from error
    with server:
        print(f"{server.address} (Ctrl-C ends it; this machine only)", flush=True)
        if show:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
    return 0
