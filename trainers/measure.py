"""What a set of episodes says about a policy: pass rate, interval, what is excluded; by side of a split."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import fmean
from typing import Any

from agents.trajectory import LOSSES, Trajectory, groups
from envs.episode import StopReason
from tasks.comparable import BaseRates, base_rates
from tasks.splits import Split
from tasks.task import Task
from trainers.errors import RewardError
from trainers.stats import Interval, PairedTest, bootstrap_mean, effective_n, paired_test, task_differences, wilson

# -- Measurement: what a set of episodes says about a policy, with what is missing counted beside it ------------------
# An episode without a grade (the machinery failed, or a grader erred) has no reward: it is in `n` and in
# `infrastructure`, and in no mean. Such episodes are called excluded. The pass rate is always shown both ways: of the
# graded episodes, and of all, the excluded ones counted as not passed. A policy that errs where it would fail moves
# the first and not the second.

POOL = "pool"
"""What the episodes of training are called beside the decode settings of measurements."""
LATER = {"broke", "in_process", "losses"}
"""Keys that records of release 0.6 and earlier do not have."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures of a set of episodes under one decode setting. All means are over graded episodes.

    Attributes:
        n: Episodes played; `tasks` distinct tasks among them.
        graded: Episodes with a grade and a reward; `infrastructure` the others (`n - graded`).
        passed: Graded episodes that passed; `pass_rate` their share.
        low: Ends of the pass rate's 95 % Wilson interval (`high` the other), on `effective_n` independent episodes.
        pass_min: Pass rate of all episodes, the excluded counted as not passed; `pass_max` if they had passed.
        assertion_rate: Mean assertion rate; `reward` the mean reward.
        submitted: Share that ended by submitting.
        stops: Stop reason to count, over all `n`.
        families: Task family to [passed, graded].
        kinds: Assertion kind to [assertions passed, assertions].
        sampling: Decode settings, as a label.
        outcomes: Task id to the passes of its graded attempts, in the order played (for paired tests).
        errors: Messages of episodes without a grade, to count; cut to their first line.
        in_process: [passed, graded] of the episodes whose judge runs the agent's code in its own process, where that
            code can write the verdict. They are in no other figure. Empty where there are none.
        broke: Assertion kind to fails whose check broke on what the agent made; those of lost episodes are not in it.
        losses: Task id to the command during which its sandbox was lost (shortened; empty while it was graded) to how
            often, whatever became of the episode.
    """

    n: int
    tasks: int
    graded: int
    infrastructure: int
    passed: int
    pass_rate: float | None
    low: float | None
    high: float | None
    effective_n: float
    pass_min: float | None
    pass_max: float | None
    assertion_rate: float | None
    reward: float | None
    mean_turns: float | None
    submitted: float | None
    sampling: str
    stops: dict[str, int] = field(default_factory=dict)
    families: dict[str, list[int]] = field(default_factory=dict)
    kinds: dict[str, list[int]] = field(default_factory=dict)
    outcomes: dict[str, list[bool]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    in_process: list[int] = field(default_factory=list)
    broke: dict[str, int] = field(default_factory=dict)
    losses: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def excluded(self) -> dict[str, int]:
        """Why episodes have no grade: the kind of error to count."""
        kinds: Counter[str] = Counter()
        for message, count in self.errors.items():
            kinds[message.partition(":")[0]] += count
        return dict(kinds.most_common())

    @property
    def lost(self) -> int:
        """Episodes whose sandbox the agent ended: they failed."""
        return self.stops.get(StopReason.LOST, 0)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record; `from_json` gives the same measurement back."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Measurement:
        """Rebuild a measurement from `to_json`'s record.

        Raises:
            ValueError: A key is unknown or missing; the message names it.
        """
        known = {f.name for f in fields(cls)}
        if not known - LATER <= set(record) <= known:
            unknown, missing = sorted(set(record) - known), sorted(known - LATER - set(record))
            raise ValueError(f"not a measurement: unknown keys {unknown}, missing keys {missing}")
        return cls(**record)


def is_graded(episode: Trajectory) -> bool:
    """True when the episode has a verdict and a reward that is a number, so that it may enter a mean."""
    rewarded = episode.reward is not None and math.isfinite(episode.reward)
    return rewarded and episode.stop_reason != "infrastructure" and episode.passed is not None


def check_rewards(episodes: Iterable[Trajectory], where: str) -> None:
    """Refuse rewards that are not finite: in a mean or a gradient they leave nothing.

    Args:
        episodes: Those of a rollout; one without a reward is none of them.
        where: When they were played, for people.

    Raises:
        RewardError: Names the first such episode and its task.
    """
    bad = [e for e in episodes if e.reward is not None and not math.isfinite(e.reward)]
    if bad:
        first = bad[0]
        raise RewardError(
            f"the reward of {len(bad)} episodes of {where} is not a finite number: task {first.task_id}, attempt "
            f"{first.attempt} (seed {first.seed}, {len(first.turns)} turns, ended by {first.stop_reason}, rate "
            f"{first.rate}) has {first.reward}. Nothing was learned from it. Mend the environment's reward (a division "
            "by 0, an overflow); an episode that cannot be judged raises GradeError, and has no reward."
        )


def broken_checks(episode: Trajectory) -> list[str]:
    """Kinds of the checks that count and broke on what the agent made; none for an episode that was lost whole."""
    if episode.stop_reason == StopReason.LOST:
        return []
    counting = (record for record in episode.assertions if record.get("weight", 1.0) > 0)
    return [str(record["kind"]) for record in counting if record.get("broke")]


def losses_of(trajectories: Iterable[Trajectory]) -> dict[str, dict[str, int]]:
    """Sandboxes that were lost, by task and by command; see `Measurement.losses`."""
    out: dict[str, dict[str, int]] = {}
    for episode in trajectories:
        for loss in episode.notes.get(LOSSES, ()):
            commands = out.setdefault(episode.task_id, {})
            commands[loss["command"]] = commands.get(loss["command"], 0) + 1
    return out


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Attempts at one task.

    Attributes:
        n: How many; `graded` those with a grade, and `passed` those of them that passed.
        failed: Name of each assertion that failed in graded ones, to how often.
    """

    n: int = 0
    graded: int = 0
    passed: int = 0
    failed: dict[str, int] = field(default_factory=dict)


def task_counts(trajectories: Iterable[Trajectory]) -> dict[str, TaskCounts]:
    """The attempts by task, in order of first appearance."""
    found: dict[str, TaskCounts] = {}
    for task, episodes in groups(list(trajectories)).items():
        graded = [episode for episode in episodes if is_graded(episode)]
        failed = Counter(str(a["name"]) for e in graded for a in e.assertions if a["verdict"] == "fail")
        found[task] = TaskCounts(len(episodes), len(graded), sum(bool(e.passed) for e in graded), dict(failed))
    return found


def measure(trajectories: Sequence[Trajectory], label: str, in_process: Collection[str] = ()) -> Measurement:
    """Measure episodes.

    Args:
        trajectories: Any number of attempts at any number of tasks.
        label: The decode settings, as `RolloutResult.label` has them.
        in_process: Ids of tasks whose episodes are counted apart (see `Measurement.in_process`).

    Returns:
        The measurement; rates are `None` when nothing was graded (never 0).
    """
    apart = [t for t in trajectories if t.task_id in in_process]
    trajectories = [t for t in trajectories if t.task_id not in in_process]
    graded = [t for t in trajectories if is_graded(t)]
    n, missing = len(trajectories), len(trajectories) - len(graded)
    passed = sum(bool(t.passed) for t in graded)
    outcomes: dict[str, list[bool]] = {}
    families: dict[str, list[int]] = {}
    kinds: dict[str, list[int]] = {}
    for t in graded:
        outcomes.setdefault(t.task_id, []).append(bool(t.passed))
        _count(families, t.family or "(no family)", bool(t.passed))
        for record in t.assertions:
            _count(kinds, str(record["kind"]), record["verdict"] == "pass")
    n_effective = effective_n(outcomes)
    rate = passed / len(graded) if graded else None
    interval = wilson(min(rate * n_effective, n_effective), n_effective) if rate is not None else None
    rates = [t.rate for t in graded if t.rate is not None]
    errors = Counter(_first_line(t.error) for t in trajectories if not is_graded(t))
    return Measurement(
        n=n,
        tasks=len({t.task_id for t in trajectories}),
        graded=len(graded),
        infrastructure=missing,
        passed=passed,
        pass_rate=rate,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        effective_n=n_effective,
        pass_min=passed / n if n else None,
        pass_max=(passed + missing) / n if n else None,
        assertion_rate=fmean(rates) if rates else None,
        reward=fmean(t.reward for t in graded if t.reward is not None) if graded else None,
        mean_turns=fmean(len(t.turns) for t in graded) if graded else None,
        submitted=fmean(t.stop_reason == "submitted" for t in graded) if graded else None,
        sampling=label,
        stops=dict(sorted(Counter(t.stop_reason for t in trajectories).items())),
        families=dict(sorted(families.items())),
        kinds=dict(sorted(kinds.items())),
        outcomes=outcomes,
        errors=dict(errors.most_common()),
        in_process=[sum(bool(t.passed) for t in apart if is_graded(t)), sum(map(is_graded, apart))] if apart else [],
        broke=dict(sorted(Counter(kind for t in graded for kind in broken_checks(t)).items())),
        losses=losses_of(trajectories),
    )


def wrote_on(trajectories: Sequence[Trajectory]) -> tuple[int, int] | None:
    """How many episodes wrote on behind a stop sequence, and of how many; `None` where no environment counts it.

    A large share says that the policy does not know when to stop: what it costs is hidden by cutting, not cured.
    """
    counts = [t.notes["text_after_stop"] for t in trajectories if "text_after_stop" in t.notes]
    return (sum(count > 0 for count in counts), len(counts)) if counts else None


def parts_of(tasks: Sequence[Task]) -> dict[str, dict[str, str]]:
    """How tasks fall into parts, each task into one: task id to its part by name of the partition.

    Partitions are `family`, `persona` (the role of who asks) and what stands before the colon of tags (`level`,
    `subject`), where no task has two of them. A task without one is in no part.
    """
    found: dict[str, dict[str, str]] = {}
    several: set[str] = set()
    for task in tasks:
        parts = found.setdefault(task.id, {})
        if task.family:
            parts["family"] = task.family
        if task.persona is not None:
            parts["persona"] = task.persona.role
        for name, _, value in (tag.partition(":") for tag in task.tags if ":" in tag):
            if name in parts:
                several.add(name)
            parts.setdefault(name, value)
    return {task: {name: part for name, part in parts.items() if name not in several} for task, parts in found.items()}


NO_PART = "(none)"


def part_counts(
    parts: Mapping[str, Mapping[str, str]], outcomes: Mapping[str, Sequence[bool]]
) -> dict[str, dict[str, list[int]]]:
    """[passed, graded] by partition and part; the parts of each add up to all. A partition of one part is left out."""
    names = dict.fromkeys(name for task in outcomes for name in parts.get(task, ()))
    table: dict[str, dict[str, list[int]]] = {name: {} for name in names}
    for name in names:
        for task, passes in outcomes.items():
            for passed in passes:
                _count(table[name], parts.get(task, {}).get(name, NO_PART), passed)
    return {name: dict(sorted(counts.items())) for name, counts in table.items() if len(counts) > 1}


def tag_counts(tasks: Sequence[Task], outcomes: Mapping[str, Sequence[bool]]) -> dict[str, list[int]]:
    """[passed, graded] by tag, for tags of which a task may have several (`instruction:keywords`), sorted.

    They do not add up; those that do are in `part_counts`. A tag that every task has is left out.

    Args:
        tasks: The tasks that were played.
        outcomes: As in `Measurement`.
    """
    table: dict[str, list[int]] = {}
    common = set.intersection(*(set(task.tags) for task in tasks)) if tasks else set()
    apart = parts_of(tasks)
    for task in tasks:
        for tag in task.tags:
            if ":" in tag and tag not in common and tag.partition(":")[0] not in apart[task.id]:
                for passed in outcomes.get(task.id, ()):
                    _count(table, tag, passed)
    return dict(sorted(table.items()))


def _count(table: dict[str, list[int]], key: str, success: bool) -> None:
    cell = table.setdefault(key, [0, 0])
    cell[0] += int(success)
    cell[1] += 1


def _first_line(message: str | None) -> str:
    return (message or "no reason recorded").strip().split("\n", 1)[0][:200]


# -- The sides of a split, measured: whether pool and held-out were equally hard before anything was learned ----------


def side_rates(split: Split, measured: Measurement, left_out: Collection[str] = ()) -> BaseRates:
    """Return the pass rate of each side; a task none of whose attempts was graded is undecided, and in no mean.

    Args:
        split: The split.
        measured: All its tasks, measured.
        left_out: Ids of tasks that do not count.
    """

    def pass_rate(task: Task) -> float | None:
        passes = measured.outcomes.get(task.id)
        return fmean(passes) if passes else None

    def counting(tasks: Sequence[Task]) -> tuple[Task, ...]:
        return tuple(task for task in tasks if task.id not in left_out)

    counted = replace(
        split,
        pool=counting(split.pool),
        held_out=counting(split.held_out),
        unseen=counting(split.unseen),
        sets={name: counting(tasks) for name, tasks in split.sets.items()},
    )
    return base_rates(counted, pass_rate)


# -- What a confirmation says: start and chosen weights of a run on tasks that nothing was trained or chosen on -------
# `trainers.heldout.confirm` makes it; console, summary and report read it.

Episodes = Mapping[str, Mapping[str, Sequence[Trajectory]]]
"""By policy (`start`, `best`) and arm."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What came of it.

    Attributes:
        source: Which tasks, or why there are none (`TaskSets.confirm_text`).
        step: The chosen step; `None` where nothing was measured.
        before: The start, by arm; the arm that chose comes first.
        after: The weights of `best/`, by arm.
        why: Why nothing was measured; empty where it was.
    """

    source: str = ""
    step: int | None = None
    before: dict[str, Measurement] = field(default_factory=dict)
    after: dict[str, Measurement] = field(default_factory=dict)
    why: str = ""

    def test(self, arm: str) -> PairedTest:
        """Paired test of `best/` against the start."""
        return paired_test(self.before[arm].outcomes, self.after[arm].outcomes)

    def interval(self, arm: str) -> Interval | None:
        """95 % interval of the difference of the pass rates (bootstrap over tasks); `None` without a common task."""
        differences = task_differences(self.before[arm].outcomes, self.after[arm].outcomes)
        return bootstrap_mean([[difference] for difference in differences]) if differences else None

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record, without figures that follow from others; `from_json` gives the same confirmation back."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Confirmation:
        """Rebuild a confirmation from `to_json`'s record.

        Raises:
            TypeError: A key is unknown.
            ValueError: A measurement is none.
        """
        sides = {
            side: {name: Measurement.from_json(m) for name, m in record.get(side, {}).items()}
            for side in ("before", "after")
        }
        return cls(**{**record, **sides})
