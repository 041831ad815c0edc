"""Completions that are scored in pieces, each behind a prompt of its own: episodes with older observations as lines.

With `keep_observations=N` the prompt of a reply is no prefix of the next: what stood in full stands there as a line.
No one forward pass sees an episode as it was sampled, so each reply is scored behind the very ids that it was sampled
from, one row a turn. (Turns up to the first line share a row: there a prompt is a prefix of the next, and the numbers
are the same.) Everything else of the loss stays per episode: an episode is one row of a batch, its completion the
replies one behind the other, shape (B, T), and what is computed here is put back into that shape:

    logp[b, o(b, t) + j] = log p(reply[b, t][j] | prompt[b, t], reply[b, t][:j])
    o(b, t) = |reply[b, 0]| + ... + |reply[b, t - 1]|

So advantages, ratios, clips, KL, masks and what divides the loss are those of an append-only episode with the same
replies: the turns of an episode share its advantage, and a long episode counts as one.

Memory: at most `at_once` pieces (or `tokens`) of one episode are in a pass, and where gradients are wanted several
passes keep their ids alone and are run again when their gradients come (`torch.utils.checkpoint`). What a pass computes
depends on its own episode, so it is the same to the last bit in whatever batch the episode stands: the first ratio is 1
and the first KL is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from agents.trajectory import Flat, Trajectory

PIECES = "pieces"
"""Key of the batch: the pieces of each row, a list of B lists; TRL shuffles and splits it as it does tensors."""

Piece: TypeAlias = tuple[torch.Tensor, list[tuple[int, int]]]
"""Ids of a row (int32, on the CPU), and where the next ids of the completion stand in it: start and length of replies.
Plain containers: batches are stored in checkpoints, which hold no classes."""


class Scores(NamedTuple):
    """What TRL's method gives: log-probabilities and entropies, nats, shape (rows, ids); the loss of routers."""

    logps: torch.Tensor
    entropies: torch.Tensor | None
    router_loss: torch.Tensor | None


Score: TypeAlias = Callable[[torch.Tensor, torch.Tensor, int], tuple[torch.Tensor | None, ...]]
"""Scores the last ids of rows: takes ids and attention mask, shape (rows, width), and how many columns are wanted."""


def pieces_of(episodes: Sequence[Trajectory], flats: Sequence[Flat], end_id: int) -> list[list[Piece]] | None:
    """The pieces of each completion; `None` where every conversation only grew, so that one pass sees a whole episode.

    Args:
        episodes: In the order of the rows.
        flats: The same as completions.
        end_id: Stands in for a prompt where an episode never began.
    """
    if all(episode.keep_observations is None for episode in episodes):
        return None
    out = []
    for episode, flat in zip(episodes, flats, strict=True):
        whole = episode.keep_observations is None or not episode.turns
        prompts = [episode.prompt_ids] if whole else episode.prompts()
        replies = [flat.ids] if whole else [turn.ids for turn in episode.turns]
        if sum(map(len, replies)) != len(flat.ids):
            ids = f"{sum(map(len, replies))} ids of replies, {len(flat.ids)} in the completion"
            raise ValueError(f"task '{episode.task_id}', attempt {episode.attempt}: {ids}")
        out.append(_pieces([prompt or [end_id] for prompt in prompts], replies))
    return out


def _pieces(prompts: Sequence[list[int]], replies: Sequence[list[int]]) -> list[Piece]:
    """A row for each prompt that does not go on from the row before it."""
    rows: list[tuple[list[int], list[tuple[int, int]]]] = []
    for prompt, reply in zip(prompts, replies, strict=True):
        span = (len(prompt), len(reply))
        if rows and prompt[: len(rows[-1][0])] == rows[-1][0]:
            rows[-1] = (prompt + reply, [*rows[-1][1], span])
        else:
            rows.append((prompt + reply, [span]))
    return [(torch.tensor(ids, dtype=torch.int32), spans) for ids, spans in rows]


def score_pieces(
    pieces: Sequence[Sequence[Piece]],
    score: Score,
    *,
    width: int,
    at_once: int | None = None,
    tokens: int | None = None,
    pad_id: int,
    device: torch.device,
    first: Score | None = None,
) -> Scores:
    """Score every reply behind its own prompt, and put the results where the completions have them.

    Args:
        pieces: Of each row.
        score: What a forward pass gives.
        width: T, of the completions.
        at_once: Pieces of a pass at most; those of one row only.
        tokens: Tokens of a pass at most, padding included; a longer piece makes a pass by itself.
        pad_id: Fills pieces at the right, where no position before them looks.
        device: Of the model.
        first: Scores the very first pass in the place of `score`, and keeps what its gradient needs: a wrapper around
            the model that must be called once, and not while gradients are computed (DistributedDataParallel).

    Returns:
        Shape (B, T) each; 0 behind a completion's end. The loss of routers is the mean over the passes.
    """
    columns: list[list[list[torch.Tensor]]] = []
    router: list[torch.Tensor] = []
    passes = [list(chunks(parts, tokens, at_once)) for parts in pieces]
    again = torch.is_grad_enabled() and sum(map(len, passes)) > 1
    for own in passes:
        done: list[list[torch.Tensor]] = [[], []]
        for some in own:
            ids, mask = _padded([row for row, _ in some], pad_id, device)
            offset = min(spans[0][0] for _, spans in some)  # no reply begins before it
            wanted = ids.size(1) - offset
            if first is not None:
                found, first = first(ids, mask, wanted), None
            elif again:
                found = checkpoint(score, ids, mask, wanted, use_reentrant=False)
            else:
                found = score(ids, mask, wanted)
            for column, values in zip(done, found, strict=False):
                if values is not None:
                    column += [
                        values[number, begin - offset : begin - offset + size]
                        for number, (_, spans) in enumerate(some)
                        for begin, size in spans
                    ]
            router += [found[2]] if found[2] is not None else []
        columns.append(done)
    logps, entropies = (
        torch.stack([_wide(torch.cat(done[place]), width) for done in columns]) if columns[0][place] else None
        for place in (0, 1)
    )
    assert logps is not None
    return Scores(logps, entropies, torch.stack(router).mean() if router else None)


def chunks(parts: Sequence[Piece], tokens: int | None = None, most: int | None = None) -> Iterator[Sequence[Piece]]:
    """The pieces of a row as passes, in their order; arguments as `score_pieces`."""
    start = 0
    for end in range(1, len(parts) + 1):
        over = end < len(parts) and tokens is not None and tokens_of(parts[start : end + 1]) > tokens
        if end == len(parts) or end - start == most or over:
            yield parts[start:end]
            start = end


def tokens_of(parts: Sequence[Piece]) -> int:
    """Of a pass with these pieces, padding included."""
    return len(parts) * max(len(row) for row, _ in parts)


def _padded(rows: Sequence[torch.Tensor], pad_id: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as one tensor, filled at the right, and where they are: positions are those that were sampled at."""
    ids = pad_sequence(list(rows), batch_first=True, padding_value=pad_id).to(device, torch.long)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(ids.size(1), device=device) < lengths[:, None]).long()


def _wide(row: torch.Tensor, width: int) -> torch.Tensor:
    return pad(row, (0, width - len(row)))
