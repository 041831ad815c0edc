"""How many attempts a task gets, and which episodes become rows of a batch: adaptive, flat and truncated groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from agents.rollout import Job, RolloutResult
from agents.seeds import derive_seed
from agents.trajectory import Flat, Trajectory
from envs.conversation import StopReason
from tasks.task import Task
from trainers.credit import NO_TURN, CreditSettings, TurnCredit, TurnSignal, credit_terms, gigpo_advantages
from trainers.credit.batch import padded, turn_records
from trainers.rollouts.curriculum import Curriculum, RulesError, load_curriculum
from trainers.rollouts.partial import PartialBatches

if TYPE_CHECKING:
    from trainers.settings import GiGPOConfig


# -- What settings call the samplers: here, so that reading settings loads no torch -----------------------------------

IN_PROCESS = "in_process"
VLLM = "vllm:"
SAME = "same"
SAMPLE_DTYPES = (SAME, "bfloat16", "float32", "auto")


# -- How sampling and optimizer steps interleave, and how stale a sample can get by it --------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """How sampling and optimizer steps interleave.

    Attributes:
        accumulation_steps: Forward-backward passes per optimizer step.
        sync_model_every: Optimizer steps per generation.
        required_staleness: The most that any sample is behind.
    """

    accumulation_steps: int
    sync_model_every: int
    required_staleness: int


def schedule(per_step: int, per_pass: int, per_generation: int, ahead: int = 0) -> Schedule:
    """The schedule of a run. The first three in the same unit (episodes, or tasks).

    Args:
        per_step: Trained on by one optimizer step.
        per_pass: In one forward-backward pass.
        per_generation: Trained on between two generations, each repetition counted.
        ahead: Generations that sampling begins before learning needs it (`overlap`).

    Raises:
        ValueError: An optimizer step, or the time between generations, is no whole number of passes.
    """
    if min(per_step, per_pass, per_generation) < 1 or per_step % per_pass or per_generation % per_pass:
        raise ValueError(f"{per_step} a step and {per_generation} a generation are no multiples of {per_pass} a pass")
    accumulation, passes = per_step // per_pass, per_generation // per_pass
    # A generation may begin inside an optimizer step; the phases repeat after `accumulation` generations.
    begins = [k * passes for k in range(ahead, ahead + accumulation)]
    required = max((b + passes - 1) // accumulation - (b - ahead * passes) // accumulation for b in begins)
    return Schedule(accumulation, -(-passes // accumulation), required)


# -- Adaptive sampling: attempts at a task until both outcomes were seen often enough, and which K are trained on -----
# The rule is the one of public RLVR code (chunks of attempts, stop between chunks), with one difference: a success is
# an episode that passed, there a reward above 0. For rewards of 0 and 1 the two agree.
#
# What it costs in truth. Stopping when both outcomes were seen makes the share of passes among all attempts no
# estimate of the pass rate, so figures are taken from the first K attempts. And the K that are trained on hold the
# rare outcome more often than the policy shows it: their mean, the baseline of the advantages, lies nearer to 1/2 than
# the pass rate, so a rare success gets a smaller advantage each and is trained on far more often (docs/rollouts.md has
# the numbers).

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


# -- The attempts at one task in one step: their seeds, how they ended, which are trained on --------------------------

FIRST_DRAW = "first_draw"
TRAINED = "trained"
"""Notes of a trajectory in a step whose rules play more than one episode per row: whether figures count it, and
whether it is in the batch."""


def first_drawn(episodes: Iterable[Trajectory]) -> list[Trajectory]:
    """Those that pass rates count: what rules play beyond them depends on how they ended."""
    return [episode for episode in episodes if episode.notes.get(FIRST_DRAW, True)]


def by_place(episodes: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Attempts of one place of the batch together, in the order played; a task drawn twice has two places.

    Args:
        episodes: All of a step, as `Played.result` has them: attempts at a place side by side, from the first on.
    """
    out: list[list[Trajectory]] = []
    for episode in episodes:
        last = out[-1][-1] if out else None
        if last is None or last.task_id != episode.task_id or episode.attempt <= last.attempt:
            out.append([])
        out[-1].append(episode)
    return out


def trained_groups(episodes: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """`by_place`, with only what is in the batch."""
    groups = ([e for e in group if e.notes.get(TRAINED, True)] for group in by_place(episodes))
    return [group for group in groups if group]


@dataclass(slots=True)
class Group:
    """One task in one place of the batch.

    Attributes:
        task: What is attempted.
        seed: Parts of the seed of every attempt, its number left out.
        episodes: The attempts so far, in order.
        chosen: Places of those that are trained on.
    """

    task: Task
    seed: tuple[int | str, ...]
    episodes: list[Trajectory] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)

    def jobs(self, count: int) -> list[Job]:
        """The next `count` attempts."""
        first = len(self.episodes)
        return [Job(self.task, k, derive_seed(*self.seed, k)) for k in range(first, first + count)]

    @property
    def outcomes(self) -> list[Outcome]:
        """How the attempts ended."""
        return [None if e.reward is None else bool(e.passed) for e in self.episodes]

    def choose(self, count: int, adaptive: Adaptive | None) -> None:
        """Settle which attempts are trained on."""
        self.chosen = adaptive.choose(self.outcomes, count) if adaptive else list(range(count))

    @property
    def trained(self) -> list[Trajectory]:
        """The attempts that are trained on."""
        return [self.episodes[i] for i in self.chosen]

    @property
    def both(self) -> bool:
        """Whether a pass and a failure were seen."""
        return {True, False} <= set(self.outcomes)


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of the episodes of a step. `produced` is the sum of the others.

    Attributes:
        produced: Played to an end, or broken off by the machinery.
        trained: In the batch.
        surplus: Further attempts at tasks of the batch.
        dropped: Attempts at tasks that were replaced, or that were tried as replacements and taught nothing either.
        failed: Infrastructure failures, wherever they happened: never trained.
    """

    produced: int
    trained: int
    surplus: int
    dropped: int
    failed: int

    @classmethod
    def of(cls, tried: Sequence[Group], kept: Sequence[Group]) -> Fates:
        """Count: `tried` are all groups, `kept` those of the batch."""
        counts = {"trained": 0, "surplus": 0, "dropped": 0, "failed": 0}
        for group in tried:
            stays = any(group is other for other in kept)
            for place, outcome in enumerate(group.outcomes):
                if outcome is None:
                    counts["failed"] += 1
                elif not stays:
                    counts["dropped"] += 1
                else:
                    counts["trained" if place in group.chosen else "surplus"] += 1
        return cls(sum(len(group.episodes) for group in tried), **counts)

    def metrics(self) -> dict[str, float]:
        """Under `rollouts/fate/`."""
        names = ("produced", "trained", "surplus", "dropped", "failed")
        return {f"rollouts/fate/{name}": float(getattr(self, name)) for name in names}


# -- What goes into a draw and what comes out -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Draw:
    """The rows of this process of one generation batch.

    Attributes:
        task_ids: One per row; the K rows of a task are side by side, and may continue on the next process.
        offset: Place of the first row among the rows of all processes.
        micro_step: Micro-steps taken before, the same on every process: part of every seed.
        version: Optimizer steps taken before: the weights that sample.
        later: The draw after it, where groups of that are begun with it (partial batches).
    """

    task_ids: Sequence[str]
    offset: int
    micro_step: int
    version: int = 0
    later: Draw | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """The episodes of one draw, in the order of its rows.

    Attributes:
        episodes: One per row. Its task is the row's, unless a curriculum or a refill put another one there.
        flats: The same as completions; one that does not count has an empty mask.
        result: All that was played, for records and for where the time went.
        metrics: Figures of the rules that chose, by name.
        measured: The first K attempts at the tasks that were drawn first, for pass rates: what was played beyond them
            depends on how they ended. Equal to `result` where no rule plays more.
        version: Optimizer steps behind the weights that sampled.
        versions: Of each row, where they differ (partial batches): no reply in it was sampled with older weights.
        hidden_seconds: Of the time it took, what passed while the trainer did something else.
    """

    episodes: list[Trajectory]
    flats: list[Flat]
    result: RolloutResult
    metrics: dict[str, float]
    measured: RolloutResult
    version: int = 0
    hidden_seconds: float = 0.0
    versions: Sequence[int] | None = None


# ---------------------------------------------------------------------------------------------------------------------
# An episode as TRL takes it: one completion with a mask, and which episodes a token budget keeps out of the loss.
#
# TRL's own rule for truncated episodes (`mask_truncated_completions`) looks at the last id of a completion, which is
# wrong for episodes: a capped reply in the middle is no end, and a last reply that was capped may have ended its task.
# Here an episode is truncated when its stop reason is `max_tokens`. Its reward stays in the mean of its group, as in
# TRL (overlong filtering, DAPO, Yu et al. 2025).


def as_completion(episode: Trajectory, end_id: int) -> Flat:
    """The episode as a completion; one that does not count keeps one token at least, and no token is trained."""
    flat = episode.flat()
    if not flat.ids:
        flat = Flat(ids=[end_id], mask=[0], logprobs=[0.0], entropies=[0.0], turn_ids=[NO_TURN])
    return flat if episode.reward is not None else without_tokens(flat)


def is_truncated(episode: Trajectory) -> bool:
    """Whether a token budget cut the episode off."""
    return bool(episode.stop_reason == StopReason.MAX_TOKENS)


def without_tokens(flat: Flat) -> Flat:
    """The same completion with no token to train."""
    return replace(flat, mask=[0] * len(flat.mask), turn_ids=[NO_TURN] * len(flat.turn_ids))


def mask_truncated(played: Played) -> Played:
    """The same episodes; no token of a truncated one is trained, and `env/truncated_masked_frac` counts them."""
    cut = [is_truncated(episode) for episode in played.episodes]
    flats = [without_tokens(flat) if truncated else flat for flat, truncated in zip(played.flats, cut, strict=True)]
    return replace(played, flats=flats, metrics={**played.metrics, "env/truncated_masked_frac": sum(cut) / len(cut)})


# -- Flat groups: every token of theirs would weigh 0. Which they are, and which tasks take their places --------------
# A group whose rewards are all equal is not flat when its turns were told apart: the turn term then teaches although
# the episode term is 0 (a public trainer skips such groups and loses that signal).


def weightless(
    episodes: Sequence[Trajectory], settings: CreditSettings, signal: TurnSignal, *, mask_truncated: bool = False
) -> bool:
    """Whether credit gives every token of this group the weight 0.

    Read from the episode and the turn term, by the function that credit itself uses, on the tokens that will be
    trained: whatever divides or reshapes the terms afterwards leaves 0 at 0.

    Args:
        episodes: The K attempts at one task.
        settings: Of the run.
        signal: What a turn earns by itself.
        mask_truncated: Episodes that a token budget cut off are kept out of the loss.
    """
    flats = [as_completion(episode, 0) for episode in episodes]
    if mask_truncated:
        flats = [without_tokens(f) if is_truncated(e) else f for e, f in zip(episodes, flats, strict=True)]
    episode, turns = _terms(episodes, settings, signal)
    turn_ids = padded([flat.turn_ids for flat in flats], NO_TURN)
    alpha, beta = settings.alpha_episode, settings.beta_turn
    return not gigpo_advantages(episode, turns.advantages, turn_ids, alpha=alpha, beta=beta).any()


def told_apart(episodes: Sequence[Trajectory], settings: CreditSettings, signal: TurnSignal) -> bool:
    """Whether any turn of this group has an advantage, whatever the turn term weighs; arguments as `weightless`."""
    _, turns = _terms(episodes, settings, signal)
    return any(map(any, turns.advantages))


def _terms(
    episodes: Sequence[Trajectory], settings: CreditSettings, signal: TurnSignal
) -> tuple[NDArray[np.float64], TurnCredit]:
    """Both terms of a group, by the function that credit itself uses; an episode without a reward brings no turns."""
    states = settings.needs_states
    turns = [turn_records(e, signal, states=states) if e.reward is not None else [] for e in episodes]
    return credit_terms([episode.reward for episode in episodes], turns, len(episodes), settings)


def other_tasks(ids: Collection[str], used: Collection[str], count: int, *seed: int | str) -> list[str]:
    """Up to `count` of `ids` that are not in `used`, drawn without replacement; the same parts of a seed, the same."""
    left = sorted(set(ids) - set(used))
    return random.Random(derive_seed(*seed)).sample(left, min(count, len(left)))


# -- The rules of a run's rollouts, and what they need of the pool and of the processes -------------------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """Which attempts are made. The default plays one episode per row, of the row's task.

    Attributes:
        adaptive: More attempts than K where the first K did not show both outcomes.
        refill_rounds: How often flat groups are replaced by groups of other tasks.
        weightless: Whether credit gives every token of these K episodes the weight 0.
        curriculum: Names the tasks; the rows' own do not count then.
        partial: Groups that straggle go to a later generation.
        groups_per_draw: Groups of one generation, over all processes.
    """

    adaptive: Adaptive | None = None
    refill_rounds: int = 0
    weightless: Callable[[Sequence[Trajectory]], bool] | None = None
    curriculum: Curriculum | None = None
    partial: PartialBatches | None = None
    groups_per_draw: int = 0

    @property
    def choose(self) -> bool:
        """Whether more may be played than is trained on."""
        return self.adaptive is not None or self.refill_rounds > 0


def curriculum_of(config: GiGPOConfig, pool: Sequence[Task]) -> Curriculum | None:
    """The curriculum of a run, fitted to its pool; `None` where there is none.

    Raises:
        RulesError: Its file cannot be used.
    """
    if not config.curriculum:
        return None
    allowed = config.curriculum_allow_missing
    return load_curriculum(
        config.curriculum, pool, order=config.curriculum_order, allow_missing=allowed, seed=config.seed
    )


def make_rules(config: GiGPOConfig, pool: Sequence[Task], processes: int) -> Rules:
    """The rules of a run.

    Raises:
        RulesError: One line per thing that they need and do not have.
    """
    credit, signal = config, config.turn_signal
    cut = bool(config.mask_truncated_completions)
    rules = Rules(
        adaptive=config.adaptive_rule(),
        refill_rounds=config.refill_rounds,
        weightless=lambda episodes: weightless(episodes, credit, signal, mask_truncated=cut),
        curriculum=curriculum_of(config, pool),
        partial=PartialBatches(config.partial_batches, config.carried_at_most) if config.partial_batches else None,
        groups_per_draw=config.generation_batch_size // config.num_generations,
    )
    drawn = len(rules.curriculum.order if rules.curriculum else pool)
    rows = config.generation_batch_size // processes
    problems = rule_problems(rules, pool=drawn, processes=processes, rows=rows, group_size=config.num_generations)
    if found := list(problems):
        raise RulesError("\n".join(found))
    return rules


def rule_problems(rules: Rules, *, pool: int, processes: int, rows: int, group_size: int) -> Iterator[str]:
    """What the rules need and do not have, one line each.

    Args:
        rules: Of the run.
        pool: Tasks that are drawn from.
        processes: Processes that train.
        rows: Rows of one generation on each of them.
        group_size: K.
    """
    if rules.choose and rows % group_size:
        yield (
            f"adaptive sampling and refill need whole groups on a process: {rows} episodes on each of {processes} "
            f"processes are no multiple of {group_size} attempts. Choose per_device_train_batch_size x "
            "steps_per_generation so that they are, or switch both off."
        )
    groups = processes * rows // group_size
    if rules.refill_rounds and pool <= groups:
        yield (
            f"refill_rounds={rules.refill_rounds}: a generation already draws all {pool} tasks of the pool "
            f"({groups} groups), so no other task is left. Give more tasks, or leave it at 0."
        )
