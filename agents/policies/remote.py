"""Replies of a policy that runs elsewhere: independent calls in a few threads, as a stream or all at once.

Each request is a conversation of its own: what fails, fails it alone. The exception is a server that is not there for
anyone, which ends the run with one error instead of one episode after the other (`Outage`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agents.policy import Answer, Completion, PolicyError, Request, SomeFailed
from tasks.endpoints.flight import Flight, GivenUp
from tasks.endpoints.http import HttpError

STRAGGLER_SECONDS = 2.0
"""How long the end waits for threads that were hung up."""

LOOK_SECONDS = 0.5
"""Longest time that Ctrl-C may go unnoticed."""

_ONE_REQUEST = frozenset(range(400, 500)) - {401, 403, 404, 408, 429}
"""Refusals that are about one request; after any other failure the server may not be there for anyone."""
_PERHAPS_ONE_REQUEST = frozenset({200, 500})
"""A prompt that the server stumbles over, or a server that is broken."""
LEAST, LEAST_PERHAPS = 2, 4
"""Failures in a row that it takes at least."""

T = TypeVar("T")


class Outage:
    """Tells a server that is not there for anyone from requests that fail alone.

    A failure counts if its reason is not the request's own: no answer, a key or a model refused, a status that asks to
    come again. It is an outage when such failures came without any reply in between, and every call that was under way
    at the first of them has failed so, too: two at least, and four where all were answers of 500 or unreadable, which
    may be a prompt's fault. Anything that shows the server at work, a refusal of one prompt included, begins anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[object] = set()
        self._awaited: set[object] = set()
        self._failures: list[HttpError] = []

    def began(self) -> object:
        """A call goes out; returns what names it to the other methods."""
        call = object()
        with self._lock:
            self._under_way.add(call)
        return call

    def given_up(self, call: object) -> None:
        """It was hung up, which says nothing."""
        with self._lock:
            self._under_way.discard(call)
            self._awaited.discard(call)

    def ended(self, call: object, answer: Answer) -> PolicyError | None:
        """It ended so; returns the error that ends everything, if this was the last sign that was missing."""
        with self._lock:
            self._under_way.discard(call)
            if not isinstance(answer, HttpError) or answer.status in _ONE_REQUEST:
                self._failures, self._awaited = [], set()
                return None
            if not self._failures:
                self._awaited = set(self._under_way)
            self._awaited.discard(call)
            self._failures.append(answer)
            perhaps = all(failure.status in _PERHAPS_ONE_REQUEST for failure in self._failures)
            if self._awaited or len(self._failures) < (LEAST_PERHAPS if perhaps else LEAST):
                return None
            count, first = len(self._failures), self._failures[0]
        error = PolicyError(f"all {count} requests since the last reply failed, the first with: {first}")
        error.__cause__ = first
        return error


@dataclass(slots=True)
class _Ended(Generic[T]):
    """A call that is over: what it was about, its answer or the error that ends everything."""

    key: T
    answer: Answer
    fatal: BaseException | None = field(default=None)


class Calls(Generic[T]):
    """Calls to a server, each in one of a few threads that live as long as there is work.

    Args:
        reply: One call: what was begun to its completion. A `PolicyError` is its answer; anything else is a defect.
        workers: Calls under way at a time.
        outage: Of the server, across all its calls.
        wake: Called from one of the threads after each answer.
    """

    def __init__(
        self,
        reply: Callable[[T, Flight], Completion],
        workers: int,
        outage: Outage,
        wake: Callable[[], None],
    ) -> None:
        self._reply, self._workers, self._outage, self._wake = reply, max(1, workers), outage, wake
        self._flight, self._closed = Flight(), threading.Event()
        self._lock = threading.Lock()
        self._waiting: deque[T] = deque()
        self._ended: deque[_Ended[T]] = deque()
        self._threads: list[threading.Thread] = []
        self._busy = 0

    def begin(self, items: Sequence[T]) -> None:
        """Let these go out, in order, as soon as a thread is free."""
        with self._lock:
            self._waiting.extend(items)
            more = min(self._workers, self._busy + len(self._waiting)) - self._busy
            started = [threading.Thread(target=self._run, daemon=True, name="turngym-call") for _ in range(more)]
            self._busy += more
            self._threads = [thread for thread in self._threads if thread.is_alive()] + started
            for thread in started:
                thread.start()

    def ended(self) -> list[tuple[T, Answer]]:
        """What has ended since the last look.

        Raises:
            PolicyError: The server is not there for anyone.
        """
        out = []
        while self._ended:
            done = self._ended.popleft()
            if done.fatal is None:
                out.append((done.key, done.answer))
            elif out:  # these first, the error at the next look
                self._ended.appendleft(done)
                self._wake()
                break
            else:
                raise done.fatal
        return out

    def close(self) -> None:
        """Hang up what is under way; nothing further begins. Idempotent."""
        self._closed.set()
        self._flight.stop()
        deadline = time.monotonic() + STRAGGLER_SECONDS
        for thread in self._threads:
            if thread.ident is not None:  # an interrupt may come before it is started
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._closed.is_set():
                    self._busy -= 1
                    return
                item = self._waiting.popleft()
            done = self._one(item)
            if done.fatal is not None:
                with self._lock:
                    self._waiting.clear()  # nothing further begins
            if self._closed.is_set():
                continue
            self._ended.append(done)
            self._wake()

    def _one(self, item: T) -> _Ended[T]:
        call = self._outage.began()
        try:
            answer: Answer = self._reply(item, self._flight)
        except GivenUp as error:
            self._outage.given_up(call)
            return _Ended(item, error, error)
        except PolicyError as error:
            if self._closed.is_set():  # its wait for another attempt was cut short
                self._outage.given_up(call)
                return _Ended(item, error)
            answer = error
        except BaseException as error:  # a defect: raised again in the thread that asks
            self._outage.given_up(call)
            return _Ended(item, PolicyError(repr(error)), error)
        return _Ended(item, answer, self._outage.ended(call, answer))


def together(
    reply: Callable[[T, Flight], Completion], items: Sequence[T], workers: int, outage: Outage
) -> list[Completion]:
    """A completion for every item, in order.

    Raises:
        SomeFailed: Some failed.
        PolicyError: The server is not there for anyone.
    """
    moved = threading.Event()

    def work(indexed: tuple[int, T], flight: Flight) -> Completion:
        return reply(indexed[1], flight)

    calls: Calls[tuple[int, T]] = Calls(work, workers, outage, moved.set)
    answers: dict[int, Answer] = {}
    try:
        calls.begin(list(enumerate(items)))
        while len(answers) < len(items):
            # Not without an end: Ctrl-C just before a wait begins would only be noticed when it ends.
            moved.wait(LOOK_SECONDS)
            moved.clear()
            answers |= {index: answer for (index, _), answer in calls.ended()}
    finally:
        calls.close()  # at Ctrl-C, too
    ordered = [answers[index] for index in range(len(items))]
    completions = [answer for answer in ordered if isinstance(answer, Completion)]
    if len(completions) < len(ordered):
        raise SomeFailed(ordered)
    return completions


class RemoteStream(Generic[T]):
    """`agents.policy.Stream` of a policy whose replies come by themselves.

    Args:
        prepare: Makes of a request what `reply` takes, in the caller's thread; what it raises, `ask` raises.
        reply: See `Calls`, as `workers`, `outage` and `wake`.
        until_closed: What is given back when all calls are over.
    """

    working = False

    def __init__(
        self,
        prepare: Callable[[Request], T],
        reply: Callable[[T, Flight], Completion],
        workers: int,
        outage: Outage,
        wake: Callable[[], None],
        until_closed: ExitStack | None = None,
    ) -> None:
        self._prepare, self._until_closed = prepare, until_closed or ExitStack()
        self._calls: Calls[tuple[str, T]] = Calls(lambda named, flight: reply(named[1], flight), workers, outage, wake)

    def ask(self, requests: Sequence[Request]) -> None:
        """Begin these replies."""
        self._calls.begin([(request.conversation, self._prepare(request)) for request in requests])

    def advance(self) -> list[tuple[str, Answer]]:
        """What has ended since the last call; never waits.

        Raises:
            PolicyError: The server is not there for anyone (`Outage`).
        """
        return [(name, answer) for (name, _), answer in self._calls.ended()]

    def close(self) -> None:
        """Hang up what is under way. Idempotent."""
        self._calls.close()
        self._until_closed.close()
