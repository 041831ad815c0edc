"""Which conversation owns which part of the KV cache, kept across turns; texts that end a reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from agents.policy import Completion, FinishReason, TokenControl

# -- SlotCache: a KV cache with one slot per conversation, each at its own length, kept across turns ------------------
# Transformers' own caches are either grown by concatenation at every step (a copy of everything) or fixed in one
# length for all rows. Here each conversation owns a slot of preallocated tensors; a forward works on neighbouring slots
# as a view (or on any slots, as a copy), writes new keys and values at each row's own positions, and reads up to the
# longest row. What lies beyond a row's length is garbage that the caller's mask hides.

_BLOCK = 64
"""Slot lengths grow in steps of this many positions."""
_PLANES = 16
"""Keys or values of so many layers at most lie in one tensor: moving slots takes few launches, and growing, which has
the old and the new one at the same time, little more room."""


def by_half(needed: int, had: int) -> int:
    """Length of slots that must have `needed` positions and had `had`: half as much again."""
    return -(-max(needed, had + had // 2) // _BLOCK) * _BLOCK


def sent(numbers: Any, device: torch.device) -> torch.Tensor:
    """Numbers of the host on a device; a GPU goes on with what it computes, and the host does not wait for that."""
    tensor = torch.as_tensor(numbers)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class SlotCache(Cache):
    """Keys and values as `[slots, heads, length, dim]` per layer, allocated when a layer first writes.

    The models see a transformers `Cache`; only `update` and `get_seq_length` are used by a forward that brings its own
    4D mask and position ids.

    Attributes:
        slots: Slots allocated.
        length: Positions allocated per slot.
        generation: Grows whenever the tensors are allocated anew.
        grown: The length to allocate, from the one that is needed and the one that was.
        layer_count: Layers of the model; 0 where nobody knows.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.slots = 0
        self.length = 0
        self.generation = 0
        self.grown: Callable[[int, int], int] = by_half
        self.layer_count = 0
        self._blocks: list[torch.Tensor] = []
        """`[planes, slots, heads, length, dim]` each; a plane holds the keys or the values of a layer."""
        self._planes: dict[tuple[int, bool], tuple[int, int]] = {}
        """Layer, and whether values are meant: block and plane."""
        self._free: dict[tuple[object, ...], list[tuple[int, int]]] = {}
        """Planes that no layer has yet, by heads, dim, type and device."""
        self._first = 0
        self._rows = 0
        self._picked: torch.Tensor | None = None
        self._read = 0
        self._positions: torch.Tensor | None = None
        self._flat: dict[int, torch.Tensor] = {}

    def reserve(self, slots: int, length: int) -> None:
        """Make room for `slots` slots of `length` positions; what is stored stays."""
        if slots <= self.slots and length <= self.length:
            return
        if length > self.length:
            length = self.grown(length, self.length)
        if slots > self.slots:  # conversations come one by one in a stream: not every one may move all of it
            slots = max(slots, self.slots + self.slots // 4)
        slots, length = max(slots, self.slots), max(length, self.length)
        for at, old in enumerate(self._blocks):
            new = old.new_zeros(old.shape[0], slots, old.shape[2], length, old.shape[4])
            new[:, : self.slots, :, : self.length] = old
            self._blocks[at] = new
        self.slots, self.length = slots, length
        self.generation += 1

    def select(self, first: int, rows: int, positions: torch.Tensor, read: int) -> None:
        """Aim the next forward at slots `first..first+rows-1`.

        Args:
            first: First slot of the batch.
            rows: Rows of the batch.
            positions: `[rows, tokens]`, where each row's new keys and values go.
            read: Positions that attention sees (the last dimension of the caller's mask).
        """
        self._first, self._rows, self._read, self._positions = first, rows, read, positions
        self._picked = None
        self._flat.clear()

    def pick(self, slots: torch.Tensor, positions: torch.Tensor, read: int) -> None:
        """As `select`, for the slots `[rows]` that a tensor names: attention then reads a copy of them."""
        self._picked, self._read, self._positions = slots, read, positions
        self._flat.clear()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[rows, heads, tokens, dim]` at the selected positions; return what attention reads."""
        keys, values = self.stored(layer_idx, key_states)
        index = self.index(key_states.shape[1])
        for kept, states in ((keys, key_states), (values, value_states)):
            kept.view(-1, kept.shape[3]).index_copy_(0, index, states.reshape(-1, kept.shape[3]))
        return self.seen(keys), self.seen(values)

    def stored(self, layer: int, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values of a layer, `[slots, heads, length, dim]`, for states `[rows, heads, tokens, dim]`."""
        return self._plane((layer, False), states), self._plane((layer, True), states)

    def _plane(self, key: tuple[int, bool], states: torch.Tensor) -> torch.Tensor:
        place = self._planes.get(key)
        if place is None:
            heads, dim = states.shape[1], states.shape[3]
            free = self._free.setdefault((heads, dim, states.dtype, states.device), [])
            if not free:
                blocks = -(-2 * self.layer_count // _PLANES)
                planes = -(-2 * self.layer_count // blocks) if blocks else 1
                free += [(len(self._blocks), plane) for plane in reversed(range(planes))]
                self._blocks.append(states.new_zeros(planes, self.slots, heads, self.length, dim))
            place = self._planes[key] = free.pop()
        block, plane = place
        return self._blocks[block][plane]

    def seen(self, kept: torch.Tensor) -> torch.Tensor:
        """Of keys or values of a layer what the forward reads: a view, or a copy of the slots that were picked."""
        if self._picked is None:
            return kept[self._first : self._first + self._rows, :, : self._read]
        return kept[:, :, : self._read].index_select(0, self._picked)

    def index(self, heads: int) -> torch.Tensor:
        """Flat row numbers of `[slots * heads * length]` for the selected positions, in `[rows, heads, tokens]` order.

        Positions stay below `length`, so `(slot * heads + head) * length + position` never meets another slot.
        """
        flat = self._flat.get(heads)
        if flat is None:
            positions = self._positions
            assert positions is not None, "select() comes before a forward"
            slots = self._picked
            if slots is None:
                slots = torch.arange(self._first, self._first + self._rows, device=positions.device)
            blocks = (slots.unsqueeze(1) * heads + torch.arange(heads, device=positions.device)) * self.length
            flat = (blocks.unsqueeze(2) + positions.unsqueeze(1)).reshape(-1)
            self._flat[heads] = flat
        return flat

    def move(self, targets: list[int], sources: list[int], length: int) -> None:
        """`targets[i]` takes what `sources[i]` held before the call: its first `length` positions."""
        moves: dict[torch.device, torch.Tensor] = {}
        for block in self._blocks:
            if (index := moves.get(block.device)) is None:
                index = moves[block.device] = sent([targets, sources], block.device)
            held = block[:, :, :, :length]
            held.index_copy_(1, index[0], held.index_select(1, index[1]))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions the selected forward sees."""
        return self._read


# -- End a reply where its text holds a stop text, while it is sampled ------------------------------------------------

_SLACK = 8
"""Ids beyond the bytes of the longest stop text, for ids that stand for no text and half characters at the edge."""


class StopTexts:
    """Looks for the stop texts of one reply.

    Only a window of the last ids is decoded after each id (an id stands for at least a byte); what the window shows is
    confirmed on the whole reply. Only whole characters count: half a character at the end shows as U+FFFD, so a real
    U+FFFD counts as soon as another id follows it.

    Args:
        tokenizer: Decodes ids.
        stops: The texts; none may be empty.

    Raises:
        ValueError: A stop text is empty: every reply would end at once.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("an empty stop text would end every reply at once")
        self._decode = tokenizer.decode
        self._stops = tuple(stops)
        self._window = max(len(stop.encode("utf-8", "surrogatepass")) for stop in stops) + _SLACK

    def found(self, ids: Sequence[int]) -> bool:
        """Whether the last id of `ids` completed a stop text."""
        return self._in(ids[-self._window :]) and self._in(ids)

    def _in(self, ids: Sequence[int]) -> bool:
        text = self._decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        text = text.rstrip("\ufffd")
        return any(stop in text for stop in self._stops)


# -- Which conversation owns which slot of the KV cache, and which slots one call works on ----------------------------
# A forward reads a contiguous run of slots as a view, so the conversations of a call are brought to the front by
# swapping slots. In the steady state of lockstep turns hardly anything moves.


WASTE = 96
"""Padding (in ids) that is cheaper to compute than another forward."""


@dataclass(slots=True)
class Slot:
    """One conversation's place in the cache: whose it is, and the ids whose keys and values it holds."""

    conversation: str | None = None
    ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Row:
    """One request while it is served.

    Attributes:
        draws: Its uniforms, one per position of the reply, and as many behind the last as a stepper may run on; empty
            where greedy.
        kept: Ids of the prompt that the cache holds.
        sampled: Ids of the reply that are sampled, read or not, never more than `cap`; `ids` has those that were read.
        leader: A row of the same call with the same prompt, whose cache this one takes.
        given_up: Nobody waits for the reply any more.
    """

    conversation: str
    prompt: list[int]
    cap: int
    control: TokenControl | None = None
    draws: np.ndarray = field(default_factory=lambda: np.empty(0))
    stops: StopTexts | None = None
    fork_of: str | None = None
    kept: int = 0
    leader: Row | None = None
    sampled: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    max_logprobs: list[float] = field(default_factory=list)
    top: int = 0
    top_means: list[float] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    finish: FinishReason | None = None
    given_up: bool = False

    @property
    def live(self) -> bool:
        """Whether the reply is under way."""
        return self.finish is None and not self.given_up

    @property
    def unread(self) -> int:
        """Ids that the cache holds behind those that its slot names: all of the reply's but the last, once read."""
        return max(0, self.sampled - max(1, len(self.ids)))

    @property
    def pending(self) -> int:
        """Ids that prefill must compute."""
        return len(self.prompt) - self.kept

    def know(self, logprobs: list[float], entropies: list[float], max_logprobs: list[float], *, forced: bool) -> None:
        """Append what was known about the ids that were just taken."""
        self.logprobs += logprobs
        self.entropies += entropies
        self.max_logprobs += max_logprobs
        self.forced += [forced] * len(logprobs)

    def completion(self) -> Completion:
        """The reply, once it has ended."""
        assert self.finish is not None
        done = Completion(self.ids, self.logprobs, self.entropies, self.max_logprobs, self.forced, self.finish)
        done.top_means = self.top_means if self.top else None
        return done


class SlotTable:
    """Conversations and their slots.

    Attributes:
        cache: Keys and values.
        slots: One entry per slot of the cache that was ever used.
        order: The rows of the batch at the front, in the order of their slots `0..n-1`.
    """

    def __init__(self) -> None:
        self.cache = SlotCache()
        self.slots: list[Slot] = []
        self.order: list[Row] = []
        self._owned: dict[str, Slot] = {}
        """By conversation."""
        self._held: list[int] = []
        """Where the cache has the content of each slot, as long as moves are put off: `_move` makes them at once."""

    def forget(self, conversations: Iterable[str] | None = None) -> None:
        """Free the slots of these conversations; `None` frees all."""
        if conversations is None:
            self._held = []  # after a failure in the middle of moves
            conversations = list(self._owned)
        for conversation in conversations:
            if (slot := self._owned.pop(conversation, None)) is not None:
                slot.conversation = None
                slot.ids.clear()

    def place(
        self, rows: Sequence[Row], under_way: Sequence[Row] = (), *, waste: int = WASTE, share: bool = False
    ) -> list[tuple[int, int]]:
        """Give each row a slot, crop to the common prefix, and bring the rows behind those that are under way.

        Rows with about as many ids to compute stand side by side, so that one forward wastes little on padding; rows
        that repeat another fresh row's prompt (attempts at one task) stand last and copy its cache.

        Args:
            rows: The new rows; they come to slots `n..n+m-1`.
            under_way: Rows that hold slots `0..n-1`, and stay there.
            waste: Padding (in ids) that is cheaper to compute than another forward.
            share: A new conversation copies what any slot holds of its prompt. Without, only `fork_of` is copied, so
                that the bytes of a reply do not depend on which other conversations the cache still holds.

        Returns:
            Ranges of slots to prefill together. `order` holds all rows in slot order.
        """
        slot_of = {slot.conversation: index for index, slot in enumerate(self.slots) if slot.conversation is not None}
        free = iter([index for index, slot in enumerate(self.slots) if slot.conversation is None])
        place: dict[str, int] = {}
        leaders: dict[tuple[int, ...], Row] = {}
        copies: list[tuple[int, int, int]] = []
        for row in rows:
            at = slot_of.get(row.conversation)
            if at is None:
                at = next(free, len(self.slots))
                if at == len(self.slots):
                    self.slots.append(Slot())
                self.slots[at] = self._owned[row.conversation] = Slot(row.conversation)
                source = slot_of.get(row.fork_of) if row.fork_of is not None else None
                if source is None and share and tuple(row.prompt) not in leaders:
                    source = self._likest(row.prompt)
                if source is not None:
                    self.slots[at].ids = list(self.slots[source].ids)
                    copies.append((source, at, common_prefix(self.slots[source].ids, row.prompt)))
                    if share:
                        leaders.setdefault(tuple(row.prompt), row)
            slot = self.slots[at]
            row.kept = min(common_prefix(slot.ids, row.prompt), len(row.prompt) - 1)
            del slot.ids[row.kept :]
            place[row.conversation] = at
            if row.kept == 0:
                row.leader = leaders.setdefault(tuple(row.prompt), row)
                if row.leader is row:
                    row.leader = None
        self.cache.reserve(len(self.slots), max(len(row.prompt) for row in rows) + 1)
        self._copy(copies)
        own = sorted((row for row in rows if row.leader is None), key=lambda row: -row.pending)
        begin = len(under_way)
        groups = [(begin + first, begin + last) for first, last in prefill_groups(own, waste)]
        followers = [row for row in rows if row.leader is not None]
        regions = [*groups, (begin + len(own), begin + len(rows))]
        wanted = own + followers
        order: list[Row | None] = [*under_way, *[None] * len(rows)]
        for first, last in regions:
            moving = []
            for row in wanted[first - begin : last - begin]:
                at = place[row.conversation]
                if first <= at < last:
                    order[at] = row
                else:
                    moving.append(row)
            for at in range(first, last):
                if order[at] is None:
                    order[at] = moving.pop()
        self.order = [row for row in order if row is not None]
        self._arrange()
        self._move()
        return groups

    def _copy(self, copies: list[tuple[int, int, int]]) -> None:
        """Copy prefixes from slot to slot (source, target, length), as if one after the other."""
        together: dict[int, tuple[int, int]] = {}
        for source, target, length in copies:
            if source in together:  # it holds its own copy only when those before are made
                self._copy_now(together)
            together[target] = (source, length)
        self._copy_now(together)

    def _copy_now(self, together: dict[int, tuple[int, int]]) -> None:
        length = max((length for _, length in together.values()), default=0)
        if length:
            sources = [self._where(source) for source, _ in together.values()]
            self.cache.move([self._where(target) for target in together], sources, length)
        together.clear()

    def _likest(self, prompt: list[int]) -> int | None:
        """The slot that holds most of a prompt; `None` where none holds any."""
        lengths = [common_prefix(slot.ids, prompt) for slot in self.slots]
        longest = max(lengths, default=0)
        return lengths.index(longest) if longest else None

    def bring(self, rows: list[Row]) -> list[Row]:
        """Bring rows that have slots to the front, in this order; returns them as the new `order`."""
        self.order = rows
        self._arrange()
        self._move()
        return rows

    def compact(self, *, at_once: bool = True) -> list[Row]:
        """Bring the slots of the rows under way to the front; returns those rows as the new `order`.

        `at_once` is for whoever calls `place` next, which moves the cache's content together with its own moves.
        """
        rows, count = self.order, sum(row.live for row in self.order)
        holes = [at for at in range(count) if not rows[at].live]
        movers = [at for at in range(count, len(rows)) if rows[at].live]
        live = list(range(count))
        for hole, mover in zip(holes, movers, strict=True):
            self._swap(hole, mover)
            live[hole] = mover
        if at_once:
            self._move()
        self.order = [rows[at] for at in live]
        return self.order

    def _arrange(self) -> None:
        """Swap slots until slot `i` is that of `order[i]`."""
        at = {slot.conversation: index for index, slot in enumerate(self.slots) if slot.conversation is not None}
        for target, row in enumerate(self.order):
            here = at[row.conversation]
            if here == target:
                continue
            other = self.slots[target]
            self._swap(here, target)
            at[row.conversation] = target
            if other.conversation is not None:
                at[other.conversation] = here

    def _swap(self, one: int, other: int) -> None:
        """Swap two slots; their content in the cache follows with `_move`."""
        self._held += range(len(self._held), len(self.slots))
        self.slots[one], self.slots[other] = self.slots[other], self.slots[one]
        self._held[one], self._held[other] = self._held[other], self._held[one]

    def _where(self, slot: int) -> int:
        """Where the cache has a slot's content."""
        return self._held[slot] if slot < len(self._held) else slot

    def _move(self) -> None:
        """Bring the cache to the order that the slots have already."""
        targets = [slot for slot, origin in enumerate(self._held) if slot != origin]
        length = max((len(self.slots[slot].ids) for slot in targets), default=0)
        if length:
            length += max((row.unread for row in self.order), default=0)
            self.cache.move(targets, [self._held[slot] for slot in targets], length)
        self._held = []


def common_prefix(cached: list[int], prompt: list[int]) -> int:
    """Length of the common prefix."""
    length = min(len(cached), len(prompt))
    if cached[:length] == prompt[:length]:
        return length
    same = 0  # so many are known to be alike; the rest is halved, since comparing lists is faster than comparing ids
    while length - same > 1:
        middle = (same + length) // 2
        if cached[same:middle] == prompt[same:middle]:
            same = middle
        else:
            length = middle
    return same


def prefill_groups(rows: list[Row], most: int) -> list[tuple[int, int]]:
    """Cut rows, sorted by pending ids (most first), where more than `most` ids of a range would be padding."""
    groups: list[tuple[int, int]] = []
    first = waste = 0
    for at, row in enumerate(rows):
        gap = rows[first].pending - row.pending
        if waste + gap > most and at > first:
            groups.append((first, at))
            first, waste, gap = at, 0, 0
        waste += gap
    groups.append((first, len(rows)))
    return groups
