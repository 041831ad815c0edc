"""The logs of retrain and textpolicy (`emergence/*.jsonl`), and what textpolicy concludes from them.

For users who have such logs, or scripts that read them. Both reports count every step and every generation of all runs
as independent, which those of one run are not: their p-values are far too small. They are here in the words and with
the figures of the reference; what runs of several seeds allow to say is `trainers.verdicts`. Where the reference has
no word for a significant fall, ours has one.

| file | what is in it |
|---|---|
| `steps.jsonl` | one line a step (`step_row`) |
| `generations.jsonl` | one line an episode (`generation_rows`), with the keys of both projects |
| `significance.json` | `significance(...)` |
| `litmus.json` | `litmus(...)` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean, pstdev, stdev
from typing import Any

from agents.trajectory import Trajectory
from trainers.curves import Curve, curve_over_seeds
from trainers.jsonl import read_lines
from trainers.measure import is_graded
from trainers.stats import (
    Interval,
    bootstrap_difference,
    fisher_exact,
    permutation_test,
    rate_difference,
    tasks_needed,
    values_needed,
)

PROMPT_CHARACTERS, COMPLETION_CHARACTERS = 200, 500
"""Where retrain cuts texts."""


class Recommendation(StrEnum):
    """What may be said of a condition beside the baseline."""

    IMPROVEMENT = "statistically_significant_improvement"
    DEGRADATION = "significant_degradation"
    INSUFFICIENT = "insufficient_statistical_evidence"


class Status(StrEnum):
    """Whether an improvement of at least the thresholds was found."""

    CONFIRMED = "CONFIRMED"
    FAILED = "FAILED"
    INCONCLUSIVE = "INCONCLUSIVE"


class Correct(StrEnum):
    """Which reward is a correct answer: the two projects differ."""

    RETRAIN = "retrain"  # above 0.5
    TEXTPOLICY = "textpolicy"  # 0.99 or more

    def is_correct(self, reward: float) -> bool:
        """True where the project counts an answer with this reward as correct."""
        return reward > 0.5 if self is Correct.RETRAIN else reward >= 0.99


def recommended(differences: Sequence[float], *, significant: bool) -> Recommendation:
    """The claim that differences of several figures allow: they have to be significant and go the same way.

    Args:
        differences: Candidate minus baseline, of each figure; more is better.
        significant: Every one of them is.
    """
    if significant and differences and all(difference > 0 for difference in differences):
        return Recommendation.IMPROVEMENT
    if significant and differences and all(difference < 0 for difference in differences):
        return Recommendation.DEGRADATION
    return Recommendation.INSUFFICIENT


# -- Written: one step, its generations -------------------------------------------------------------------------------


def selected_generations(rewards: Sequence[float], most: int | None = None) -> list[int]:
    """Places of the attempts at one prompt that are logged: all, or the `most` with the highest rewards (first ones).

    retrain logs the best one by default. A rate of correct answers over such lines is the best of K, not a pass rate.
    """
    if most is not None and most < 1:
        raise ValueError(f"selected_generations: most={most} must be 1 or more; None logs all")
    best = sorted(range(len(rewards)), key=lambda place: -rewards[place])
    return sorted(best[:most])


def step_row(step: int, episodes: Sequence[Trajectory], *, condition: str, uncertainty_kind: str) -> dict[str, Any]:
    """A line of `steps.jsonl` about all episodes of a step, with the keys of both projects.

    Means are over graded episodes and `None` without any. The change of gram entropy is not measured here: it is `None`
    with 0 pairs, which a litmus calls missing evidence.
    """
    graded = [episode for episode in episodes if is_graded(episode)]
    rewards = [episode.reward for episode in graded if episode.reward is not None]
    turns = [turn for episode in graded for turn in episode.turns]
    entropies = [value for turn in turns for value in turn.entropies or ()]
    return {
        "step": step,
        "condition": condition,
        "uncertainty_kind": uncertainty_kind,
        "mean_reward": fmean(rewards) if rewards else None,
        "std_reward": pstdev(rewards) if rewards else None,
        "correct_count": sum(bool(episode.passed) for episode in graded),
        "total_count": len(graded),
        "excluded_count": len(episodes) - len(graded),
        "mean_completion_length": fmean(_length(episode) for episode in graded) if graded else None,
        "max_tokens_hit_rate": fmean(turn.finish == "length" for turn in turns) if turns else None,
        "entropy_mean": fmean(entropies) if entropies else None,
        "entropy_std": pstdev(entropies) if entropies else None,
        "gram_entropy_delta": None,
        "gram_entropy_pair_count": 0,
    }


def generation_rows(
    step: int, group: Sequence[Trajectory], prompt: str, *, most: int | None = None
) -> Iterator[dict[str, Any]]:
    """Lines of `generations.jsonl` about the attempts at one task, with the keys of both projects.

    Args:
        step: The training step.
        group: Attempts at the task; those without a reward are left out.
        prompt: What the policy was first asked, as text.
        most: Log that many with the highest rewards; `None` logs all.
    """
    graded = [episode for episode in group if is_graded(episode)]
    for place in selected_generations([episode.reward or 0.0 for episode in graded], most):
        episode = graded[place]
        lists = {"logprobs": [turn.logprobs for turn in episode.turns]}
        lists["entropy_per_token"] = [turn.entropies for turn in episode.turns]
        yield {
            "step": step,
            "prompt": prompt[:PROMPT_CHARACTERS],
            "completion": "\n".join(turn.reply for turn in episode.turns)[:COMPLETION_CHARACTERS],
            "reward": episode.reward,
            "num_tokens": _length(episode),
            "tokens": [token for turn in episode.turns for token in turn.ids],
            **{
                key: None if None in parts else [value for part in parts for value in part or ()]
                for key, parts in lists.items()
            },
            "metadata": {"correctness": bool(episode.passed), "task_id": episode.task_id},
            "sample_index": episode.attempt,
            "group_size": len(group),
            "selection": "all" if most is None else "best_of",
        }


def _length(episode: Trajectory) -> int:
    return sum(len(turn.ids) for turn in episode.turns)


# -- Read, and the two reports ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """A line of `steps.jsonl`: the change of gram entropy is the mean over `gram_pairs`, `None` where not measured."""

    mean_reward: float
    correct: int
    total: int
    gram_delta: float | None = None
    gram_pairs: int = 0


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run's logs: its steps, and the rewards of the generations that were logged."""

    name: str
    steps: tuple[LoggedStep, ...]
    rewards: tuple[float, ...]


def read_run(folder: Path) -> LoggedRun:
    """The logs of a run's `emergence` folder. Steps without a reward (nothing was graded) are left out.

    Raises:
        KeyError: A line lacks a key of both projects.
        RunFolderError: A line is no JSON object.
    """
    lines, _ = read_lines(folder / "steps.jsonl")
    steps = tuple(
        LoggedStep(
            line["mean_reward"],
            line["correct_count"],
            line["total_count"],
            line.get("gram_entropy_delta"),
            line.get("gram_entropy_pair_count") or 0,
        )
        for line in lines
        if line["mean_reward"] is not None
    )
    generations, _ = read_lines(folder / "generations.jsonl")
    return LoggedRun(folder.parent.name, steps, tuple(line["reward"] for line in generations))


def learning_curve(runs: Sequence[LoggedRun], *, level: float = 0.95) -> Curve:
    """The mean reward of one condition, logged step by logged step, with its band over seeds.

    Raises:
        ValueError: There are fewer than 2 runs with a step: one has no band.
    """
    points = [(run.name, [(float(n), step.mean_reward) for n, step in enumerate(run.steps)]) for run in runs]
    curve = curve_over_seeds(points, level=level)
    if curve is None or curve.runs < 2:
        raise ValueError(f"learning_curve: needs 2 or more runs, got {curve.runs if curve else 0}")
    return curve


@dataclass(frozen=True, slots=True)
class PooledTest:
    """A figure of two arms, as if its values were independent. Field names are those of `significance.json`.

    Attributes:
        n_per_arm_80pct: Values an arm at which a true difference of `delta` is found with power 0.8; `None` for none.
        unit: What is counted: `steps` or `generations`.
    """

    metric: str
    baseline: float
    candidate: float
    delta: float
    p_value: float
    interval: Interval
    n_baseline: int
    n_candidate: int
    significant: bool
    cohens_d: float | None
    n_per_arm_80pct: int | None
    unit: str

    @property
    def significant_improvement(self) -> bool:
        """Significant, with an interval above 0."""
        return self.significant and self.interval.low > 0


@dataclass(frozen=True, slots=True)
class Significance:
    """What textpolicy's `significance.json` says of two arms.

    Attributes:
        means: Mean reward of steps, and of generations.
        rate: Share of correct generations, by Fisher's test.
        recommendation: From the rewards of steps and the rate of correct answers, which both have to be significant.
    """

    means: tuple[PooledTest, ...]
    rate: PooledTest
    recommendation: Recommendation


def significance(
    baseline: Sequence[LoggedRun],
    candidate: Sequence[LoggedRun],
    *,
    correct: Correct = Correct.TEXTPOLICY,
    alpha: float = 0.05,
    resamples: int = 20_000,
    seed: int = 0,
) -> Significance:
    """Compare two arms as textpolicy does, over all steps and generations of all runs.

    Raises:
        ValueError: An arm has no step, or no generation.
    """
    arms = (baseline, candidate)
    of_steps, of_rewards = (
        [[step.mean_reward for run in arm for step in run.steps] for arm in arms],
        [[reward for run in arm for reward in run.rewards] for arm in arms],
    )
    if not all(of_steps) or not all(of_rewards):
        raise ValueError("significance: an arm has no step or no generation; are the logs of its runs there?")
    means = tuple(
        _mean_test(name, unit, values[0], values[1], alpha, resamples, seed)
        for name, unit, values in (
            ("step_mean_reward", "steps", of_steps),
            ("gen_reward", "generations", of_rewards),
        )
    )
    hits_a, hits_b = (sum(map(correct.is_correct, rewards)) for rewards in of_rewards)
    n_a, n_b = map(len, of_rewards)
    p_value = fisher_exact(hits_a, n_a, hits_b, n_b)
    rate = PooledTest(
        metric="gen_correct_rate",
        baseline=hits_a / n_a,
        candidate=hits_b / n_b,
        delta=hits_b / n_b - hits_a / n_a,
        p_value=p_value,
        interval=rate_difference(hits_a, n_a, hits_b, n_b, level=1 - alpha),
        n_baseline=n_a,
        n_candidate=n_b,
        significant=p_value < alpha,
        cohens_d=None,
        n_per_arm_80pct=tasks_needed(hits_a / n_a, hits_b / n_b, alpha=alpha),
        unit="generations",
    )
    deciding = (means[0], rate)
    told = all(test.significant and not test.interval.low <= 0 <= test.interval.high for test in deciding)
    return Significance(means, rate, recommended([test.delta for test in deciding], significant=told))


def _mean_test(
    name: str, unit: str, a: Sequence[float], b: Sequence[float], alpha: float, resamples: int, seed: int
) -> PooledTest:
    p_value = permutation_test(a, b, resamples=resamples, seed=seed)
    delta = fmean(b) - fmean(a)
    variances = [(len(x) - 1) * stdev(x) ** 2 for x in (a, b) if len(x) > 1]
    spread = (sum(variances) / (len(a) + len(b) - 2)) ** 0.5 if variances else 0.0
    return PooledTest(
        metric=name,
        baseline=fmean(a),
        candidate=fmean(b),
        delta=delta,
        p_value=p_value,
        interval=bootstrap_difference(a, b, resamples=resamples, seed=seed, level=1 - alpha),
        n_baseline=len(a),
        n_candidate=len(b),
        significant=p_value < alpha,
        cohens_d=delta / spread if spread else 0.0,
        n_per_arm_80pct=values_needed(delta, spread, alpha=alpha),
        unit=unit,
    )


@dataclass(frozen=True, slots=True)
class LitmusProfile:
    """Thresholds of a litmus and the evidence that each run must have; the defaults are `official_v1`.

    Attributes:
        reward: Smallest gain of the mean reward of steps; `rate` of the correct rate; `gram` of the change of gram
            entropy.
        runs: Runs an arm; `steps`, `generations` and `gram_pairs` of each run.
    """

    reward: float = 0.01
    rate: float = 0.005
    gram: float = 0.005
    runs: int = 1
    steps: int = 8
    generations: int = 32
    gram_pairs: int = 8


@dataclass(frozen=True, slots=True)
class Check:
    """A figure of a litmus; `passed` where the candidate gains at least the threshold."""

    metric: str
    baseline: float
    candidate: float
    threshold: float

    @property
    def delta(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline

    @property
    def passed(self) -> bool:
        """The gain reaches the threshold."""
        return self.delta >= self.threshold


@dataclass(frozen=True, slots=True)
class Litmus:
    """CONFIRMED: all checks passed; FAILED: not all; INCONCLUSIVE: evidence is missing, whatever the checks say."""

    status: Status
    checks: tuple[Check, ...]
    evidence_failures: tuple[str, ...]


def litmus(
    baseline: Sequence[LoggedRun], candidate: Sequence[LoggedRun], profile: LitmusProfile | None = None
) -> Litmus:
    """Textpolicy's litmus: thresholds on means over steps, without a test, once there is enough of everything.

    A figure that nobody measured is 0.0, as in the reference; the missing evidence then decides.
    """
    profile, arms = profile or LitmusProfile(), (baseline, candidate)
    failures = [
        f"{name}:{len(arm)} runs; needs >= {profile.runs}."
        for name, arm in zip(("baseline", "candidate"), arms, strict=True)
        if len(arm) < profile.runs
    ]
    for run in (*baseline, *candidate):
        for has, needs, what in (
            (len(run.steps), profile.steps, "steps"),
            (len(run.rewards), profile.generations, "generations"),
            (sum(step.gram_pairs for step in run.steps), profile.gram_pairs, "gram pairs"),
        ):
            if has < needs:
                failures.append(f"{run.name}:{has} {what}; needs >= {needs}.")
    steps = [[step for run in arm for step in run.steps] for arm in arms]
    checks = (
        _check("mean_reward_steps", profile.reward, steps, lambda step: step.mean_reward, lambda step: 1),
        _check("overall_correct_rate", profile.rate, steps, lambda step: step.correct, lambda step: step.total),
        _check("mean_gram_entropy_delta", profile.gram, steps, _gram_sum, lambda step: step.gram_pairs),
    )
    status = Status.CONFIRMED if all(check.passed for check in checks) else Status.FAILED
    return Litmus(Status.INCONCLUSIVE if failures else status, checks, tuple(failures))


def _check(
    metric: str,
    threshold: float,
    arms: Sequence[Sequence[LoggedStep]],
    part: Callable[[LoggedStep], float],
    count: Callable[[LoggedStep], int],
) -> Check:
    a, b = (sum(map(part, steps)) / max(1, sum(map(count, steps))) for steps in arms)
    return Check(metric, a, b, threshold)


def _gram_sum(step: LoggedStep) -> float:
    return (step.gram_delta or 0.0) * step.gram_pairs
