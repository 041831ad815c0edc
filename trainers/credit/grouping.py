"""What a turn brings to the comparison with other turns, and which turns of a task are compared.

Every turn gets a label; those with equal labels form a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum


class TurnSignal(StrEnum):
    """What a turn earns by itself."""

    PROGRESS = "progress"
    """Change of the rate of the file assertions, measured on the host after the turn."""
    EXIT_CODE = "exit_code"
    """1 where the command ran and ended with 0, else 0; the submitting turn has none. A named baseline: weak, since
    a command on a wrong file succeeds, too, and a search that finds nothing does not."""
    OUTCOME = "outcome"
    """The episode's reward for its last turn, 0 for the others, as GiGPO is published: the return of turn t of T (from
    0) is `gamma^(T-1-t) R`. Every turn has one, on tasks without file assertions, too."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What one turn brings to the comparison.

    Attributes:
        signal: What the turn earned by itself; `None` where it has none (a submitting turn, but with `outcome`).
        anchor: The state before the turn.
        state: The observation before the turn as text; only read by `TurnGrouping.SIMILARITY`.
        invalid: The reply was malformed: no action in it.
    """

    signal: float | None
    anchor: str
    state: str = ""
    invalid: bool = False


class TurnGrouping(StrEnum):
    """Which turns are compared with each other."""

    ANCHOR = "anchor"
    """Turns that began in the same state (GiGPO): safe when the policy controls how long an episode is."""
    TURN_INDEX = "turn_index"
    """Turns with the same number. A named baseline: biased when episodes differ in length."""
    SIMILARITY = "similarity"
    """Turns that began after similar observations, as text (GiGPO's search setting)."""
    NONE = "none"
    """No turn term."""


def turn_labels(
    episodes: Sequence[Sequence[TurnRecord]], grouping: TurnGrouping, similarity: float
) -> list[list[str | int]]:
    """A label for every turn of the K episodes of one task."""
    if grouping is TurnGrouping.TURN_INDEX:
        return [list(range(len(turns))) for turns in episodes]
    if grouping is TurnGrouping.ANCHOR:
        return [[turn.anchor for turn in turns] for turns in episodes]
    flat = similar_groups([turn.state for turns in episodes for turn in turns], similarity)
    out: list[list[str | int]] = []
    for turns in episodes:
        out.append(list(flat[: len(turns)]))
        del flat[: len(turns)]
    return out


def similar_groups(texts: Sequence[str], threshold: float) -> list[int]:
    """Greedy first fit: each text joins the first group whose first text it resembles, else it opens a group.

    Resembles means `SequenceMatcher.ratio() >= threshold`. The result depends on the order, as in the reference.
    """
    found: list[tuple[str, Counter[str]]] = []
    known: dict[str, int] = {}
    out: list[int] = []
    for text in texts:
        if text not in known:
            known[text] = _first_fit(text, found, threshold)
        out.append(known[text])
    return out


def _first_fit(text: str, found: list[tuple[str, Counter[str]]], threshold: float) -> int:
    """The first of `found` that `text` resembles; it joins them where it resembles none."""
    counts = Counter(text)
    matcher = SequenceMatcher(None, "", text)  # it keeps what it learned about its second text
    for i, (first, of_first) in enumerate(found):
        # The characters in common bound the ratio: that costs little and rules most pairs out.
        if 2.0 * (counts & of_first).total() / (len(first) + len(text)) >= threshold:
            matcher.set_seq1(first)
            if matcher.ratio() >= threshold:
                return i
    found.append((text, counts))
    return len(found) - 1
