"""T2PO: a policy wrapper that spends exploration where the sampler is unsure.

Three independent switches: a cap on the turn; a budget (and a stop rule) for thinking; and resampling of a turn whose
uncertainty hardly differs from that of the turn before. Off means the bare policy, id for id.

Source: T2PO and its authors' code; where the two differ, both forms are
offered. Resampling changes the distribution that turns come from, and the recorded log-probabilities do not know that;
so the rate is calibrated to be low, measured, and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agents.policy import Candidate, Completion, Policy, Request, Sampling, TaskAware
from agents.seeds import derive_seed
from agents.t2po_config import Keep, Signal, T2POConfig
from agents.thinking import OfficialStop, PaperStop, StopRule, ThinkControl, ThinkStop, starts_inside, tag_id
from agents.uncertainty import CONFIDENCE_WEIGHT, aggregate, confidence

if TYPE_CHECKING:
    from tasks.task import Task

__all__ = ["T2PO", "Keep", "Meter", "Signal", "T2POConfig", "ThinkStop", "in_band"]

TOLERANCE = 1e-9
"""Changes below this are rounding: the two turns are equally uncertain, which is not resampled."""
_ENOUGH = 50
"""Turns before the meter warns."""


@dataclass(slots=True)
class Meter:
    """What resampling did. Counts of turns, except `extra` (samples).

    Attributes:
        eligible: Later turns with a signal, once eta is known.
        triggered: Of those, resampled at least once.
        exhausted: Of those, still in the band after every try.
        extra: Extra samples drawn.
    """

    eligible: int = 0
    triggered: int = 0
    exhausted: int = 0
    extra: int = 0


@dataclass(slots=True)
class _Resampling:
    """One turn while it is resampled."""

    request: Request
    previous: float
    samples: list[Completion] = field(default_factory=list)


class T2PO:
    """A policy around a policy.

    Args:
        policy: The policy that samples.
        config: The switches.

    Attributes:
        enabled: When false, every call goes straight to the policy.
        meter: What resampling did so far.
        eta: The band's width in use; `None` until calibrated.

    Raises:
        ValueError: Thinking is to be limited and the tokenizer has no such tags.
    """

    def __init__(self, policy: Policy, config: T2POConfig) -> None:
        self.policy = policy
        self.config = config
        self.enabled = True
        self.meter = Meter()
        self.eta = config.eta
        self._vocabulary = len(policy.tokenizer)
        self._previous: dict[str, float] = {}
        self._changes: list[float] = []
        self._tags: tuple[int, int] | None = None
        if config.thinks:
            tags = [tag_id(policy.tokenizer, tag) for tag in (config.think_open, config.think_close)]
            if tags[0] is None or tags[1] is None:
                raise ValueError(
                    f"think_budget and think_stop need {config.think_open} and {config.think_close} as single tokens, "
                    "and this model's tokenizer has none: it does not think in blocks. Leave both off; "
                    "max_turn_tokens limits its replies."
                )
            self._tags = (tags[0], tags[1])

    @property
    def tokenizer(self) -> Any:
        """The policy's."""
        return self.policy.tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        """The policy's."""
        return self.policy.eos_ids

    @property
    def max_context(self) -> int | None:
        """The policy's, where it has one."""
        return getattr(self.policy, "max_context", None)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Off for a measurement, unless the configuration says otherwise; as before afterwards."""
        before = self.enabled
        self.enabled = before and self.config.evaluate
        try:
            yield
        finally:
            self.enabled = before

    def begin(self, conversation: str, task: Task) -> None:
        """Pass the task on to a policy that wants to know it."""
        if isinstance(self.policy, TaskAware):
            self.policy.begin(conversation, task)

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over."""
        for conversation in conversations:
            self._previous.pop(conversation, None)
        self.policy.forget(conversations)

    def invalidate(self) -> None:
        """Pass on that the weights changed."""
        invalidate = getattr(self.policy, "invalidate", None)
        if invalidate is not None:
            invalidate()

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion per request, in order, with the enabled switches at work."""
        if not self.enabled:
            return self.policy.complete(requests, sampling)
        capped = [self._capped(request, sampling) for request in requests]
        completions = self._sample(capped, sampling)
        if not self.config.turn_resample:
            return completions
        if not sampling.greedy:
            self._resample(capped, completions, sampling)
        for request, completion in zip(requests, completions, strict=True):
            if completion.signal is not None:
                self._previous[request.conversation] = completion.signal
        return completions

    def trigger_rate(self) -> float | None:
        """Share of eligible turns that were resampled; `None` before there is one."""
        return self.meter.triggered / self.meter.eligible if self.meter.eligible else None

    def warning(self) -> str | None:
        """What is wrong with the band, in words; `None` when nothing is, or too little was seen."""
        rate = self.trigger_rate()
        if not self.config.turn_resample or rate is None or self.meter.eligible < _ENOUGH:
            return None
        seen = f"{self.meter.triggered} of {self.meter.eligible} turns"
        if rate > 0.5:
            return (
                f"T2PO resampled {seen} (eta {self.eta:.3g}): the band holds nearly every change, so resampling only "
                "replaces each turn by a later sample. Lower eta, or leave it out to have it calibrated."
            )
        if self.meter.triggered == 0:
            return f"T2PO resampled {seen} (eta {self.eta:.3g}): the switch does nothing. Raise eta, or calibrate it."
        return None

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the calibration and the counts."""
        meter = self.meter
        counts = [meter.eligible, meter.triggered, meter.exhausted, meter.extra]
        return {"eta": self.eta, "changes": list(self._changes), "meter": counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.eta = state["eta"]
        self._changes = list(state["changes"])
        self.meter = Meter(*state["meter"])

    def _capped(self, request: Request, sampling: Sampling) -> Request:
        cap = sampling.max_tokens if request.max_tokens is None else request.max_tokens
        if self.config.max_turn_tokens is not None:
            cap = min(cap, self.config.max_turn_tokens)
        return replace(request, max_tokens=cap)

    def _sample(self, requests: list[Request], sampling: Sampling) -> list[Completion]:
        """One sample of each, thinking limited, with the turn's signal and the counts."""
        controls = [self._control(request) for request in requests]
        controlled = [
            request if control is None else replace(request, control=control)
            for request, control in zip(requests, controls, strict=True)
        ]
        completions = self.policy.complete(controlled, sampling)
        for completion, control in zip(completions, controls, strict=True):
            completion.signal = self._signal(completion)
            if control is not None:
                completion.notes["thought_tokens"] = float(control.thought)
                for cause in control.causes:
                    completion.notes[cause] = completion.notes.get(cause, 0.0) + 1.0
        return completions

    def _control(self, request: Request) -> ThinkControl | None:
        if self._tags is None:
            return None
        assert request.max_tokens is not None
        config = self.config
        stop: StopRule | None = None
        if config.think_stop is ThinkStop.OFFICIAL:
            stop = OfficialStop(self._vocabulary, config.stop_patience, config.stop_eps)
        elif config.think_stop is ThinkStop.PAPER:
            stop = PaperStop(self._vocabulary, config.stop_window, config.stop_window_eps, config.stop_min_tokens)
        return ThinkControl(
            open_id=self._tags[0],
            close_id=self._tags[1],
            inside=starts_inside(request.prompt_ids, *self._tags, self.eos_ids),
            cap=request.max_tokens,
            budget=config.think_budget,
            reserve=config.answer_reserve,
            stop=stop,
            before=request.control,
        )

    def _signal(self, completion: Completion) -> float | None:
        """The turn's uncertainty over its sampled ids; forced ones say nothing about the policy's choice."""
        free = [at for at, forced in enumerate(completion.forced) if not forced]
        if self.config.signal is Signal.ENTROPY:
            values = [completion.entropies[at] for at in free]
        else:
            values = [
                confidence(completion.entropies[at], completion.max_logprobs[at], self._vocabulary, CONFIDENCE_WEIGHT)
                for at in free
            ]
        return aggregate(values, self.config.how, min_tokens=self.config.min_tokens)

    def _resample(self, requests: list[Request], completions: list[Completion], sampling: Sampling) -> None:
        """Replace the completions of turns whose signal lies in the band; all samples stay on record."""
        turns: dict[int, _Resampling] = {}
        for at, (request, completion) in enumerate(zip(requests, completions, strict=True)):
            previous = self._previous.get(request.conversation)
            if request.first_turn or previous is None or completion.signal is None:
                continue
            if self.eta is None:
                self._calibrate(abs(completion.signal - previous))
                continue
            self.meter.eligible += 1
            if in_band(completion.signal - previous, self.eta):
                turns[at] = _Resampling(request, previous, [completion])
        self.meter.triggered += len(turns)
        open_turns = dict(turns)
        for attempt in range(1, self.config.max_try + 1):
            if not open_turns:
                break
            again = [
                replace(turn.request, seed=derive_seed(turn.request.seed, "resample", attempt))
                for turn in open_turns.values()
            ]
            self.meter.extra += len(again)
            for (at, turn), sample in zip(list(open_turns.items()), self._sample(again, sampling), strict=True):
                turn.samples.append(sample)
                if not self._still(turn, sample):
                    del open_turns[at]
        self.meter.exhausted += len(open_turns)
        for at, turn in turns.items():
            completions[at] = self._kept(turn)

    def _still(self, turn: _Resampling, sample: Completion) -> bool:
        assert self.eta is not None
        return sample.signal is not None and in_band(sample.signal - turn.previous, self.eta)

    def _kept(self, turn: _Resampling) -> Completion:
        """The sample that left the band, or the one that `keep` names; the others become its candidates."""
        samples = turn.samples
        kept = len(samples) - 1
        if self._still(turn, samples[-1]):
            if self.config.keep is Keep.FIRST:
                kept = 0
            elif self.config.keep is Keep.MAX_CHANGE:
                changes = [abs((sample.signal or 0.0) - turn.previous) for sample in samples]
                kept = changes.index(max(changes))
        chosen = samples[kept]
        others = samples[:kept] + samples[kept + 1 :]
        chosen.candidates = [Candidate(tuple(sample.ids), sample.signal) for sample in others]
        chosen.notes["resampled"] = float(len(others))
        return chosen

    def _calibrate(self, change: float) -> None:
        """Collect changes; once there are enough, set eta so that `target_rate` of them would have been resampled."""
        self._changes.append(change)
        if len(self._changes) < self.config.warmup_turns:
            return
        moved = sorted(value for value in self._changes if value > TOLERANCE)
        wanted = round(self.config.target_rate * len(self._changes))
        if not moved or wanted < 1:
            return
        # Halfway to the next change, so that the band's edge lies on no change that was seen.
        upper = moved[min(wanted, len(moved) - 1)]
        self.eta = (moved[min(wanted, len(moved)) - 1] + upper) / 2 + 2 * TOLERANCE


def in_band(change: float, eta: float) -> bool:
    """Whether a turn's uncertainty changed, but by less than `eta`. Both edges allow for rounding."""
    return TOLERANCE < abs(change) < eta - TOLERANCE
