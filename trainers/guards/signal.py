"""Guards of the signal: groups that teach nothing, rewards that are not the grade's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from statistics import fmean, stdev
from typing import ClassVar

from agents.rollout import RolloutResult
from agents.trajectory import OWN_REWARD, Trajectory
from envs.rewards import RewardKind
from trainers.credit import CreditSettings, TurnSignal
from trainers.guards.guard import Alarm, Facts, Fires, Gauge, Guard, Window, note, stop, warn
from trainers.guards.levels import GuardName
from trainers.measure import is_graded
from trainers.rollouts.rules import told_apart, trained_groups
from trainers.stats import wilson

# -- Guard 9, signal meter: which groups can teach something, and why the others cannot -------------------------------

SAME = 1e-6
"""Rewards closer than this are equal."""


class GroupKind(StrEnum):
    """What the rewards of the attempts at one task say about each other."""

    SIGNAL = "signal"
    """They differ."""
    ALL_PASS = "all_pass"
    """Equal, and every attempt passed."""
    ALL_FAIL = "all_fail"
    """Equal, and none passed."""
    TIE = "tie"
    """Equal, with passes and failures, or with nothing to tell."""
    LOST = "lost"
    """Fewer than two attempts have a reward (infrastructure)."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Groups of one step by kind; `turn_signal` groups without episode signal whose turns have advantages."""

    counts: Mapping[GroupKind, int]
    turn_signal: int

    @property
    def groups(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def metrics(self) -> dict[str, float]:
        """Under the names of the logs: shares of groups."""
        shares = {f"groups/{kind}_frac": self.counts.get(kind, 0) / self.groups for kind in GroupKind}
        return {**shares, "groups/turn_signal_only_frac": self.turn_signal / self.groups} if self.groups else {}


def read_groups(
    episodes: Sequence[Trajectory],
    settings: CreditSettings | None = None,
    signal: TurnSignal = TurnSignal.PROGRESS,
) -> Meter:
    """Sort the groups of a step that are trained on; those of a task drawn twice are two.

    Args:
        episodes: Of the step.
        settings: How turns are compared; default: as a run without settings does.
        signal: What a turn earns by itself.
    """
    settings = settings or CreditSettings()
    counts: Counter[GroupKind] = Counter()
    turn_signal = 0
    for group in trained_groups(episodes):
        kind = _kind([episode for episode in group if episode.reward is not None])
        counts[kind] += 1
        turn_signal += kind is not GroupKind.SIGNAL and told_apart(group, settings, signal)
    return Meter(counts, turn_signal)


def nothing_moves(episodes: Sequence[Trajectory]) -> bool:
    """Whether no episode passed and no two attempts of a group have different grades.

    Rewards may differ all the same, by the turns that were spent: that teaches to give up early, not to do the task.
    Where a reward of the user's differs and grades have no rate, it may be what can be learned.
    """
    for group in trained_groups(episodes):
        graded = [episode for episode in group if episode.reward is not None]
        if any(episode.passed for episode in graded):
            return False
        rates = [episode.rate if episode.rate is not None else episode.reward or 0.0 for episode in graded]
        if rates and max(rates) - min(rates) > SAME:
            return False
    return True


def _kind(graded: Sequence[Trajectory]) -> GroupKind:
    rewards = [episode.reward for episode in graded if episode.reward is not None]
    if len(rewards) < 2:
        return GroupKind.LOST
    if max(rewards) - min(rewards) > SAME:
        return GroupKind.SIGNAL
    passed = [bool(episode.passed) for episode in graded]
    return GroupKind.ALL_PASS if all(passed) else GroupKind.TIE if any(passed) else GroupKind.ALL_FAIL


@dataclass
class SignalMeter(Guard):
    """A dead or dying signal. It says why, and never calls a run that fails everywhere converged.

    Attributes:
        low: Share of groups with signal, over the last steps, below which a run learns little.
        dead: Steps in a row without any advantage that are no chance, and `enough` the groups that must be in them: a
            step of one group often ties in a run that is well.
        credit: How the run compares turns, and `turn_signal` what a turn of it earns.
        tried: Episodes in a row without a pass, and without a difference between the attempts at a task, from which on
            the policy cannot do these tasks: of 96 at least one passes in 95 % of the runs of a policy that passes 3 %.
    """

    name: ClassVar[str] = GuardName.SIGNAL_METER
    low: float = 0.1
    dead: int = 3
    enough: int = 12
    credit: CreditSettings = field(default_factory=CreditSettings)
    turn_signal: TurnSignal = TurnSignal.PROGRESS
    tried: int = 96
    _dead: int = 0
    """Logged steps without any advantage up to now, and `_tied` the groups of them."""
    _tied: int = 0
    _played: int = 0
    """Groups since the last line of metrics."""
    _failed: int = 0
    """Graded episodes in a row in which nothing moves, and `_failed_steps` the steps of them."""
    _failed_steps: int = 0
    _share: Window = field(default_factory=lambda: Window(10))
    _last: dict[str, int] = field(default_factory=dict)

    def begin(self, facts: Facts) -> None:
        """What a turn earns in this run."""
        self.credit, self.turn_signal = facts.config, facts.config.turn_signal

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Count the groups."""
        meter = read_groups(played.trajectories, self.credit, self.turn_signal)
        self._last = {str(kind): count for kind, count in meter.counts.items()} | {"turns": meter.turn_signal}
        self._played += meter.groups
        if meter.groups:
            self._share.add(meter.counts.get(GroupKind.SIGNAL, 0) / meter.groups)
        graded = sum(episode.reward is not None for episode in played.trajectories)
        if not nothing_moves(played.trajectories):
            self._failed = self._failed_steps = 0
        elif graded:
            self._failed, self._failed_steps = self._failed + graded, self._failed_steps + 1
        if self._cannot:
            yield warn(
                "cannot",
                f"no signal: 0 of {self._failed} episodes passed in {self._failed_steps} steps (at most "
                f"{wilson(0, self._failed).high:.1%} would), and no attempt at a task got further than another: this "
                "policy cannot do these tasks yet, and no number of steps changes that. Try easier tasks, or tasks "
                "with more assertions, each of which pays by itself (reward shaped); a warm start on episodes that "
                "pass (`python -m trainers.sft`); a larger or an instruct model; more attempts at each task "
                "(num_generations) or a higher temperature, for a first pass. `python -m agents show` has what it did.",
            )

    @property
    def _cannot(self) -> bool:
        return self._failed >= self.tried and self._failed_steps >= self.dead

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Whether anything had an advantage."""
        if metrics.get("gigpo/frac_zero_adv", 0.0) < 1.0:
            self._dead = self._tied = 0
        else:
            self._dead, self._tied = self._dead + 1, self._tied + self._played
        counted, self._played = self._played > 0, 0
        if self._cannot:
            return  # it is said, and why
        if self._dead >= self.dead and (self._tied >= self.enough or not counted):
            yield warn(
                "no_signal",
                f"no signal for {self._dead} steps: every advantage is 0 ({self._why(metrics)}). {self._counted()}"
                "Nothing is being learned, which is not the same as having converged. Mix in tasks that some attempts "
                "pass and some fail.",
            )
        elif self._share.full and self._share.mean < self.low:
            yield note(
                "little_signal",
                f"little signal: over {len(self._share)} steps {self._share.mean:.0%} of the groups have attempts that "
                f"earn different rewards. {self._counted()}{self._why(metrics).capitalize()}.",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """Groups that teach something, and how long there was nothing."""
        if len(self._share):
            yield Gauge("groups with signal, last 10 steps", self._share.mean, Fires.BELOW, self.low)
        yield Gauge("steps in a row without an advantage", self._dead, Fires.FROM, self.dead)
        yield Gauge("episodes in a row without a pass or a difference", self._failed, Fires.FROM, self.tried)

    def _counted(self) -> str:
        if not self._last:
            return ""
        total = sum(count for kind, count in self._last.items() if kind != "turns")
        reasons = [
            f"{self._last[kind]} {kind.replace('_', '-')}"
            for kind in GroupKind
            if kind is not GroupKind.SIGNAL and self._last.get(kind)
        ]
        text = f"{self._last.get(GroupKind.SIGNAL, 0)}/{total} groups have signal ({', '.join(reasons) or 'all'}); "
        return f"{text}{self._last['turns']} of the others have turn signal. "

    def _why(self, metrics: Mapping[str, float]) -> str:
        passed = metrics.get("env/pass_rate")
        if metrics.get("env/infra_error_frac", 0.0) == 1.0:
            return "every episode was an infrastructure failure"
        if passed == 1.0:
            return "every attempt passes: the tasks are too easy"
        if passed == 0.0:
            return "no attempt passes: the tasks are too hard, or the policy cannot act"
        return "all attempts of a task earn the same"


# -- Guard 15, reward against grade: that what is learned from is what the grade says ---------------------------------

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
    _wrong: float | None = None
    """Share of the last step's episodes, of those that can be computed."""

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Compute each reward anew."""
        known = [(e, want) for e in played.trajectories if is_graded(e) and (want := expected(e)) is not None]
        wrong = [(e, want) for e, want in known if not want.holds(e.reward or 0.0)]
        wrong = wrong or _unequal_starts(known)
        self._wrong = len(wrong) / len(known) if known else None
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

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """How many rewards are others."""
        if self._wrong is not None:
            yield Gauge("episodes with another reward", self._wrong, Fires.ABOVE, 0.0)


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

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """How the reward follows the grade."""
        if (n := len(self._scores)) >= self.few:
            limit = self.limit if n >= self.enough else 0.0
            mean, error = self._scores.mean, stdev(self._scores.values) / math.sqrt(n)
            yield Gauge("gamma of reward and grade, upper bound", mean + self.z * error, Fires.BELOW, limit)


def _is_own(episode: Trajectory) -> bool:
    return "reward" not in episode.environment or bool(episode.environment.get(OWN_REWARD))


def _grade(episode: Trajectory) -> float:
    return float(bool(episode.passed)) if episode.rate is None else episode.rate
