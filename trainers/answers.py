"""What episodes of question sets say beside passes: strict and flexible readings, and the vote of several attempts."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations
from statistics import fmean
from typing import Any

from agents.trajectory import Trajectory
from tasks.answers.readings import Reading, each_read_as, is_instructed, is_question, read_as, vote
from tasks.task import Task
from trainers.measure import is_graded

DRAWS = 1000
"""Subsets of attempts that a vote is counted on, where there are more."""


@dataclass(frozen=True, slots=True)
class Read:
    """One graded episode of a question, under each reading."""

    task: str
    strict: bool
    flexible: bool
    verifier: bool

    @property
    def unmarked(self) -> bool:
        """Right, and not in the form that the strict reading wants."""
        return self.verifier and not self.strict


@dataclass(frozen=True, slots=True)
class Readings:
    """How many episodes pass under each reading, of `n` that all could judge."""

    n: int
    strict: int
    flexible: int
    verifier: int
    unmarked: int

    @classmethod
    def of(cls, episodes: Sequence[Read]) -> Readings:
        """Count them."""
        return cls(
            len(episodes),
            sum(one.strict for one in episodes),
            sum(one.flexible for one in episodes),
            sum(one.verifier for one in episodes),
            sum(one.unmarked for one in episodes),
        )


@dataclass(frozen=True, slots=True)
class Instructions:
    """The figures of IFEval and IFBench by their published names, of the graded episodes.

    Attributes:
        prompts: Episodes that are counted; `instructions` of theirs.
        prompt_level_strict_acc: Share of prompts of which every instruction is followed by the whole message.
        inst_level_strict_acc: Share of instructions that the whole message follows.
        prompt_level_loose_acc: As the strict one, where one of eight variants of the message is enough.
        inst_level_loose_acc: Likewise.
    """

    prompts: int
    instructions: int
    prompt_level_strict_acc: float
    inst_level_strict_acc: float
    prompt_level_loose_acc: float
    inst_level_loose_acc: float

    def named(self) -> Iterator[tuple[str, float, int]]:
        """Each figure: its name, the share, of how many."""
        for name in ACCURACIES:
            yield name, getattr(self, name), self.prompts if name.startswith("prompt") else self.instructions


ACCURACIES = ("prompt_level_strict_acc", "inst_level_strict_acc", "prompt_level_loose_acc", "inst_level_loose_acc")
"""The published names, in the published order."""


def instructions_of(tasks: Iterable[Task], episodes: Iterable[Trajectory]) -> Instructions | None:
    """The figures of IFEval; `None` where no graded episode is of a task of instructions."""
    asked = {task.id: task.assertions for task in tasks if is_instructed(task.assertions)}
    strict: list[list[bool]] = []
    loose: list[list[bool]] = []
    for episode in episodes:
        if episode.task_id not in asked or not is_graded(episode):
            continue
        assertions, answer = asked[episode.task_id], final_answer(episode)
        one, other = (each_read_as(assertions, answer, reading) for reading in (Reading.STRICT, Reading.FLEXIBLE))
        if one is not None and other is not None:
            strict.append(one)
            loose.append(other)
    if not strict:
        return None
    shares = [share for each in (strict, loose) for share in (fmean(map(all, each)), fmean(chain.from_iterable(each)))]
    return Instructions(len(strict), sum(map(len, strict)), *shares)


def final_answer(episode: Trajectory) -> str | None:
    """The answer that was scored; `None` where there was none."""
    answers = episode.notes.get("answers") or [{"text": None}]
    text = answers[-1]["text"]
    return None if text is None else str(text)


def read(tasks: Iterable[Task], episodes: Iterable[Trajectory]) -> Iterator[Read]:
    """Graded episodes of questions under each reading; those that one of them cannot judge are left out."""
    questions = {task.id: task.assertions for task in tasks if is_question(task.assertions)}
    for episode in episodes:
        if episode.task_id not in questions or not is_graded(episode):
            continue
        assertions, answer = questions[episode.task_id], final_answer(episode)
        strict, flexible = (read_as(assertions, answer, reading) for reading in (Reading.STRICT, Reading.FLEXIBLE))
        if strict is not None and flexible is not None:
            yield Read(episode.task_id, strict, flexible, bool(episode.passed))


Votes = Mapping[str, Sequence[tuple[str | None, bool]]]
"""Task id to the vote of each graded attempt (`None`: none) and whether the attempt passed."""


def votes(tasks: Iterable[Task], episodes: Iterable[Trajectory]) -> dict[str, list[tuple[str | None, bool]]]:
    """The votes on questions that have a single answer."""
    questions = {task.id: task.assertions for task in tasks if is_question(task.assertions)}
    found: dict[str, list[tuple[str | None, bool]]] = {}
    for episode in episodes:
        if episode.task_id in questions and is_graded(episode):
            ballot = (vote(questions[episode.task_id], final_answer(episode)), bool(episode.passed))
            found.setdefault(episode.task_id, []).append(ballot)
    return {task: ballots for task, ballots in found.items() if any(choice is not None for choice, _ in ballots)}


def majority_at_k(ballots: Votes, k: int, *, seed: int = 0) -> float | None:
    """Mean over tasks of the probability that the most frequent answer of `k` of the attempts is right.

    Ties are drawn by lot; where nobody votes, nothing is right. Over all subsets of k attempts, or `DRAWS` seeded ones
    where there are more. An answer is right as often as the attempts that gave it passed.

    Args:
        ballots: See `Votes`; tasks with fewer than `k` attempts are left out.
        k: How many vote.
        seed: Of the draws.

    Returns:
        A share; `None` where no task has k attempts.
    """
    values = []
    for task, cast in ballots.items():
        if len(cast) < k:
            continue
        rng = random.Random(f"{seed}:{task}:{k}")
        few = math.comb(len(cast), k) <= DRAWS
        chosen = combinations(cast, k) if few else (rng.sample(list(cast), k) for _ in range(DRAWS))
        values.append(fmean(_right(subset) for subset in chosen))
    return fmean(values) if values else None


def _right(cast: Sequence[tuple[str | None, bool]]) -> float:
    counts = Counter(choice for choice, _ in cast if choice is not None)
    if not counts:
        return 0.0
    most = max(counts.values())
    leading = [choice for choice, count in counts.items() if count == most]
    return fmean(fmean(passed for choice, passed in cast if choice == leader) for leader in leading)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the episodes of one decode setting say beside passes.

    Attributes:
        readings: Strict, flexible and the verifier's.
        majority: `majority_at_k` by k; empty for one attempt a task, and for questions without a single answer.
        instructions: The figures of IFEval; `None` where no task is one of instructions.
    """

    readings: Readings
    majority: dict[str, float]
    instructions: Instructions | None = None

    def to_json(self) -> dict[str, Any]:
        """The record that evaluation.json holds."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def answers_of(tasks: Sequence[Task], episodes: Sequence[Trajectory], samples: int) -> Answers | None:
    """Both for an evaluation with so many attempts a task; `None` where no graded episode is of a question."""
    found = list(read(tasks, episodes))
    if not found:
        return None
    cast = votes(tasks, episodes) if samples > 1 else {}
    shares = {k: majority_at_k(cast, k) for k in attempts_shown(samples)}
    majority = {str(k): share for k, share in shares.items() if share is not None}
    return Answers(Readings.of(found), majority, instructions_of(tasks, episodes))


def attempts_shown(samples: int) -> list[int]:
    """The k of pass@k and majority@k that are shown: powers of two, and all."""
    return sorted({k for k in (1, 2, 4, 8, 16, 32, 64, samples) if k <= samples})
