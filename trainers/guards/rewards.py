"""Guard 15, reward against grade: that what is learned from is what the grade says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean, stdev
from typing import ClassVar

from agents.rollout import RolloutResult
from agents.trajectory import OWN_REWARD, Trajectory
from envs.rewards import RewardKind
from trainers.guards.guard import Alarm, Guard, stop, warn
from trainers.guards.levels import GuardName
from trainers.guards.window import Window
from trainers.measuring.measure import is_graded
from trainers.rollouts.groups import trained_groups

CLOSE = 1e-6
"""Rewards and rates closer than this are equal."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The reward that a built-in rule gives: between `low` and `high`, which differ where the start is unknown.

    Attributes:
        start: The rate of doing nothing that the reward implies, where the rule subtracts it: the same in all episodes
            of a task.
    """

    low: float
    high: float
    start: float | None = None

    def holds(self, reward: float) -> bool:
        """Whether the reward is the one."""
        return self.low - CLOSE <= reward <= self.high + CLOSE

    def __str__(self) -> str:
        """For people."""
        return f"{self.low:.4g}" if self.high - self.low <= CLOSE else f"between {self.low:.4g} and {self.high:.4g}"


def expected(episode: Trajectory) -> Expected | None:
    """What `envs.rewards` gives for the episode's grade, computed from its record; `None` for a reward of the user's.

    The rate is computed anew from the verdicts, too. Where the rate at the start enters, which no record has, the
    reward must lie where some start in [0, 1) puts it.
    """
    setting = episode.environment
    if "reward" not in setting or setting.get(OWN_REWARD):
        return None
    kind, rate, reward = setting["reward"], _rate(episode), episode.reward
    if rate is None or reward is None:
        return None
    if kind == RewardKind.BINARY:
        value = 1.0 if _passed(episode) else 0.0
        return Expected(value, value)
    cost = 0.0
    if kind == RewardKind.SHAPED:
        cost = setting["turn_penalty"] * min(len(episode.turns) / setting["max_turns"], 1.0)
    gain = reward + cost
    if setting["subtract_baseline"]:  # (rate - start) / (1 - start), which falls as the start grows
        low = 1.0 if rate >= 1 - CLOSE else -math.inf
        start = (rate - gain) / (1 - gain) if rate < 1 - CLOSE and gain < 1 else None
        return Expected(low - cost, rate - cost, start)
    if kind == RewardKind.DELTA:  # rate - start
        return Expected(rate - 1, rate, rate - gain)
    return Expected(rate - cost, rate - cost)


def _counting(episode: Trajectory) -> list[tuple[float, float | None, str]]:
    """Weight, score and verdict of the assertions that count."""
    records = [(float(r.get("weight", 1.0)), r.get("score"), str(r["verdict"])) for r in episode.assertions]
    return [record for record in records if record[0] > 0]


def _rate(episode: Trajectory) -> float | None:
    """Weighted mean score of the assertions that count; the record's own where it lists none."""
    scored = [(weight, score) for weight, score, _ in _counting(episode) if score is not None]
    if not scored:
        return episode.rate
    return sum(weight * score for weight, score in scored) / sum(weight for weight, _ in scored)


def _passed(episode: Trajectory) -> bool:
    """All assertions that count pass; the record's own word where it lists none."""
    verdicts = [verdict for _, _, verdict in _counting(episode)]
    return all(verdict == "pass" for verdict in verdicts) if verdicts else bool(episode.passed)


@dataclass
class RewardOfGrade(Guard):
    """A built-in reward that is not what its grade gives: constant, with the wrong sign or size, or of another episode.

    Attributes:
        many: Share of a step's episodes with another reward from which on the run ends; fewer are a warning.
    """

    name: ClassVar[str] = GuardName.REWARD_AGAINST_GRADE
    many: float = 0.05

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Compute each reward anew."""
        known = [(e, want) for e in played.trajectories if is_graded(e) and (want := expected(e)) is not None]
        wrong = [(e, want) for e, want in known if not want.holds(e.reward or 0.0)]
        wrong = wrong or _unequal_starts(known)
        if not wrong:
            return
        episode, want = wrong[0]
        kind = episode.environment["reward"]
        text = (
            f"reward: {len(wrong)} of {len(known)} episodes of step {step} have another reward than {kind} gives for "
            f"their grade. The first (task {episode.task_id}, attempt {episode.attempt}): {episode.reward:.6g}, where "
            f"rate {_rate(episode):.4g}{', passed' if episode.passed else ''}, {len(episode.turns)} turns give {want}"
        )
        if len(wrong) > self.many * len(known):
            yield stop(
                "not_the_grades",
                f"{text}. The policy would learn something else than the tasks ask for. Something stands between grade "
                "and reward: a patched `envs.rewards`, a wrapper, code that changes episodes. A reward of your own is "
                "a subclass of the environment or of `RewardRule`, and is judged as one.",
            )
        else:
            yield warn("some_not_the_grades", f"{text}. `python -m agents show` has the episode.")


def _unequal_starts(known: Sequence[tuple[Trajectory, Expected]]) -> list[tuple[Trajectory, Expected]]:
    """Episodes of a task whose rewards imply another rate of doing nothing than most of the task's others."""
    tasks: dict[str, list[tuple[Trajectory, Expected]]] = {}
    for pair in known:
        if pair[1].start is not None:
            tasks.setdefault(pair[0].task_id, []).append(pair)
    out = []
    for pairs in tasks.values():
        starts = sorted(want.start for _, want in pairs if want.start is not None)
        usual = starts[len(starts) // 2]
        for episode, want in pairs:
            assert want.start is not None
            if abs(want.start - usual) > 1e3 * CLOSE:
                out.append((episode, want))
    return out


@dataclass
class OwnReward(Guard):
    """A reward of the user's that does not rise with the grade: what passes more does not earn more.

    Of each group the pairs of attempts are taken whose grades and rewards both differ; its score is the share of them
    in which the better grade earns more less the share in which it earns less (Goodman and Kruskal's gamma): 1 for a
    reward that follows the grade, 0 for one that is drawn at random, -1 for one with the wrong sign.

    Attributes:
        enough: Groups with such pairs before a weak relation is judged; a sure one of the wrong sign needs `few`.
        limit: Score that even a lucky reward (mean + `z` standard errors) must reach.
    """

    name: ClassVar[str] = GuardName.REWARD_AGAINST_GRADE
    enough: int = 40
    few: int = 10
    limit: float = 0.3
    z: float = 2.33
    _scores: Window = field(default_factory=lambda: Window(60))
    _alike: int = 0
    """Groups in a row with passes and failures that all have the same reward."""

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Compare rewards with grades within each group."""
        for group in trained_groups(played.trajectories):
            own = [e for e in group if is_graded(e) and _is_own(e)]
            pairs = [(_grade(a) - _grade(b), (a.reward or 0.0) - (b.reward or 0.0)) for a, b in combinations(own, 2)]
            differ = [(grade, reward) for grade, reward in pairs if abs(grade) > CLOSE]
            if not differ:
                continue
            rises = [grade * reward > 0 for grade, reward in differ if abs(reward) > CLOSE]
            if rises:
                self._alike = 0
                self._scores.add(2 * fmean(rises) - 1)
            elif len({e.passed for e in own}) > 1:  # where none passed, a reward for passes is equal by right
                self._alike += 1
        if self._alike >= self.few:
            yield warn(
                "constant",
                f"reward: in {self._alike} groups in a row some attempts passed and some failed, and all have the same "
                "reward: nothing can be learned from it. Is it paid at all?",
            )
        n = len(self._scores)
        if n < self.few:
            return
        mean, error = self._scores.mean, stdev(self._scores.values) / math.sqrt(n)
        if mean + self.z * error < (self.limit if n >= self.enough else 0.0):
            how = "falls as the grade rises" if mean + self.z * error < 0 else "does not rise with the grade"
            yield warn(
                "not_rising",
                f"reward: your reward {how}: over {n} groups the attempt with the better grade earns more in "
                f"{(1 + mean) / 2:.0%} of the pairs (+-{self.z * error / 2:.0%}; 50 % is chance). The policy learns "
                "that reward, and the pass rate need not rise. Check its sign, and that it is of the same episode.",
            )


def _is_own(episode: Trajectory) -> bool:
    return "reward" not in episode.environment or bool(episode.environment.get(OWN_REWARD))


def _grade(episode: Trajectory) -> float:
    return float(bool(episode.passed)) if episode.rate is None else episode.rate
