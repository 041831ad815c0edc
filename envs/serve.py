"""The server behind `python -m envs serve`: who may connect, how many, how long, and that nothing is left of who went.

A connection is a session (`envs.openenv`) with an environment, and so a sandbox, of its own. Environments wait for
sandboxes, so each session has a thread; the event loop only moves messages, and notices at once when a client is gone:
what runs for it is ended, and its place is free for another once its sandbox is closed.

Who may connect: whoever reaches the address, which is this machine alone unless there is a token. A web page cannot:
browsers name the page's origin, which no client of ours does, and whoever names one is refused.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import json
import re
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from envs.conversation import ConversationEnv
from envs.openenv import ErrorCode, Session, error_message, schema
from sandboxes.guard import DISTRIBUTION, plain

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

TOKEN_VARIABLE = "TURNGYM_SERVE_TOKEN"
"""The environment variable that holds the token where `--token` is left out."""
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,}")
_NO_TOKEN = (
    f"the token is missing or another one: connect to http://any:TOKEN@HOST:PORT, or send Authorization: Bearer TOKEN "
    f"(the server was started with --token or {TOKEN_VARIABLE})\n"
)
_PATHS = "there are /ws (episodes, over a WebSocket), /health, /metadata and /schema\n"


@dataclass(frozen=True)
class Limits:
    """What clients may use.

    Attributes:
        sessions: Open at once, each with a sandbox.
        message_bytes: Of one message from a client.
        idle_seconds: Between two messages of a client; then its session ends.
    """

    sessions: int = 16
    message_bytes: int = 1_048_576
    idle_seconds: float = 600.0

    def __post_init__(self) -> None:
        """Raises ValueError where one of them leaves no room."""
        for name, least in (("sessions", 1), ("message_bytes", 1024), ("idle_seconds", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} is {getattr(self, name)}: at least {least} is needed")


def check_access(host: str, token: str | None) -> None:
    """Refuse an address that others reach without a token, and a token that can be guessed or fits into no URL.

    Raises:
        ValueError: With the remedy.
    """
    if token is not None and not _TOKEN.fullmatch(token):
        raise ValueError(
            "the token must be 16 or more letters, digits or any of '._~-': "
            'python -c "import secrets; print(secrets.token_urlsafe())" makes one'
        )
    if token is None and not _this_machine(host):
        raise ValueError(
            f"others could run commands here through {host}: set a token (--token or {TOKEN_VARIABLE}), or leave "
            "--host out to serve this machine alone"
        )


def _this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class CannotListen(Exception):
    """The address cannot be had; the message says why and what to do."""


class Server:
    """Plays episodes with clients of OpenEnv.

    Args:
        name: Id of the environment.
        about: What it is, in a line.
        make: Makes one, for one session; nothing is opened before its first `reset`.
        limits: What clients may use.
        token: What they must show; `None` for nothing.
        log: Is told what clients are not told.
    """

    def __init__(
        self,
        name: str,
        about: str,
        make: Callable[[], ConversationEnv],
        limits: Limits,
        *,
        token: str | None = None,
        log: Callable[[str], None],
    ) -> None:
        self._make, self._limits, self._token, self._log = make, limits, token, log
        self._facts = {"name": name, "description": about, "version": metadata.version(DISTRIBUTION)}
        self.sessions = 0
        """Open now, those included whose sandbox is being closed."""

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve inside the block, which is given the port; at its end every session is ended and its sandbox closed.

        Args:
            host: As in `check_access`, which the caller has asked.
            port: 0 for a free one.

        Raises:
            CannotListen: The address cannot be had.
        """
        from websockets.asyncio.server import serve

        settings: dict[str, Any] = {
            "process_request": self._answer,
            "origins": [None],
            "compression": None,
            "max_size": self._limits.message_bytes,
            "max_queue": 2,  # a client waits for each answer
        }
        try:
            server = await serve(self._connected, host, port, **settings)
        except OSError as error:
            raise CannotListen(f"cannot listen: {error.strerror}; name another --host or --port") from error
        try:
            yield next(iter(server.sockets)).getsockname()[1]
        finally:
            server.close()
            await server.wait_closed()

    # -- Requests that are no WebSocket -------------------------------------------------------------------------------

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request; `None` lets the WebSocket be opened."""
        path = urlsplit(request.path).path
        if path == "/health":  # says nothing, and who starts containers asks it without a token
            return _json(connection, {"status": "healthy"})
        if not self._may(request.headers.get_all("Authorization")):
            response = connection.respond(HTTPStatus.UNAUTHORIZED, _NO_TOKEN)
            response.headers["WWW-Authenticate"] = "Basic"
            return response
        if path == "/metadata":
            return _json(connection, self._facts)
        if path == "/schema":
            return _json(connection, schema())
        return None if path == "/ws" else connection.respond(HTTPStatus.NOT_FOUND, _PATHS)

    def _may(self, shown: list[str]) -> bool:
        """Whether the headers `Authorization` show the token: as `Bearer`, or as the password of a URL."""
        if self._token is None:
            return True
        scheme, _, value = (shown[0] if len(shown) == 1 else "").partition(" ")
        if scheme.lower() == "basic":
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return secrets.compare_digest(value.strip().encode(), self._token.encode())

    # -- Sessions -----------------------------------------------------------------------------------------------------

    async def _connected(self, connection: ServerConnection) -> None:
        """Play with one client until it goes, or is idle."""
        from websockets.exceptions import ConnectionClosed, ConnectionClosedError

        most = self._limits
        try:
            if self.sessions >= most.sessions:
                why = f"all {most.sessions} sessions are taken: try again later"
                more = "; --max-sessions of the server sets how many there are"
                await self._refuse(connection, ErrorCode.CAPACITY_REACHED, 1013, why, more)
                return
            self.sessions += 1
            try:
                await self._session(connection)
            finally:
                self.sessions -= 1
        except ConnectionClosed as closed:  # a client may go whenever it likes, and need not say so
            if isinstance(closed, ConnectionClosedError) and closed.sent is not None and closed.sent.code == 1009:
                size = f"{most.message_bytes} bytes (--max-message-bytes sets the limit)"
                self._log(f"a session ended: a message had more than {size}")

    async def _session(self, connection: ServerConnection) -> None:
        loop = asyncio.get_running_loop()
        gone = asyncio.ensure_future(connection.wait_closed())
        with ThreadPoolExecutor(1, "session") as thread:
            session = Session(await loop.run_in_executor(thread, self._make), self._log)
            try:
                while True:
                    try:
                        async with asyncio.timeout(self._limits.idle_seconds):
                            text = await connection.recv()
                    except TimeoutError:
                        why = f"idle for {self._limits.idle_seconds:g} seconds: connect again, and reset"
                        more = "; --idle-seconds of the server sets how long a session may wait"
                        await self._refuse(connection, ErrorCode.SESSION_ERROR, 1001, why, more)
                        return
                    work = loop.run_in_executor(thread, session.answer, text)
                    either: set[asyncio.Future[Any]] = {work, gone}
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                    if not work.done():
                        await asyncio.to_thread(session.abort)
                    answer = await work
                    if answer is None:
                        return
                    await connection.send(answer)
            finally:
                gone.cancel()
                await loop.run_in_executor(thread, session.close)

    async def _refuse(self, connection: ServerConnection, code: ErrorCode, close: int, why: str, more: str) -> None:
        """End a connection: an error as OpenEnv has it, and its short form for who only sees the connection close."""
        await connection.send(error_message(code, why + more))
        await connection.close(close, why)


def _json(connection: ServerConnection, data: dict[str, Any]) -> Response:
    response = connection.respond(HTTPStatus.OK, json.dumps(data))
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = "application/json"
    return response


def run(server: Server, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; then every sandbox is closed.

    Args:
        server: What to serve.
        host: As in `Server.listening`.
        port: As in `Server.listening`.
        ready: Is told the port.

    Raises:
        CannotListen: The address cannot be had.
    """

    async def until_told() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with server.listening(host, port) as bound:
            ready(bound)
            await stop.wait()

    asyncio.run(until_told())


def to_standard_error(line: str) -> None:
    """Write a line of the server's log; what a task or a command brought along cannot steer a terminal."""
    print(f"envs: {plain(line)}", file=sys.stderr, flush=True)
