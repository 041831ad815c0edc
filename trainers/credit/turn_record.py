"""What one turn brings to the comparison with other turns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TurnSignal(StrEnum):
    """What a turn earns by itself."""

    PROGRESS = "progress"
    """Change of the rate of the file assertions, measured on the host after the turn."""
    EXIT_CODE = "exit_code"
    """1 where the command ran and ended with 0, else 0; the submitting turn has none. A named baseline: weak, since
    a command on a wrong file succeeds, too, and a search that finds nothing does not."""
    OUTCOME = "outcome"
    """The episode's reward for its last turn, 0 for the others, as GiGPO is published: the return of turn t of T (from
    0) is `gamma^(T-1-t) R`. Every turn has one, on tasks without file assertions, too."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What one turn brings to the comparison.

    Attributes:
        signal: What the turn earned by itself; `None` where it has none (a submitting turn, but with `outcome`).
        anchor: The state before the turn.
        state: The observation before the turn as text; only read by `TurnGrouping.SIMILARITY`.
        invalid: The reply was malformed: no action in it.
    """

    signal: float | None
    anchor: str
    state: str = ""
    invalid: bool = False
