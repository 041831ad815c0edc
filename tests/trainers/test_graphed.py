"""Layers of fixed shape: loss and gradients are those of the model's own forward, recorded as CUDA graphs or not."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from trl.trainer.utils import add_fused_lm_head

from tests.agents.toys import GPU, VOCABULARY, model
from tests.trainers.test_passes import BUDGETS, LORA, assert_same, learn, ready
from tests.trainers.test_pieces import long_trainer
from tests.trainers.toy import make_model, make_tokenizer, make_trainer
from trainers.activations import SDPA, attend_in_one_kernel, keep_less
from trainers.cutting import Lengths, cut
from trainers.graphed import GraphedLayers, additive_mask, padded_rows, padded_width

BATCHES = [(3, 20, 9), (2, 70, 40), (3, 20, 9), (2, 80, 33), (3, 25, 9), (1, 30, 5)]
"""Rows, columns of a batch, columns of completions: shapes that come back, and one that does not."""
BUDGET = 400


@pytest.fixture(autouse=True)
def attention():
    """That of a trainer, of which most tests here have none."""
    attend_in_one_kernel()
    yield
    AttentionInterface.register(SDPA, sdpa_attention_forward)


def trained(kind: str, adapter: bool, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Any:
    made = model(kind).to(dtype)
    add_fused_lm_head(made)
    if adapter:
        made = get_peft_model(made, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        draw = torch.Generator().manual_seed(0)
        for name, weight in made.named_parameters():
            if "lora_" in name:
                weight.data = 0.1 * torch.randn(weight.shape, generator=draw, dtype=torch.float64).to(weight.dtype)
        keep_less(made)
    return made.to(device).train()


def batch(number: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, mask, labels: prompts padded at the left, completions at the right, as TRL has them."""
    rows, width, keep = BATCHES[number % len(BATCHES)]
    draw = torch.Generator().manual_seed(number)
    ids = torch.randint(VOCABULARY, (rows, width), generator=draw)
    begin = torch.randint(width - keep, (rows, 1), generator=draw)
    end = width - torch.randint(keep, (rows, 1), generator=draw)
    places = torch.arange(width)
    mask = ((begin <= places) & (places < end)).long()
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-keep] = -100
    return ids.to(device), mask.to(device), labels.to(device)


def step(made: Any, first: int = 0, count: int = len(BATCHES)) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and summed gradients of several passes."""
    device, losses = str(made.device), []
    for number in range(first, first + count):
        ids, mask, labels = batch(number, device)
        out = made(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        loss = -(out.log_probs * torch.linspace(0.5, 1.5, labels.size(1) - 1, device=device)).mean()
        loss.backward()
        losses.append(loss.item())
    return losses, {name: weight.grad.clone() for name, weight in made.named_parameters() if weight.grad is not None}


def assert_alike(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    assert one[0] == pytest.approx(other[0], rel=tolerance)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        # A key's bias has no gradient: softmax takes no notice of it.
        assert (gradient - other[1][name]).norm() < tolerance * (gradient.norm() + 1e-3), name


def three_steps(kind: str, adapter: bool, device: str, dtype: torch.dtype, capture: bool) -> GraphedLayers:
    """Each step against the model's own forward, with steps of an optimizer between; returns the layers."""
    own, ours = (trained(kind, adapter, dtype, device) for _ in range(2))
    layers = GraphedLayers(ours, capture=capture)
    assert layers.fits()
    optimizers = [torch.optim.SGD([w for w in made.parameters() if w.requires_grad], lr=0.1) for made in (own, ours)]
    for number in range(3):
        expected = step(own, number)
        with layers.acting(BUDGET):
            found = step(ours, number)[0]
        gradients = {name: weight.grad.clone() for name, weight in ours.named_parameters() if weight.grad is not None}
        assert_alike(expected, (found, gradients), 1e-5 if dtype == torch.float64 else 1e-3)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=number == 0)
    assert layers.passes == 3 * len(BATCHES)
    return layers


# -- Sizes -------------------------------------------------------------------------------------------------------------


def test_widths_are_few_and_waste_little():
    assert [padded_width(n) for n in (1, 64, 65, 400, 512, 513, 700, 1024, 1025, 2100)] == [
        64, 64, 128, 448, 512, 640, 768, 1024, 1280, 2560,
    ]  # fmt: skip
    assert all(n <= padded_width(n) <= max(64, n + 63, 1.25 * n) for n in range(1, 5000))


def test_rows_are_what_the_budget_has_room_for_or_a_half_of_it():
    assert [padded_rows(n, 384, 4096) for n in range(1, 11)] == [1, 2, 3, 5, 5, 10, 10, 10, 10, 10]
    assert padded_rows(1, 5000, 4096) == 1 and padded_rows(3, 5000, 4096) == 3


def test_passes_are_cut_by_the_columns_of_their_shape():
    lengths = Lengths([30] * 6, [10] * 6)
    assert [len(some) for some in cut(range(6), lengths, 192)] == [4, 2]
    assert [len(some) for some in cut(range(6), lengths, 192, width=padded_width)] == [3, 3]


def test_everything_attends_to_something():
    keep = torch.tensor([[False, True, True, False], [False] * 4])
    seen = additive_mask(keep, torch.float32) == 0
    assert seen[0, 0].int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]]
    assert seen[1, 0].equal(torch.eye(4, dtype=torch.bool))


# -- The numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", [True, False], ids=["lora", "all"])
@pytest.mark.parametrize("kind", ["llama", "gqa", "qwen2", "qwen3"])
def test_loss_and_gradients_are_those_of_the_own_forward(kind, adapter):
    assert three_steps(kind, adapter, "cpu", torch.float64, False).replays == 0


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("adapter", [True, False], ids=["lora", "all"])
@pytest.mark.parametrize("kind", ["gqa", "qwen2", "qwen3"])
def test_replays_have_the_loss_and_gradients_of_the_own_forward(kind, adapter, device):
    """A model that cannot be recorded would warn, and fail here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="learning runs slower")
        layers = three_steps(kind, adapter, device, torch.float32, True)
    assert (layers.passes, layers.replays) == (18, 15), "three shapes came for the first time"


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("adapter", [True, False], ids=["lora", "all"])
def test_replays_in_bfloat16_have_the_numbers_of_the_same_shapes_unrecorded(adapter, device):
    found = []
    for capture in (False, True):
        made = trained("gqa", adapter, torch.bfloat16, device)
        layers = GraphedLayers(made, capture=capture)
        assert layers.fits()
        for number in (0, 1, 2):
            made.zero_grad()
            with layers.acting(BUDGET):
                losses, _ = step(made, number)
        found.append((losses, {n: w.grad.float() for n, w in made.named_parameters() if w.grad is not None}))
    assert_alike(*found, tolerance=1e-2)
    assert layers.replays == 15


def test_what_only_fills_up_reaches_nothing():
    """Whatever an earlier pass has left in the tensors that all shapes share."""
    made = trained("gqa", True)
    layers = GraphedLayers(made, capture=False)
    assert layers.fits()
    with layers.acting(BUDGET):
        first = step(made, 0, 1)[0]
        for flat in layers._buffers:
            flat.fill_(float("nan"))
        assert step(made, 0, 1)[0] == first
    assert all(weight.grad.isfinite().all() for weight in made.parameters() if weight.requires_grad)


def test_gradients_add_to_those_that_are_there():
    made = trained("gqa", True)
    _, once = step(made)
    layers = GraphedLayers(made, capture=False)
    assert layers.fits()
    for _ in range(2):
        with layers.acting(BUDGET):
            step(made)
    for name, weight in made.named_parameters():
        if weight.requires_grad:
            assert (weight.grad - 3 * once[name]).norm() < 1e-5 * weight.grad.norm()


def test_frozen_embeddings_get_no_gradient_and_trained_ones_do():
    for adapter in (True, False):
        made = trained("llama", adapter)
        layers = GraphedLayers(made, capture=False)
        assert layers.fits()
        with layers.acting(BUDGET):
            step(made, 0, 1)
        assert (made.get_input_embeddings().weight.grad is None) is adapter


# -- Who gets a replay -------------------------------------------------------------------------------------------------


def test_whoever_asks_for_more_gets_the_own_forward():
    made = trained("gqa", True)
    layers = GraphedLayers(made, capture=False)
    assert layers.fits()
    ids, mask, _ = batch(0, "cpu")
    body = made.get_base_model().model
    with layers.acting(BUDGET):
        assert body.forward is layers
        made(input_ids=ids, attention_mask=mask)  # has no use_cache=False
        made(input_ids=ids, attention_mask=mask, use_cache=False, output_hidden_states=True)
        made(input_ids=ids, attention_mask=mask[:, None, None].bool(), use_cache=False)
        with torch.no_grad():
            made(input_ids=ids, attention_mask=mask, use_cache=False)
        assert layers.passes == 0
        made(input_ids=ids, attention_mask=mask, use_cache=False)
        assert layers.passes == 1
    assert "forward" not in vars(body)


def test_rows_wider_than_the_model_knows_positions_are_left_to_it():
    made = trained("gqa", True)
    layers = GraphedLayers(made, capture=False)
    assert layers.fits()
    layers._decoder.limit = 100
    with layers.acting(BUDGET):
        ids = torch.ones(1, 120, dtype=torch.long)
        made(input_ids=ids, attention_mask=ids, use_cache=False)
    assert layers.passes == 0


@pytest.mark.parametrize("kind", ["mistral", "qwen3-windows"])
def test_a_model_that_sees_a_window_is_left_to_its_own_forward(kind):
    layers = GraphedLayers(model(kind).train(), capture=False)
    with pytest.warns(UserWarning, match="learning runs slower than it could.*a window"):
        assert not layers.fits()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not layers.fits()


@pytest.mark.parametrize(("error", "reason"), [(None, "0.5 away from its own"), (TypeError("no"), "TypeError: no")])
def test_a_model_whose_numbers_would_differ_is_left_to_its_own_forward(error, reason):
    made = trained("gqa", False)
    made.model.forward = Otherwise(made.model.forward, error)
    layers = GraphedLayers(made, capture=False)
    with pytest.warns(UserWarning, match=reason):
        assert not layers.fits()


class Otherwise:
    """A forward that computes something else where it is told positions."""

    def __init__(self, plain: Any, error: Exception | None) -> None:
        self._plain, self._error = plain, error

    def __call__(self, input_ids=None, position_ids=None, **kwargs):
        out = self._plain(input_ids, position_ids=position_ids, **kwargs)
        if position_ids is not None and self._error is not None:
            raise self._error
        return out if position_ids is None else SimpleNamespace(last_hidden_state=1.5 * out.last_hidden_state)


def test_a_model_that_cannot_be_recorded_says_so_once_and_goes_on(monkeypatch):
    own, ours = trained("gqa", True), trained("gqa", True)
    layers = GraphedLayers(ours)
    monkeypatch.setattr(layers._graphs, "record", refuse)
    assert layers.fits()
    reason = r"no CUDA graphs of its passes \(operation not permitted\)"
    with pytest.warns(UserWarning, match=reason) as said, layers.acting(BUDGET):
        losses, _ = step(ours)
    assert len(said) == 1 and not layers.fits()
    gradients = {name: weight.grad for name, weight in ours.named_parameters() if weight.grad is not None}
    assert_alike(step(own), (losses, gradients))


def refuse(*_: Any, **__: Any) -> None:
    raise RuntimeError("operation not permitted\nwhen stream is capturing")


def test_memory_that_ends_while_recording_is_passed_on(monkeypatch):
    made = trained("gqa", True)
    layers = GraphedLayers(made)
    assert layers.fits()

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(layers._graphs, "record", full)
    with pytest.raises(torch.OutOfMemoryError), layers.acting(BUDGET):
        step(made)
    assert "forward" not in vars(made.get_base_model().model) and layers.fits()


def test_a_shape_is_recorded_when_it_comes_again_and_forgotten_when_weights_move(monkeypatch):
    made, recorded = trained("gqa", True), []
    layers = GraphedLayers(made)
    monkeypatch.setattr(layers._graphs, "record", lambda run, warm: recorded.append(warm) or run)
    assert layers.fits()
    with layers.acting(BUDGET):
        step(made, 0, 2)
        assert recorded == [] and len(layers._shapes) == 2
        step(made, 2, 2)
        assert recorded == [True] * 4 and layers.replays == 2
    with layers.acting(BUDGET):
        step(made, 0, 2)
    assert recorded == [True] * 4 and layers.replays == 4
    weight = made.get_base_model().model.layers[0].self_attn.q_proj.base_layer.weight
    weight.data = weight.data.clone()
    with layers.acting(BUDGET):
        assert not layers._shapes
        step(made, 0, 2)
    with layers.acting(BUDGET + 1):
        assert not layers._shapes


def test_shapes_that_were_not_used_for_long_are_dropped(monkeypatch):
    monkeypatch.setattr("trainers.graphed.KEPT", 2)
    made = trained("gqa", True)
    layers = GraphedLayers(made, capture=False)
    assert layers.fits()
    with layers.acting(BUDGET):
        step(made)
        assert list(layers._shapes) == [(3, 64), (1, 64)]


def test_a_backward_pass_after_another_forward_pass_is_an_error():
    made = trained("gqa", True)
    layers = GraphedLayers(made, capture=False)
    assert layers.fits()
    with layers.acting(BUDGET):
        ids, mask, labels = batch(0, "cpu")
        first, _ = (made(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True) for _ in range(2))
        with pytest.raises(RuntimeError, match="another pass"):
            first.log_probs.sum().backward()


# -- In the trainer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", [True, False])
def test_a_step_in_passes_is_the_same(tmp_path, adapter):
    trainer, inputs = ready(tmp_path, adapter=adapter)
    whole = learn(trainer, inputs)
    trainer._graphed = GraphedLayers(trainer.model, capture=False)
    for budget in [*BUDGETS, 700]:
        before = trainer._graphed.passes
        found = learn(trainer, inputs, budget)
        assert_same(whole, found)
        assert trainer._graphed.passes - before == found[2]["passes/count"]
    trainer.close()


def test_the_gradient_of_plain_grpo_beside_it_is_the_same(tmp_path):
    trainer, inputs = ready(tmp_path, adapter=True, gradient_cosine_steps=1)
    inputs["plain_advantages"] = torch.randn(inputs["advantages"].shape, generator=torch.Generator().manual_seed(5))
    plain = learn(trainer, inputs, 700), [g.clone() for g in trainer._plain_gradients if g is not None]
    trainer._plain_gradients = None
    trainer._graphed = GraphedLayers(trainer.model, capture=False)
    found = learn(trainer, inputs, 700), [g for g in trainer._plain_gradients if g is not None]
    assert_same(plain[0], found[0], figures=False)
    for one, other in zip(plain[1], found[1], strict=True):
        assert (one - other).norm() < 1e-5 * one.norm()
    assert trainer._graphed.passes
    trainer.close()


def test_a_pass_that_does_not_fit_is_halved_and_learns_the_same(tmp_path, monkeypatch):
    trainer, inputs = ready(tmp_path, adapter=True)
    whole = learn(trainer, inputs)
    trainer._graphed = layers = GraphedLayers(trainer.model, capture=False)
    monkeypatch.setattr(trainer, "warn", lambda step, message: None)
    run = layers.run

    def small(hidden, keep):
        if torch.is_grad_enabled() and hidden.size(0) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(hidden, keep)

    monkeypatch.setattr(layers, "run", small)
    found = learn(trainer, inputs, 10**6)
    assert_same(whole, found)
    assert found[2]["passes/count"] >= 4 and layers.passes
    trainer.close()


@pytest.mark.parametrize(
    "changes",
    [{"graph_passes": False}, {"gradient_checkpointing": True}, {"overlap": 1}, {"router": True}],
    ids=lambda changes: next(iter(changes)),
)
def test_all_else_is_learned_as_ever(tmp_path, monkeypatch, changes):
    settings = {name: value for name, value in changes.items() if name in ("gradient_checkpointing",)}
    trainer, _ = ready(tmp_path, micro_batch_tokens=700, **settings)
    trainer._graphed = GraphedLayers(trainer.model, capture=False)
    assert changes == settings or trainer._replays(alone=False) is trainer._graphed
    if "graph_passes" in changes:
        monkeypatch.setattr(trainer, "graph_passes", False)
    if "overlap" in changes:
        trainer.args.overlap = 1
    if "router" in changes:
        trainer.aux_loss_enabled = True
    if "gradient_checkpointing" in changes:
        trainer.model.gradient_checkpointing_enable()
    assert trainer._replays(alone=False) is None and trainer._replays(alone=True) is None
    trainer.close()


def test_a_model_that_checkpoints_by_itself_is_learned_as_ever(tmp_path):
    trainer, _ = ready(tmp_path, micro_batch_tokens=700)
    trainer._graphed = GraphedLayers(trainer.model, capture=False)
    assert trainer._replays(alone=False) is trainer._graphed
    trainer.model.gradient_checkpointing_enable()  # as after a row that did not fit
    assert trainer._replays(alone=False) is None
    trainer.close()


@pytest.mark.parametrize("fits", [True, False])
def test_auto_is_smaller_only_where_the_passes_are_replayed(tmp_path, monkeypatch, fits):
    """The model is not looked at while rows are scored before learning: adapters may be off there."""
    trainer, inputs = ready(tmp_path, adapter=True)
    trainer._graphed = layers = GraphedLayers(trainer.model, capture=False)
    trainer.args.micro_batch_tokens = "auto"
    monkeypatch.setattr(layers, "fits", lambda: pytest.fail("looked at"))
    trainer._choose_budget(alone=False)
    assert trainer._budget == 4096
    trainer._choose_budget(alone=True)  # pieces are never replayed
    assert trainer._budget == 12288
    monkeypatch.setattr(layers, "fits", lambda: fits)
    trainer._learning = True
    trainer._choose_budget(alone=False)
    assert trainer._budget == (4096 if fits else 12288)
    trainer.close()


def test_replays_of_a_step_are_counted(tmp_path, monkeypatch):
    trainer, inputs = ready(tmp_path)
    trainer._graphed = layers = GraphedLayers(trainer.model, capture=False)
    assert learn(trainer, inputs, 250)[2]["passes/replayed"] == 0.0  # nothing is recorded
    for shape in layers._shapes.values():
        shape.recorded = True
    again = learn(trainer, inputs, 250)[2]
    assert again["passes/replayed"] == again["passes/count"] > 1
    trainer.close()


def test_pieces_are_learned_as_ever(tmp_path):
    trainer = long_trainer(tmp_path, micro_batch_tokens=300, max_steps=1)
    trainer._graphed = GraphedLayers(trainer.model, capture=False)
    trainer.train()
    assert trainer._graphed.passes == 0
    trainer.close()


def test_on_a_processor_nothing_is_recorded(tmp_path):
    trainer, inputs = ready(tmp_path)
    learn(trainer, inputs, 700)
    assert trainer._graphed is None
    trainer.close()


@pytest.mark.parametrize("device", [GPU])
def test_a_run_on_a_gpu_replays_its_passes(tmp_path, device):
    """The sampler has graphs of its own, and its weights are those that the passes train."""
    made = get_peft_model(make_model(make_tokenizer()), LORA)
    trainer = make_trainer(tmp_path, model=made, use_cpu=device == "cpu", max_steps=4, micro_batch_tokens=700)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="learning runs slower")
        trainer.train()
    assert trainer._graphed is not None and trainer._graphed.replays > 0
    trainer.close()


@pytest.mark.parametrize("device", [GPU])
def test_passes_on_a_gpu_do_not_wait_for_it(tmp_path, device, monkeypatch):
    """But for the last, whose figures are read: while the GPU computes one, the host launches those behind it."""
    made = get_peft_model(make_model(make_tokenizer()), LORA)
    trainer = make_trainer(tmp_path, model=made, use_cpu=False, max_steps=6, micro_batch_tokens=300)
    unseen, seen, steps = trainer._unseen, [], []
    learned = trainer._learn

    @contextmanager
    def watched():
        with unseen():
            torch.cuda.set_sync_debug_mode("error" if len(steps) > 4 else "default")  # before, graphs are recorded
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode("default")
            seen.append(len(steps))

    def learn(*args):
        steps.append(len(seen))
        return learned(*args)

    monkeypatch.setattr(trainer, "_unseen", watched)
    monkeypatch.setattr(trainer, "_learn", learn)
    trainer.train()
    trainer.close()
    assert seen.count(6) > 0, "a step of several passes"
