"""Evaluations on the same tasks against the first of them: the difference, and the sentence that the data allow.

The verdict rests on passes alone, task by task. All comparisons of one call are a family: p-values are Holm's, so that
all sentences together are wrong with a probability of 5 % at most. Policies that were not asked in the same way, or not
the same, get no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainers.answers import Instructions
from trainers.errors import RunFolderError
from trainers.evaluation.arms import Arms
from trainers.measure import NO_PART, Measurement
from trainers.paired import difference_interval, smallest_difference
from trainers.run.summary import p_text, points_text
from trainers.stats import Interval, Outcomes, PairedTest, fisher_exact, holm, paired_test, shared_tasks

ALPHA = 0.05
"""Probability of a wrong improvement or degradation in all comparisons of a call."""


class Said(StrEnum):
    """What a comparison allows to say."""

    IMPROVEMENT = "improvement"
    DEGRADATION = "degradation"
    NO_DIFFERENCE = "no difference shown"
    OTHER_SETTINGS = "different settings"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the shared tasks, such as `level` 3.

    Attributes:
        first: [passed, graded] of the first policy; `second` of the other.
        difference: Of the mean pass rates of its tasks, second minus first; `tasks` how many.
        interval: 95 %, of this part alone: of many parts some exclude 0 by chance.
    """

    first: tuple[int, int]
    second: tuple[int, int]
    tasks: int
    difference: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One decode setting of two folders.

    Attributes:
        first: Name of the folder that is compared with; `second` of the other.
        arms: Names of the decode setting in both.
        a: The first's figures on all its tasks; `b` the second's.
        test: On the tasks that both have with the same content.
        unpaired_p: Fisher's p where no task is shared, attempts taken as independent; decides nothing.
        p_holm: The test's p, corrected for all comparisons of the call.
        interval: 95 % interval of the difference; `None` without a shared task.
        smallest: Where no difference was shown: the smallest true one that these tasks would have shown (power 0.8);
            `None`: none at all.
        differs: Settings that are not the same, each with both values.
        changed: Tasks with the same id and other content, left out.
        said: The verdict.
        parts: By name of the partition and part; partitions of one part are left out.
        instructions: The figures of IFEval of both, on all tasks of each; `None` where one has none.
    """

    first: str
    second: str
    arms: tuple[str, str]
    a: Measurement
    b: Measurement
    test: PairedTest
    unpaired_p: float | None
    p_holm: float
    interval: Interval | None
    smallest: float | None
    differs: tuple[str, ...]
    changed: int
    said: Said
    parts: Mapping[str, Mapping[str, Part]]
    instructions: tuple[Instructions, Instructions] | None = None

    def sentence(self) -> str:
        """The verdict for people."""
        if self.said is Said.OTHER_SETTINGS:
            return f"{self.said}, so no verdict: {'; '.join(self.differs)}"
        found = points_text(self.test.difference, self.interval)
        if self.said is not Said.NO_DIFFERENCE:
            return f"{self.said}: B minus A is {found}"
        could = (
            "so few tasks could not have shown any difference"
            if self.smallest is None
            else f"{self.test.tasks} tasks would have shown one of {100 * self.smallest:.0f} points (4 times in 5)"
        )
        return f"{self.said}: B minus A is {found}; {could}"

    @property
    def arm(self) -> str:
        """Name of the decode setting; of both where they differ."""
        return " against ".join(dict.fromkeys(self.arms))

    def figures(self) -> Iterator[str]:
        """The test in plain lines: tasks, difference, p, and what was left out."""
        if self.changed:
            yield f"{self.changed} tasks have the same id and other content in A and B: they are left out"
        test = self.test
        if self.unpaired_p is not None:
            yield f"no task in common: unpaired p {p_text(self.unpaired_p)} (Fisher's exact test, attempts independent)"
        else:
            yield (
                f"B minus A: {points_text(test.difference, self.interval)} on {test.tasks} shared tasks; paired p "
                f"{p_text(test.p_value)} ({test.test}: {test.better} tasks better, {test.worse} worse, "
                f"{test.tasks - test.better - test.worse} equal)"
            )
        if test.unpaired:
            yield f"{test.unpaired} tasks have a graded attempt on one side only and are not in the test"


def overview(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """One row per comparison as text, the header first."""
    rows: list[tuple[str, ...]] = [("B", "arm", "B minus A [95 % interval]", "p", "p, Holm", "verdict")]
    for one in comparisons:
        points = points_text(one.test.difference, one.interval) if one.test.tasks else "-"
        rows.append((one.second, one.arm, points, p_text(one.test.p_value), p_text(one.p_holm), one.said))
    return rows


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two decode settings that are compared, before the verdict."""

    first: Arms
    second: Arms
    names: tuple[str, str]
    a: Measurement
    b: Measurement
    outcomes: tuple[Outcomes, Outcomes]
    changed: int
    test: PairedTest


def compare(arms: Sequence[Arms]) -> list[Comparison]:
    """Compare each folder with the first one, in each decode setting that both have, or in the only one of each.

    Args:
        arms: Two or more.

    Raises:
        RunFolderError: Two folders share no decode setting and one has several.
    """
    pairs = [pair for second in arms[1:] for pair in _pairs(arms[0], second)]
    adjusted = holm([pair.test.p_value for pair in pairs])
    return [_concluded(pair, p, ALPHA / len(pairs)) for pair, p in zip(pairs, adjusted, strict=True)]


def _pairs(first: Arms, second: Arms) -> Iterator[_Pair]:
    names = [(name, name) for name in first.settings if name in second.settings]
    if not names:
        if len(first.settings) != 1 or len(second.settings) != 1:
            raise RunFolderError(
                f"no decode setting in common: {first.name} has {', '.join(first.settings)}, "
                f"{second.name} has {', '.join(second.settings)}"
            )
        names = [(next(iter(first.settings)), next(iter(second.settings)))]
    changed = {task for task, content in first.hashes.items() if second.hashes.get(task, content) != content}
    for a_name, b_name in names:
        a, b = first.settings[a_name], second.settings[b_name]
        outcomes = (_without(a.outcomes, changed), _without(b.outcomes, changed))
        test = paired_test(*outcomes)
        yield _Pair(first, second, (a_name, b_name), a, b, outcomes, len(changed), test)


def _without(outcomes: Outcomes, tasks: set[str]) -> Outcomes:
    return {task: passes for task, passes in outcomes.items() if task not in tasks}


def _concluded(pair: _Pair, p_holm: float, alpha: float) -> Comparison:
    differs, test = tuple(_differences(pair)), pair.test
    if differs:
        said = Said.OTHER_SETTINGS
    elif p_holm >= ALPHA:
        said = Said.NO_DIFFERENCE
    else:
        said = Said.IMPROVEMENT if test.difference > 0 else Said.DEGRADATION
    a, b = pair.a, pair.b
    return Comparison(
        first=pair.first.name,
        second=pair.second.name,
        arms=pair.names,
        a=a,
        b=b,
        test=test,
        unpaired_p=None if test.tasks else fisher_exact(a.passed, a.graded, b.passed, b.graded),
        p_holm=p_holm,
        interval=difference_interval(*pair.outcomes),
        smallest=smallest_difference(*pair.outcomes, alpha=alpha) if said is Said.NO_DIFFERENCE else None,
        differs=differs,
        changed=pair.changed,
        said=said,
        parts=dict(_parts(pair)),
        instructions=_instructions(pair),
    )


def _instructions(pair: _Pair) -> tuple[Instructions, Instructions] | None:
    first, second = pair.first.instructions.get(pair.names[0]), pair.second.instructions.get(pair.names[1])
    return None if first is None or second is None else (first, second)


def _differences(pair: _Pair) -> Iterator[str]:
    """What was not the same; a setting that one folder does not say is no difference."""
    if not pair.test.tasks:
        yield "no task in common"
    if pair.a.sampling != pair.b.sampling:
        yield f"decode settings: A {pair.a.sampling}; B {pair.b.sampling}"
    first, second = pair.first.manner, pair.second.manner
    yield from (
        f"{name}: A {value}; B {second[name]}" for name, value in first.items() if second.get(name, value) != value
    )


def _parts(pair: _Pair) -> Iterator[tuple[str, dict[str, Part]]]:
    """The shared tasks, parted; every partition adds up to all of them."""
    first, second = pair.outcomes
    shared = shared_tasks(first, second)
    of = {**pair.first.parts, **pair.second.parts}
    for name in dict.fromkeys(name for task in shared for name in of.get(task, ())):
        tasks: dict[str, list[str]] = {}
        for task in shared:
            tasks.setdefault(of.get(task, {}).get(name, NO_PART), []).append(task)
        if len(tasks) > 1:
            yield name, {part: _part(first, second, tasks[part]) for part in sorted(tasks)}


def _part(first: Outcomes, second: Outcomes, tasks: Sequence[str]) -> Part:
    a, b = ({task: arm[task] for task in tasks} for arm in (first, second))
    counts = [(sum(map(sum, arm.values())), sum(map(len, arm.values()))) for arm in (a, b)]
    return Part(counts[0], counts[1], len(tasks), paired_test(a, b).difference, difference_interval(a, b))
