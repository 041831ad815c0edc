"""Whether the sides of a split can be compared: twins across them, and pass rates before any training."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from tasks.model import counted
from tasks.splits import Choice, Split
from tasks.task import Task

# -- Tasks that are the same or nearly so: what an agent learned on one of them, it knows on the other ----------------

THRESHOLD = 0.65
"""Similarity from which two tasks are near-twins.

One more file in a workspace that had none leaves 0.75. Questions in other words that share an answer stay at a third or
little more; those of one text with different answers have two thirds.
"""

OF_INTENT, OF_FILES, OF_ASSERTIONS = 0.5, 0.25, 0.25
"""Weights of the three parts of a similarity."""

SHOWN = 5
"""Groups and pairs that a line names before it stops."""

LEAST_INTENT = (THRESHOLD - OF_FILES - OF_ASSERTIONS) / OF_INTENT
"""Similarity of the intents alone without which no pair reaches the threshold, whatever else it shares."""


@dataclass(frozen=True, slots=True)
class NearTwins:
    """Two tasks with other content that are hardly different.

    Attributes:
        one: The one whose id comes first.
        other: The other.
        similarity: From `THRESHOLD` to 1.
    """

    one: Task
    other: Task
    similarity: float

    def __str__(self) -> str:
        """Return both ids and the similarity."""
        return f"{self.one.id} and {self.other.id} ({self.similarity:.2f})"


def by_meaning(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return the tasks in groups of exact twins, by id; a task without twins is a group of its own."""
    groups: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.id):
        groups.setdefault(task.meaning_hash, []).append(task)
    return list(groups.values())


def exact_twins(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return the groups of two and more tasks that are the same in all that counts (`tasks.task.Meaning`)."""
    return [group for group in by_meaning(tasks) if len(group) > 1]


def twin_notes(tasks: Sequence[Task]) -> list[str]:
    """Return a line on the exact twins among tasks and one on the near-twins, for people; none where there are none."""
    notes = []
    if groups := exact_twins(tasks):
        named = _first(", ".join(task.id for task in group) for group in groups)
        what = "the same but for persona, names, weights, order, letter case or blanks"
        notes.append(f"{counted(len(groups), 'group')} of exact twins ({what}): {named}")
    if pairs := near_twins(tasks):
        named = _first(str(pair) for pair in pairs)
        notes.append(f"{counted(len(pairs), 'pair')} of near-twins (similarity {THRESHOLD:g} or more): {named}")
    return notes


def similarity(one: Task, other: Task) -> float:
    """Return how alike two tasks are, from 0 to 1: half by their intents, a quarter each by files and assertions.

    Each part is the share of what both have in what either has: pairs of neighbouring words of the intent, files (path
    and content together), canonical forms of assertions. A part that neither has (files, in questions) does not count.
    """
    return _similarity(_Profile.of([one]), _Profile.of([other]))


def near_twins(tasks: Sequence[Task]) -> list[NearTwins]:
    """Return the pairs with a similarity of `THRESHOLD` or more, most alike first; exact twins count as one task.

    Variants within one family are what families are for, and are no near-twins. The order of `tasks` does not matter.
    """
    profiles = [_Profile.of(group) for group in by_meaning(tasks)]
    frequency = Counter(pair for profile in profiles for pair in profile.intent)
    index: dict[str, list[int]] = {}
    found: list[NearTwins] = []
    for number, profile in enumerate(profiles):
        # Two sets that share LEAST_INTENT of their union share at least one item among so many of the rarest of each
        # (prefix filter, Chaudhuri et al. 2006): common words need no look-up, and hardly any pair is compared.
        needed = math.ceil(LEAST_INTENT * len(profile.intent) - 1e-9)
        rarest = sorted(profile.intent, key=lambda pair: (frequency[pair], pair))[: len(profile.intent) - needed + 1]
        candidates = {earlier for pair in rarest for earlier in index.get(pair, ())}
        for earlier in candidates:
            before = profiles[earlier]
            if before.family is None or before.family != profile.family:
                alike = _similarity(before, profile)
                if alike >= THRESHOLD:
                    found.append(NearTwins(before.task, profile.task, alike))
        for pair in rarest:
            index.setdefault(pair, []).append(number)
    return sorted(found, key=lambda pair: (-pair.similarity, pair.one.id, pair.other.id))


class Known:
    """Tasks that new ones are compared with, one at a time: whoever finds a twin may leave the new one out."""

    def __init__(self) -> None:
        self._known: list[tuple[str, _Profile]] = []

    def add(self, task: Task, where: str) -> None:
        """Take a task in; `where` it is from is said of its twins."""
        self._known.append((where, _Profile.of([task])))

    def twin_of(self, task: Task) -> tuple[str, NearTwins] | None:
        """Return the known task that is most like this one, and where it is from; None where no twin is known.

        The similarity of an exact twin is 1.
        """
        profile = _Profile.of([task])
        found = [(_similarity(profile, known), where, known.task) for where, known in self._known]
        alike, where, twin = max(found, key=lambda item: item[0], default=(0.0, "", task))
        return (where, NearTwins(task, twin, alike)) if alike >= THRESHOLD else None


@dataclass(frozen=True, slots=True)
class _Profile:
    """What is compared of a group of exact twins; `family` where all of them are of one."""

    task: Task
    family: str | None
    intent: frozenset[str]
    files: frozenset[str]
    assertions: frozenset[str]

    @classmethod
    def of(cls, group: Sequence[Task]) -> _Profile:
        families = {task.family for task in group}
        meaning = group[0].meaning
        words = re.findall(r"\w+", meaning.intent)
        pairs = frozenset(f"{first} {second}" for first, second in pairwise(words)) or frozenset({meaning.intent})
        family = families.pop() if len(families) == 1 else None
        return cls(group[0], family, pairs, frozenset(meaning.files), frozenset(meaning.assertions))


def _similarity(one: _Profile, other: _Profile) -> float:
    total = OF_INTENT + OF_ASSERTIONS
    weighted = OF_INTENT * _shared(one.intent, other.intent) + OF_ASSERTIONS * _shared(one.assertions, other.assertions)
    if one.files or other.files:
        total += OF_FILES
        weighted += OF_FILES * _shared(one.files, other.files)
    return weighted / total


def _shared(one: Set[str], other: Set[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both)


def _first(items: Iterable[str]) -> str:
    listed = list(items)
    more = [f"and {len(listed) - SHOWN} more"] if len(listed) > SHOWN else []
    return "; ".join([*listed[:SHOWN], *more])


# -- Whether both sides of a split are equally hard for a policy that has learned nothing yet -------------------------

SIGNIFICANT = 1.96
"""Standard errors that pass rates must lie apart before the sides count as different (95 %)."""


@dataclass(frozen=True, slots=True)
class SideRate:
    """How a policy does on one side.

    Attributes:
        side: `pool`, `held_out` or `unseen`.
        tasks: Tasks measured.
        undecided: Tasks without a rate (infrastructure, or a grader that failed); they are in no mean.
        rate: Mean pass rate in [0, 1]; None without a measured task.
        error: Standard error of that mean over tasks; None below two tasks.
    """

    side: str
    tasks: int
    undecided: int
    rate: float | None
    error: float | None

    def __str__(self) -> str:
        """Return `pool: 40.0 % of 25 tasks`."""
        shown = "nothing measured" if self.rate is None else f"{100 * self.rate:.1f} % of {self.tasks} tasks"
        return f"{self.side}: {shown}" + (f" ({self.undecided} undecided)" if self.undecided else "")


@dataclass(frozen=True, slots=True)
class BaseRates:
    """Pass rates of every side before training, and what they say about the split."""

    sides: tuple[SideRate, ...]
    choice: Choice

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the sides hard to compare; empty if nothing does."""
        found: list[str] = []
        if self.choice is Choice.OUTCOME:
            found.append("the split was chosen by outcome: a gap between the sides is no sign of overfitting")
        pool, *others = self.sides
        for other in others:
            if pool.rate is None or other.rate is None or pool.error is None or other.error is None:
                continue
            gap = abs(pool.rate - other.rate)
            # with no spread at all the error is 0, and any gap counts
            if gap > SIGNIFICANT * math.hypot(pool.error, other.error) and other.side == "held_out":
                found.append(
                    f"pool and held_out differ by {100 * gap:.0f} points before any training: not exchangeable "
                    "(was the split filtered by outcome?). Compare each side with its own start"
                )
        return tuple(found)

    def __str__(self) -> str:
        """Return one line per side and warning."""
        return "\n".join([*map(str, self.sides), *(f"warning: {text}" for text in self.warnings)])


def base_rates(split: Split, pass_rate: Callable[[Task], float | None]) -> BaseRates:
    """Measure a policy on every side of a split.

    Args:
        split: The split.
        pass_rate: Plays one task with the policy (as often as it likes) and returns the share of passes in [0, 1], or
            None where nothing could be decided.

    Raises:
        ValueError: a rate outside [0, 1].
    """
    return BaseRates(tuple(_measure(side, tasks, pass_rate) for side, tasks in split.sides.items()), split.choice)


def _measure(side: str, tasks: Sequence[Task], pass_rate: Callable[[Task], float | None]) -> SideRate:
    rates: list[float] = []
    for task in tasks:
        rate = pass_rate(task)
        if rate is None:
            continue
        if not 0 <= rate <= 1:  # also refuses NaN
            raise ValueError(f"the pass rate of {task.id} is {rate}: it must lie between 0 and 1")
        rates.append(rate)
    mean = math.fsum(rates) / len(rates) if rates else None
    error = None
    if mean is not None and len(rates) > 1:
        variance = math.fsum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1)
        error = math.sqrt(variance / len(rates))
    return SideRate(side, len(rates), len(tasks) - len(rates), mean, error)
