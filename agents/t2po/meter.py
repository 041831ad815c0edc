"""What turn resampling did, counted, and what is wrong with it, in words."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

ENOUGH = 50
"""Turns before the meter speaks."""
RECENT = 256
"""Turns that the present rate looks at: a band that was right at first may hold every change later."""


@dataclass(slots=True)
class Meter:
    """Counts of later turns, those after the first of an episode; `first` counts first turns, `extra` samples.

    Attributes:
        first: First turns, which have none to compare with.
        later: All later turns.
        greedy: Decoded greedily: a second sample would be the same.
        missing: No signal, or none in any turn before.
        equal: Exactly as uncertain as the turn before, also while eta is calibrated.
        eligible: With both signals, once eta is known.
        undecided: Of those, bounds too wide to tell whether the change lies in the band.
        triggered: Of those, in the band: resampled.
        exhausted: Of the triggered, none left the band, whatever was tried.
        extra: Extra samples drawn; those that failed are not among them.
        recent: The last eligible turns: 1 resampled, 0 not.
    """

    later: int = 0
    greedy: int = 0
    missing: int = 0
    equal: int = 0
    eligible: int = 0
    undecided: int = 0
    triggered: int = 0
    exhausted: int = 0
    extra: int = 0
    first: int = 0
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))

    def decided(self, triggered: bool) -> None:
        """Count an eligible turn."""
        self.eligible += 1
        self.triggered += triggered
        self.recent.append(int(triggered))

    def rate(self) -> float | None:
        """Share of the eligible turns that were resampled; `None` before there is one."""
        return self.triggered / self.eligible if self.eligible else None

    def warning(self, eta: float | None, *, calibrated: bool = False) -> str | None:
        """What is wrong, and the remedy; `None` when nothing is, or too little was seen.

        Args:
            eta: The band's width, if known.
            calibrated: It was calibrated, not given.
        """
        return self._dead() or (None if eta is None else self._unselective(eta, calibrated))

    def _dead(self) -> str | None:
        """Turns that cannot be resampled whatever eta is."""
        later, head = self.later, "turn_resample"
        if later == 0 and self.first >= ENOUGH:
            return f"{head} does nothing: all of {self.first} turns were the only ones of their episodes. Leave it off."
        if later < ENOUGH:
            return None
        if 2 * self.greedy > later:
            return f"{head} does nothing: {self.greedy} of {later} turns were sampled greedily. Use a temperature."
        if 2 * self.missing > later:
            return (
                f"{head}: {self.missing} of {later} turns have no signal and are never resampled (the engine reports "
                "too little, or replies are shorter than turn_resample_min_tokens, or than what signal 'official' "
                "leaves out). A vLLM server tells its likeliest ids at temperature 1 only, not with top_logprobs=0: "
                "sample at temperature 1 with top_logprobs above 0. Elsewhere ask the engine for log-probabilities, or "
                "use signal 'top1'. Or lower turn_resample_min_tokens."
            )
        if 2 * self.equal > later:
            return (
                f"{head}: {self.equal} of {later} turns are exactly as uncertain as the turn before, which is never "
                "resampled: the signal is dead. The policy may be certain of every id; leave the switch off."
            )
        return None

    def _unselective(self, eta: float, calibrated: bool) -> str | None:
        """A band that holds nearly every change, or none, or cannot be told."""
        remedy = "eta was calibrated on earlier turns, which were not like these: give it"
        eligible, width = self.eligible, f"eta {eta:.3g}"
        if eligible < ENOUGH:
            return None
        if 2 * self.undecided > eligible:
            return (
                f"turn_resample cannot decide {self.undecided} of {eligible} turns ({width}): the engine knows only "
                "bounds of the entropy, and they are too wide. Ask it for more top_logprobs, or use signal 'top1', "
                "which is exact there."
            )
        if self.triggered == 0:
            return f"T2PO resampled 0 of {eligible} turns ({width}): the switch does nothing. " + (
                f"{remedy}, larger." if calibrated else "Raise eta, or leave it out to have it calibrated."
            )
        last, hits = len(self.recent), sum(self.recent)
        if last >= ENOUGH and 2 * hits > last:
            return (
                f"T2PO resampled {hits} of the last {last} turns ({width}): the band holds most changes, so resampling "
                "mainly replaces each turn by a later sample and selects little. "
            ) + (f"{remedy}, smaller." if calibrated else "Lower eta, or leave it out to have it calibrated.")
        return None

    def state_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "recent": list(self.recent)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Meter:
        """The meter of a `state_dict`."""
        return cls(**{**state, "recent": deque(state["recent"], maxlen=RECENT)})
