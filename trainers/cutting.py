"""Which rows of a batch share a pass, how wide it is, and where its numbers go in those of all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch

from agents.policies.slots import sent

SHARE = 0.7
"""Of the free memory of a GPU that `auto` gives to a pass: the rest is for fragments, and sampling may grow."""


class Lengths(NamedTuple):
    """Columns of each row that hold something: of its prompt, which ends where the completion begins, and of that."""

    prompts: list[int]
    completions: list[int]


Scored: TypeAlias = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""What TRL's method gives: log-probabilities and entropies, shape (rows, ids), and the loss of routers."""
Score: TypeAlias = Callable[[Sequence[int], torch.Tensor, torch.Tensor, int], Scored]
"""Scores rows: their places in the batch, ids and attention mask, shape (rows, width), columns of the completion."""


def cut(
    rows: Sequence[int],
    lengths: Lengths,
    budget: int,
    *,
    alone: bool = False,
    width: Callable[[int], int] = int,
) -> list[list[int]]:
    """Rows as passes, the longest first: what does not fit is found at once.

    Args:
        rows: Places in the batch.
        lengths: Of all rows of the batch.
        budget: Tokens of a pass at most, padding included; a longer row makes a pass by itself.
        alone: Every row makes a pass by itself.
        width: Columns that a pass has whose rows need so many.
    """
    prompts, completions = lengths
    passes: list[list[int]] = []
    wide = (0, 0)
    for row in sorted(rows, key=lambda row: (-prompts[row] - completions[row], row)):
        with_it = max(wide[0], prompts[row]), max(wide[1], completions[row])
        if passes and not alone and (len(passes[-1]) + 1) * width(sum(with_it)) <= budget:
            passes[-1].append(row)
            wide = with_it
        else:
            passes.append([row])
            wide = prompts[row], completions[row]
    return passes


def padded_tokens(rows: Sequence[int], lengths: Lengths) -> int:
    """What a pass holds, padding included."""
    return len(rows) * (max(lengths.prompts[row] for row in rows) + max(lengths.completions[row] for row in rows))


def lengths_of(prompt_mask: torch.Tensor, completion_mask: torch.Tensor) -> Lengths:
    """Of every row of a batch: prompts are filled at the left, completions at the right."""
    return Lengths(*torch.stack([prompt_mask.sum(1), completion_mask.sum(1)]).tolist())


def score_rows(
    score: Score, rows: Sequence[int], lengths: Lengths, ids: torch.Tensor, mask: torch.Tensor, keep: int
) -> Scored:
    """Score some rows of a batch in one pass, without the columns that none of them fills.

    Args:
        score: Scores them.
        rows: Their places in the batch.
        lengths: Of all rows.
        ids: Prompts and completions, shape (B, P + T).
        mask: Where there is something, same shape.
        keep: T.

    Returns:
        Shape (rows, longest completion of theirs).
    """
    begin = ids.size(1) - keep
    first, width = begin - max(lengths.prompts[row] for row in rows), max(lengths.completions[row] for row in rows)
    place = sent(rows, ids.device)
    return score(rows, ids[place, first : begin + width], mask[place, first : begin + width], width)


def put(whole: torch.Tensor, rows: Sequence[int], part: torch.Tensor) -> torch.Tensor:
    """`whole` (B, T) with the numbers of some rows in it, through which gradients go; behind a row's end as it was."""
    out = whole.clone()
    out[sent(rows, whole.device), : part.size(1)] = part
    return out


def tokens_that_fit(free: int, per_token: float) -> int:
    """The budget of `auto`, from bytes that are free and bytes that a token of a pass took at its peak."""
    return max(1, int(SHARE * max(0, free) / per_token))
