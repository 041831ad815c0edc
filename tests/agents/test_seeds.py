from __future__ import annotations

from agents.seeds import derive_seed


def test_parts_and_their_order_and_type_matter() -> None:
    seeds = [
        derive_seed(), derive_seed(0), derive_seed(1), derive_seed("1"), derive_seed(1, 2), derive_seed(2, 1),
        derive_seed(12), derive_seed("1", "2"), derive_seed("12"),
    ]  # fmt: skip
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_value_is_fixed() -> None:
    # Recorded runs depend on it: change the derivation and their seeds mean something else.
    assert derive_seed(0, "task", 3) == derive_seed(0, "task", 3) == 1721272124694807316
