"""SlotCache: a KV cache with one slot per conversation, each at its own length, kept across turns.

Transformers' own caches are either grown by concatenation at every step (a copy of everything) or fixed in one length
for all rows. Here each conversation owns a slot of preallocated tensors; a forward works on slots `0..rows-1` as a
view, writes its new keys and values at each row's own positions, and reads up to the longest row. What lies beyond a
row's length is garbage that the caller's mask hides.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache

_BLOCK = 64
"""Slot lengths grow in steps of this many positions."""


class SlotCache(Cache):
    """Keys and values as `[slots, heads, length, dim]` per layer, allocated when a layer first writes.

    The models see a transformers `Cache`; only `update` and `get_seq_length` are used by a forward that brings its own
    4D mask and position ids.

    Attributes:
        slots: Slots allocated.
        length: Positions allocated per slot.
        generation: Grows whenever the tensors are allocated anew.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.slots = 0
        self.length = 0
        self.generation = 0
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}
        self._first = 0
        self._rows = 0
        self._read = 0
        self._positions: torch.Tensor | None = None
        self._flat: dict[int, torch.Tensor] = {}

    def reserve(self, slots: int, length: int) -> None:
        """Make room for `slots` slots of `length` positions; what is stored stays."""
        if slots <= self.slots and length <= self.length:
            return
        if length > self.length:
            length = max(length, self.length + self.length // 2)
            length = -(-length // _BLOCK) * _BLOCK
        slots, length = max(slots, self.slots), max(length, self.length)
        for store in (self._keys, self._values):
            for layer, old in store.items():
                new = old.new_zeros(slots, old.shape[1], length, old.shape[3])
                new[: self.slots, :, : self.length] = old
                store[layer] = new
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
        self._flat.clear()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[rows, heads, tokens, dim]` at the selected positions; return views up to the read length."""
        index, last = self._index(key_states.shape[1]), self._first + self._rows
        views = []
        for store, states in ((self._keys, key_states), (self._values, value_states)):
            kept = store.get(layer_idx)
            if kept is None:
                shape = (self.slots, states.shape[1], self.length, states.shape[3])
                kept = store[layer_idx] = states.new_zeros(shape)
            kept.view(-1, kept.shape[3]).index_copy_(0, index, states.reshape(-1, kept.shape[3]))
            views.append(kept[self._first : last, :, : self._read])
        return views[0], views[1]

    def _index(self, heads: int) -> torch.Tensor:
        """Flat row numbers of `[slots * heads * length]` for the selected positions, in `[rows, heads, tokens]` order.

        Positions stay below `length`, so `(slot * heads + head) * length + position` never meets another slot.
        """
        flat = self._flat.get(heads)
        if flat is None:
            positions = self._positions
            assert positions is not None, "select() comes before a forward"
            blocks = (
                torch.arange(self._first * heads, (self._first + self._rows) * heads, device=positions.device)
                * self.length
            )
            flat = (blocks.view(self._rows, heads, 1) + positions.view(self._rows, 1, -1)).reshape(-1)
            self._flat[heads] = flat
        return flat

    def permute(self, targets: list[int], sources: list[int], length: int) -> None:
        """Move slots: `targets[i]` takes what `sources[i]` held, both the same set; their first `length` positions."""
        for store in (self._keys, self._values):
            for tensor in store.values():
                index = torch.tensor([targets, sources], device=tensor.device)
                tensor[index[0], :, :length] = tensor[index[1], :, :length]

    def copy_slot(self, source: int, targets: list[int], length: int) -> None:
        """Copy the first `length` positions of one slot to others."""
        for store in (self._keys, self._values):
            for tensor in store.values():
                tensor[targets, :, :length] = tensor[source, :, :length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions the selected forward sees."""
        return self._read
