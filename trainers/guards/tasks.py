"""Guards of tasks and figures: split, held-out selection, exclusions, graders."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from envs.episode import StopReason
from tasks.splits import Choice
from trainers.guards.guard import Alarm, Facts, Fires, Gauge, Guard, Measured, Window, note, stop, warn
from trainers.guards.levels import GuardName
from trainers.measure import Measurement, broken_checks, is_graded, measure
from trainers.rollouts.rules import first_drawn
from trainers.stats import effective_n, fisher_exact

# -- Guard 2, split lint: whether a gap between pool and held-out could mean anything ---------------------------------

SAMPLED = "sampled"
"""The held-out arm that decodes as training does."""


@dataclass
class SplitLint(Guard):
    """Sides that overlap, were chosen by outcome, or are not equally hard before anything is learned.

    Attributes:
        alpha: p-value below which the sides differ; on effective counts, for the K attempts at a task are alike.
        gap: Difference of pass rates below which nothing is said, whatever its p-value.
        compares: The pool's first step is a fair draw of it; not under a curriculum.
    """

    name: ClassVar[str] = GuardName.SPLIT_LINT
    alpha: float = 0.01
    gap: float = 0.1
    compares: bool = True
    _baseline: list[float] = field(default_factory=list)
    """Passed, graded and effective number of the held-out episodes of step 0."""
    _labels: list[str] = field(default_factory=list)

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """Overlap, and how the sides were chosen."""
        ids = {task.id for task in facts.pool}
        twins = {task.meaning_hash for task in facts.pool}
        shared = [task.id for task in facts.held_out if task.id in ids or task.meaning_hash in twins]
        if shared:
            yield warn(
                "overlap",
                f"split: {len(shared)} of {len(facts.held_out)} held-out tasks are also in the pool, by id or as "
                f"exact twins ({', '.join(shared[:3])}): their figure measures memory. Take them out of one side.",
            )
        self.compares = not facts.config.curriculum
        if facts.held_out and not self.compares:
            yield note(
                "curriculum",
                "curriculum: the first step's tasks are no fair draw of the pool, so its base rate is not compared "
                "with that of the held-out tasks.",
            )
        if facts.choice is Choice.OUTCOME:
            yield note(
                "outcome",
                "split: the sides were chosen by outcome, so they differ by design: a gap between them is not "
                "overfitting. Draw the split with a seed (`python -m tasks split`).",
            )

    def measured(self, held_out: Measured) -> None:
        """Keep the baseline."""
        if held_out.step == 0:
            arm = held_out.arms.get(SAMPLED) or held_out.arms[held_out.deciding]
            self._baseline = [arm.passed, arm.graded, arm.effective_n]
            self._labels = [arm.sampling]

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """The pool's first step against the baseline: nothing was learned in between."""
        if step != 1 or not self.compares or not self._baseline or not self._baseline[1]:
            return
        pool = measure(first_drawn(played.trajectories), played.label)
        if pool.pass_rate is None:
            return
        passed, graded, effective = self._baseline
        rate = passed / graded
        p = fisher_exact(*_effective(pool), round(rate * effective), round(effective))
        if abs(pool.pass_rate - rate) >= self.gap and p < self.alpha:
            decodes = "" if played.label == self._labels[0] else f" Decoding differs, too: {played.label} and here "
            yield warn(
                "not_exchangeable",
                f"split: at the start the pool passes {pool.passed}/{pool.graded} ({pool.pass_rate:.0%}), held-out "
                f"{passed:.0f}/{graded:.0f} ({rate:.0%}), p={p:.2g}: not exchangeable (was it filtered by outcome?)."
                f"{decodes and decodes + self._labels[0] + '.'} A gap between them is not overfitting; compare each "
                "side with its own start, or draw the split with a seed.",
            )


FEW = 10
"""Tasks below which their attempts do not show how unlike the tasks are: only the tasks themselves then count."""


def _effective(m: Measurement) -> tuple[int, int]:
    """Passed and graded, as independent episodes."""
    n = round(m.effective_n) if m.tasks >= FEW else m.tasks
    return round((m.pass_rate or 0.0) * n), n


# -- Guard 1, ship by held-out: whether what is chosen is chosen by measurement, and what the pool hides --------------


@dataclass
class ShipByHeldOut(Guard):
    """The held-out figure does not follow the pool, or there is none.

    Attributes:
        alpha: p-value below which a difference counts; on effective counts, for the attempts at a pool task are alike.
        compares: Pool windows may be compared; not under a curriculum, which makes the pool harder on purpose.
    """

    name: ClassVar[str] = GuardName.SHIP_BY_HELD_OUT
    alpha: float = 0.01
    compares: bool = True
    _played: dict[str, list[int]] = field(default_factory=dict)
    """Passed and graded pool episodes since the last evaluation, by task."""
    _at_best: dict[str, list[int]] = field(default_factory=dict)
    """The same before the best evaluation."""
    _best: list[int] = field(default_factory=list)
    """Step, passed and graded of the best held-out figure."""
    _rise: float | None = None
    """p-value of the last evaluation that the pool rose since the best one; `_fall` that held-out fell from it."""
    _fall: float | None = None

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """Nothing selects; and whether the pool stays one pool."""
        self.compares = not facts.config.curriculum
        if not facts.held_out:
            yield note(
                "nothing_selects",
                "nothing is held out, so nothing selects a checkpoint: the last one is kept, good or not. Name tasks "
                "with --held_out.",
            )
        elif facts.config.eval_strategy == "no":
            yield warn(
                "not_measured",
                f"eval_strategy=no: the {len(facts.held_out)} held-out tasks are measured at the end only, and no "
                "checkpoint before can become `best/`. Use eval_strategy=steps.",
            )
        if facts.held_out and not self.compares:
            yield note(
                "curriculum",
                "curriculum: tasks come in an order, so pool rates of two times are those of other tasks and are not "
                "compared: that the pool runs ahead of the held-out tasks goes unseen.",
            )

    def episodes(self, step: int, played: RolloutResult) -> None:
        """Count the pool."""
        count_passes(self._played, played)

    def measured(self, held_out: Measured) -> Iterator[Alarm]:
        """Held-out flat or falling while the pool rises."""
        arm, pool = held_out.arms[held_out.deciding], self._played
        self._played = {}
        if held_out.is_best or not self._best:
            self._best, self._at_best = [held_out.step, arm.passed, arm.graded], pool
            self._rise = self._fall = None
            return
        if arm.pass_rate is None or arm.low is None or arm.high is None:
            return
        step, passed, graded = self._best
        p = "unknown" if held_out.p_value is None else f"{held_out.p_value:.2g}"
        figures = (
            f"held-out at step {held_out.step}: {arm.passed}/{arm.graded} ({100 * arm.pass_rate:.1f} %, 95 % interval "
            f"{100 * arm.low:.1f}-{100 * arm.high:.1f}) against {passed}/{graded} of the best at step {step} (p={p})"
        )
        keeps = f"`best/` stays at step {step}, and the pool is not used for selection"
        # No pool task was played before the start: where that is the best, the first pool since stands for it.
        rise = risen(self._at_best, pool) if self.compares and pool and self._at_best else 1.0
        self._at_best = self._at_best or pool
        lower = arm.passed * graded < passed * arm.graded
        fall = held_out.p_value if held_out.p_value is not None and lower else 1.0
        self._rise, self._fall = rise, fall
        if rise < self.alpha:
            yield warn(
                "pool_runs_ahead",
                f"{figures}: no better, while the pool rose from {_counts(self._at_best)} to {_counts(pool)} "
                f"(p={rise:.2g}). {keeps}. Train on more tasks, lower learning_rate, or set patience to stop here.",
            )
        if fall < self.alpha:
            yield warn("held_out_falls", f"{figures}: it fell. {keeps}. Lower learning_rate, or set patience.")

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """How sure it is that the two go apart."""
        for name, p in (("p that the pool rose, held-out no better", self._rise), ("p that held-out fell", self._fall)):
            if p is not None:
                yield Gauge(name, p, Fires.BELOW, self.alpha)


def count_passes(counts: dict[str, list[int]], played: RolloutResult) -> None:
    """Add the pool episodes drawn first to passed and graded attempts by task."""
    for episode in first_drawn(played.trajectories):
        if is_graded(episode):
            passed, graded = counts.get(episode.task_id, (0, 0))
            counts[episode.task_id] = [passed + bool(episode.passed), graded + 1]


def risen(before: Mapping[str, Sequence[int]], after: Mapping[str, Sequence[int]]) -> float:
    """p-value of a rise of the pass rate; 1 where it did not rise.

    Args:
        before: Task id to its passed and graded attempts, at least one of them graded.
        after: Likewise.
    """
    (was, was_n), (now, now_n) = _independent(before), _independent(after)
    return fisher_exact(round(now * now_n), now_n, round(was * was_n), was_n) if now > was else 1.0


def _independent(counts: Mapping[str, Sequence[int]]) -> tuple[float, int]:
    """Pass rate, and how many independent episodes it is worth."""
    n = effective_n({task: [True] * passed + [False] * (graded - passed) for task, (passed, graded) in counts.items()})
    passed, graded = totals(counts)
    return passed / graded, round(n)


def totals(counts: Mapping[str, Sequence[int]]) -> tuple[int, int]:
    """Passed and graded attempts at all tasks; of other pairs of counts likewise."""
    return sum(passed for passed, _ in counts.values()), sum(graded for _, graded in counts.values())


def _counts(counts: Mapping[str, Sequence[int]]) -> str:
    return "{}/{}".format(*totals(counts))


# -- Guard 13, exclusions follow the policy: whether what leaves the means, or looks so, is the agent's doing ---------

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
    _shares: list[float] = field(default_factory=list)
    """Of odd episodes: of the first window and of the last one that was looked at."""

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
        was, is_now = totals(before), totals(now)
        self._shares = [_rate(was), _rate(is_now)]
        steps = {step: list(totals(_by_task([counts]))) for step, counts in (self._first | self._latest).items()}
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
        easy, hard = totals(solved), totals(failed)
        p = _p_value(easy, hard, _worth(solved | failed))
        if hard[0] >= self.least and _rate(hard) - _rate(easy) >= self.gap and p < self.alpha:
            yield warn(
                "gathered",
                f"exclusions: on the {len(failed)} tasks that the policy otherwise fails (fewer than "
                f"{self.hard:.0%} of their other episodes pass) {_text(hard)} of the episodes were excluded, lost or "
                f"failed by a check that broke, on the other {len(solved)} tasks {_text(easy)} (p={p:.2g}). What "
                f"leaves the mean there would mostly have failed. Most are of {_names(failed)}. {ADVICE}",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """Odd episodes of the latest window that was looked at."""
        if self._shares:
            first, latest = self._shares
            yield Gauge("episodes excluded, lost or broken", latest, Fires.FROM, first + self.gap)


def _merged(steps: Iterable[Counts]) -> Counts:
    out: Counts = {}
    for counts in steps:
        for task, cell in counts.items():
            out[task] = [a + b for a, b in zip(out.get(task, [0] * len(cell)), cell, strict=True)]
    return out


def _by_task(steps: Iterable[Counts]) -> dict[str, list[int]]:
    """Task id to its odd episodes and all."""
    return {task: [sum(odd), n] for task, (*odd, n) in _merged(steps).items()}


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


# -- Guard 11, verifier health: that graders can be trusted, at load and while they grade -----------------------------

GRADER_ERRORS = ("GradeError", "BaselineError")
"""Errors of the machinery that are a grader's own, as the records name them."""


@dataclass
class VerifierHealth(Guard):
    """Right answers that score less than 1, graders that fail or slow down, and failures that became rewards.

    Attributes:
        errors: Share of the last steps' episodes whose grader may fail.
        lost: Share of a step's episodes, or of a measurement's, that may be lost to the machinery, graders included.
        slower: How many times the p95 of a turn that ends an episode (grading is in it) may grow, and `slow` the
            seconds that it must have reached.
    """

    name: ClassVar[str] = GuardName.VERIFIER_HEALTH
    errors: float = 0.02
    lost: float = 0.1
    slower: float = 10.0
    slow: float = 1.0
    _errors: Window = field(default_factory=lambda: Window(3))
    _p95: Window = field(default_factory=lambda: Window(5))
    _start: float | None = None

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """The gold self-test of question sets."""
        if facts.self_test is not None and not facts.self_test.ok:
            yield warn(
                "self_test",
                f"verifier: {facts.self_test.text()}\nFigures on these tasks are too low by what right answers lose. "
                "`python -m tasks check` shows each; leave the tasks out or mend their assertions.",
            )

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Verdicts, errors and time of this step."""
        episodes = played.trajectories
        paid = [e for e in episodes if e.reward is not None and (e.stop_reason == "infrastructure" or _erred(e))]
        if paid:
            yield stop(
                "paid",
                f"verifier: {len(paid)} episodes of step {step} have a reward although they could not be judged (such "
                f"as task {paid[0].task_id}): a failure of the machinery would be learned as one of the policy.",
            )
        failed = [e.error or "" for e in episodes if (e.error or "").startswith(GRADER_ERRORS)]
        if self._errors.add(len(failed) / len(episodes) if episodes else None) and self._errors.mean > self.errors:
            example = Counter(line.split("\n", 1)[0][:160] for line in failed).most_common(1)
            yield warn(
                "errors",
                f"verifier: over {len(self._errors)} steps the graders of {self._errors.mean:.1%} of the episodes "
                f"failed{f' (such as {example[0][0]})' if example else ''}. Those episodes have no reward and enter no "
                "mean; `python -m tasks check` tries each grader.",
            )
        yield from self._time(episodes)

    def _time(self, episodes: Sequence[Trajectory]) -> Iterator[Alarm]:
        seconds = sorted(e.turns[-1].sandbox_seconds for e in episodes if e.turns and e.reward is not None)
        if not seconds:
            return
        full = self._p95.add(_quantile(seconds, 0.95))
        if full and self._start is None:
            self._start = self._p95.median
        if full and self._start is not None and self._p95.median > max(self.slow, self.slower * self._start):
            yield note(
                "slow",
                f"verifier: the last turn of an episode, grading included, takes p50 "
                f"{1000 * _quantile(seconds, 0.5):.0f} and p95 {1000 * self._p95.median:.0f} ms "
                f"(p95 was {1000 * self._start:.0f} ms): commands or graders hang until their time "
                "limit. `python -m agents show` tells which.",
            )

    def measured(self, held_out: Measured) -> Iterator[Alarm]:
        """Held-out episodes lost to the machinery."""
        for name, arm in held_out.arms.items():
            if arm.n and arm.infrastructure > self.lost * arm.n and arm.pass_min is not None:
                yield warn(
                    "held_out_lost",
                    f"infrastructure: {arm.infrastructure} of {arm.n} held-out episodes ({name}, step "
                    f"{held_out.step}) failed in the sandbox or the grader. The pass rate is over the other "
                    f"{arm.graded} only; over all it lies between {arm.pass_min:.1%} and {arm.pass_max:.1%}, so do not "
                    "compare it with other steps. `python -m sandboxes doctor` checks the backends.",
                )

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Episodes lost to the machinery."""
        share = metrics.get("env/infra_error_frac", 0.0)
        if share > self.lost:
            yield warn(
                "infrastructure",
                f"infrastructure: {share:.0%} of the episodes of step {step} failed in the sandbox or the grader. They "
                "have no reward and enter no mean; `python -m sandboxes doctor` checks the backends.",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """Graders that fail, and episodes lost to the machinery."""
        if len(self._errors):
            yield Gauge("episodes whose grader failed", self._errors.mean, Fires.ABOVE, self.errors)
        if "env/infra_error_frac" in metrics:
            share = metrics["env/infra_error_frac"]
            yield Gauge("episodes lost to the machinery", share, Fires.ABOVE, self.lost)


def _erred(episode: Trajectory) -> bool:
    """An assertion that counts could not be decided."""
    return any(record.get("verdict") == "error" and record.get("weight", 1.0) > 0 for record in episode.assertions)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
