"""Curriculum: tasks in the order of a measured pass rate, or only those that are neither always nor never solved."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agents.seeds import derive_seed
from agents.trajectory import RecordError, read_records
from tasks.task import Task

# -- What a rule of the rollouts cannot work with ---------------------------------------------------------------------


class RulesError(ValueError):
    """A rule cannot work with this file, pool or number of processes; the message says what to do."""


# -- Curriculum: tasks in the order of a measured pass rate, or only those that are neither always nor never solved ---
# The order comes from a file that an earlier evaluation wrote. Which task stands in a place of a generation follows
# from the number of groups drawn before, and from nothing else: not from the sampler's epochs (which drop a last part
# batch, here the hardest tasks), not from the number of processes. That number is the state.

EVALUATION = "evaluation.json"
_IDS, _PASSES, _ATTEMPTS = ("task_id", "prompt_id"), ("passes", "num_correct"), ("n", "num_completions")
"""Keys of a JSONL order file: ours, then those of public pass@k logs."""


class CurriculumOrder(StrEnum):
    """What the pass rates decide."""

    EASY_FIRST = "easy_first"
    """All tasks, highest pass rate first (ties: the pool's order), and again from the start."""
    BAND = "band"
    """Tasks that were solved sometimes and not always, in a seeded order that is new each lap."""


@dataclass(frozen=True, slots=True)
class Count:
    """Passes of `n` attempts at a task; `content_hash` of the task then, where it is known."""

    passes: int
    n: int
    content_hash: str | None = None


class Curriculum:
    """Which task comes next.

    Args:
        order: Task ids, one lap.
        shuffle: A seeded order of its own for each lap.
        seed: Of the run.
        notes: What a person should know about how file and pool fit.
    """

    def __init__(self, order: Sequence[str], *, shuffle: bool, seed: int, notes: Sequence[str] = ()) -> None:
        self.order, self.notes = list(order), list(notes)
        self._shuffle, self._seed = shuffle, seed
        self.position = 0
        """Groups drawn so far, over all processes."""

    def task_id(self, group: int) -> str:
        """The task of group number `group` of the generation to come (counted over all processes)."""
        lap, place = divmod(self.position + group, len(self.order))
        if not self._shuffle:
            return self.order[place]
        lap_order = random.Random(derive_seed(self._seed, "curriculum", lap)).sample(self.order, len(self.order))
        return lap_order[place]

    def drawn(self, groups: int) -> None:
        """A generation of `groups` groups, over all processes, was played."""
        self.position += groups

    @property
    def sha256(self) -> str:
        """Hash of the order: a resumed run must have the same."""
        return hashlib.sha256(json.dumps([self.order, self._shuffle]).encode()).hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """Position and order, JSON-able."""
        return {"position": self.position, "order": self.sha256}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            RulesError: The order is another one than the run began with.
        """
        if state["order"] != self.sha256:
            raise RulesError(
                "curriculum: the order of tasks is not the one this run began with (the file or the pool changed). "
                "Put the file back, or begin a new run"
            )
        self.position = int(state["position"])


def load_curriculum(
    path: str | Path, pool: Sequence[Task], *, order: CurriculumOrder, allow_missing: bool, seed: int
) -> Curriculum:
    """Read an order file and fit it to the pool.

    Args:
        path: A folder of `python -m trainers.evaluate --samples N`, its `evaluation.json`, or a JSONL with `task_id`,
            `passes` and `n` per line (`prompt_id`, `num_correct`, `num_completions` will do).
        pool: Tasks that are trained on.
        order: What the pass rates decide.
        allow_missing: Leave out tasks of the pool that the file does not know; else they are an error.
        seed: Of the run.

    Raises:
        RulesError: The file cannot be read, does not cover the pool, or leaves nothing to train on.
    """
    counts = read_counts(path)
    known = [task for task in pool if task.id in counts]
    changed = [task for task in known if counts[task.id].content_hash not in (None, task.content_hash)]
    covered = [task for task in known if task not in changed and counts[task.id].n > 0]
    missing = len(pool) - len(covered)
    facts = f"curriculum: {path} covers {len(covered)} of {len(pool)} pool tasks"
    if missing:
        what = f"{len(pool) - len(known)} are not in it, {len(changed)} were changed since, "
        what += f"{len(known) - len(changed) - len(covered)} have no graded attempt"
        if not allow_missing or not covered:
            raise RulesError(
                f"{facts} ({what}). Measure them (python -m trainers.evaluate --samples 8 ...)"
                + ("" if not covered else ", or leave them out of training with curriculum_allow_missing")
            )
        facts += f" ({what}: not trained on)"
    notes = [facts] if missing else []
    strangers = len(set(counts) - {task.id for task in pool})
    if strangers:
        notes.append(f"curriculum: {strangers} of {len(counts)} tasks in {path} are not in the pool: passed over")
    rates = {task.id: counts[task.id].passes / counts[task.id].n for task in covered}
    if order is CurriculumOrder.EASY_FIRST:
        return Curriculum(sorted(rates, key=lambda name: -rates[name]), shuffle=False, seed=seed, notes=notes)
    band = [name for name, rate in rates.items() if 0 < rate < 1]
    always = sum(rate == 1 for rate in rates.values())
    notes.append(
        f"curriculum: {len(band)} tasks in the band; left out: {always} always solved, "
        f"{len(rates) - len(band) - always} never"
    )
    if not band:
        raise RulesError(f"{notes[-1]}: nothing to train on. Measure with more attempts, or use easy_first")
    return Curriculum(band, shuffle=True, seed=seed, notes=notes)


def read_counts(path: str | Path) -> dict[str, Count]:
    """Passes by task id (see `load_curriculum`).

    Raises:
        RulesError: Nothing usable stands there.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        place = place / EVALUATION
    try:
        if place.suffix == ".json":
            return _from_evaluation(place)
        found: dict[str, Count] = {}
        for number, record in read_records(place):
            name = str(_value(record, _IDS, place, number))
            if name in found:
                raise RulesError(f"{place}:{number}: task {name!r} stands there twice")
            passes, n = (_whole(record, keys, place, number) for keys in (_PASSES, _ATTEMPTS))
            if not 0 <= passes <= n:
                raise RulesError(f"{place}:{number}: {passes} passes of {n} attempts")
            found[name] = Count(passes, n)
    except (OSError, RecordError) as error:
        raise RulesError(f"curriculum={path}: cannot be read: {error}") from error
    if not found:
        raise RulesError(f"curriculum={path}: holds no task")
    return found


def _from_evaluation(path: Path) -> dict[str, Count]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError("a list or a value where a record with `arms` was expected")
        arms, hashes = record["arms"], record["tasks"]
        if not arms:
            raise RulesError(f"{path}: nothing is measured yet: go on with it (trainers.evaluate --resume)")
        arm = arms.get("sampled") or max(arms.values(), key=lambda arm: sum(map(len, arm["outcomes"].values())))
        return {
            name: Count(sum(map(bool, passes)), len(passes), hashes.get(name))
            for name, passes in arm["outcomes"].items()
        }
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise RulesError(
            f"{path}: is no record of python -m trainers.evaluate ({type(error).__name__}: {error})"
        ) from error


def _value(record: Mapping[str, Any], keys: Sequence[str], path: Path, number: int) -> Any:
    for key in keys:
        if key in record:
            return record[key]
    raise RulesError(f"{path}:{number}: has none of the keys {', '.join(keys)}")


def _whole(record: Mapping[str, Any], keys: Sequence[str], path: Path, number: int) -> int:
    value = _value(record, keys, path, number)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RulesError(f"{path}:{number}: {keys[0]} is {value!r}, must be a whole number")
    return value
