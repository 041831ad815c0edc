from __future__ import annotations

import torch

from agents.policies.slots import SlotCache


def filled(slots: int = 4, length: int = 8) -> SlotCache:
    cache = SlotCache()
    cache.reserve(slots, length)
    positions = torch.arange(length).expand(slots, length)
    cache.select(0, slots, positions, length)
    states = torch.arange(slots * 2 * length * 3, dtype=torch.float32).view(slots, 2, length, 3)
    cache.update(states, -states, 0)
    return cache


def stored(cache: SlotCache, slots: int, length: int) -> torch.Tensor:
    return cache._blocks[0][0][:slots, :, :length].clone()


def test_rows_write_at_their_own_positions_and_read_a_view() -> None:
    cache = filled()
    before = stored(cache, 4, 8)
    cache.select(1, 2, torch.tensor([[3], [6]]), 7)
    new = torch.full((2, 2, 1, 3), 999.0)
    keys, values = cache.update(new, new, 0)
    assert keys.shape == values.shape == (2, 2, 7, 3)
    assert keys.data_ptr() == cache._blocks[0][0][1].data_ptr()
    expected = before.clone()
    expected[1, :, 3] = expected[2, :, 6] = 999.0
    assert torch.equal(stored(cache, 4, 8), expected)


def test_growing_keeps_what_is_stored() -> None:
    cache = filled()
    before = stored(cache, 4, 8)
    cache.reserve(6, 500)
    assert cache.slots == 6 and cache.length >= 500
    assert torch.equal(stored(cache, 4, 8), before)
    cache.reserve(2, 3)
    assert cache.slots == 6


def test_growing_slot_by_slot_moves_what_is_stored_now_and_then() -> None:
    cache = filled(1)
    for slots in range(2, 101):
        cache.reserve(slots, 8)
    assert 100 <= cache.slots <= 125 and cache.generation < 30


def test_moves_and_copies() -> None:
    cache = filled()
    before = stored(cache, 4, 8)
    cache.move([0, 1, 3], [3, 0, 1], 8)
    assert torch.equal(stored(cache, 4, 8), before[[3, 0, 2, 1]])
    cache.move([1, 2], [0, 0], 5)
    after = stored(cache, 4, 8)
    assert torch.equal(after[1, :, :5], before[3, :, :5]) and torch.equal(after[2, :, :5], before[3, :, :5])
    assert torch.equal(after[1, :, 5:], before[0, :, 5:])
