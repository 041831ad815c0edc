"""An episode as the page keeps it: a row for the list, and the whole as JSON without ids and log-probabilities."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from agents.commands import UsageError, tokenizer_named
from agents.models.card import ModelError
from agents.policies.scripted import ByteTokenizer
from agents.policy import Candidate, FinishReason
from agents.t2po.think import Cause
from agents.trajectory import LOSSES, Trajectory, Turn
from envs.actions import ActionKind

# -- Ids as text. The tokenizer that made them is found by trying: its pieces must join to the recorded reply ---------


class Tokenizer(Protocol):
    """What is needed of a tokenizer: ids as text, end-of-turn ids included."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = ...) -> str:
        """The text of ids."""
        ...


class Pieces:
    """The text of single ids, as far as single ids have one.

    Args:
        tokenizer: Whose ids they are.
        size: Ids from here on have no text; `None`: the tokenizer gives one to each.
    """

    PARTS = 8
    """A character of UTF-8 has at most 4 bytes, each perhaps an id of its own; twice that for what is no UTF-8."""

    def __init__(self, tokenizer: Tokenizer, size: int | None = None) -> None:
        self._tokenizer, self._size = tokenizer, size
        self._known: dict[int, str] = {}

    def text(self, ids: Sequence[int]) -> str:
        """All of them together."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def split(self, ids: Sequence[int]) -> list[str]:
        """The text of each id. Of several that make one character together the last has it, the others none."""
        known = [self._known.get(one, "\ufffd") for one in ids]
        if "\ufffd" not in "".join(known):
            return known
        out: list[str] = []
        open_ids: list[int] = []
        for one in ids:
            piece = self._known.get(one)
            if piece is None:
                piece = self._known[one] = self.text([one])
            if open_ids or "\ufffd" in piece:
                open_ids.append(one)
                piece = self.text(open_ids)
                if "\ufffd" in piece and len(open_ids) < self.PARTS:
                    out.append("")
                    continue
                open_ids = []
            out.append(piece)
        return out

    def spans(self, turn: Turn) -> list[int] | None:
        """How much of the reply each id wrote, in UTF-16 units, as scripts of a page count; `None`: not these ids."""
        if self._size is not None and max(turn.ids) >= self._size:
            return None
        pieces = self.split(turn.ids)
        while len("".join(pieces)) > len(turn.reply):
            pieces.pop()  # end-of-turn ids are not in the reply's text
        if "".join(pieces) != turn.reply:
            return None
        if turn.reply.isascii():
            lengths = list(map(len, pieces))
        else:
            lengths = [len(piece.encode("utf-16-le", "surrogatepass")) // 2 for piece in pieces]
        return lengths + [0] * (len(turn.ids) - len(lengths))


class Tokenizers:
    """Finds the tokenizer of each episode among those at hand.

    Args:
        named: Of the model that the user names: the first to be tried.
    """

    TRIES = 20
    """Episodes that fit no tokenizer before it is given up: the text of one may be odd (no UTF-8, cut by a record)."""

    def __init__(self, named: Tokenizer | None = None) -> None:
        self._named = [Pieces(named)] if named is not None else []
        self._of: dict[tuple[str | None, tuple[Path, ...]], Pieces] = {}
        self._missed: Counter[tuple[str | None, tuple[Path, ...]]] = Counter()

    @classmethod
    def with_model(cls, name: str | None) -> Tokenizers:
        """Those at hand, and that of a model before them; `None`: no model is named.

        Raises:
            UsageError: It cannot be loaded.
        """
        try:
            return cls(None if name is None else tokenizer_named(name))
        except ModelError as error:
            raise UsageError(str(error)) from error

    def of(self, episode: Trajectory, files: tuple[Path, ...] = ()) -> Pieces | None:
        """The one that the episode's ids are of; `None` where it is not at hand, or the record holds no ids.

        Args:
            episode: It names its tokenizer by a fingerprint, so that one of them is tried only once.
            files: `tokenizer.json` of the checkpoints beside it.
        """
        key = (episode.tokenizer, files)
        if key not in self._of and self._missed[key] < self.TRIES:
            turns = [turn for turn in episode.turns if turn.ids and turn.reply]
            if not turns:
                return None
            every = [
                *self._named,
                *filter(None, map(_from_file, (*files, *_shipped()))),
                Pieces(ByteTokenizer(), ByteTokenizer.vocab_size),
            ]
            found = next((p for p in every if all(p.spans(turn) is not None for turn in turns)), None)
            if found is not None:
                self._of[key] = found
            else:
                self._missed[key] += 1
        return self._of.get(key)


@cache
def _shipped() -> tuple[Path, ...]:
    return tuple(sorted((Path(__file__).parents[1] / "models").glob("*/tokenizer.json")))


@cache
def _from_file(path: Path) -> Pieces | None:
    """`None` where the library is not installed (it comes with the extra `train`): the page then says so."""
    try:
        from tokenizers import Tokenizer as Fast
    except ImportError:
        return None
    made: Tokenizer = Fast.from_file(str(path))
    return Pieces(made)


# -- Numbers ----------------------------------------------------------------------------------------------------------

TOP = 16.0
"""Nats that 255 stands for: above the entropy of any vocabulary in use (of 8 million ids)."""


def eight_bits(values: Iterable[float]) -> str:
    """Entropies in nats as one byte each, in base64.

    The byte is 255 * sqrt(nats / `TOP`), so that small ones keep their differences: an error of at most 0.005 nats at
    0.1 nats, 0.03 at 4.
    """
    array = np.fromiter(values, float)
    array[~(array > 0)] = 0.0  # what is no number, too
    np.minimum(array, TOP, out=array)
    return base64.b64encode((255 * np.sqrt(array / TOP) + 0.5).astype(np.uint8).tobytes()).decode()


def safe(value: Any) -> Any:
    """`value` as a page's JSON can hold it: whole numbers beyond 53 bits and numbers that are none become text."""
    if isinstance(value, dict):
        return {str(key): safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [safe(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# -- The row of the list, and the episode -----------------------------------------------------------------------------

MARKS = (
    "rejected candidates",
    "think control",
    "forced tokens",
    "timed out",
    "cut at the cap",
    "malformed",
    "lost sandbox",
)
"""What the list can be filtered by; a row has bit n for the n-th."""
_CAUSES = frozenset(map(str, Cause))


def row(episode: Trajectory) -> list[Any]:
    """What the list shows and filters by; `list.js` names the places."""
    failed = [[str(a.get("name")), str(a.get("kind"))] for a in episode.assertions if a.get("verdict") != "pass"]
    has = (
        any(turn.candidates for turn in episode.turns),
        any(not _CAUSES.isdisjoint(turn.notes) for turn in episode.turns),
        any(any(turn.forced) for turn in episode.turns),
        any(turn.timed_out for turn in episode.turns),
        any(turn.finish is FinishReason.LENGTH for turn in episode.turns),
        any(turn.action == ActionKind.MALFORMED for turn in episode.turns),
        bool(episode.notes.get(LOSSES)),
    )
    return [
        episode.task_id,
        episode.family or "",
        episode.attempt,
        episode.passed,
        safe(episode.rate),
        safe(episode.reward),
        episode.stop_reason,
        len(episode.turns),
        sum(len(turn.ids) for turn in episode.turns),
        failed,
        sum(bit << place for place, bit in enumerate(has)),
    ]


def pack(episode: Trajectory, pieces: Pieces | None) -> dict[str, Any]:
    """The whole episode; keys whose value is the usual one are left out.

    Args:
        episode: To be shown.
        pieces: The text of its ids, where it is known.
    """
    prompt = pieces.text(episode.prompt_ids) if pieces is not None and episode.prompt_ids else None
    return _lean(
        hash=episode.task_hash,
        seed=None if episode.seed is None else str(episode.seed),
        sampling=episode.sampling,
        source=episode.source,
        error=episode.error,
        prompt=prompt,
        prompt_tokens=len(episode.prompt_ids),
        assertions=[safe(record) for record in episode.assertions],
        notes=safe(episode.notes),
        environment=safe(episode.environment),
        tokenizer=episode.tokenizer if pieces is None else None,
        turns=[_turn(turn, pieces) for turn in episode.turns],
    )


def _turn(turn: Turn, pieces: Pieces | None) -> dict[str, Any]:
    bounds = turn.entropy_bounds if turn.entropies is None else None
    spans = pieces.spans(turn) if pieces is not None and turn.ids and turn.entropies is not None else None
    return _lean(
        action=turn.action,
        command=turn.command,
        reply=turn.reply,
        observation=turn.observation,
        exit=turn.exit_code,
        timed_out=turn.timed_out,
        signal=safe(turn.signal),
        uncertainty=safe(turn.uncertainty),
        uncertainty_bounds=safe(turn.uncertainty_bounds),
        finish=turn.finish,
        cap=turn.max_tokens,
        seed=None if turn.seed is None else str(turn.seed),
        model=_seconds(turn.model_seconds),
        sandbox=_seconds(turn.sandbox_seconds),
        context=len(turn.context_ids),
        as_line=None if turn.short_ids is None else len(turn.short_ids),
        tokens=len(turn.ids),
        forced=[place for place, forced in enumerate(turn.forced) if forced] if any(turn.forced) else None,
        entropy=None if not turn.entropies else eight_bits(turn.entropies),
        lower=None if not bounds else eight_bits(low for low, _ in bounds),
        upper=None if not bounds else eight_bits(high for _, high in bounds),
        spans=None if spans is None else _lengths(spans),
        candidates=[_candidate(one, pieces) for one in turn.candidates],
        notes=safe(turn.notes),
    )


def _lengths(values: list[int]) -> str | list[int]:
    """One byte each in base64, where that holds them."""
    return list(values) if max(values) > 255 else base64.b64encode(bytes(values)).decode()


def _candidate(one: Candidate, pieces: Pieces | None) -> dict[str, Any]:
    return _lean(
        text=None if pieces is None else pieces.text(one.ids),
        tokens=len(one.ids),
        signal=safe(one.signal),
        bounds=safe(one.signal_bounds),
    )


def _seconds(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) and value else None


def _lean(**values: Any) -> dict[str, Any]:
    return {
        key: value
        for key, value in values.items()
        if value is not None and value is not False and value not in ("", [], {})
    }
