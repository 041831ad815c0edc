"""Adaptive sampling: attempts at a task until both outcomes were seen often enough, and which K are trained on.

The rule is the one of public RLVR code (chunks of attempts, stop between chunks), with one difference: a success is an
episode that passed, there a reward above 0. For rewards of 0 and 1 the two agree.

What it costs in truth. Stopping when both outcomes were seen makes the share of passes among all attempts no estimate
of the pass rate, so figures are taken from the first K attempts. And the K that are trained on hold the rare outcome
more often than the policy shows it: their mean, the baseline of the advantages, lies nearer to 1/2 than the pass rate,
so a rare success gets a smaller advantage each and is trained on far more often (docs/rollouts.md has the numbers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Outcome = bool | None
"""Passed, failed, or no verdict (infrastructure failure)."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """When to stop.

    Attributes:
        successes: Passes wanted.
        failures: Failures wanted. With both 0 nothing stops the attempts before `most`.
        most: Attempts at one task at most, those without a verdict included.
        chunk: Attempts made between two looks.
    """

    successes: int
    failures: int
    most: int
    chunk: int

    def more(self, outcomes: Sequence[Outcome]) -> int:
        """Attempts to make next at a task whose attempts so far ended like this; 0: none."""
        enough = outcomes.count(True) >= self.successes and outcomes.count(False) >= self.failures
        if enough and self.successes + self.failures > 0:
            return 0
        return max(0, min(self.chunk, self.most - len(outcomes)))

    def choose(self, outcomes: Sequence[Outcome], count: int) -> list[int]:
        """Places of the `count` attempts that are trained on, ascending.

        The first `successes` passes and the first `failures` failures, then the earliest of the others; those without
        a verdict only where nothing else is left. Holds both outcomes where both were seen (given both are wanted), and
        is the first `count` attempts where these were enough.
        """
        passed = [i for i, outcome in enumerate(outcomes) if outcome is True]
        failed = [i for i, outcome in enumerate(outcomes) if outcome is False]
        kept = {*passed[: self.successes], *failed[: self.failures]}
        broken = [i for i, outcome in enumerate(outcomes) if outcome is None]
        for i in [*sorted([*passed, *failed]), *broken]:
            if len(kept) == count:
                break
            kept.add(i)
        return sorted(kept)
