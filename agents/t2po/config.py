"""Switches and settings of T2PO (see `agents.t2po`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agents.signals import Signal
from agents.t2po.thinking import ThinkStop
from agents.uncertainty import Aggregate


class Keep(StrEnum):
    """Which sample stays when every one of them lies in the band."""

    LAST = "last"
    """As the authors' code does."""
    FIRST = "first"
    """The one an unwrapped policy would have given."""
    MAX_CHANGE = "max_change"
    """The one that differs most from the turn before."""


@dataclass(frozen=True, slots=True)
class T2POConfig:
    """Switches and settings; everything is off by default.

    Attributes:
        max_turn_tokens: Cap on one reply, also in `evaluation()`; `None` leaves the request's.
        think_budget: Most ids inside thinking blocks of one reply; `None` for no budget.
        think_stop: Close a stagnant block: `none`, `official`, `paper` or `published`.
        stop_patience: Official form: consecutive still positions.
        stop_eps: Official form: what counts as still.
        stop_window: Paper and published form: positions averaged.
        stop_window_eps: The same: mean change below which thinking stagnates.
        stop_min_tokens: The same: positions before anything is watched.
        answer_reserve: Ids kept for the answer when thinking is limited.
        think_open: Opening tag; `think_close` the closing one. Each must be one token.
        turn_resample: Resample turns.
        eta: Width of the band, in the signal's unit; `None` calibrates it to `target_rate`.
        target_rate: Share of turns that calibration aims to resample.
        warmup_turns: Changes that calibration looks at; nothing is resampled before.
        max_try: Extra samples per turn at most.
        draw_together: Draw all of them in one pass, and take the first that left the band: the same sample as one after
            the other, in fewer passes with more samples. Off draws another only where the last lies in the band, too.
        keep: Which sample stays when all lie in the band.
        signal: What measures a turn.
        how: Mean over the turn's tokens; `published` and `official` have their own.
        min_tokens: Shorter turns have no signal (`official`: behind the ids that it leaves out).
        evaluate_think: Limit thinking also in `evaluation()`.
        evaluate_resample: Resample turns also in `evaluation()`.
    """

    max_turn_tokens: int | None = None
    think_budget: int | None = None
    think_stop: ThinkStop = ThinkStop.NONE
    stop_patience: int = 20
    stop_eps: float = 1e-4
    stop_window: int = 16
    stop_window_eps: float = 0.02
    stop_min_tokens: int = 32
    answer_reserve: int = 64
    think_open: str = "<think>"
    think_close: str = "</think>"
    turn_resample: bool = False
    eta: float | None = None
    target_rate: float = 0.15
    warmup_turns: int = 128
    max_try: int = 2
    draw_together: bool = True
    keep: Keep = Keep.LAST
    signal: Signal = Signal.ENTROPY
    how: Aggregate = Aggregate.ARITHMETIC
    min_tokens: int = 1
    evaluate_think: bool = False
    evaluate_resample: bool = False

    def __post_init__(self) -> None:
        """Turn names into enum members and check ranges.

        Raises:
            ValueError: A value makes no sense; the message names it.
        """
        for name, kind in (("think_stop", ThinkStop), ("keep", Keep), ("signal", Signal), ("how", Aggregate)):
            value = getattr(self, name)
            if value not in tuple(kind):
                raise ValueError(f"T2POConfig.{name} is {value!r}: use one of {', '.join(kind)}")
            object.__setattr__(self, name, kind(value))
        for name, unset in (("max_turn_tokens", "no cap"), ("think_budget", "no budget"), ("eta", "calibrated")):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"T2POConfig.{name} is {value}: use a positive number, or leave it out ({unset})")
        for name in ("stop_patience", "stop_window", "warmup_turns", "max_try", "min_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"T2POConfig.{name} is {getattr(self, name)}: at least 1")
        for name in ("stop_eps", "stop_window_eps", "stop_min_tokens", "answer_reserve"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"T2POConfig.{name} is {getattr(self, name)}: 0 or more")
        if not 0.0 < self.target_rate < 1.0:
            raise ValueError(f"T2POConfig.target_rate is {self.target_rate}: between 0 and 1, for example 0.15")
        if self.thinks and self.max_turn_tokens is not None and self.max_turn_tokens <= self.answer_reserve + 1:
            raise ValueError(
                f"T2POConfig.max_turn_tokens ({self.max_turn_tokens}) leaves no room to think before "
                f"T2POConfig.answer_reserve ({self.answer_reserve})"
            )
        if self.signal in (Signal.CONFIDENCE, Signal.OFFICIAL) and self.how is Aggregate.GEOMETRIC:
            raise ValueError(
                f"T2POConfig.signal '{self.signal}' can be negative, so it has no geometric mean: use "
                "T2POConfig.how 'arithmetic'"
            )

    @property
    def thinks(self) -> bool:
        """Whether thinking is limited at all."""
        return self.think_budget is not None or self.think_stop is not ThinkStop.NONE
