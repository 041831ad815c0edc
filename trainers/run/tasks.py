"""Pool, held-out and confirmation tasks of a run, from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random

from agents.seeds import derive_seed
from tasks.judged_in import is_shared, network_reason
from tasks.judges import JudgeUse
from tasks.model import TaskError, counted
from tasks.sources import GENERATED, held_out_sources, load_tasks, read_generated, specs
from tasks.splits import (
    ANEW,
    SUFFIX,
    Choice,
    Sameness,
    Split,
    apply_lock,
    disjoint,
    locked_sides,
    meaning,
    parted_twins,
    problem,
    split_tasks,
    take_confirm,
    verify_lock,
)
from tasks.task import Task
from trainers.errors import ConfigError
from trainers.settings import EnvArguments

# -- Which tasks the end of a run is measured on: tasks that nothing was trained and nothing was chosen on ------------
# Generated tasks: fresh ones of the pool's families, from a seed of their own, and no twins of the run's other tasks.
# Other tasks: a third side of the split, drawn out of the pool, so that what is held out stays as it was without it. A
# lock is taken at its word: its `confirm` side, or none.

LEAST = 20
"""Tasks below which nothing is confirmed: the interval of a pass rate then spans more than forty points."""
MOST = 500
"""Tasks above which a confirmation costs time and hardly says more: the interval then spans eight points or fewer."""
ROUNDS = 4
"""Times that twice as many tasks are made, where too many were twins, before a family counts as exhausted."""


def with_confirm(env: EnvArguments, split: Split, seed: int, same: Sameness = meaning) -> tuple[Split, str]:
    """Give a split its `confirm` side.

    Args:
        env: Which tasks, and how many to take.
        split: Pool and what is held out, before a limit cuts it.
        seed: Of the run.
        same: What makes twins.

    Returns:
        The split, and one line for people: which tasks they are, or why there are none (the side is then empty).
    """
    if not (split.held_out or split.unseen or split.sets):
        return replace(split, confirm=()), "none: nothing is held out, so nothing is chosen that could be confirmed"
    if env.confirm == 0:
        return replace(split, confirm=()), "none: confirm=0"
    if split.confirm:
        return split, f"{counted(len(split.confirm), 'task')} of the lock's confirm side"
    parts = [str(part) for part in specs(env.tasks)]
    fresh = all(part.startswith(f"{GENERATED}:") for part in parts)
    main = held_out_sources(env.held_out).main
    if main.endswith(SUFFIX) and not fresh:
        return split, (
            f"none: {main} has no confirm side, and the sides of a lock stay as they are. Lock anew "
            f"({ANEW} --confirm 0.1), or measure best/ on other tasks (python -m trainers.evaluate)"
        )
    everything = len(split.pool) + len(split.held_out) + len(split.unseen)
    share = f"confirm={env.confirm:g} of {counted(everything, 'task')}"
    wanted = min(round(env.confirm * everything), MOST)
    if env.held_out_limit and env.held_out_limit < wanted:
        wanted, share = env.held_out_limit, f"held_out_limit={env.held_out_limit}"
    if wanted < LEAST:
        enough = LEAST / everything
        remedy = f"confirm={enough + 0.005:.2f}" if enough < 0.5 and not env.held_out_limit else "more tasks"
        return split, (
            f"none: {share} is {wanted}, and fewer than {LEAST} say too little ({remedy} would do). Measure best/ on "
            "other tasks (python -m trainers.evaluate)"
        )
    if fresh:
        tasks = _fresh(parts, wanted, seed, split, same)
        if len(tasks) < LEAST:
            return split, (
                f"none: {env.tasks} has no {wanted} tasks more that are no twins of the run's ({len(tasks)} were "
                f"found, and fewer than {LEAST} say too little)"
            )
        return replace(split, confirm=tasks), f"{len(tasks)} fresh tasks of the pool's families"
    if wanted >= len(split.pool):
        return split, f"none: {share} is {wanted}, and the pool has {len(split.pool)}"
    drawn = take_confirm(split, wanted, seed, same)
    if len(drawn.confirm) < LEAST:
        return split, (
            f"none: only {len(drawn.confirm)} tasks of the pool may move (`split:` in their files keeps the others), "
            f"and fewer than {LEAST} say too little"
        )
    return drawn, f"{len(drawn.confirm)} tasks taken out of the pool"


def _fresh(parts: Sequence[str], wanted: int, seed: int, split: Split, same: Sameness) -> tuple[Task, ...]:
    """Fresh tasks, from each part of the pool its share; fewer where the families have no more."""
    read = [read_generated(part.partition(":")[2]) for part in parts]
    total = sum(numbers["n"] for _, numbers in read)
    trained = {task.family for task in split.pool}
    known = [task for tasks in split.sides.values() for task in tasks]
    found: list[Task] = []
    for part, (family, numbers) in zip(parts, read, strict=True):
        share = min(-(-wanted * numbers["n"] // total), wanted - len(found))
        fresh = _of_family(family, share, derive_seed(seed, "confirm", part) % 2**31, [*known, *found], trained, same)
        found += fresh
    return tuple(found)


def _of_family(
    family: str, wanted: int, seed: int, known: Sequence[Task], trained: set[str | None], same: Sameness
) -> tuple[Task, ...]:
    from tasks.families import generate  # only here: other sources need not pay for this import

    found: tuple[Task, ...] = ()
    count = wanted
    for _ in range(ROUNDS):
        try:
            made = generate(family, count, seed)
        except TaskError:  # the family has no more: what was found before it is all
            break
        found = disjoint(known, [task for task in made if task.family in trained], same)
        if len(found) >= wanted:
            break
        count *= 2
    return found[:wanted]


# -- Pool and held-out of a run, from its settings: loaded, and made disjoint -----------------------------------------

FEW = 20
"""Held-out tasks below which the interval of a pass rate spans more than forty points."""

SHOWN = 5
"""Ids that a line names before it stops."""


@dataclass(frozen=True, slots=True)
class TaskSets:
    """Tasks of a run.

    Attributes:
        split: What is trained on and what is only measured on, disjoint by id and by meaning (but for old locks).
        notes: What people should know (tasks moved, nothing held out).
        confirm_text: What start and `best/` are measured on at the end, or why they are not.
        shots: Shown as solved examples before each question; on no side of the split.
    """

    split: Split
    notes: tuple[str, ...] = ()
    confirm_text: str = ""
    shots: tuple[Task, ...] = ()

    @property
    def pool(self) -> tuple[Task, ...]:
        """Trained on."""
        return self.split.pool

    @property
    def held_out(self) -> tuple[Task, ...]:
        """Only measured on; of families that are also trained on."""
        return self.split.held_out

    @property
    def unseen(self) -> tuple[Task, ...]:
        """Only measured on; of families that are never trained on."""
        return self.split.unseen

    @property
    def sets(self) -> Mapping[str, tuple[Task, ...]]:
        """Only measured on, each a set of its own, by name."""
        return self.split.sets

    @property
    def measured(self) -> tuple[Task, ...]:
        """All that is only measured on."""
        return (*self.held_out, *self.unseen, *chain.from_iterable(self.sets.values()))

    @property
    def confirm(self) -> tuple[Task, ...]:
        """What start and `best/` are measured on once more, at the end; nothing is trained or chosen on them."""
        return self.split.confirm

    @property
    def everything(self) -> tuple[Task, ...]:
        """All that is played."""
        return self.pool + self.measured + self.confirm


def load_task_sets(env: EnvArguments, seed: int, resumed: Path | None = None) -> TaskSets:
    """Load and split the tasks of a run.

    Args:
        env: Which tasks, and how to split them.
        seed: Of the run.
        resumed: Lock file of the run that goes on. One that version 0.6 or before drew keeps its sides.

    Raises:
        tasks.model.TaskError: A task file is wrong (all of them are named), or the tasks are not those of a lock.
        ConfigError: Nothing to train on.
    """
    unconfirmed: Path | None = None
    if resumed is not None and resumed.exists():
        unconfirmed = None if "confirm" in locked_sides(resumed) else resumed
        former = _load(env, seed, problem, unconfirmed)
        if _fits(former.split, resumed):
            parted = map(str, parted_twins(former.split, resumed))
            return replace(former, notes=tuple(dict.fromkeys((*former.notes, *parted))))
    return _load(env, seed, meaning, unconfirmed)


def _load(env: EnvArguments, seed: int, same: Sameness, unconfirmed: Path | None) -> TaskSets:
    """See `load_task_sets`; `unconfirmed` is the lock of the run that goes on, where it has no confirm side."""
    main, others = held_out_sources(env.held_out)
    if _families(env.unseen_families) and main != "split":
        raise ConfigError(
            f"unseen_families={env.unseen_families}: only held_out=split draws families, and held_out is "
            f"{env.held_out}. Leave it out, or lock a split with `python -m tasks split --unseen`."
        )
    judges, notes = _judges(env), list[str]()
    if main != "split" and env.held_out_fraction != EnvArguments.held_out_fraction:
        notes.append(f"held_out_fraction={env.held_out_fraction:g} does nothing: held_out is {env.held_out}.")
    split = _split(env, main, seed, same, judges, notes)
    split = replace(split, sets={**split.sets, **_sets(others, split, same, judges, notes)})
    notes = [*judges.notes(), *notes]
    confirmed, confirm_text = with_confirm(env, split, seed, same)
    if confirmed.confirm and unconfirmed is not None:
        confirm_text = f"none: the run began without ({unconfirmed} has no confirm side)"
    else:
        split = confirmed
    shots = draw_shots(split.pool, env.shots, seed)
    split = replace(split, pool=disjoint(shots, split.pool, same)) if shots else split
    if limit := env.held_out_limit:
        split = replace(
            split,
            held_out=split.held_out[:limit],
            unseen=split.unseen[:limit],
            confirm=split.confirm[:limit],
            sets={name: tasks[:limit] for name, tasks in split.sets.items()},
        )
    for what, tasks in (("", split.held_out), *((f" of {name}", tasks) for name, tasks in split.sets.items())):
        if 0 < len(tasks) < FEW:
            notes.append(
                f"held-out tasks{what}: {len(tasks)}, too few to choose a checkpoint well (look at the interval). "
                f"{FEW} or more say something; name some with --held_out."
            )
    if not split.pool:
        raise ConfigError(f"tasks={env.tasks}: no task to train on{judges.reason()}")
    if main not in ("", "none", "split") and not (split.held_out or split.unseen):
        why = judges.reason() or ": every task of it is in the pool; name other tasks or another seed"
        raise ConfigError(f"held_out={main}: no task to measure on{why}")
    return TaskSets(split, tuple(notes), confirm_text, shots)


def draw_shots(tasks: Sequence[Task], count: int, seed: int) -> tuple[Task, ...]:
    """Tasks to show as solved examples: a seeded draw over contents, so that the order of `tasks` does not matter.

    Raises:
        ConfigError: Fewer tasks know a right answer.
    """
    known = {task.problem_hash: task for task in tasks if task.oracle is not None and task.oracle.answer is not None}
    if len(known) < count:
        raise ConfigError(f"shots={count}: only {counted(len(known), 'task')} to draw from know a right answer")
    drawn = Random(f"shots:{seed}").sample(sorted(known), count)
    return tuple(known[name] for name in drawn)


def _judges(env: EnvArguments) -> Judges:
    return Judges(in_process=env.allow_in_process_judges, shared=env.allow_shared_judges, network=env.verifier_network)


def _split(env: EnvArguments, main: str, seed: int, same: Sameness, judges: Judges, notes: list[str]) -> Split:
    """Pool and what is held out, as `main` of `held_out` says: `none`, `split`, a lock, other tasks, or nothing.

    `notes` are added to.
    """
    everything = tuple(load_tasks(env.tasks))
    if main.endswith(SUFFIX):
        return _locked(Path(main).expanduser(), everything, judges, notes)
    everything = judges.keep(everything)
    if not main:
        return Split(everything, ())
    if main == "none":
        notes.append("held_out=none: nothing is measured, so nothing selects a checkpoint; the last one is kept.")
        return Split(everything, ())
    if main != "split":
        loaded = judges.keep(tuple(load_tasks(main)))
        split = Split(everything, disjoint(everything, loaded, same))
        if dropped := len(loaded) - len(split.held_out):
            notes.append(f"{dropped} held-out tasks are also in the pool, or twins of tasks there, and were left out.")
        return split
    if len(everything) > 1:
        return split_tasks(
            everything,
            held_out_fraction=env.held_out_fraction,
            seed=seed,
            unseen_families=_families(env.unseen_families),
            same=same,
        )
    if everything:
        notes.append(
            f"{env.tasks} holds one task, which cannot be split: nothing is held out, so nothing selects a "
            "checkpoint and the last one is kept. Add a second task, or name others with --held_out."
        )
    return Split(everything, ())


def _sets(
    sources: Mapping[str, str], split: Split, same: Sameness, judges: Judges, notes: list[str]
) -> dict[str, tuple[Task, ...]]:
    """The tasks of the named sets, without those that stand on another side; `notes` are added to."""
    known = [task for tasks in split.sides.values() for task in tasks]
    sets: dict[str, tuple[Task, ...]] = {}
    for name, source in sources.items():
        if name in split.sets:
            raise ConfigError(f"held_out: {name}=.. is a set of the lock already; name this one otherwise")
        loaded = judges.keep(tuple(load_tasks(source)))
        sets[name] = disjoint(known, loaded, same)
        if dropped := len(loaded) - len(sets[name]):
            notes.append(
                f"{dropped} tasks of {name} are also in the pool or measured on already, or twins of such tasks, and "
                "were left out."
            )
        if not sets[name]:
            why = judges.reason() or ": every task of it is in the pool or measured on already; name other tasks"
            raise ConfigError(f"held_out: {name}={source}: no task to measure on{why}")
        known += sets[name]
    return sets


def _locked(path: Path, everything: tuple[Task, ...], judges: Judges, notes: list[str]) -> Split:
    """The sides of a lock; it must find every task that it names, so those that are left out leave it afterwards."""
    split = apply_lock(everything, path, allow_outcome=True)
    notes += _notes_on_lock(split, len(everything))
    notes += map(str, parted_twins(split, path))
    return replace(
        split,
        pool=judges.keep(split.pool),
        held_out=judges.keep(split.held_out),
        unseen=judges.keep(split.unseen),
        confirm=judges.keep(split.confirm),
        sets={name: judges.keep(tasks) for name, tasks in split.sets.items()},
    )


def _fits(split: Split, lock: Path) -> bool:
    """Whether a split is the one that a lock file holds."""
    try:
        verify_lock(split, lock)
    except TaskError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Unwanted:
    """Tasks of one kind that are only taken where a setting says so.

    Attributes:
        setting: Its name.
        allowed: It says so.
        holds: Whether a task is of the kind; returns what there is to say of it, else something empty.
        what: What these tasks have, in words that follow their number.
        taken: What to know where they are taken.
        remedy: What to do where they are not.
    """

    setting: str
    allowed: bool
    holds: Callable[[Task], object]
    what: str
    taken: str
    remedy: str

    def note(self, found: Mapping[str, object]) -> str:
        """Say which, in one line; `found` has their ids and what `holds` said."""
        count = len(found)
        if not count:
            return f"{self.setting} does nothing: no task has such a judge." if self.allowed else ""
        names = ", ".join([*list(found)[:SHOWN], *(["..."] if count > SHOWN else [])])
        said = next(iter(found.values()))
        what = f"{counted(count, 'task')} {self.what} ({names}{f': {said}' if isinstance(said, str) else ''})"
        return f"{self.setting}: {what}: {self.taken}" if self.allowed else f"left out: {what}. {self.remedy}"


class Judges:
    """Leaves out tasks whose judges cannot be relied on, or need what was not allowed, unless they are asked for.

    Training finds what pays: code that writes the verdict and leaves pays everything, and is no skill.

    Args:
        in_process: Take tasks whose judge loads the agent's code; None leaves them to the caller.
        shared: Take tasks that are judged beside processes of the agent.
        network: The engine's network for verifiers that need one.
    """

    def __init__(self, *, in_process: bool | None, shared: bool, network: str | None) -> None:
        kinds = [
            _Unwanted(
                "allow_shared_judges",
                shared,
                is_shared,
                "judged beside processes of the agent (judge_isolation: shared)",
                "what the judge asks of them they may answer as they like.",
                "--allow_shared_judges takes them.",
            ),
            _Unwanted(
                "verifier_network",
                network is not None,
                network_reason,
                "with a verifier that needs a network",
                f"it has the network {network} and root's rights, and what it starts of the agent's has them, too.",
                "--verifier_network NAME gives them one (docker), such as bridge.",
            ),
        ]
        if in_process is not None:
            loads = _Unwanted(
                "allow_in_process_judges",
                in_process,
                lambda task: task.judge_use is JudgeUse.IN_PROCESS,
                "with a judge that runs the agent's code in its own process",
                "code that writes the verdict and leaves passes.",
                "`python -m tasks check` says where; --allow_in_process_judges takes them.",
            )
            kinds.insert(0, loads)
        self._found: list[tuple[_Unwanted, dict[str, object]]] = [(kind, {}) for kind in kinds]

    def keep(self, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        """The tasks of these that are taken."""
        dropped: set[str] = set()
        for kind, found in self._found:
            here = {task.id: said for task in tasks if (said := kind.holds(task))}
            found |= here
            dropped |= set() if kind.allowed else here.keys()
        return tuple(task for task in tasks if task.id not in dropped)

    def notes(self) -> list[str]:
        """Say which, a line for each kind of which there is something to say."""
        return [note for kind, found in self._found if (note := kind.note(found))]

    def left_out(self) -> tuple[str, ...]:
        """Ids of the tasks that are not taken."""
        return tuple(dict.fromkeys(name for kind, found in self._found if not kind.allowed for name in found))

    def reason(self) -> str:
        """Why nothing is left, as the end of a sentence; empty where this is not why."""
        why = [kind.note(found) for kind, found in self._found if found and not kind.allowed]
        return f": {' '.join(why)}" if why else ""


def _families(wanted: str) -> int | list[str]:
    """What `unseen_families` says: a number, or names with commas between."""
    if wanted.isdigit():
        return int(wanted)
    return [name.strip() for name in wanted.split(",") if name.strip()]


def _notes_on_lock(split: Split, loaded: int) -> list[str]:
    notes = []
    if split.choice is Choice.OUTCOME:
        notes.append("the split was chosen by outcome: a gap between pool and held-out is no sign of overfitting.")
    if left_out := loaded - sum(map(len, split.sides.values())):
        notes.append(f"{left_out} tasks are not in the lock file and were left out.")
    return notes
