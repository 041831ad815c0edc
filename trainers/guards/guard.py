"""What a guard is: a run-time check with a name, what it may look at, and what it says to people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainers.guards.severity import Severity
from trainers.guards.window import Window

if TYPE_CHECKING:
    from agents.rollout import RolloutResult
    from trainers.guards.events import Facts, LeftBehind, Measured, Update


@dataclass(frozen=True, slots=True)
class Finding:
    """What a guard found. One line of `guards.jsonl`.

    Attributes:
        step: Optimizer step it was seen at; 0 before the first one.
        guard: Name of the guard.
        message: What happened, with the figures, and what to do.
        kind: Which of the guard's checks it was; each is said once in a run.
    """

    step: int
    guard: str
    severity: Severity
    message: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A condition that holds now. A guard may repeat it at every step: only the first of its `kind` is a finding."""

    kind: str
    severity: Severity
    message: str


class Guard:
    """One check. A guard overrides the events that it looks at; each yields an alarm for every condition that holds.

    An event that only takes something in returns nothing.

    Attributes whose names begin with one underscore are its memory: numbers, text, lists, mappings or a `Window`; they
    are part of every checkpoint, so that a resumed run judges as an uninterrupted one.
    """

    name: ClassVar[str]

    def begin(self, facts: Facts) -> Iterator[Alarm] | None:
        """Before the first step: settings, tasks, model."""

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm] | None:
        """The episodes that step `step` trains on (counted from 1) were played."""

    def update(self, step: int, update: Update) -> Iterator[Alarm] | None:
        """Optimizer step `step` was taken. With several steps on one batch of episodes each has this event."""

    def measured(self, held_out: Measured) -> Iterator[Alarm] | None:
        """A held-out evaluation is done."""

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm] | None:
        """Step `step` is done; `metrics` under the names of the logs."""

    def left(self, behind: LeftBehind) -> Iterator[Alarm] | None:
        """The run is over; its newest checkpoint was opened as somebody who measures it later does."""

    def state_dict(self) -> dict[str, Any]:
        """The guard's memory, JSON-able."""
        memory = {name: value for name, value in vars(self).items() if name.startswith("_")}
        return {name: value.values if isinstance(value, Window) else value for name, value in memory.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; memory that it does not name starts anew."""
        for name, value in state.items():
            own = getattr(self, name, None)
            if isinstance(own, Window):
                own.fill(value)
            elif name in vars(self):
                setattr(self, name, value)


def note(kind: str, message: str) -> Alarm:
    """Worth knowing, no fault."""
    return Alarm(kind, Severity.NOTE, message)


def warn(kind: str, message: str) -> Alarm:
    """A fault, or nearly one."""
    return Alarm(kind, Severity.WARN, message)


def stop(kind: str, message: str) -> Alarm:
    """Going on would waste the machine, or the weights."""
    return Alarm(kind, Severity.STOP, message)
