"""What the runs measured beside the figure that a campaign compares: other sets, other decode settings, fresh tasks.

A run measures more than one figure, and a report that showed only the planned one would hide, for example, that a
condition does better on what it was trained on and worse on families that it never saw. These figures were not planned
as the test: each has its interval and p by itself, and none of them decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.model import counted
from trainers.campaigns.figures import RunLine, compared, deciding
from trainers.campaigns.plan import Campaign, Figure
from trainers.curves import SeedMean, mean_over_seeds
from trainers.measure import Measurement
from trainers.reporting.folder import RunFolder
from trainers.run.summary import p_text
from trainers.stats import MeanTest, paired_t

FRESH = "fresh tasks, the chosen step"
"""Name of the confirmation."""


@dataclass(frozen=True, slots=True)
class Beside:
    """One such figure of one condition.

    Attributes:
        name: Arm of the held-out measurement (`other_sampled`), or `FRESH`.
        seeds: Of the runs that have it and are in the means; `passed` of their `graded` episodes.
        pass_rate: Mean over seeds.
        pairs: Seeds that the baseline has, too.
        test: Of the difference from the baseline, paired by seed, at 95 %; `None` for the baseline and below two pairs.
    """

    name: str
    condition: str
    seeds: tuple[int, ...]
    passed: int
    graded: int
    pass_rate: SeedMean
    pairs: int
    test: MeanTest | None

    @property
    def difference(self) -> str:
        """The difference from the baseline in points, with its interval; `-` where there is no test."""
        if self.test is None:
            return "-"
        ends = self.test.interval
        return f"{100 * self.test.difference:+.1f} [{100 * ends.low:+.1f}, {100 * ends.high:+.1f}]"

    @property
    def p(self) -> str:
        """Of the test; `-` without one, or where all pairs differ by the same, so that t is not defined."""
        return "-" if self.test is None or math.isnan(self.test.p_value) else p_text(self.test.p_value)


def figures_beside(
    campaign: Campaign, lines: Sequence[RunLine], folders: Mapping[tuple[str, int], RunFolder | None]
) -> list[Beside]:
    """Each figure that runs have beside the compared one, in each condition that has it.

    Args:
        campaign: The file.
        lines: One for each run.
        folders: Those of the runs, by condition and seed.
    """
    found: dict[str, dict[str, dict[int, Measurement]]] = {}
    for line in lines:
        condition, seed = line.result.condition, line.result.seed
        folder = folders[condition, seed]
        if line.left_out or folder is None:
            continue
        for name, measured in _measured(folder, campaign.file.figure):
            if measured.graded:
                found.setdefault(name, {}).setdefault(condition, {})[seed] = measured
    out = []
    for name, conditions in found.items():
        first = _rates(conditions.get(campaign.baseline, {}))
        for condition in (c for c in campaign.file.conditions if c in conditions):
            runs, rates = conditions[condition], _rates(conditions[condition])
            shared = sorted(rates.keys() & first.keys()) if condition != campaign.baseline else []
            mean = mean_over_seeds(list(rates.values()))
            assert mean is not None  # a condition is there only with a run
            test = paired_t([first[s] for s in shared], [rates[s] for s in shared]) if len(shared) > 1 else None
            passed, graded = sum(m.passed for m in runs.values()), sum(m.graded for m in runs.values())
            out.append(Beside(name, condition, tuple(sorted(runs)), passed, graded, mean, len(shared), test))
    return out


def _measured(folder: RunFolder, figure: Figure) -> Iterator[tuple[str, Measurement]]:
    measured = dict(folder.held_out[-1].settings) if folder.held_out else {}
    if folder.confirmation and folder.confirmation.after:
        measured[FRESH] = deciding(folder.confirmation.after)
    that = compared(figure, folder)
    yield from ((name, one) for name, one in measured.items() if one is not that)


def _rates(runs: Mapping[int, Measurement]) -> dict[int, float]:
    return {seed: runs[seed].passed / runs[seed].graded for seed in sorted(runs)}


def beside_lines(figures: Sequence[Beside]) -> list[str]:
    """For people; none where there is no such figure."""
    if not figures:
        return []
    out = ["beside the verdicts (not planned as the test, not corrected for their number: they decide nothing):"]
    for one in figures:
        rate = f"{one.passed}/{one.graded} = {100 * one.pass_rate.mean:.1f} % over {counted(len(one.seeds), 'seed')}"
        line = f"  {one.name}, {one.condition}: {rate}"
        if one.test is not None:
            line += f", difference {one.difference} points, p {one.p} (paired by seed, {one.pairs} pairs)"
        out.append(line)
    return out
