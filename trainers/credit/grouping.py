"""Which turns of a task are compared: a label for every turn, equal labels form a group."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from enum import StrEnum

from trainers.credit.turn_record import TurnRecord


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
    found: list[str] = []
    known: dict[str, int] = {}
    out: list[int] = []
    for text in texts:
        label = known.get(text)
        if label is None:
            label = next((i for i, first in enumerate(found) if _resembles(first, text, threshold)), len(found))
            if label == len(found):
                found.append(text)
            known[text] = label
        out.append(label)
    return out


def _resembles(first: str, text: str, threshold: float) -> bool:
    matcher = SequenceMatcher(None, first, text)
    # The two upper bounds cost little and rule most pairs out.
    return (
        matcher.real_quick_ratio() >= threshold and matcher.quick_ratio() >= threshold and matcher.ratio() >= threshold
    )
