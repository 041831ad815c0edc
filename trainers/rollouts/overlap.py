"""`Ahead`: one generation that is played in a thread of its own while the trainer learns on the one before.

What it plays is settled before it begins: the rows, their seeds, and the weights, which the sampler has taken over and
keeps. So it does not matter when it ends, and the same run gives the same episodes on a busy machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from trainers.rollouts.rules import Draw, Played

AGAIN_SECONDS = 0.2
"""Between two attempts to stop a rollout that is to end early: it may not have begun when the first one came."""


class Ahead:
    """A generation under way. The thread that began it waits for it, takes what it played, or ends it.

    Args:
        draw: The rows.
        play: Plays them.

    Attributes:
        draw: The rows.
    """

    def __init__(self, draw: Draw, play: Callable[[], Played]) -> None:
        self.draw, self._play = draw, play
        self._played: Played | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._ended = 0.0
        self._awaited: float | None = None
        """When somebody first had nothing to do but wait for it."""
        self._began = time.perf_counter()
        # A daemon: if it cannot be ended, the process still can.
        self._thread = threading.Thread(target=self._run, name="turngym-ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._played = self._play()
        except BaseException as error:  # raised again in the thread that takes it
            self._error = error
        finally:
            self._ended = time.perf_counter()
            self._over.set()

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._over.is_set()

    @property
    def failure(self) -> BaseException | None:
        """What it failed with, once it is over."""
        return self._error

    def wait(self) -> None:
        """Wait until it is over."""
        if self._awaited is None:
            self._awaited = time.perf_counter()
        self._over.wait()  # not join(): once interrupted, Python 3.11 takes the thread for dead
        self._thread.join()

    def take(self) -> Played:
        """What was played, with the seconds of it for which nobody waited; waits for it.

        Raises:
            BaseException: What it failed with, with its own traceback.
        """
        self.wait()
        if self._error is not None:
            self._error.add_note("(of a generation that was sampled ahead, while the one before was learned on)")
            raise self._error
        assert self._played is not None and self._awaited is not None
        return replace(self._played, hidden_seconds=min(self._awaited, self._ended) - self._began)

    def end(self, stop: Callable[[], None]) -> None:
        """End it before its time: `stop` makes the rollout under way fail, and whatever it fails with is expected."""
        while not self._over.is_set():
            stop()
            self._over.wait(AGAIN_SECONDS)
        self._thread.join()
