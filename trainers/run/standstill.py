"""Where a run waits when nothing has happened for ten minutes: one line, from a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agents.rollout.episode import Waiting, WaitsFor
from tasks.model import counted

STILL_SECONDS = 600.0
"""Without a reply, an answer of an environment or a finished step for so long, a run says where it waits; then again as
often, until something happens."""


class Where(NamedTuple):
    """What is played, such as `rollout`, in which kind of sandbox, and the episodes under way in this process."""

    phase: str
    sandbox: str
    waiting: Sequence[Waiting]


class Standstill:
    """Watches for the moment at which nothing has happened for long.

    Args:
        say: Takes the line, on the thread of this.
        step: The optimizer step that is under way.
        where: What is under way.
        seconds: How long nothing may happen, and how often it is said.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        step: Callable[[], int],
        where: Callable[[], Where],
        seconds: float = STILL_SECONDS,
    ) -> None:
        self._say, self._step, self._where, self._seconds = say, step, where, seconds
        self._moved = self._said = time.monotonic()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch."""
        self.moved()
        self._over.clear()
        self._thread = threading.Thread(target=self._watch, name="standstill", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def moved(self) -> None:
        """Something has happened."""
        self._moved = time.monotonic()

    def _watch(self) -> None:
        while not self._over.wait(max(0.01, max(self._moved, self._said) + self._seconds - time.monotonic())):
            now = time.monotonic()
            if now - max(self._moved, self._said) >= self._seconds:
                self._said = now
                self._say(still_text(self._step(), now - self._moved, self._where()))


def still_text(step: int, seconds: float, where: Where) -> str:
    """One line: since when, in which phase, how many episodes wait for what, and the one that waits longest."""
    head = f"step {step} has stood still for {seconds / 60:.0f} minutes"
    if not where.waiting:
        return f"{head}: no episode is under way here, so it learns, writes, or waits for other processes"
    parts = []
    for what in WaitsFor:
        some = [one for one in where.waiting if one.what is what]
        if some:
            one = max(some, key=lambda waiting: waiting.seconds)
            place = "" if what is WaitsFor.REPLY else f" ({where.sandbox})"
            longest = f"{one.task} attempt {one.attempt}, turn {one.turn}, {one.seconds:.0f} s"
            parts.append(f"{counted(len(some), 'episode')} for {what}{place} (longest: {longest})")
    return f"{head}, in {where.phase}: {'; '.join(parts)}"
