"""How far a rollout is, and where its time went."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from agents.policy import Completion

# -- Where the time of a rollout went ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Timing:
    """Where the time of a call went. Seconds of wall time.

    Attributes:
        wall_seconds: The whole call.
        model_seconds: Inside the policy.
        sandbox_seconds: Waiting for environments, and for nothing else.
        turns: Replies that were sampled and stepped (also those of episodes that started over).
        sampled_tokens: Their ids.
    """

    wall_seconds: float = 0.0
    model_seconds: float = 0.0
    sandbox_seconds: float = 0.0
    turns: int = 0
    sampled_tokens: int = 0

    def sampled(self, reply: Completion) -> None:
        """Count a reply, with the samples that were rejected before it."""
        self.turns += 1
        self.sampled_tokens += len(reply.ids) + sum(len(candidate.ids) for candidate in reply.candidates)

    @property
    def overhead_seconds(self) -> float:
        """What is neither: templates, tokens, records, threads."""
        return self.wall_seconds - self.model_seconds - self.sandbox_seconds


# -- How far a rollout is: what it tells after each round, and a bar for it -------------------------------------------

LINE_SECONDS = 60.0
"""Where there is no terminal, a line this often: a log of hours shows life, one of seconds stays as it is."""


@dataclass(frozen=True, slots=True)
class RolloutState:
    """A rollout after a round.

    Attributes:
        done: Episodes that are over, of `total`.
        turns: Turns played so far.
        tokens: Ids sampled so far; `None` where they are not the model's own.
        seconds: Since it began.
        infrastructure: Episodes that the machinery ended.
        retries: Episodes that started over for it.
    """

    done: int
    total: int
    turns: int
    tokens: int | None
    seconds: float
    infrastructure: int = 0
    retries: int = 0

    def figures(self) -> str:
        """Beside the count of episodes, in one line."""
        parts = [f"{self.turns} turns"]
        if self.tokens is not None:
            parts.append(f"{self.tokens / self.seconds if self.seconds > 0 else 0.0:.0f} tokens/s")
        if self.retries:
            parts.append(f"{self.retries} started over")
        if self.infrastructure:
            parts.append(f"infrastructure {self.infrastructure}")
        return "  ".join(parts)


class RolloutProgress:
    """A progress bar for rollouts; a context manager. Give its `show` to `RolloutEngine.run` as `on_round`.

    Without a terminal it prints a line now and then.

    Args:
        name: Stands before the bar.
        console: Where to write; the default is standard output.

    Example:
        with RolloutProgress("sampled") as progress:
            engine.run(jobs, sampling, on_round=progress.show)
    """

    def __init__(self, name: str = "rollout", *, console: Console | None = None) -> None:
        self.name = name
        self.console = console or Console(highlight=False)
        self._line = Lines()
        self._bar: Progress | None = None
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn(name, markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
                TextColumn("left"), TimeRemainingColumn(),
                TextColumn(
                    "{task.fields[figures]}", markup=False,
                    table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),  # a narrow terminal cuts these
                ),
                console=self.console, transient=True, expand=True,
            )  # fmt: skip
            self._task = self._bar.add_task(name, total=None, figures="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, state: RolloutState) -> None:
        """A round is over."""
        if self._bar is not None:
            self._bar.update(self._task, completed=state.done, total=state.total, figures=state.figures())
        elif self._line.due():
            self.console.print(describe(self.name, state), markup=False, soft_wrap=True)


class Lines:
    """Says when the next line is due, where there is no bar."""

    def __init__(self, seconds: float = LINE_SECONDS) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """True once per period."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def describe(name: str, state: RolloutState) -> str:
    """A state as a line of a log."""
    return f"{name}: {state.done}/{state.total} episodes  {state.figures()}"
