"""Guard 13, exclusions follow the policy: whether what leaves the means, or looks so, is the agent's doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from envs.episode import StopReason
from trainers.guards.guard import Alarm, Guard, warn
from trainers.guards.levels import GuardName
from trainers.measuring.measure import broken_checks, is_graded
from trainers.rollouts.groups import first_drawn
from trainers.stats import effective_n, fisher_exact

ADVICE = (
    "An excluded episode is in no mean, so read the pass rate of all (`env/pass_min`), not that of the graded ones. "
    "`python -m agents show` has their commands and errors: mend what they find in tasks and graders, or take these "
    "tasks out, and leave agent_errors at fail."
)

Counts = dict[str, list[int]]
"""Task id to its episodes: excluded, lost, failed by a check that broke, and all."""


@dataclass
class ExclusionsFollowPolicy(Guard):
    """Episodes that are excluded, lost, or failed by a broken check: together, *odd* ones.

    They come at random where the machine is at fault. Where the policy is, they grow while it learns, or gather on
    tasks that it would fail otherwise.

    Attributes:
        size: Steps of the first and of the latest window, which do not overlap, and between two looks at them.
        alpha: p-value (Fisher) below which shares differ; on effective counts, for the attempts at a task are alike,
            and so are the episodes of a step in which the machine fails.
        gap: Difference of shares below which nothing is said.
        least: Odd episodes below which nothing is said.
        hard: Pass rate of a task's other episodes below which the policy fails it.
    """

    name: ClassVar[str] = GuardName.EXCLUSIONS_FOLLOW_POLICY
    size: int = 10
    alpha: float = 0.01
    gap: float = 0.05
    least: int = 10
    hard: float = 0.5
    _first: dict[str, Counts] = field(default_factory=dict)
    """By step, like the next one."""
    _latest: dict[str, Counts] = field(default_factory=dict)
    _tasks: dict[str, list[int]] = field(default_factory=dict)
    """Task id to its odd episodes, its others, and those of the others that passed; of the whole run."""

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Count; compare the latest steps with the first ones, and hard tasks with the others."""
        window = self._first if len(self._first) < self.size or str(step) in self._first else self._latest
        counts = window.setdefault(str(step), {})
        for episode in first_drawn(played.trajectories):
            self._count(episode, counts)
        if len(window) < self.size:
            return
        if self._latest:
            yield from self._rise()
            self._latest = {}
        yield from self._gathered()

    def _count(self, episode: Trajectory, counts: Counts) -> None:
        excluded, lost = not is_graded(episode), episode.stop_reason == StopReason.LOST
        broke = not excluded and bool(broken_checks(episode))
        cell = counts.setdefault(episode.task_id, [0, 0, 0, 0])
        total = self._tasks.setdefault(episode.task_id, [0, 0, 0])
        for place, holds in enumerate((excluded, lost, broke, True)):
            cell[place] += holds
        odd = excluded or lost or broke
        total[0] += odd
        total[1] += not odd
        total[2] += not odd and bool(episode.passed)

    def _rise(self) -> Iterator[Alarm]:
        before, now = _by_task(self._first.values()), _by_task(self._latest.values())
        was, is_now = _share(before), _share(now)
        steps = {step: list(_share(_by_task([counts]))) for step, counts in (self._first | self._latest).items()}
        tasks = _by_task([*self._first.values(), *self._latest.values()])
        p = _p_value(was, is_now, min(_worth(tasks), _worth(steps)))
        if is_now[0] >= self.least and _rate(is_now) - _rate(was) >= self.gap and p < self.alpha:
            kinds = [sum(cell[place] for cell in _merged(self._latest.values()).values()) for place in range(3)]
            yield warn(
                "rise",
                f"exclusions: of steps {_span(self._latest)} {_text(is_now)} of the episodes were excluded "
                f"({kinds[0]}), lost ({kinds[1]}) or failed by a check that broke ({kinds[2]}), of steps "
                f"{_span(self._first)} {_text(was)} (p={p:.2g}). That grows as the policy learns, as if it did it. "
                f"Most are of {_names(now)}. {ADVICE}",
            )

    def _gathered(self) -> Iterator[Alarm]:
        failed: dict[str, list[int]] = {}
        solved: dict[str, list[int]] = {}
        for task, (odd, others, passed) in self._tasks.items():
            if others:  # of a task without any nobody knows whether the policy fails it
                (failed if passed < self.hard * others else solved)[task] = [odd, odd + others]
        if not failed or not solved:
            return
        easy, hard = _share(solved), _share(failed)
        p = _p_value(easy, hard, _worth(solved | failed))
        if hard[0] >= self.least and _rate(hard) - _rate(easy) >= self.gap and p < self.alpha:
            yield warn(
                "gathered",
                f"exclusions: on the {len(failed)} tasks that the policy otherwise fails (fewer than "
                f"{self.hard:.0%} of their other episodes pass) {_text(hard)} of the episodes were excluded, lost or "
                f"failed by a check that broke, on the other {len(solved)} tasks {_text(easy)} (p={p:.2g}). What "
                f"leaves the mean there would mostly have failed. Most are of {_names(failed)}. {ADVICE}",
            )


def _merged(steps: Iterable[Counts]) -> Counts:
    out: Counts = {}
    for counts in steps:
        for task, cell in counts.items():
            out[task] = [a + b for a, b in zip(out.get(task, [0] * len(cell)), cell, strict=True)]
    return out


def _by_task(steps: Iterable[Counts]) -> dict[str, list[int]]:
    """Task id to its odd episodes and all."""
    return {task: [sum(odd), n] for task, (*odd, n) in _merged(steps).items()}


def _share(tasks: Mapping[str, Sequence[int]]) -> tuple[int, int]:
    return sum(odd for odd, _ in tasks.values()), sum(n for _, n in tasks.values())


def _rate(share: tuple[int, int]) -> float:
    return share[0] / share[1] if share[1] else 0.0


def _worth(clusters: Mapping[str, Sequence[int]]) -> float:
    """How many independent episodes one episode is worth, from the odd ones and all of each cluster."""
    outcomes = {name: [True] * odd + [False] * (n - odd) for name, (odd, n) in clusters.items()}
    return effective_n(outcomes) / sum(map(len, outcomes.values()))


def _p_value(first: tuple[int, int], second: tuple[int, int], worth: float) -> float:
    (odd, n), (others_odd, others_n) = ([round(count * worth) for count in side] for side in (first, second))
    return fisher_exact(odd, n, others_odd, others_n)


def _text(share: tuple[int, int]) -> str:
    return f"{share[0]} of {share[1]} ({_rate(share):.1%})"


def _span(steps: Mapping[str, Counts]) -> str:
    names = list(steps)
    return f"{names[0]} to {names[-1]}"


def _names(tasks: Mapping[str, Sequence[int]]) -> str:
    """The tasks with the most odd episodes."""
    most = Counter({task: odd for task, (odd, _) in tasks.items() if odd}).most_common(3)
    return ", ".join(f"{task} ({count})" for task, count in most)
