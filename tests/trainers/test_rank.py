"""The rank that a trained adapter would need, beside the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.shared_data import shared
from trainers.rank import NeededRank, compressed, needed_rank, recommended_rank, variance_by_rank


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


def save_adapter(folder: Path, *, scale: float, dtype: torch.dtype = torch.float32) -> None:
    """Two layers of rank 8 whose products have 2 equal singular values, and 2 more of `scale`."""
    folder.mkdir(exist_ok=True)
    values = torch.tensor([1.0, 1.0, scale, scale, 0, 0, 0, 0])
    tensors = {}
    for layer in ("q_proj", "v_proj"):
        tensors[f"base_model.{layer}.lora_A.weight"] = torch.eye(8, 16).to(dtype)
        tensors[f"base_model.{layer}.lora_B.weight"] = (torch.eye(12, 8) * values).to(dtype)
    save_file(tensors, folder / "adapter_model.safetensors")


def test_the_rank_that_a_saved_adapter_needs(tmp_path: Path) -> None:
    assert needed_rank(tmp_path) is None
    save_adapter(tmp_path, scale=0.0)
    assert needed_rank(tmp_path) == NeededRank(2, 8)
    save_adapter(tmp_path, scale=1.0, dtype=torch.bfloat16)
    assert needed_rank(tmp_path) == NeededRank(4, 8) and str(needed_rank(tmp_path)) == "4 of 8"
    save_file(
        {"a.lora_A.weight": torch.eye(2), "a.lora_B.weight": torch.zeros(2, 2)}, tmp_path / "adapter_model.safetensors"
    )
    assert needed_rank(tmp_path) is None, "nothing was learned"
    save_file({"a.lora_A.weight": torch.eye(2)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"not a LoRA adapter: it holds a\.lora_A"):
        needed_rank(tmp_path)
