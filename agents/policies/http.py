"""JSON over HTTP with retries; calls that go out and are given up together."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, overload
from urllib.parse import urlsplit
from weakref import WeakSet

import requests
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from agents.policy import PolicyError

# -- Calls to a server that go out together, and are given up together ------------------------------------------------
# When a flight stops, at the end of its batch or at Ctrl-C, calls that wait for an answer are hung up, and none
# begins: a long reply takes minutes, and may be paid for.

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=Exception)

STRAGGLER_SECONDS = 2.0
"""How long the end of a batch waits for threads that were hung up."""


class Line:
    """A session of `requests`, for one thread at a time, whose sockets are at hand.

    Attributes:
        session: Sends requests.
        cut: Whether it was hung up; it is of no use then.
    """

    def __init__(self, trust_env: bool) -> None:
        self.cut = False
        self._lock = threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self.session = requests.Session()
        self.session.trust_env = trust_env
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, _Adapter(self))

    def opened(self, made: socket.socket | None) -> None:
        """Note a socket.

        Raises:
            OSError: The line was hung up before.
        """
        if made is None:
            return
        with self._lock:
            if self.cut:
                made.close()
                raise OSError("given up")
            self._sockets.add(made)

    def hang_up(self) -> None:
        """End what is under way: whoever waits for an answer gets an error at once."""
        with self._lock:
            self.cut = True
            for made in self._sockets:
                with suppress(OSError):  # the other side was faster
                    made.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections."""
        self.session.close()


class _Adapter(HTTPAdapter):
    """Makes connections, with or without a proxy, that tell the line of their sockets."""

    def __init__(self, line: Line) -> None:
        self._classes = _pools(line)
        super().__init__()

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        super().init_poolmanager(*args, **settings)
        self.poolmanager.pool_classes_by_scheme = self._classes

    def proxy_manager_for(self, *args: Any, **settings: Any) -> PoolManager:
        manager = super().proxy_manager_for(*args, **settings)
        manager.pool_classes_by_scheme = self._classes
        return manager


def _pools(line: Line) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            line.opened(made)
            return made

    class Secure(HTTPSConnection):
        _early: socket.socket | None = None

        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            self._early = made.dup()  # TLS takes the first one away before it shakes hands
            line.opened(self._early)
            return made

        def connect(self) -> None:
            try:
                super().connect()
            finally:
                if self._early is not None:
                    self._early.close()
            line.opened(self.sock)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


class GivenUp(PolicyError):
    """A call was hung up because its batch ended."""


class Flight:
    """The calls that one batch has out."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._lines: set[Line] = set()

    @contextmanager
    def holding(self, line: Line) -> Iterator[None]:
        """While inside, `stop` hangs this line up.

        Raises:
            GivenUp: The flight was stopped before.
        """
        with self._lock:
            if self.stopped.is_set():
                raise GivenUp("given up")
            self._lines.add(line)
        try:
            yield
        finally:
            with self._lock:
                self._lines.discard(line)

    def stop(self) -> None:
        """Give every call up: those that wait for an answer return at once, none starts."""
        with self._lock:
            self.stopped.set()
            for line in self._lines:
                line.hang_up()


@overload
def together(work: Callable[[T, Flight], R], items: Sequence[T], workers: int) -> list[R]: ...


@overload
def together(work: Callable[[T, Flight], R], items: Sequence[T], workers: int, *, caught: type[E]) -> list[R | E]: ...


def together(
    work: Callable[[T, Flight], R], items: Sequence[T], workers: int, *, caught: type[E] | None = None
) -> list[R | E] | list[R]:
    """`work(item, flight)` for every item, in up to `workers` threads; results in the order of the items.

    An exception of type `caught` is a result. Any other one, and Ctrl-C, is raised at once: the calls under way are
    hung up and no further one begins. Threads that do not notice in time are daemons, so that the process can end.
    """
    flight, over = Flight(), threading.Event()
    results: dict[int, R | E] = {}
    waiting = deque(enumerate(items))
    defects: list[BaseException] = []

    def run() -> None:
        while not over.is_set():
            try:
                index, item = waiting.popleft()
            except IndexError:
                return
            try:
                results[index] = work(item, flight)
            except BaseException as error:  # raised again below, in the caller's thread
                if caught is not None and isinstance(error, caught):
                    results[index] = error
                else:
                    defects.append(error)
                    over.set()
            if len(results) == len(items):
                over.set()

    count = min(max(1, workers), len(items))
    threads = [threading.Thread(target=run, daemon=True, name=f"turngym-call-{n}") for n in range(count)]
    try:
        for thread in threads:
            thread.start()
        if threads:
            over.wait()
    finally:
        over.set()
        flight.stop()
        deadline = time.monotonic() + STRAGGLER_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
    if defects:
        raise defects[0]
    return [results[index] for index in range(len(items))]


# -- JsonClient: JSON over HTTP with bounded retries, for engines that run elsewhere ----------------------------------
# Retried are failed connections, timeouts, and the statuses 408, 429 and 5xx. The wait between attempts doubles; a
# `Retry-After` of the server is honoured up to a cap. What is still wrong after that is an `HttpError`, which names
# the address, the attempts and the server's own words. A key stands in the headers only, never in a message.
#
# Calls that go out together share a flight (`agents.policies.http`); when it stops, none is tried again.

FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0
"""Seconds between attempts: doubled each time from the first, never more than the longest."""
CONNECT_SECONDS = 10.0
"""Longest wait for a connection; an answer may take longer."""

_MASKED = re.compile(r"[\w.-]*\*{3,}[\w.*-]*")


class HttpError(PolicyError):
    """A request got no usable answer.

    Attributes:
        status: Of the last answer; `None` when there was none.
        code: The error's name in the answer's body, where the server gives one (`context_length_exceeded`).
        said: The server's own message, or what the connection said.
    """

    def __init__(self, text: str, *, status: int | None = None, code: str = "", said: str = "") -> None:
        super().__init__(text)
        self.status, self.code, self.said = status, code, said


class JsonClient:
    """Sends JSON to one server and reads JSON back. Threads may share it.

    Every call takes `retries` and `timeout` instead of the client's own, the statuses that are `final` there though
    they are tried again elsewhere, and the `flight` that it belongs to.

    Args:
        base_url: Address that the paths of requests are put behind, without user name, query or fragment.
        timeout: Seconds to wait for each part of an answer; for a connection at most 10.
        retries: Attempts after the first.
        first_wait: Seconds before the first of them; doubles. Default: 0.5.
        key: Sent as bearer token.
        key_name: What messages call the key.
        trust_env: Use the proxies that the environment names.

    Raises:
        ValueError: The address or the key cannot be used; neither is shown where it could hold a secret.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout: float = 300.0,
        retries: int = 5,
        first_wait: float | None = None,
        key: str | None = None,
        key_name: str = "the API key",
        trust_env: bool = True,
    ) -> None:
        if not 0 < timeout < threading.TIMEOUT_MAX or retries < 0:
            raise ValueError(f"timeout is {timeout} and retries is {retries}: expected more than 0, and 0 or more")
        self.base_url = checked_url(base_url)
        self.timeout, self.retries = timeout, retries
        self._first_wait, self._key_name, self._trust_env = first_wait, key_name, trust_env
        self._auth = _Bearer(key)
        self._idle: deque[Line] = deque()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._flights: WeakSet[Flight] = WeakSet()

    def get(self, path: str, **how: Any) -> dict[str, Any]:
        """The JSON object that `path` answers.

        Raises:
            HttpError: No usable answer.
        """
        return self._object(path, self._ask("GET", path, None, **how))

    def post(self, path: str, body: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        """The JSON object that `path` answers to `body`.

        Raises:
            HttpError: No usable answer.
        """
        return self._object(path, self._ask("POST", path, body, **how))

    def tell(self, path: str, body: Mapping[str, Any] | None = None, **how: Any) -> None:
        """POST `body`, or GET without one, where only the status matters.

        Raises:
            HttpError: No answer, or another status than 200.
        """
        self._ask("GET" if body is None else "POST", path, body, **how)

    def close(self) -> None:
        """Close the connections, for good; calls under way and waits between attempts end at once. Idempotent."""
        self._closed.set()
        with self._lock:
            flights = list(self._flights)
        for flight in flights:
            flight.stop()
        while self._idle:
            self._idle.pop().close()

    def _url(self, path: str) -> str:
        return f"{self.base_url}/{path.lstrip('/')}"

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        retries: int | None = None,
        timeout: float | None = None,
        final: Collection[int] = (),
        flight: Flight | None = None,
    ) -> requests.Response:
        url, flight = self._url(path), flight or Flight()
        retries, timeout = self.retries if retries is None else retries, timeout or self.timeout
        with self._lock:
            if self._closed.is_set():
                raise ValueError(f"{url}: the client was closed; make a new one")
            self._flights.add(flight)
        for attempt in range(1, retries + 2):
            wait: float | None = None
            try:
                answer = self._send(method, url, body, timeout, flight)
            except requests.RequestException as error:
                if flight.stopped.is_set():
                    raise GivenUp("given up") from error
                failure = self._failure(url, attempt, _reason(error, timeout))
                again = isinstance(error, requests.ConnectionError | requests.Timeout | _BROKEN_OFF)
            else:
                if answer.status_code == 200:
                    return answer
                code, said = _complaint(answer)
                failure = self._failure(url, attempt, said, answer.status_code, code)
                again = answer.status_code in (408, 429) or answer.status_code >= 500
                # A spent budget answers 429 as well, and stays spent.
                again = again and answer.status_code not in final and code != "insufficient_quota"
                wait = _retry_after(answer.headers.get("Retry-After"))
            if not again or attempt > retries:
                raise failure
            if wait is None:
                first = FIRST_WAIT if self._first_wait is None else self._first_wait
                wait = first * 2 ** (attempt - 1) * _jitter.uniform(0.75, 1.25)
            if _wait(flight.stopped, min(wait, LONGEST_WAIT)):
                raise failure
        raise AssertionError("unreachable")

    def _send(
        self, method: str, url: str, body: Mapping[str, Any] | None, timeout: float, flight: Flight
    ) -> requests.Response:
        """One attempt, on a line of its own: `requests` does not promise that threads may share a session."""
        try:
            line = self._idle.pop()
        except IndexError:
            line = Line(self._trust_env)
        try:
            with flight.holding(line):
                return line.session.request(
                    method,
                    url,
                    json=body,
                    timeout=(min(CONNECT_SECONDS, timeout), timeout),
                    allow_redirects=False,
                    auth=self._auth,
                )
        finally:
            if line.cut or self._closed.is_set():
                line.close()
            else:
                self._idle.append(line)

    def _object(self, path: str, answer: requests.Response) -> dict[str, Any]:
        try:
            value = answer.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            said = f"not a JSON object but {_clean(answer.text) or 'nothing'}"
            raise self._failure(self._url(path), 1, said, answer.status_code)
        return value

    def _failure(self, url: str, attempt: int, said: str, status: int | None = None, code: str = "") -> HttpError:
        said = _short(self._auth.hidden_in(said))  # hidden first: half a key could not be found any more
        tried = "" if attempt == 1 else f", {attempt} attempts"
        answered = "no answer" if status is None else f"HTTP {status}{self._hint(status)}"
        more = "; is the server running, and is this its address?" if status is None else ""
        return HttpError(f"{url}: {answered}{tried}: {said}{more}", status=status, code=code, said=said)

    def _hint(self, status: int) -> str:
        if status in (401, 403):
            return f" (is {self._key_name} set, and is it this server's?)"
        if 300 <= status < 400:
            return " (a redirect is not followed: give the address that it leads to)"
        return " (is the path of the address right, and the model's name?)" if status == 404 else ""


class _Bearer(requests.auth.AuthBase):
    """The key as header. Being an `auth` object it also keeps `requests` from taking one out of ~/.netrc."""

    def __init__(self, key: str | None) -> None:
        self._key = (key or "").strip()
        if not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            raise ValueError("the API key holds characters that no key has (spaces, line ends, not ASCII)")

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request

    def hidden_in(self, text: str) -> str:
        """`text` without the key, and without keys that the server has masked in part."""
        return _MASKED.sub("***", text.replace(self._key, "***") if self._key else text)


_BROKEN_OFF = requests.exceptions.ChunkedEncodingError
_jitter = random.Random()


def checked_url(url: str) -> str:
    """An address without a slash at its end.

    Raises:
        ValueError: It is none, or it holds more than scheme, host and path; what it holds is then not shown.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or re.search(r"\s", url):
        raise ValueError("the address is no http:// or https:// URL with a host")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"the address of {host} holds a user name, a query or a fragment, which would end up in records: give "
            "scheme, host and path only, and the key apart from it"
        )
    return url.rstrip("/")


def _wait(stopped: threading.Event, seconds: float) -> bool:
    """Wait, but no longer than until the flight is stopped; whether it is."""
    return stopped.wait(seconds)


def _complaint(answer: requests.Response) -> tuple[str, str]:
    """Code and message of an error, in the forms that servers use, and where a redirect leads."""
    kind, said = _said(answer)
    where = answer.headers.get("Location")
    return kind, _clean(said) + (f" ({_clean(where)})" if where else "")


def _said(answer: requests.Response) -> tuple[str, str]:
    try:
        body = answer.json()
    except ValueError:
        return "", answer.text.strip() or answer.reason or "no message"
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return "", str(error)
    code = error.get("code")
    kind = str(code if isinstance(code, str) else error.get("type") or "")
    return kind, str(error.get("message") or error.get("detail") or body)


def plain_text(text: str) -> str:
    """`text` with a question mark for each lone surrogate, which no terminal and no file takes."""
    return text.encode("utf-8", "replace").decode()


def _clean(text: str) -> str:
    return " ".join(plain_text(text).split())


def _short(text: str) -> str:
    return text if len(text) <= 400 else text[:400] + " ..."


def _reason(error: requests.RequestException, timeout: float) -> str:
    if isinstance(error, requests.Timeout):
        return f"nothing came for {timeout:g} s"
    return f"{type(error).__name__}: {_clean(str(error))}"


def _retry_after(value: str | None) -> float | None:
    """Seconds that a server asks to wait; it says them as a number or as a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (then.astimezone(UTC) - datetime.now(UTC)).total_seconds())
