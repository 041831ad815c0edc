"""The guard of interventions: a switch that is on and changes next to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trainers.credit import TurnSignal
from trainers.guards.guard import Alarm, Facts, Fires, Gauge, Guard, Window, note, warn
from trainers.guards.levels import GuardName

# -- Guard 8, inert intervention: a switch that is on and changes next to nothing -------------------------------------

_NO_TURN_TERM = {
    TurnSignal.PROGRESS: "no file assertions, no two turns from the same state, or all of them earn the same). Set "
    "beta_turn=0, or turn_signal=outcome, which needs no file assertions",
    TurnSignal.OUTCOME: "turn_signal=outcome: no two turns from the same state, or the attempts at a task earn the "
    "same and are equally long). Mix in tasks that some attempts pass and some fail, or set beta_turn=0",
    TurnSignal.EXIT_CODE: "turn_signal=exit_code: no two turns that are compared, or all commands end alike). Set "
    "beta_turn=0, or another turn_signal",
}
"""Why no turn has an advantage, and what to do."""


@dataclass
class InertIntervention(Guard):
    """Token operators that leave the advantages as they were, and a turn term without turns.

    Reads `credit/weight_min`, `credit/weight_max`, `credit/changed_frac` (share of tokens changed by more than 1 %),
    `credit/cosine_uniform` (to the advantages without the operator), `credit/mask_kept` and `credit/mask_requested`
    (shares of tokens), `credit/capped_frac` and `credit/delight_neutral_frac` (gates between 0.4 and 0.6), where they
    are logged: while an operator is on.

    Attributes:
        changed_limit: Share of changed tokens below which an operator does next to nothing.
        cosine_limit: Cosine above which the condition is close to its baseline.
        mask_gap: Difference between the share of tokens that a mask keeps and the share it was asked for.
        capped_limit: Share of tokens at the advantage cap above which the cap, not the reward, sets the size.
        neutral_limit: Share of Delight's gates near 1/2, from step `settled` on, above which it halves the episode
            term and weighs nothing.
    """

    name: ClassVar[str] = GuardName.INERT_INTERVENTION
    changed_limit: float = 0.01
    cosine_limit: float = 0.99
    mask_gap: float = 0.1
    capped_limit: float = 0.5
    neutral_limit: float = 0.8
    settled: int = 5
    beta_turn: float = 0.0
    turn_signal: TurnSignal = TurnSignal.PROGRESS
    _changed: Window = field(default_factory=lambda: Window(5))
    _cosine: Window = field(default_factory=lambda: Window(5))
    _kept: Window = field(default_factory=lambda: Window(5))
    _capped: Window = field(default_factory=lambda: Window(5))
    _turn: Window = field(default_factory=lambda: Window(6))

    def begin(self, facts: Facts) -> None:
        """The weight of the turn term, and what a turn earns in it."""
        self.beta_turn, self.turn_signal = facts.config.beta_turn, TurnSignal(facts.config.turn_signal)

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """The figures that credit logs."""
        changed, cosine = metrics.get("credit/changed_frac"), metrics.get("credit/cosine_uniform")
        same = self._changed.add(changed) and self._changed.mean < self.changed_limit
        close = self._cosine.add(cosine) and self._cosine.mean > self.cosine_limit
        if same or close:
            parts = []
            if "credit/weight_min" in metrics and "credit/weight_max" in metrics:
                parts.append(f"weights {metrics['credit/weight_min']:.3g} to {metrics['credit/weight_max']:.3g}")
            if len(self._changed):
                parts.append(f"{self._changed.mean:.1%} of the tokens changed by more than 1 %")
            if len(self._cosine):
                parts.append(f"cosine to the plain advantages {self._cosine.mean:.3f}")
            head = f"credit: the token operator does next to nothing ({', '.join(parts)})"
            if metrics.get("credit/lambda") == 0:
                yield note("inert_yet", f"{head}: its schedule still holds lambda at 0 (a delay, or a gate to open).")
            else:
                yield warn(
                    "inert",
                    f"{head}: this condition is close to the baseline, and no difference can be laid to it. Raise its "
                    "strength, or leave it off.",
                )
        yield from self._mask(metrics)
        neutral = metrics.get("credit/delight_neutral_frac", 0.0)
        if step >= self.settled and neutral > self.neutral_limit:  # a share of thousands of tokens: one step tells
            yield warn(
                "neutral_gates",
                f"credit: {neutral:.0%} of Delight's gates lie between 0.4 and 0.6: it halves the episode "
                "term and tells hardly any tokens apart. Use delight_norm=mad or delight_adaptive=true, or leave it "
                "off.",
            )
        if self._capped.add(metrics.get("credit/capped_frac")) and self._capped.mean > self.capped_limit:
            yield note(
                "capped",
                f"credit: the cap holds {self._capped.mean:.0%} of the tokens' advantages: their size is the cap's, "
                "not the reward's. Raise it.",
            )
        if self.beta_turn and self._turn.add(metrics.get("gigpo/turn_adv_abs_mean")) and self._turn.high == 0:
            yield warn(
                "no_turn_signal",
                f"beta_turn={self.beta_turn:g} does nothing: no turn had an advantage for {len(self._turn)} steps "
                f"({_NO_TURN_TERM[self.turn_signal]}.",
            )

    def _mask(self, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        wanted = metrics.get("credit/mask_requested")
        full = self._kept.add(metrics.get("credit/mask_kept"))
        if wanted is not None and full and abs(self._kept.mean - wanted) > self.mask_gap:
            yield warn(
                "mask",
                f"credit: the mask was asked for {wanted:.0%} of the tokens and keeps {self._kept.mean:.0%}: ties, or "
                "a signal that is 0 nearly everywhere. Use exact entropies, or leave the mask off.",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """What the operators change, and what the turn term says."""
        wanted = metrics.get("credit/mask_requested")
        if len(self._changed):
            yield Gauge("tokens that an operator changed", self._changed.mean, Fires.BELOW, self.changed_limit)
        if len(self._cosine):
            yield Gauge("cosine to the plain advantages", self._cosine.mean, Fires.ABOVE, self.cosine_limit)
        if wanted is not None and len(self._kept):
            gap = abs(self._kept.mean - wanted)
            yield Gauge("share that the mask keeps, off the asked one", gap, Fires.ABOVE, self.mask_gap)
        if len(self._capped):
            yield Gauge("tokens at the cap", self._capped.mean, Fires.ABOVE, self.capped_limit)
        if self.beta_turn and self._turn.full:
            yield Gauge("largest mean turn advantage, last 6 steps", self._turn.high, Fires.TO, 0.0)
