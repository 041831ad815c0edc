"""The guards of a run together: which classes make which guard, every event to each, each kind of alarm once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainers.guards.format import FormatDrift
from trainers.guards.guard import Alarm, Facts, Finding, Gauge, Guard, LeftBehind, Measured, Severity, Update
from trainers.guards.intervention import InertIntervention
from trainers.guards.levels import GuardName, Levels, parse_levels
from trainers.guards.parity import LogprobParity, MaskByLength
from trainers.guards.sampling import PromptParity, ResampleBudget, Seeds, StopAndTruncation
from trainers.guards.signal import OwnReward, RewardOfGrade, SignalMeter
from trainers.guards.tasks import ExclusionsFollowPolicy, ShipByHeldOut, SplitLint, VerifierHealth
from trainers.guards.update import DeadUpdate, NeverStops, PassesFewer, StopsAtOnce, UpdateHealth, UpdateLint

if TYPE_CHECKING:
    from agents.rollout import RolloutResult


# -- Which classes make which guard. A new guard is one class, one name and one line here -----------------------------

GUARDS: dict[GuardName, tuple[type[Guard], ...]] = {
    GuardName.SHIP_BY_HELD_OUT: (ShipByHeldOut,),
    GuardName.SPLIT_LINT: (SplitLint,),
    GuardName.LOGPROB_PARITY: (LogprobParity,),
    GuardName.MASK_BY_LENGTH: (MaskByLength,),
    GuardName.SEEDS: (Seeds,),
    GuardName.PROMPT_PARITY: (PromptParity,),
    GuardName.STOP_AND_TRUNCATION: (StopAndTruncation,),
    GuardName.INERT_INTERVENTION: (InertIntervention,),
    GuardName.SIGNAL_METER: (SignalMeter,),
    GuardName.UPDATE_HEALTH: (UpdateLint, UpdateHealth, StopsAtOnce, NeverStops, PassesFewer),
    GuardName.VERIFIER_HEALTH: (VerifierHealth,),
    GuardName.RESAMPLE_BUDGET: (ResampleBudget,),
    GuardName.EXCLUSIONS_FOLLOW_POLICY: (ExclusionsFollowPolicy,),
    GuardName.DEAD_UPDATE: (DeadUpdate,),
    GuardName.REWARD_AGAINST_GRADE: (RewardOfGrade, OwnReward),
    GuardName.FORMAT_DRIFT: (FormatDrift,),
}


# -- The guards of a run together: every event to each of them, each kind of alarm once -------------------------------


class Watch:
    """The guards that are on.

    Args:
        levels: Which, and how hard; as text, see `parse_levels`.

    Attributes:
        findings: What they found so far, in order; those of earlier processes of a resumed run, too (`restore`).
    """

    def __init__(self, levels: Levels | str = "all") -> None:
        self.levels = dict(parse_levels(levels) if isinstance(levels, str) else levels)
        self.guards = [kind() for name in GUARDS if name in self.levels for kind in GUARDS[name]]
        self.findings: list[Finding] = []
        self._said: set[tuple[str, str]] = set()

    # -- events: each returns what is new -----------------------------------------------------------------------

    def begin(self, facts: Facts, step: int = 0) -> list[Finding]:
        """Before the first step of this process."""
        return self._hear(step, lambda guard: guard.begin(facts))

    def episodes(self, step: int, played: RolloutResult) -> list[Finding]:
        """The episodes that step `step` trains on."""
        return self._hear(step, lambda guard: guard.episodes(step, played))

    def update(self, step: int, update: Update) -> list[Finding]:
        """Optimizer step `step` was taken."""
        return self._hear(step, lambda guard: guard.update(step, update))

    def measured(self, held_out: Measured) -> list[Finding]:
        """A held-out evaluation."""
        return self._hear(held_out.step, lambda guard: guard.measured(held_out))

    def step(self, step: int, metrics: Mapping[str, float]) -> list[Finding]:
        """Step `step` is done."""
        return self._hear(step, lambda guard: guard.step(step, metrics))

    def left(self, behind: LeftBehind) -> list[Finding]:
        """The run is over, and this is its newest checkpoint."""
        return self._hear(behind.step, lambda guard: guard.left(behind))

    def _hear(self, step: int, event: Callable[[Guard], Iterable[Alarm] | None]) -> list[Finding]:
        """Show an event to every guard; of what they say, what was not said before."""
        new: list[Finding] = []
        for guard in self.guards:
            for alarm in event(guard) or ():
                if (guard.name, alarm.kind) in self._said:
                    continue
                self._said.add((guard.name, alarm.kind))
                level = self.levels[GuardName(guard.name)]
                severity = alarm.severity if level is None or alarm.severity is Severity.NOTE else level
                new.append(Finding(step, guard.name, severity, alarm.message, alarm.kind))
        self.findings += new
        return new

    def gauges(self, metrics: Mapping[str, float]) -> dict[str, list[Gauge]]:
        """What each guard judges by, after a step with `metrics`; guards without a figure are left out."""
        found: dict[str, list[Gauge]] = {}
        for guard in self.guards:
            for gauge in guard.gauges(metrics):
                found.setdefault(guard.name, []).append(gauge)
        return found

    # -- for the summary ----------------------------------------------------------------------------------------

    @property
    def stopping(self) -> Finding | None:
        """The first finding of this run that ends it."""
        return next((finding for finding in self.findings if finding.severity is Severity.STOP), None)

    @property
    def silent(self) -> int:
        """Guards that found nothing, notes included."""
        return len(self.levels) - len({finding.guard for finding in self.findings})

    def to_json(self) -> dict[str, Any]:
        """For summary.json: how many are on and silent, and how often each spoke, by severity."""
        spoke: dict[str, dict[str, int]] = {}
        for finding in self.findings:
            counts = spoke.setdefault(finding.guard, {})
            counts[finding.severity] = counts.get(finding.severity, 0) + 1
        return {"on": len(self.levels), "silent": self.silent, "findings": spoke}

    def describe(self) -> str:
        """One line for the closing summary."""
        notes = sum(finding.severity is Severity.NOTE for finding in self.findings)
        noted = f", {notes} note{'s' * (notes != 1)} in guards.jsonl" if notes else ""
        return f"{len(self.levels)} guards on, {self.silent} silent{noted}"

    # -- resume -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The guards' memory, JSON-able: part of every checkpoint."""
        return {type(guard).__name__: guard.state_dict() for guard in self.guards}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Put back what `state_dict` gave; a guard that it does not name starts anew."""
        for guard in self.guards:
            guard.load_state_dict(state.get(type(guard).__name__, {}))

    def restore(self, findings: Iterable[Finding]) -> None:
        """What an earlier process found is not said again; what ended it does not end this one at once."""
        for finding in findings:
            self._said.add((finding.guard, finding.kind))
            kept = replace(finding, severity=Severity.WARN) if finding.severity is Severity.STOP else finding
            self.findings.append(kept)
