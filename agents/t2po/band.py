"""The band of turn resampling: did a turn's uncertainty move by less than eta, and which eta picks a wanted share.

Source: turn-level dynamical sampling of T2PO; calibration and intervals are ours.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from agents.uncertainty import Bounds

TOLERANCE = 1e-9
"""Changes below this are rounding: the two turns are equally uncertain, which is not resampled."""


class Place(StrEnum):
    """Where a change lies, as far as is known."""

    IN = "in"
    """In the band for certain."""
    OUT = "out"
    """Outside for certain: it moved by eta or more, or not at all."""
    UNDECIDED = "undecided"
    """Only bounds are known, and they lie on both sides of eta."""


def place(change: Bounds, eta: float) -> Place:
    """Where the size of a change lies. Both edges allow for rounding.

    An interval that begins at 0 and ends below eta counts as in the band: its change is certainly small, and whether it
    is exactly 0 can never be seen from bounds.
    """
    if change.upper <= TOLERANCE or change.lower >= eta - TOLERANCE:
        return Place.OUT
    return Place.IN if change.upper < eta - TOLERANCE else Place.UNDECIDED


class Calibration:
    """Finds the eta under which `target_rate` of the changes seen would have lain in the band for certain.

    Where several changes are equal no eta may give that share: then it is the nearest share that there is.

    Args:
        target_rate: Wanted share, between 0 and 1.
        warmup: Changes to look at.
        repeats: Changes of 0 lie in the band, too (for who looks for repetition).

    Attributes:
        equal: Changes of (as good as) 0; they lie in no band but one with `repeats`.
        moved: The others, the upper ends where only bounds are known.
    """

    def __init__(self, target_rate: float, warmup: int, *, repeats: bool = False) -> None:
        self._rate, self._warmup, self._repeats = target_rate, warmup, repeats
        self.equal = 0
        self.moved: list[float] = []

    @property
    def seen(self) -> int:
        """Changes so far."""
        return self.equal + len(self.moved)

    def see(self, change: Bounds) -> float | None:
        """Take one change; eta once there are enough, `None` before (without `repeats` also while no turn moved)."""
        if change.upper <= TOLERANCE:
            self.equal += 1
        else:
            self.moved.append(change.upper)
        wanted = round(self._rate * self.seen)
        values = self._values()
        if self.seen < self._warmup or not values or wanted < 1:
            return None
        last = values[min(wanted, len(values)) - 1]
        below = [value for value in values if value < last - TOLERANCE]
        above = [value for value in values if value > last + TOLERANCE]
        up, down = len(values) - len(above), len(below)
        # Halfway between two changes, so that the band's edge lies on no change that was seen.
        if last <= TOLERANCE or abs(up - wanted) <= abs(down - wanted):
            return (last + (above[0] if above and last > TOLERANCE else last)) / 2 + 2 * TOLERANCE
        return ((below[-1] if below else 0.0) + last) / 2 + 2 * TOLERANCE

    def warning(self, eta: float) -> str | None:
        """That eta gives another share than was wanted, if it does."""
        hits = sum(value < eta - TOLERANCE for value in self._values())
        if not self.seen or self._rate / 2 <= hits / self.seen <= 2 * self._rate:
            return None
        return (
            f"eta was calibrated to {eta:.3g}, and {hits} of the {self.seen} changes seen lie in that band, where "
            f"{self._rate:.0%} were wanted: too many of them are equal ({self.equal} are 0). Give eta, or use another "
            "signal."
        )

    def _values(self) -> list[float]:
        """The changes that can lie in a band, in order."""
        return [0.0] * (self.equal if self._repeats else 0) + sorted(self.moved)

    def state_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"equal": self.equal, "moved": list(self.moved)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.equal, self.moved = state["equal"], list(state["moved"])
