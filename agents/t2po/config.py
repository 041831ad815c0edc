"""Switches and settings of T2PO (see `agents.t2po`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from agents.t2po.think import ThinkStop
from agents.uncertainty import Aggregate, Signal
from tasks.settings import Settings, problems, setting, unless, without


class Keep(StrEnum):
    """Which sample stays when every one of them lies in the band."""

    LAST = "last"
    """As the authors' code does."""
    FIRST = "first"
    """The one an unwrapped policy would have given."""
    MAX_CHANGE = "max_change"
    """The one that differs most from the turn before."""


_THINKS = unless(lambda c: not c.thinks, " without think_budget or think_stop")
_OFFICIAL = without("think_stop", "official")
_WINDOW = without("think_stop", "paper", "published")
_RESAMPLES = without("turn_resample")
_CALIBRATED = unless(lambda c: c.turn_resample_eta, ": turn_resample_eta is given, so nothing is calibrated")
_ONE_MEAN = unless(
    lambda c: c.turn_resample_signal == Signal.PUBLISHED,
    " with turn_resample_signal=published: its mean is the geometric one",
)


@dataclass(frozen=True, slots=True)
class T2POConfig(Settings):
    """The T2PO wrapper. All off by default; each switch is independent. In held-out measurements only the cap stays."""

    max_turn_tokens: int | None = setting(
        None, "Cap on one reply, in tokens; 0 = the task's budget.", off=0, above=0, unit="tokens", common=True
    )
    think_budget: int | None = setting(
        None,
        "Close the think block after this many tokens (num_think_tokens); 0 = off.",
        off=0,
        above=0,
        unit="tokens",
        common=True,
    )
    think_answer_reserve: int = setting(
        64, "Tokens of a reply kept for the answer when thinking is limited.", low=0, unit="tokens", needs=(_THINKS,)
    )
    think_stop: ThinkStop = setting(
        ThinkStop.NONE,
        "Close a stagnant think block: none | official (the authors' code) | paper (the paper's rule, our score) | "
        "published (the paper's rule and score).",
        choices=ThinkStop,
    )
    think_stop_patience: int = setting(20, "official: still tokens in a row.", low=1, unit="tokens", needs=(_OFFICIAL,))
    think_stop_eps: float = setting(
        1e-4, "official: change of the score that counts as still.", low=0, needs=(_OFFICIAL,)
    )
    think_stop_window: int = setting(
        16, "paper, published: tokens whose change is averaged.", low=1, unit="tokens", needs=(_WINDOW,)
    )
    think_stop_window_eps: float = setting(
        0.02, "paper, published: mean change that counts as still.", low=0, needs=(_WINDOW,)
    )
    think_stop_min_tokens: int = setting(
        32, "paper, published: tokens of thought before anything counts.", low=0, unit="tokens", needs=(_WINDOW,)
    )
    think_open: str = setting("<think>", "Opening tag, one token of the model.", needs=(_THINKS,))
    think_close: str = setting("</think>", "Closing tag, one token of the model.", needs=(_THINKS,))
    think_evaluate: bool = setting(False, "Limit thinking in held-out measurements, too.", needs=(_THINKS,))
    turn_resample: bool = setting(
        False, "Resample a turn whose uncertainty hardly moved since the last turn (TDS).", common=True
    )
    turn_resample_eta: float | None = setting(
        None,
        "Band in the signal's unit (eta_threshold); 0 calibrates it to `turn_resample_rate` from the first turns.",
        off=0.0,
        above=0,
        needs=(_RESAMPLES,),
    )
    turn_resample_rate: float = setting(
        0.15, "Target share of turns that are resampled.", above=0, below=1, needs=(_RESAMPLES, _CALIBRATED)
    )
    turn_resample_warmup: int = setting(
        128, "Turns that calibration looks at first.", low=1, unit="turns", needs=(_RESAMPLES, _CALIBRATED)
    )
    turn_resample_max_try: int = setting(2, "Extra samples per turn at most (max_try).", low=1, needs=(_RESAMPLES,))
    turn_resample_episode_budget: int | None = setting(
        None,
        "Extra samples of one episode at most; 0 = no budget.",
        off=0,
        above=0,
        unit="samples",
        needs=(_RESAMPLES,),
    )
    turn_resample_run_budget: int | None = setting(
        None,
        "Extra samples of a whole run's training at most, in one process; 0 = no budget.",
        off=0,
        above=0,
        unit="samples",
        needs=(_RESAMPLES,),
    )
    turn_resample_together: bool = setting(
        True, "Draw the extra samples in one pass; off: another only while it is needed.", needs=(_RESAMPLES,)
    )
    turn_resample_keep: Keep = setting(
        Keep.LAST, "Which sample stays: last | first | max_change.", choices=Keep, needs=(_RESAMPLES,)
    )
    turn_resample_signal: Signal = setting(
        Signal.ENTROPY,
        "Uncertainty of a token: entropy (nats) | confidence | top1 (nats); of a turn, with its own mean: published "
        "(T2PO's paper) | official (its code).",
        choices=Signal,
        needs=(_RESAMPLES,),
    )
    turn_resample_aggregate: Aggregate = setting(
        Aggregate.ARITHMETIC,
        "Mean over a turn's tokens: arithmetic | geometric.",
        choices=Aggregate,
        needs=(_RESAMPLES, _ONE_MEAN),
    )
    turn_resample_min_tokens: int = setting(
        1, "Shorter turns have no signal.", low=1, unit="tokens", needs=(_RESAMPLES,)
    )
    turn_resample_evaluate: bool = setting(
        False, "Resample in held-out measurements, too (the greedy arm never is).", needs=(_RESAMPLES,)
    )

    @property
    def thinks(self) -> bool:
        """Whether thinking is limited at all."""
        return self.think_budget is not None or self.think_stop is not ThinkStop.NONE

    @property
    def budgeted(self) -> bool:
        """Whether extra samples are limited beyond one turn."""
        return self.turn_resample_episode_budget is not None or self.turn_resample_run_budget is not None

    def problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        yield from problems(self)
        if self.max_turn_tokens is not None:
            yield from self.room_problems(self.max_turn_tokens)
        signal, mean = self.turn_resample_signal, self.turn_resample_aggregate
        if signal in (Signal.CONFIDENCE, Signal.OFFICIAL) and mean is Aggregate.GEOMETRIC:
            yield (
                f"turn_resample_signal={signal}: can be negative, so it has no geometric mean. Use "
                "turn_resample_aggregate=arithmetic."
            )

    def room_problems(self, cap: int) -> Iterator[str]:
        """A line where think limits leave a reply of `cap` tokens no room to think."""
        if self.thinks and cap <= self.think_answer_reserve + 1:
            yield (
                f"think_answer_reserve={self.think_answer_reserve}: replies have at most {cap} tokens "
                "(max_turn_tokens, or the tasks' own budget), so every think block would be closed at once. Lower it, "
                "or raise max_turn_tokens."
            )
