"""The one decode path: replies join a batch by a prefill, go on together step by step, and leave when they end.

Rows under way hold the cache's slots `0..n-1`, each at its own position in its reply, and draw from their own uniforms
by that position: what else is in the batch does not change a reply, but for the rounding of sums (their order depends
on the number of rows and of positions read). A call that begins and ends all its replies together always adds in the
same order, so it gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from agents.policies.decoder import Decoder
from agents.policies.draw import WHOLE, Cut, Feed, Fetched, Opening, Sampled, Stepper, sample, top_mean
from agents.policies.slots import Row, Slot, SlotTable, sent
from agents.policy import FinishReason, PolicyError, TopControl


@dataclass(frozen=True, slots=True)
class _Launched:
    """What the device computes, or has computed: ids of rows, which nobody has read yet.

    Attributes:
        rows: They, in the order of the sampled ids, and their slots, wherever those are moved meanwhile.
        fed: The cache then holds each row's former last id, and all new ones but the last.
        fetched: The ids and facts, for the host.
    """

    rows: Sequence[Row]
    slots: Sequence[Slot]
    sampled: Sampled
    fed: bool
    fetched: Fetched


class Batch:
    """Replies under way with one temperature. Batches may take turns at one table: each comes back to the front.

    What is computed is launched, and read later: on a GPU it runs while the host does something else in between. There
    the next steps may be launched behind steps that nobody has read (`ahead`): the last ids are on the device, how many
    there are is known, and uniforms go by position. Who then turns out to have ended is computed once more for nothing,
    into the part of its slot that no id names.

    Args:
        decoder: The model.
        table: Its conversations and their slots.
        stepper: How decode steps run.
        eos_ids: Ids that end a turn.
        temperature: Of the draw; 0 is greedy.
        cut: Which ids may be drawn.
        share: New conversations take over what any other has computed of their prompt (see `SlotTable.place`).

    Attributes:
        rows: The rows in slots `0..n-1`, with some that ended and have not left yet.
        under_way: Replies that have not ended, as far as is known.
    """

    def __init__(
        self,
        decoder: Decoder,
        table: SlotTable,
        stepper: Stepper,
        eos_ids: frozenset[int],
        temperature: float,
        *,
        share: bool = False,
        cut: Cut = WHOLE,
    ) -> None:
        self._decoder, self._table, self._stepper = decoder, table, stepper
        self._eos_ids, self._temperature, self._share, self._cut = eos_ids, temperature, share, cut
        self.rows: list[Row] = []
        self.under_way = 0
        self._launched: list[_Launched] = []

    def launch(self, rows: Sequence[Row] = ()) -> None:
        """Begin replies behind those under way, and go on with all of them; `land` brings the ids.

        Args:
            rows: The new ones: what the cache lacks of their prompts is computed, and each one's first id.
        """
        assert not self._launched or self._stepper.ahead, "land() comes before the next launch()"
        if rows:
            self._open(rows)
        else:
            self._let_leave()
        # Who looks at each id looks at the first one, too.
        if not rows or (self._stepper.runs_behind and not self._looked_at()):
            self._go_on()

    def land(self) -> list[Row]:
        """Read what was launched, which may be waited for; returns the rows that ended."""
        return self._read(len(self._launched))

    def proceed(self, rows: Sequence[Row] = ()) -> list[Row]:
        """Launch what comes next, and read what was launched before: first, or (where `ahead`) meanwhile.

        Args:
            rows: New ones, as in `launch`.

        Returns:
            The rows that ended in what was read.
        """
        ended = [] if self.ahead else self.land()
        unread = len(self._launched)
        self.launch(rows)
        return ended + self._read(unread)

    @property
    def ahead(self) -> bool:
        """Whether the next steps are launched before the last ones are read.

        Not where somebody looks at each id, and not where more than half of the rows have ended, or reach their caps in
        what is unread: to read first costs the device a pause about as long as one step, and a step without those rows
        is the cheaper one.
        """
        if not self._launched or not self._stepper.ahead or self._looked_at():
            return False
        return 2 * sum(row.live and row.sampled < row.cap for row in self.rows) >= len(self.rows)

    def give_up(self, rows: Iterable[Row]) -> None:
        """Nobody waits for these replies of the batch, which are under way, any more."""
        for row in rows:
            row.given_up = True
            self.under_way -= 1
        if not self.under_way:
            self.drop()

    def drop(self) -> None:
        """No reply is under way any more, and what was launched is of no interest."""
        self.rows, self.under_way, self._launched = [], 0, []

    def _read(self, count: int) -> list[Row]:
        """Read the first `count` parts of what was launched; returns the rows that ended."""
        parts, self._launched = self._launched[:count], self._launched[count:]
        ended = [row for part in parts for row in self._take(part)]
        if not self.under_way:
            self._launched = []  # steps of rows that all turned out to have ended
        return ended

    # -- Where rows stand ---------------------------------------------------------------------------------------------

    def _let_leave(self) -> None:
        """Rows that ended leave when steps are so much cheaper without them that it pays to move others up."""
        live = self.under_way
        if not live:
            self.rows = []
        elif self._table.order is not self.rows or self._stepper.smaller(live, len(self.rows)):
            self._close_up()

    def _close_up(self, *, at_once: bool = True) -> None:
        """Bring the rows under way to slots `0..n-1`, wherever they are; those that ended leave."""
        if self._table.order is self.rows:
            if self.under_way < len(self.rows):
                self.rows = self._table.compact(at_once=at_once)
        else:  # another batch was at the front, so the slots of rows that ended may be somebody else's
            self.rows = self._table.bring([row for row in self.rows if row.live])

    # -- What they compute --------------------------------------------------------------------------------------------

    def _open(self, rows: Sequence[Row]) -> None:
        """Launch the prefills of new rows, and the draw of their first ids."""
        self._close_up(at_once=False)
        first = len(self.rows)
        groups = self._table.place(rows, self.rows, waste=self._stepper.waste, share=self._share)
        logits = self._prefill(first, groups)
        self.rows = self._table.order
        self.under_way += len(rows)
        new = self.rows[first:]
        draws = self._draws(new, 1)
        sampled = sample(logits, self._temperature, None if draws is None else draws[:, 0], self._cut)
        for row in new:
            row.sampled = 1
        self._launch(new, self._table.slots[first : len(self.rows)], sampled, fed=False)

    def _go_on(self) -> None:
        """Launch one call of the stepper for all rows; nothing where none is under way."""
        rows = self.rows
        left = max((row.cap - row.sampled for row in rows if row.live), default=0)
        if left <= 0:
            return
        looked_at = self._looked_at()
        steps = 1 if looked_at else min(self._stepper.pace(), left)
        slots = self._table.slots[: len(rows)]
        feed = Feed(
            self._last_ids(), [len(slot.ids) + row.unread for slot, row in zip(slots, rows, strict=True)],
            self._draws(rows, steps), self._temperature, steps, keep=looked_at, cut=self._cut,
        )  # fmt: skip
        with _forward():
            sampled = self._stepper.advance(feed)
        for row in rows:
            if row.live:  # one at its cap stays there: what it is fed on is for nothing, and must not need more room
                row.sampled = min(row.sampled + steps, row.cap)
        self._launch(rows, slots, sampled, fed=True)

    def _launch(self, rows: Sequence[Row], slots: Sequence[Slot], sampled: Sampled, *, fed: bool) -> None:
        """Note what the device computes now, and have it sent to the host before anything that is launched later."""
        self._launched.append(_Launched(rows, slots, sampled, fed, Fetched(sampled.ids, sampled.facts)))

    def _last_ids(self) -> torch.Tensor:
        """Each row's last id, `[rows]`: as it was read, or from the last steps that sampled it and nobody has read."""
        if self._launched and self._launched[-1].rows is self.rows:
            return self._launched[-1].sampled.ids[-1]
        device = self._decoder.device
        ids = sent([row.ids[-1] if row.ids else 0 for row in self.rows], device)
        if not self._launched:
            return ids
        place: dict[int, int] = {}
        begin = len(self.rows)
        for part in self._launched:
            place.update((id(row), at) for at, row in enumerate(part.rows, start=begin))
            begin += len(part.rows)
        index = [place.get(id(row), at) for at, row in enumerate(self.rows)]
        return torch.cat([ids, *(part.sampled.ids[-1] for part in self._launched)])[sent(index, device)]

    def _looked_at(self) -> bool:
        """Whether somebody looks at each id of a row before the next one is sampled."""
        return any((row.control is not None or row.top) and row.live for row in self.rows)

    def _draws(self, rows: Sequence[Row], steps: int) -> torch.Tensor | None:
        """Each row's next uniforms, `[rows, steps]`; `None` where greedy."""
        if self._temperature == 0.0:
            return None
        draws = np.concatenate([row.draws[row.sampled : row.sampled + steps] for row in rows])
        return sent(draws.reshape(len(rows), steps), self._decoder.device)

    def _prefill(self, begin: int, groups: list[tuple[int, int]]) -> torch.Tensor:
        """Compute what the cache lacks of the rows from slot `begin` on.

        Returns:
            Logits after each prompt, `[rows, vocabulary]` in slot order.
        """
        order, table = self._table.order, self._table
        parts: list[torch.Tensor] = []
        for first, last in groups:
            rows = order[first:last]
            tokens = max(row.pending for row in rows)
            cells = tokens * (max(row.kept for row in rows) + tokens)
            step = max(1, self._stepper.cells // cells)
            for at in range(first, last, step):
                parts.append(self._prefill_rows(at, order[at : min(at + step, last)]))
        logits = torch.cat(parts)
        followers = order[begin + logits.shape[0] :]
        if followers:
            slot = {row.conversation: at for at, row in enumerate(order)}
            sources = [slot[row.leader.conversation] for row in followers if row.leader is not None]
            targets = [slot[row.conversation] for row in followers]
            table.cache.move(targets, sources, max(len(row.prompt) for row in followers))
            for source, target in zip(sources, targets, strict=True):
                table.slots[target].ids = list(table.slots[source].ids)
            index = sent(sources, logits.device) - begin
            logits = torch.cat([logits, logits[index]])
        return logits

    def _prefill_rows(self, first: int, rows: list[Row]) -> torch.Tensor:
        """One prefill of neighbouring slots; logits at each row's last id."""
        pending = [row.prompt[row.kept :] for row in rows]
        opening = Opening(first, pending, [row.kept for row in rows], len(self._table.slots))
        with _forward():
            logits = self._stepper.prefill(opening)
        for offset, row in enumerate(rows):
            self._table.slots[first + offset].ids = list(row.prompt)
        return logits

    def _take(self, launched: _Launched) -> list[Row]:
        """Append what was sampled to the rows that have not ended; what follows an end is dropped."""
        rows, sampled = launched.rows, launched.sampled
        tops = _top_means(rows, sampled)
        ids, known = launched.fetched.wait()
        forced = _forced(rows, known, tops)
        if forced:
            sampled.put(forced, self._temperature)
            ids, known = Fetched(sampled.ids, sampled.facts).wait()
        if not np.isfinite(known).all():
            raise PolicyError("the model's logits are not numbers: its weights, or the type it runs in, are broken")
        chosen, (logprobs, entropies, largest) = ids.T.tolist(), known.transpose(0, 2, 1).tolist()
        ended: list[Row] = []
        for at, row in enumerate(rows):
            if not row.live:
                continue
            if at in tops:
                row.top_means.append(tops[at])
            before = len(row.ids)
            taken = self._take_ids(row, chosen[at])
            if taken == len(ids):
                row.know(logprobs[at], entropies[at], largest[at], forced=at in forced)
            else:
                row.know(logprobs[at][:taken], entropies[at][:taken], largest[at][:taken], forced=False)
            if row.finish is not None:
                row.sampled = len(row.ids)
                self.under_way -= 1
                ended.append(row)
            if launched.fed:
                launched.slots[at].ids += row.ids[before - 1 : -1]
        self._stepper.ended([len(row.ids) for row in ended])
        return ended

    def _take_ids(self, row: Row, ids: list[int]) -> int:
        """Append ids up to where the reply ends; returns how many."""
        if row.stops is None and len(row.ids) + len(ids) < row.cap and self._eos_ids.isdisjoint(ids):
            row.ids += ids  # most steps end nothing, and to look at each id would take longer than the rest
            return len(ids)
        for taken, token in enumerate(ids, start=1):
            row.ids.append(token)
            row.finish = self._finish(row)
            if row.finish is not None:
                return taken
        return len(ids)

    def _finish(self, row: Row) -> FinishReason | None:
        if row.ids[-1] in self._eos_ids:
            return FinishReason.STOP
        if row.stops is not None and row.stops.found(row.ids):
            return FinishReason.STOP_TEXT
        return FinishReason.LENGTH if len(row.ids) == row.cap else None


@contextmanager
def _forward() -> Iterator[None]:
    """An index that the model's tables lack (an id, a position) is the engine's failure; elsewhere it is a defect."""
    try:
        yield
    except IndexError as error:
        raise PolicyError(f"the model's forward failed: {type(error).__name__}: {error}") from error


def _top_means(rows: Sequence[Row], sampled: Sampled) -> dict[int, float]:
    """Row number to what its request's `top` asks for, of unfinished rows, at the one step that was sampled."""
    wanted = {row.top for row in rows if row.top and row.live}
    if not wanted:
        return {}
    assert sampled.known is not None
    known = {count: top_mean(sampled.known, count).tolist() for count in wanted}
    return {at: known[row.top][at] for at, row in enumerate(rows) if row.top and row.live}


def _forced(rows: Sequence[Row], facts: np.ndarray, tops: dict[int, float]) -> dict[int, int]:
    """What the controls of unfinished rows want instead of the ids that one step sampled: row number to id."""
    forced: dict[int, int] = {}
    if not any(row.control is not None and row.live for row in rows):
        return forced
    entropy, top = facts[1, 0].tolist(), facts[2, 0].tolist()
    for at, row in enumerate(rows):
        if row.control is not None and row.live:
            if at in tops and isinstance(row.control, TopControl):
                row.control.watch(tops[at])
            wanted = row.control.force(row.ids, entropy[at], top[at])
            if wanted is not None:
                forced[at] = wanted
    return forced
