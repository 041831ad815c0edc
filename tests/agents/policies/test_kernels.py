"""Attention of single ids: the rule, who asks for it, and its kernel (on a GPU, or in Triton's interpreter)."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agents.policies import cuda, fused
from agents.policies.decoder import Decoder
from agents.policies.transformers import TransformersPolicy
from agents.policy import Request, Sampling
from tests.agents.toys import model, tokenizer

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
TYPES = [torch.float32] if INTERPRETED else [torch.float32, torch.float16, torch.bfloat16]


def seen(positions: torch.Tensor, read: int) -> torch.Tensor:
    """The mask `[rows, 1, 1, read]`, true where a row sees."""
    return (torch.arange(read, device=positions.device) <= positions[:, None])[:, None, None]


def unmasked(q: Any, keys: Any, values: Any, positions: Any, mask: Any, scale: float) -> torch.Tensor:
    """Row by row from what each has; 0 for what only fills up. The mask is left alone."""
    out = torch.zeros_like(q)
    for row, position in enumerate(positions.tolist()):
        if position < keys.shape[2]:
            weights = (q[row] @ keys[row, :, : position + 1].mT * scale).softmax(-1)
            out[row] = weights @ values[row, :, : position + 1]
    return out


def test_few_rows_share_the_positions_of_a_row() -> None:
    assert fused.splits(256 * 3, 8192) == 1 and fused.splits(24, fused.SPLIT) == 1
    assert [fused.splits(24, read) for read in (512, 1024, 2048, 4096, 8192)] == [2, 4, 8, 8, 8]
    assert fused.splits(8, 10**6) == 32
    for programs in (1, 3, 24, 100, 128, 129, 500):
        for read in (4, 256, 300, 511, 512, 4096, 100_000):
            count = fused.splits(programs, read)
            assert count & (count - 1) == 0
            assert count == 1 or (programs * count <= 256 and read // count >= fused.SPLIT)


def test_the_plain_one_sees_each_row_up_to_its_position() -> None:
    torch.manual_seed(0)
    q, keys, values = torch.randn(4, 2, 3, 16), torch.randn(4, 2, 9, 16), torch.randn(4, 2, 9, 16)
    positions = torch.tensor([0, 3, 8, 5])
    out = fused.attend_one(q, keys, values, positions, lambda: seen(positions, 9), 0.25)
    torch.testing.assert_close(out, unmasked(q, keys, values, positions, None, 0.25))


@pytest.mark.parametrize("kind", ["llama", "gqa", "qwen3"])
def test_steps_ask_the_module_and_what_fills_up_may_read_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[int], int]] = []

    def spy(q: Any, keys: Any, values: Any, positions: Any, mask: Any, scale: float) -> torch.Tensor:
        assert q.shape[0] == len(positions) and q.shape[1] == keys.shape[1]
        calls.append((positions.tolist(), keys.shape[2]))
        return unmasked(q, keys, values, positions, mask, scale)

    masks: list[int] = []
    known = Decoder.mask
    monkeypatch.setattr(Decoder, "mask", lambda self, at, read: (masks.append(at.shape[1]), known(self, at, read))[1])
    monkeypatch.setattr(cuda, "_kernels", lambda decoder: SimpleNamespace(**{**vars(fused), "attend_one": spy}))
    policy, eager = (TransformersPolicy(model(kind), tokenizer()) for _ in range(2))
    cache = policy._table.cache
    policy._stepper = cuda.GraphStepper(policy._decoder, cache, capture=False)
    requests = [Request(f"c{n}", [10 + 7 * n + i for i in range(3 + 60 * n)], seed=n, max_tokens=16) for n in range(5)]
    ours = policy.complete(requests, Sampling(1.0, 16))
    stepped = [positions for positions, _ in calls if len(positions) == 8]
    assert stepped and all(at.count(cache.length - 1) == 3 for at in stepped)
    assert all(at < read or at == cache.length - 1 for positions, read in calls for at in positions)
    # The check of the model's own modules reads three masks of single ids, and the fused step those of many alone.
    assert masks.count(1) == 3 and len(masks) > 4
    for one, other in zip(ours, eager.complete(requests, Sampling(1.0, 16)), strict=True):
        assert one.ids == other.ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_kernel_that_does_not_compile_is_told_and_none_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def probe(*shape: Any) -> None:
        asked.append(shape)
        raise OSError("no compiler\nmore")

    fake = SimpleNamespace(probe=probe)
    monkeypatch.setitem(sys.modules, "agents.policies.kernels", fake)
    monkeypatch.setattr(sys.modules["agents.policies"], "kernels", fake, raising=False)
    decoder = Decoder(model("gqa"))
    assert cuda._kernels(decoder) is None and not asked
    card = torch.device("cuda")
    monkeypatch.setattr(Decoder, "device", card)
    with pytest.warns(UserWarning, match=r"Triton does not work here \(no compiler\)$"):
        assert cuda._kernels(decoder) is None
    assert asked == [(card, torch.float32, 4, 2, 16)]
    fake.probe = lambda *shape: None
    assert cuda._kernels(decoder) is fake


@pytest.fixture
def kernels() -> Any:
    pytest.importorskip("triton", reason="Triton comes with torch where there is a GPU")
    if DEVICE == "cpu" and not INTERPRETED:
        pytest.skip("no GPU; TRITON_INTERPRET=1 runs the kernels on a CPU")
    from agents.policies import kernels as found

    return found


def case(
    rows: int, groups: int, each: int, dim: int, read: int, first: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys, values and positions: one row only fills up, and what nobody may read is no number."""
    generator = torch.Generator().manual_seed(rows + read)
    length = read + 64
    planes = torch.randn(2, first + rows + 1, groups, length, dim, generator=generator)
    positions = torch.randint(0, read, (rows,), generator=generator)
    positions[0], positions[-1] = read - 1, 0
    if rows > 2:
        positions[1] = length - 1
    for row, position in enumerate(positions.tolist()):
        planes[:, first + row, :, position + 1 :] = float("nan")
    keys, values = planes.to(DEVICE, dtype)[:, first : first + rows, :, :read]
    q = torch.randn(rows, groups, each, dim, generator=generator)
    return q.to(DEVICE, dtype), keys, values, positions.to(DEVICE)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("rows", "groups", "each", "dim", "read", "first"),
    [(1, 1, 1, 64, 64, 0), (4, 3, 3, 64, 100, 2), (3, 2, 7, 64, 256, 1), (4, 2, 8, 128, 70, 0), (64, 3, 3, 64, 66, 3),
     (2, 1, 3, 64, 512, 1), (3, 1, 7, 64, 1024, 1), (4, 2, 8, 128, 600, 0), (2, 2, 2, 16, 6, 0), (2, 1, 20, 32, 300, 1),
     (3, 1, 4, 256, 100, 0)],
)  # fmt: skip
def test_the_kernel_is_attention_over_what_a_row_has(
    rows: int, groups: int, each: int, dim: int, read: int, first: int, dtype: torch.dtype, kernels: Any
) -> None:
    q, keys, values, positions = case(rows, groups, each, dim, read, first, dtype)

    def nobody() -> torch.Tensor:
        raise AssertionError("the mask is not read")

    out = kernels.attend_one(q, keys, values, positions, nobody, dim**-0.5).double()
    wide = [part.double().nan_to_num() for part in (q, keys, values)]
    want = fused.attend_one(*wide, positions, lambda: seen(positions, read), dim**-0.5)
    real = positions < read
    assert not out[~real].any()
    # The weights are rounded to the type of the values, and so is the result.
    near = 1e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(out[real], want[real], atol=near, rtol=near)


@pytest.mark.gpu
@pytest.mark.parametrize(("dim", "on"), [(24, True), (32, False)])
def test_what_the_kernel_does_not_know_is_attended_as_ever(
    dim: int, on: bool, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "ATTENDS_ONE", on)
    q, keys, values, positions = case(2, 2, 3, dim, 40, 1, torch.float32)
    keys, values, asked = keys.nan_to_num(), values.nan_to_num(), []

    def mask() -> torch.Tensor:
        asked.append(True)
        return seen(positions, 40)

    out = kernels.attend_one(q, keys, values, positions, mask, 0.2)
    assert asked
    torch.testing.assert_close(out, fused.attend_one(q, keys, values, positions, mask, 0.2))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_result_depends_on_nothing_but_its_row(dtype: torch.dtype, kernels: Any) -> None:
    q, keys, values, positions = case(6, 3, 3, 64, 200, 0, dtype)
    together = kernels.attend_one(q, keys, values, positions, None, 0.125)
    for row in range(len(q)):
        part = slice(row, row + 1)
        read = min(int(positions[row]) + 1, 200)
        alone = kernels.attend_one(
            q[part].contiguous(), keys[part, :, :read], values[part, :, :read], positions[part], None, 0.125
        )
        assert torch.equal(together[part], alone)


@pytest.mark.gpu
def test_the_probe_compiles_what_steps_use(kernels: Any) -> None:
    kernels.probe(torch.device(DEVICE), torch.float32, 9, 3, 64)
    kernels.probe(torch.device(DEVICE), torch.float32, 4, 4, 80)
