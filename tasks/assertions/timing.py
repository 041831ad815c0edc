"""How long checks take, by kind of assertion: counts, errors, and the 50th and 95th percentile.

Every check that `tasks.assertions.grade` makes is noted, from any thread. Percentiles are over the last `KEPT` checks
of a kind, counts over all since the last `reset_timings`.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

KEPT = 4096
"""Checks of a kind that the percentiles look back on."""


@dataclass(frozen=True, slots=True)
class KindTiming:
    """What the checks of one kind took.

    Attributes:
        kind: Kind of the assertion, as in a task file.
        n: Checks since the last reset.
        errors: Checks among them that could not be decided (timeouts of a verifier too).
        p50: Median, in milliseconds.
        p95: 95th percentile, in milliseconds.
    """

    kind: str
    n: int
    errors: int
    p50: float
    p95: float

    def __str__(self) -> str:
        errors = f", {self.errors} errors" if self.errors else ""
        return f"{self.kind} p50 {self.p50:.3g} ms, p95 {self.p95:.3g} ms (n={self.n}{errors})"


@dataclass(slots=True)
class _Kind:
    n: int = 0
    errors: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


class Timings:
    """Collects times by kind. One for the whole process is enough: `TIMINGS`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}

    def note(self, kind: str, seconds: float, errors: int = 0) -> None:
        """Count one check; `errors` of its results could not be decided."""
        with self._lock:
            entry = self._kinds.get(kind)
            if entry is None:
                entry = self._kinds[kind] = _Kind()
            entry.n += 1
            entry.errors += errors
            entry.seconds.append(seconds)

    def reset(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kinds.clear()

    def table(self) -> list[KindTiming]:
        """What was noted, by kind, sorted by name."""
        with self._lock:
            held = [(kind, entry.n, entry.errors, sorted(entry.seconds)) for kind, entry in self._kinds.items()]
        return [KindTiming(k, n, errors, _at(times, 0.5), _at(times, 0.95)) for k, n, errors, times in sorted(held)]


TIMINGS = Timings()
"""What `grade` and `grade_files` note in this process."""


def timing_table() -> list[KindTiming]:
    """What the checks of this process took since the last `reset_timings`, by kind."""
    return TIMINGS.table()


def reset_timings() -> None:
    """Start counting anew."""
    TIMINGS.reset()


def _at(times: list[float], share: float) -> float:
    """Nearest-rank percentile, in milliseconds."""
    return 1000 * times[min(len(times) - 1, int(share * len(times)))]
