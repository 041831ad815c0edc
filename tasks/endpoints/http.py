"""JSON over HTTP with retries, and with all calls of a client slowing down together."""

from __future__ import annotations

import itertools
import random
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import requests

from tasks.endpoints import PolicyError
from tasks.endpoints.flight import Flight, GivenUp, Line
from tasks.endpoints.throttle import BUSY, Gate, Place, Verdict

# Retried are failed connections, timeouts, answers that are cut off or no JSON, and the statuses 408, 429 and 5xx. The
# wait between attempts doubles, for each call on its own; but where the server asks for fewer requests, all calls of a
# client wait together (`tasks.endpoints.throttle`). What is still wrong after that is an `HttpError`, which names the
# address, the attempts and the server's own words. A key stands in the headers only, never in a message.
#
# Calls that go out together share a flight (`tasks.endpoints.flight`); when it stops, none is tried again.

RETRIES = 10
"""Attempts after the first: with the waits below they outlast four minutes without a server."""
FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0
"""Seconds between attempts: doubled each time from the first, never more than the longest."""
JITTER = 0.25
"""By which share of itself a wait differs, so that calls that failed together do not come back together."""
LONGEST_LOOK = 15.0
"""The same where all calls wait for one that looks: a limit by the minute ends at a time that nobody knows."""
LONGEST_NAMED = 600.0
"""A server that asks to wait for longer is not waited for."""
CONNECT_SECONDS = 10.0
"""Longest wait for a connection; an answer may take longer."""
STRANGER_RETRIES = 5
"""Most retries at a server that was never there: its address may be wrong."""
SLOW_RETRIES = 2
"""Most retries after nothing came for the whole time: what took so long will again."""
UNLUCKY = 3
"""A call is refused as one too many at most so many times its retries, however many others are taken meanwhile."""

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


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What came of sending a call once.

    Attributes:
        value: What was answered, if it is what was wanted.
        failure: Why it is not.
        again: Whether another attempt may do better.
        slow: Whether the whole time was waited.
        named: Seconds that the server asks to wait before it.
    """

    value: dict[str, Any] | None = None
    failure: HttpError | None = None
    again: bool = False
    slow: bool = False
    named: float | None = None

    @property
    def verdict(self) -> Verdict:
        """What the other calls learn from it."""
        status = 200 if self.value is not None else self.failure.status if self.failure is not None else None
        if status is None:
            return Verdict.UNKNOWN
        return Verdict.REFUSED if self.again and status in BUSY else Verdict.TAKEN


class JsonClient:
    """Sends JSON to one server and reads JSON back. Threads may share it.

    Every call takes `retries` and `timeout` instead of the client's own, the statuses that are `final` there though
    they are tried again elsewhere, the `flight` that it belongs to, and `alive`: asked after a failure whether to try
    here again. With `retries=0` it is a look: it neither waits for the other calls nor slows them down.

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
        retries: int = RETRIES,
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
        least = sum(self._pause(failures, 1.0 - JITTER) for failures in range(1, retries + 1))
        self._gate = Gate(lambda refusals: min(self._pause(refusals), LONGEST_LOOK), retries, least)
        self._refusal: HttpError | None = None
        self._met = False
        self._idle: deque[Line] = deque()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._flights: WeakSet[Flight] = WeakSet()

    def get(self, path: str, **how: Any) -> dict[str, Any]:
        """The JSON object that `path` answers.

        Raises:
            HttpError: No usable answer.
        """
        return self._ask("GET", path, None, True, **how)

    def post(self, path: str, body: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        """The JSON object that `path` answers to `body`.

        Raises:
            HttpError: No usable answer.
        """
        return self._ask("POST", path, body, True, **how)

    def tell(self, path: str, body: Mapping[str, Any] | None = None, **how: Any) -> None:
        """POST `body`, or GET without one, where only the status matters.

        Raises:
            HttpError: No answer, or another status than 200.
        """
        self._ask("GET" if body is None else "POST", path, body, False, **how)

    def hidden(self, text: str) -> str:
        """`text` without the key."""
        return self._auth.without_key(text)

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
        reads: bool,
        *,
        retries: int | None = None,
        timeout: float | None = None,
        final: Collection[int] = (),
        flight: Flight | None = None,
        alive: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        url, flight = self._url(path), flight or Flight()
        gate = None if retries == 0 else self._gate
        retries, timeout = self.retries if retries is None else retries, timeout or self.timeout
        with self._lock:
            if self._closed.is_set():
                raise ValueError(f"{url}: the client was closed; make a new one")
            self._flights.add(flight)
        place, failure, slow, failed = Place(), None, 0, 0
        for attempt in itertools.count(1):
            if gate is not None:
                self._enter(gate, place, flight, failure, url)
            tried = _Attempt()
            try:
                tried = self._try(method, url, body, timeout, flight, attempt, final, reads)
            finally:
                waits = gate is not None and gate.leave(place, tried.verdict, tried.named)
            if tried.value is not None:
                return tried.value
            assert tried.failure is not None
            failure = tried.failure
            refused = tried.verdict is Verdict.REFUSED
            slow, failed = slow + tried.slow, failed + (not refused)
            if refused:
                self._refusal = failure
                more = waits and place.refusals <= UNLUCKY * retries
            else:
                most = retries if self._met else min(retries, STRANGER_RETRIES)
                more = failed <= most and slow <= min(retries, SLOW_RETRIES)
            more = more and tried.again and (tried.named is None or tried.named <= LONGEST_NAMED)
            if not more or (alive is not None and not alive()):
                raise failure
            wait = self._pause(failed) if tried.named is None else tried.named
            if not refused and _wait(flight.stopped, wait):
                raise failure
        raise AssertionError("unreachable")

    def _enter(self, gate: Gate, place: Place, flight: Flight, failure: HttpError | None, url: str) -> None:
        """Wait for this call's turn.

        Raises:
            HttpError: It does not come: the flight was stopped, or nobody waits for this server any longer.
        """
        try:
            with flight.holding(place):
                if gate.enter(place, flight.stopped):
                    return
        except GivenUp:
            if failure is None:
                raise
        if failure is not None:
            raise failure
        last = self._refusal
        if flight.stopped.is_set() or last is None:
            raise GivenUp("given up")
        said = f"not sent, since every call is refused: {last.said}"
        raise self._failure(url, 1, said, last.status, last.code)

    def _try(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        timeout: float,
        flight: Flight,
        attempt: int,
        final: Collection[int],
        reads: bool,
    ) -> _Attempt:
        """Send it once."""
        try:
            answer = self._send(method, url, body, timeout, flight)
        except requests.RequestException as error:
            if flight.stopped.is_set():
                raise GivenUp("given up") from error
            failure = self._failure(url, attempt, _reason(error, timeout))
            again = isinstance(error, (requests.ConnectionError, requests.Timeout, *_BROKEN_OFF))
            return _Attempt(failure=failure, again=again, slow=isinstance(error, requests.ReadTimeout))
        self._met = True
        status = answer.status_code
        if status != 200:
            code, said = _complaint(answer)
            again = status in (408, 429) or status >= 500
            again = again and status not in final and code != _SPENT and not TOO_LARGE.match(said)
            named = _retry_after(answer.headers.get("Retry-After"))
            return _Attempt(failure=self._failure(url, attempt, said, status, code), again=again, named=named)
        value = _object(answer) if reads else {}
        if value is not None:
            return _Attempt(value)
        said = f"not a JSON object but {_clean(answer.text) or 'nothing'}"
        return _Attempt(failure=self._failure(url, attempt, said, status), again=True)

    def _pause(self, failures: int, factor: float | None = None) -> float:
        """Seconds to wait after so many failures, by chance a little more or less."""
        first = FIRST_WAIT if self._first_wait is None else self._first_wait
        factor = _jitter.uniform(1.0 - JITTER, 1.0 + JITTER) if factor is None else factor
        return min(first * 2 ** min(failures - 1, 30) * factor, LONGEST_WAIT)

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
        return _MASKED.sub("***", self.without_key(text))

    def without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


_BROKEN_OFF = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
_SPENT = "insufficient_quota"
"""A spent budget answers 429 as well, and stays spent."""
TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
"""So does a prompt that alone holds more tokens than a minute allows."""
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


def _object(answer: requests.Response) -> dict[str, Any] | None:
    try:
        value = answer.json()
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


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
    if isinstance(body, list) and len(body) == 1:
        (body,) = body  # some put their errors into a list
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
