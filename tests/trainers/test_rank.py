"""The rank that a trained adapter would need, beside the reference."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.shared_data import shared
from trainers.rank import compressed, recommended_rank, variance_by_rank


def squeezed(name: str) -> dict[str, Any]:
    records = json.loads(shared("fixtures/credit.json").read_text(encoding="utf-8"))["cases"]
    (case,) = [case for case in records if case["group"] == "squeeze" and case["id"] == name]
    return case


def test_variance_by_rank_reference() -> None:
    case = squeezed("squeeze_diag")
    i, expected = case["inputs"], case["expected"]
    layer = variance_by_rank(np.array(i["A"]), np.array(i["B"]), i["target_ranks"])
    assert layer.singular_values == pytest.approx(expected["singular_values"], abs=case["abs_tol"])
    assert {str(k): v for k, v in layer.variance.items()} == pytest.approx(expected["variance_at_rank"], abs=1e-5)
    assert recommended_rank({"layer": layer}) == expected["recommended_rank_0.95"]


def test_compressed_reference() -> None:
    case = squeezed("squeeze_small")
    up, down, expected = np.array(case["inputs"]["A"]), np.array(case["inputs"]["B"]), case["expected"]
    layer = variance_by_rank(up, down, [1, 2])
    assert layer.singular_values == pytest.approx(expected["singular_values"], abs=case["abs_tol"])
    assert {str(k): v for k, v in layer.variance.items()} == pytest.approx(expected["variance_at_rank"], abs=1e-4)
    small_up, small_down, alpha = compressed(up, down, 1, alpha=32)
    assert (small_up.shape, small_down.shape, alpha) == ((3, 1), (1, 3), 16)
    assert small_up @ small_down == pytest.approx(np.array(expected["rank1_product"]), abs=case["abs_tol"])
    assert np.linalg.norm(up @ down - small_up @ small_down) == pytest.approx(expected["frobenius_error"], abs=1e-4)
    with pytest.raises(ValueError, match=r"rank 3 is not in \[1, 2\]"):
        compressed(up, down, 3, alpha=32)


def test_an_adapter_that_learned_nothing_recommends_no_rank() -> None:
    case = squeezed("squeeze_zero")
    zero = variance_by_rank(np.zeros((3, 2)), np.array(case["inputs"]["B"]), [1, 2])
    assert {str(k): v for k, v in zero.variance.items()} == case["expected"]
    with pytest.raises(ValueError, match="nothing was learned"):
        recommended_rank({"a": zero, "b": zero})
    full = variance_by_rank(np.eye(2), np.eye(2), [1, 2])
    assert recommended_rank({"a": zero, "b": full}, share=0.7) == 2  # with the zero layer, 1 would have 0.75
    assert recommended_rank({"b": variance_by_rank(np.eye(2), np.eye(2), [1])}) is None
    with pytest.raises(ValueError, match="needs shapes"):
        variance_by_rank(np.eye(2), np.eye(3), [1])
