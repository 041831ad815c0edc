"""Turn level of T2PO: sample a turn again while its uncertainty hardly differs from that of the turn before.

A resampled turn was not stepped yet, so nothing has to be undone. Resampling selects among samples, and the recorded
log-probabilities do not know that; so the rate is calibrated to be low, measured, and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agents.policy import Candidate, Completion, PolicyError, Request
from agents.seeds import derive_seed
from agents.signals import exactly
from agents.t2po.band import TOLERANCE, Calibration, Place, place
from agents.t2po.config import Keep, T2POConfig
from agents.t2po.meter import Meter
from agents.uncertainty import Bounds

_TRY = "\0try"
"""Between a conversation's name and the number of a further sample: no caller's name holds a NUL (see `Request`)."""

Answer = Completion | PolicyError
"""A sample with its signal, or why there is none."""
Sample = Callable[[list[Request]], list[Answer]]
"""One answer per request."""
SETTINGS = ("signal", "how", "target_rate", "calibrated")
"""What a stored calibration was made with."""


@dataclass(slots=True)
class _Turn:
    """One turn while it is resampled."""

    request: Request
    previous: Bounds
    samples: list[Completion] = field(default_factory=list)


class Resampler:
    """Remembers the accepted signal of each conversation and replaces the turns that lie in the band.

    Args:
        config: The switches.

    Attributes:
        eta: The band's width in use; `None` until calibrated.
        calibration: What it is calibrated from.
        meter: What was done.
        learns: Whether `eta` may be calibrated now.
    """

    def __init__(self, config: T2POConfig) -> None:
        self.config = config
        self.eta = config.turn_resample_eta
        self.calibration = Calibration(config.turn_resample_rate, config.turn_resample_warmup)
        self.meter = Meter()
        self.learns = True
        self._previous: dict[str, Bounds] = {}

    def forget(self, conversation: str) -> None:
        """This conversation is over."""
        self._previous.pop(conversation, None)

    def resample(self, requests: Sequence[Request], answers: list[Answer], sample: Sample | None) -> None:
        """Replace completions in the band; what is accepted is what each conversation's next turn compares with.

        Args:
            requests: One per answer.
            answers: Changed in place; all samples stay on record as candidates. Failures stay as they are.
            sample: Draws again; `None` where drawing again would give the same (greedy). A further sample that fails
                is none: the turn keeps what it has. Conversations that it is asked for and `requests` does not name
                are made up; the policy may forget them afterwards.
        """
        turns: dict[int, _Turn] = {}
        for at, (request, completion) in enumerate(zip(requests, answers, strict=True)):
            if request.first_turn:
                self.forget(request.conversation)
                self.meter.first += 1
                continue
            if not isinstance(completion, Completion):
                continue
            previous = self._previous.get(request.conversation)
            if self._hits(previous, signal_of(completion), greedy=sample is None):
                assert previous is not None
                turns[at] = _Turn(request, previous, [completion])
        if sample is not None and turns:
            draw = self._draw_together if self.config.turn_resample_together else self._draw_in_turn
            draw(list(turns.values()), sample)
            for at, turn in turns.items():
                answers[at] = self._kept(turn)
        for request, completion in zip(requests, answers, strict=True):
            if isinstance(completion, Completion) and (accepted := signal_of(completion)) is not None:
                self._previous[request.conversation] = accepted

    def _hits(self, previous: Bounds | None, signal: Bounds | None, *, greedy: bool) -> bool:
        """Count a later turn; whether it is to be resampled."""
        self.meter.later += 1
        if greedy:
            self.meter.greedy += 1
            return False
        if previous is None or signal is None:
            self.meter.missing += 1
            return False
        change = signal.distance(previous)
        self.meter.equal += change.upper <= TOLERANCE
        if self.eta is None:
            if self.learns:
                self.eta = self.calibration.see(change)
            return False
        where = place(change, self.eta)
        self.meter.undecided += where is Place.UNDECIDED
        self.meter.decided(where is Place.IN)
        return where is Place.IN

    def _draw_in_turn(self, turns: list[_Turn], sample: Sample) -> None:
        """Further samples of each turn until one has left the band, `max_try` at most: a pass for each try."""
        still = turns
        for attempt in range(1, self.config.turn_resample_max_try + 1):
            again = [_again(turn, attempt) for turn in still]
            for turn, answer in zip(still, sample(again), strict=True):
                self._drawn(turn, answer)
            still = [turn for turn in still if not self._left(turn)]
            if not still:
                return
        self.meter.exhausted += len(still)

    def _draw_together(self, turns: list[_Turn], sample: Sample) -> None:
        """All `max_try` further samples of each turn in one pass, each but the first in a conversation of its own."""
        again: list[Request] = []
        for turn in turns:
            first, *others = (_again(turn, attempt) for attempt in range(1, self.config.turn_resample_max_try + 1))
            name = first.conversation
            again += [first]
            again += [
                replace(request, conversation=f"{name}{_TRY}{number}", fork_of=name)
                for number, request in enumerate(others, start=2)
            ]
        drawn = iter(sample(again))
        for turn in turns:
            for _ in range(self.config.turn_resample_max_try):
                self._drawn(turn, next(drawn))
            self.meter.exhausted += not self._left(turn)

    def _drawn(self, turn: _Turn, answer: Answer) -> None:
        if isinstance(answer, Completion):
            self.meter.extra += 1
            turn.samples.append(answer)

    def _left(self, turn: _Turn) -> list[int]:
        """The samples that are not in the band. One without a signal is not known to have left it."""
        assert self.eta is not None
        known = [(at, signal) for at, sampled in enumerate(turn.samples) if (signal := signal_of(sampled)) is not None]
        return [at for at, signal in known if place(signal.distance(turn.previous), self.eta) is not Place.IN]

    def _kept(self, turn: _Turn) -> Completion:
        """The first sample that left the band, or the one that `keep` names; the others become its candidates.

        A sample without a signal (too short, or not reported) is never kept: nothing says that it differs.
        """
        samples = turn.samples
        left = self._left(turn)
        known = {at: signal for at, sampled in enumerate(samples) if (signal := signal_of(sampled)) is not None}
        if left:
            kept = left[0]
        elif self.config.turn_resample_keep is Keep.FIRST:
            kept = 0
        elif self.config.turn_resample_keep is Keep.MAX_CHANGE:
            most = max(known, key=lambda at: known[at].distance(turn.previous).lower)
            # Equal replies differ by the rounding of their batch alone: the first of them, whatever that says.
            kept = next(at for at in known if samples[at].ids == samples[most].ids)
        else:
            kept = max(known)
        chosen = samples[kept]
        others = samples[:kept] + samples[kept + 1 :]
        chosen.candidates = [Candidate(tuple(s.ids), s.signal, s.signal_bounds) for s in others]
        chosen.notes["resampled"] = float(len(others))
        return chosen

    def warning(self) -> str | None:
        """What is wrong with a calibrated eta at once, before a turn was resampled with it."""
        return (
            None
            if self.eta is None or self.config.turn_resample_eta is not None
            else self.calibration.warning(self.eta)
        )

    def _settings(self) -> dict[str, Any]:
        config = self.config
        values = (
            str(config.turn_resample_signal),
            str(config.turn_resample_aggregate),
            config.turn_resample_rate,
            config.turn_resample_eta is None,
        )
        return dict(zip(SETTINGS, values, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, JSON-able: the calibration, what it was made with, and the counts."""
        return {
            "eta": self.eta,
            "settings": self._settings(),
            "calibration": self.calibration.state_dict(),
            "meter": self.meter.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> str | None:
        """Put back what `state_dict` gave, where it was measured with the same settings.

        Returns:
            What differs, in words: then eta is the configuration's, or is calibrated anew. `None` where nothing does.

        Raises:
            ValueError: Another release wrote it.
        """
        if set(state) != set(self.state_dict()) or set(state["settings"]) != set(SETTINGS):
            raise ValueError(
                "this T2PO state was written by another release (0.4.0 stored other figures) and cannot be read: "
                "start a new run"
            )
        now, before = self._settings(), state["settings"]
        if not now["calibrated"] and not before["calibrated"]:
            before = {**before, "target_rate": now["target_rate"]}  # nothing was calibrated to it
        differ = [name for name in SETTINGS if now[name] != before[name]]
        if differ or (self.config.turn_resample_eta is not None and self.config.turn_resample_eta != state["eta"]):
            what = ", ".join(f"{name} {before[name]} then, {now[name]} now" for name in differ) or (
                f"eta {state['eta']} then, {self.config.turn_resample_eta} now"
            )
            start = (
                "eta is calibrated anew"
                if self.config.turn_resample_eta is None
                else f"eta is {self.config.turn_resample_eta:g}, as given"
            )
            return f"turn_resample: the stored state was made with other settings ({what}): {start}"
        self.eta = state["eta"]
        self.calibration.load_state_dict(state["calibration"])
        self.meter = Meter.from_state(state["meter"])
        return None


def _again(turn: _Turn, attempt: int) -> Request:
    return replace(turn.request, seed=derive_seed(turn.request.seed, "resample", attempt))


def signal_of(completion: Completion) -> Bounds | None:
    """The turn's signal that was recorded, as an interval."""
    if completion.signal is not None:
        return exactly(completion.signal)
    return None if completion.signal_bounds is None else Bounds(*completion.signal_bounds)
