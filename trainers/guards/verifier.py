"""Guard 11, verifier health: that graders can be trusted, at load and while they grade."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from trainers.guards.events import Facts, Measured
from trainers.guards.guard import Alarm, Guard, note, stop, warn
from trainers.guards.levels import GuardName
from trainers.guards.window import Window

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


def _erred(episode: Trajectory) -> bool:
    """An assertion that counts could not be decided."""
    return any(record.get("verdict") == "error" and record.get("weight", 1.0) > 0 for record in episode.assertions)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
