"""Slowing down together: what one call of a client learns about a server's limits, all its calls heed.

A server that says "too many requests" means the client, not the call. So the gate that all calls of a client pass
shuts for everyone: until the time that the server named, or for a pause that doubles with each refusal and is halved
with each call that is taken, so that it finds the pace at which a server admits calls.
Then one call looks whether the server takes requests again, and the others wait for what it finds; each time another
one looks, so that a call which is always refused does not speak for all. When one is taken, half as many as before may
be out together, and one more with each answer. Calls that were refused beside others keep their place in the line.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

BUSY = frozenset({429, 503, 529})
"""Statuses with which a server asks for fewer requests, whoever sends them."""

_tickets = itertools.count()


class Verdict(Enum):
    """What became of a call that was sent."""

    TAKEN = auto()
    """The server worked on it, well or not."""
    REFUSED = auto()
    """It was one too many."""
    UNKNOWN = auto()
    """No answer came."""


@dataclass(eq=False, slots=True)
class Place:
    """A call's place in the line.

    Attributes:
        ticket: Lower ones go first.
        refusals: How often the call was refused.
        sent: How often the gate had been shut when it was sent.
        released: Whether nobody waits for the server any longer.
    """

    ticket: int = field(default_factory=lambda: next(_tickets))
    refusals: int = 0
    released: bool = False
    sent: int = 0
    moved: threading.Event = field(default_factory=threading.Event, repr=False)

    def __lt__(self, other: Place) -> bool:
        return self.ticket < other.ticket

    def hang_up(self) -> None:
        """End its wait."""
        self.moved.set()


class Gate:
    """What all calls of a client pass before they are sent.

    Args:
        pause: Seconds that it stays shut after so many refusals (from 1) more than calls taken, where the server names
            no time.
        patience: All give up when nobody was taken for more refusals than this in a row,
        seconds: and for so long.
    """

    def __init__(self, pause: Callable[[int], float], patience: int, seconds: float = 0.0) -> None:
        self._pause, self._patience, self._seconds = pause, patience, seconds
        self._lock = threading.Lock()
        self._line: list[Place] = []
        self._out = 0
        """Under way since the gate was last shut: a long reply from before keeps nobody waiting."""
        self._most = math.inf
        self._refusals = 0
        """Since the server took a call; above 0 the gate is shut, and opened for one call at a time."""
        self._level = 0
        self._since = self._until = -math.inf
        self._shut = 0
        self._looking: Place | None = None

    def enter(self, place: Place, stopped: threading.Event) -> bool:
        """Wait until this call may be sent.

        Returns:
            False if it may not: all gave up, or it was `stopped` (whoever sets that calls `Place.hang_up`, too).
        """
        with self._lock:
            insort(self._line, place)
        try:
            while not (stopped.is_set() or place.released):
                place.moved.clear()
                with self._lock:
                    wait = self._to_wait(place)
                    if wait == 0:
                        self._go(place)
                        return True
                if not (stopped.is_set() or place.released):
                    _wait(place.moved, None if wait == math.inf else wait)
            return False
        finally:
            with self._lock:
                if place in self._line:
                    self._line.remove(place)
                self._call_next()

    def leave(self, place: Place, verdict: Verdict, named: float | None = None) -> bool:
        """The call is over.

        Args:
            place: As it entered.
            verdict: What became of it.
            named: Seconds that the server asks to wait for, if it refused.

        Returns:
            Whether it may enter again, if it was refused.
        """
        with self._lock:
            looked, late = self._looking is place, place.sent < self._shut
            self._out -= not late
            if looked:
                self._looking = None
            # A late answer says nothing about the time since the gate was shut.
            if verdict is Verdict.TAKEN and not late:
                self._refusals, self._level = 0, max(0, self._level - 1)
                self._most += 1
            elif verdict is Verdict.REFUSED:
                self._refused(place, named, late)
                if looked:
                    place.ticket = next(_tickets)
            self._call_next()
            return not place.released

    def _refused(self, place: Place, named: float | None, late: bool) -> None:
        now = _now()
        place.refusals += 1
        if named is not None:
            self._until = max(self._until, now + named)
        if late:
            return
        self._most = max(1.0, min(self._most, self._out + 1) // 2)
        self._out = 0
        if not self._refusals:
            self._since = now
        self._refusals += 1
        self._shut += 1
        if named is None:
            self._level += 1
            self._until = max(self._until, now + self._pause(self._level))
        if self._refusals > self._patience and now - self._since >= self._seconds:
            for waiting in (place, *self._line):
                waiting.released = True
                waiting.moved.set()

    def _to_wait(self, place: Place) -> float:
        """Seconds until this call may go; infinite: until another has moved."""
        if (rest := self._until - _now()) > 0:
            return rest
        if self._line[0] is not place or self._out >= self._most:
            return math.inf
        return math.inf if self._refusals and self._looking is not None else 0

    def _go(self, place: Place) -> None:
        self._out += 1
        place.sent = self._shut
        if self._refusals:
            self._looking = place

    def _call_next(self) -> None:
        if self._line:
            self._line[0].moved.set()


def _now() -> float:
    return time.monotonic()


def _wait(moved: threading.Event, seconds: float | None) -> None:
    moved.wait(seconds)
