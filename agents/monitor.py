"""Monitor: notice that a running agent is stuck, from the uncertainty of its turns. Needs no trainer and no T2PO.

Stuck is a conversation whose turn signal has not moved (by eta or more) for some turns: the agent is as sure, or as
unsure, as it was, and repeats itself. One whose uncertainty stays high as well is called stuck sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.policy import Completion
from agents.t2po.resample import Calibration
from agents.uncertainty import Aggregate, Bounds, Signal, exactly, token_signals, turn_signal


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the monitor thinks of a conversation after a turn.

    Attributes:
        conversation: Which one.
        stuck: Someone should look: a stronger model, a person, another prompt.
        reason: Why, or what is missing for a verdict; empty where all is well.
        signal: The turn's signal; `None` where it is not known as one number.
        still: Turns in a row that have not moved.
    """

    conversation: str
    stuck: bool
    reason: str
    signal: float | None
    still: int


@dataclass(slots=True)
class _State:
    """One conversation: the last signal's ends, turns without a move, and of those the ones of high uncertainty."""

    lower: float
    upper: float
    still: int = 0
    high: int = 0
    stuck: bool = False


class Monitor:
    """Watches the turns of any number of conversations.

    Args:
        eta: Least change that counts as a move, in the signal's unit; `None` calibrates it.
        turns: Turns in a row without a move that make a conversation stuck.
        high: Signal from which uncertainty counts as high; `None` watches no level.
        high_turns: Turns in a row, high and without a move, that make it stuck.
        signal: What measures an id of a completion; `confidence` needs `vocabulary` and takes no `high`. Not the two
            forms of T2PO, `published` and `official`.
        how: Mean over the turn's ids.
        target_rate: Calibration: share of usual turns that count as still. Exact repeats always do.
        warmup: Calibration: changes to look at first; nothing is stuck before.
        vocabulary: Size of the vocabulary.
        on_stuck: Called once each time a conversation gets stuck.

    Raises:
        ValueError: A setting makes no sense; the message names it.
    """

    def __init__(
        self,
        *,
        eta: float | None = None,
        turns: int = 3,
        high: float | None = None,
        high_turns: int = 2,
        signal: Signal = Signal.ENTROPY,
        how: Aggregate = Aggregate.ARITHMETIC,
        target_rate: float = 0.15,
        warmup: int = 64,
        vocabulary: int | None = None,
        on_stuck: Callable[[Verdict], None] | None = None,
    ) -> None:
        if min(turns, high_turns, warmup) < 1 or (eta is not None and eta <= 0) or not 0.0 < target_rate < 1.0:
            raise ValueError("Monitor: turns, high_turns, warmup at least 1; eta above 0; target_rate between 0 and 1")
        signal, how = Signal(signal), Aggregate(how)
        if signal in (Signal.PUBLISHED, Signal.OFFICIAL):
            raise ValueError(f"Monitor: signal '{signal}' is a form of T2PO: use 'entropy', 'confidence' or 'top1'")
        if signal is Signal.CONFIDENCE and (vocabulary is None or high is not None or how is Aggregate.GEOMETRIC):
            raise ValueError(
                "Monitor: signal 'confidence' needs vocabulary, and no high or geometric mean (high = sure)"
            )
        self.eta, self.turns, self.high, self.high_turns = eta, turns, high, high_turns
        self.signal, self.how, self.on_stuck = signal, how, on_stuck
        self._vocabulary = vocabulary or 0
        self._calibration = Calibration(target_rate, warmup, repeats=True)
        self._states: dict[str, _State] = {}

    def see(self, conversation: str, completion: Completion) -> Verdict:
        """Judge a conversation after a reply of any policy."""
        values = token_signals(completion, self.signal, self._vocabulary)
        return self._see(conversation, turn_signal(values, self.how))

    def see_values(self, conversation: str, values: Sequence[float]) -> Verdict:
        """The same from one number per sampled id of any source: entropies, or negative log-probabilities."""
        return self._see(conversation, turn_signal([exactly(value) for value in values], self.how))

    @property
    def changes(self) -> int:
        """Changes that calibration has seen so far."""
        return self._calibration.seen

    def forget(self, conversation: str) -> None:
        """This conversation is over."""
        self._states.pop(conversation, None)

    def state_dict(self) -> dict[str, Any]:
        """Calibration and conversations, JSON-able."""
        states = {name: asdict(state) for name, state in self._states.items()}
        return {"eta": self.eta, "calibration": self._calibration.state_dict(), "conversations": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.eta = state["eta"]
        self._calibration.load_state_dict(state["calibration"])
        self._states = {name: _State(**raw) for name, raw in state["conversations"].items()}

    def _see(self, conversation: str, signal: Bounds | None) -> Verdict:
        state = self._states.get(conversation)
        if signal is None:  # a turn that says nothing: neither moved nor still
            still, stuck = (state.still, state.stuck) if state else (0, False)
            return Verdict(conversation, stuck, "this turn has no signal: nothing was reported", None, still)
        number = signal.lower if signal.known else None
        if state is None:
            self._states[conversation] = _State(signal.lower, signal.upper)
            return Verdict(conversation, False, "", number, 0)
        change = signal.distance(Bounds(state.lower, state.upper))
        state.lower, state.upper = signal.lower, signal.upper
        if self.eta is None:
            self.eta = self._calibration.see(change)
            return Verdict(conversation, False, f"calibrating: {self._calibration.seen} changes seen", number, 0)
        flat = change.upper < self.eta
        state.still = state.still + 1 if flat else 0
        state.high = state.high + 1 if flat and self.high is not None and signal.lower >= self.high else 0
        reason = self._reason(state)
        was, state.stuck = state.stuck, bool(reason)
        verdict = Verdict(conversation, state.stuck, reason, number, state.still)
        if state.stuck and not was and self.on_stuck is not None:
            self.on_stuck(verdict)
        return verdict

    def _reason(self, state: _State) -> str:
        if state.high >= self.high_turns:
            level = f"high (at least {self.high:g}) and flat (within {self.eta:.3g})"
            return f"{self.signal} is {level} for {state.high} turns"
        if state.still >= self.turns:
            return f"{self.signal} has moved by less than {self.eta:.3g} for {state.still} turns"
        return ""
