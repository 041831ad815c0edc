"""Sample a turn again while its uncertainty hardly moves: the band, its calibration, the counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from agents.policy import Answer, Candidate, Completion, Request
from agents.seeds import derive_seed
from agents.t2po.config import Keep, T2POConfig
from agents.uncertainty import Bounds, exactly

# ---------------------------------------------------------------------------------------------------------------------
# The band of turn resampling: did a turn's uncertainty move by less than eta, and which eta picks a wanted share.
#
# Source: turn-level dynamical sampling of T2PO; calibration and intervals are ours.

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


# -- What turn resampling did, counted, and what is wrong with it, in words -------------------------------------------

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
        asked: Extra samples that were asked for, where there is a budget: what it counts.
        unpaid: Eligible turns in the band that were not resampled, for a budget was spent.
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
    asked: int = 0
    unpaid: int = 0
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
        """JSON-able; what only budgets count is left out where it is 0."""
        state = {**asdict(self), "recent": list(self.recent)}
        return {name: value for name, value in state.items() if value or name not in ("asked", "unpaid")}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Meter:
        """The meter of a `state_dict`."""
        return cls(**{**state, "recent": deque(state["recent"], maxlen=RECENT)})


# -- Turn level of T2PO: sample a turn again while its uncertainty hardly differs from that of the turn before --------
# A resampled turn was not stepped yet, so nothing has to be undone. Resampling selects among samples, and the recorded
# log-probabilities do not know that; so the rate is calibrated to be low, measured, and reported.

_TRY = "\0try"
"""Between a conversation's name and the number of a further sample: no caller's name holds a NUL (see `Request`)."""

Turning = Generator[list[Request], list[Answer], Answer]
"""A turn while it is resampled: it asks for samples and is sent their answers."""
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
        holds_back: Turns come in an order that a clock decides: what `eta` is calibrated from is held back until
            `calibrate`, so that equal seeds give an equal `eta`.
    """

    def __init__(self, config: T2POConfig) -> None:
        self.config = config
        self.eta = config.turn_resample_eta
        self.calibration = Calibration(config.turn_resample_rate, config.turn_resample_warmup)
        self.meter = Meter()
        self.learns = True
        self.holds_back = False
        self._held: list[tuple[int, Bounds]] = []
        self._previous: dict[str, Bounds] = {}
        self._asked: dict[str, int] = {}
        """Extra samples of each conversation."""

    def forget(self, conversation: str) -> None:
        """This conversation is over."""
        self._previous.pop(conversation, None)
        self._asked.pop(conversation, None)

    @property
    def spent(self) -> bool:
        """The run's budget is spent: nothing is resampled any more in training."""
        budget = self.config.turn_resample_run_budget
        return budget is not None and self.meter.asked >= budget

    def _affordable(self, conversation: str) -> int:
        """How many extra samples a turn may have now; the run's budget is that of training."""
        config, tries = self.config, self.config.turn_resample_max_try
        if (budget := config.turn_resample_episode_budget) is not None:
            tries = min(tries, budget - self._asked.get(conversation, 0))
        if (budget := config.turn_resample_run_budget) is not None and self.learns:
            tries = min(tries, budget - self.meter.asked)
        return max(0, tries)

    def _pay(self, conversation: str, samples: int) -> None:
        if not self.config.budgeted:
            return
        self.meter.asked += samples
        self._asked[conversation] = self._asked.get(conversation, 0) + samples

    def turn(self, request: Request, answer: Answer, *, greedy: bool) -> Turning:
        """Resample one turn where it lies in the band; a generator, so that an engine may sample for many at once.

        Args:
            request: What was asked for.
            answer: Its reply, with its signal, or why there is none.
            greedy: Drawing again would give the same.

        Yields:
            Requests for further samples; it is sent one answer for each. One that fails is no sample: the turn keeps
            what it has. Conversations other than the request's own are made up; the policy may forget them afterwards.

        Returns:
            The reply that is kept, with all others on record as its candidates, or the failure as it was.
        """
        if request.first_turn:
            self.forget(request.conversation)
            self.meter.first += 1
        elif isinstance(answer, Completion):
            previous = self._previous.get(request.conversation)
            hits = self._hits(request, previous, signal_of(answer), greedy=greedy)
            if hits and not self._affordable(request.conversation):
                answer.notes["resample_unpaid"] = 1.0
            elif hits:
                assert previous is not None
                turn = _Turn(request, previous, [answer])
                if self.config.turn_resample_together:
                    yield from self._draw_together(turn)
                else:
                    yield from self._draw_in_turn(turn)
                answer = self._kept(turn)
        if isinstance(answer, Completion) and (accepted := signal_of(answer)) is not None:
            self._previous[request.conversation] = accepted
        return answer

    def calibrate(self) -> None:
        """Look at the changes that were held back, in an order that no clock decides (see `holds_back`)."""
        held, self._held = self._held, []
        for _, change in sorted(held, key=lambda one: one[0]):
            if self.eta is None:
                self.eta = self.calibration.see(change)

    def _hits(self, request: Request, previous: Bounds | None, signal: Bounds | None, *, greedy: bool) -> bool:
        """Count a later turn; whether it lies in the band, and is to be resampled where a budget is left."""
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
            if self.learns and self.holds_back:
                self._held.append((request.seed, change))
            elif self.learns:
                self.eta = self.calibration.see(change)
            return False
        where = place(change, self.eta)
        self.meter.undecided += where is Place.UNDECIDED
        paid = self._affordable(request.conversation) > 0
        self.meter.unpaid += where is Place.IN and not paid
        self.meter.decided(where is Place.IN and paid)
        return where is Place.IN

    def _draw_in_turn(self, turn: _Turn) -> Generator[list[Request], list[Answer], None]:
        """Further samples until one has left the band, `max_try` at most."""
        for attempt in range(1, self._affordable(turn.request.conversation) + 1):
            if not self._affordable(turn.request.conversation):  # other turns have spent the run's budget meanwhile
                break
            self._pay(turn.request.conversation, 1)
            answers = yield [_again(turn, attempt)]
            self._drawn(turn, answers)
            if self._left(turn):
                return
        self.meter.exhausted += 1

    def _draw_together(self, turn: _Turn) -> Generator[list[Request], list[Answer], None]:
        """All `max_try` further samples at once, each but the first in a conversation of its own."""
        tries = self._affordable(turn.request.conversation)
        first, *others = (_again(turn, attempt) for attempt in range(1, tries + 1))
        name = first.conversation
        self._pay(name, tries)
        answers = yield [
            first,
            *(
                replace(request, conversation=f"{name}{_TRY}{number}", fork_of=name)
                for number, request in enumerate(others, start=2)
            ),
        ]
        self._drawn(turn, answers)
        self.meter.exhausted += not self._left(turn)

    def _drawn(self, turn: _Turn, answers: Sequence[Answer]) -> None:
        for answer in answers:
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
        """What is wrong with a calibrated eta at once, before a turn was resampled with it; a budget that is spent."""
        if self.spent:
            return (
                f"turn_resample: the run's budget of {self.config.turn_resample_run_budget} extra samples is spent, "
                f"after {self.meter.later} later turns: nothing is resampled any more. Raise turn_resample_run_budget, "
                "or lower turn_resample_rate."
            )
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
