"""What a guard is: a run-time check with a name, a severity and a message for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Severity(StrEnum):
    """What happens when a guard fires."""

    NOTE = "note"
    """It is written down."""
    WARN = "warn"
    """It is also shown at once and in the summary."""
    STOP = "stop"
    """The run also ends after this step; `best/` and the last checkpoint stay."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a guard found. One line of `guards.jsonl`.

    Attributes:
        step: Optimizer step it was seen at; 0 before the first one.
        guard: Name of the guard.
        message: What happened, with the figures, and what to do.
    """

    step: int
    guard: str
    severity: Severity
    message: str


class Guard(Protocol):
    """Sees the metrics of each training step; returns a message the first time its condition holds."""

    name: str

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """A message for people, or `None`."""
