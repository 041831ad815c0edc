"""Passes by tokens: the gradient and the figures of a step are those of one pass over all its rows."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.trainers.test_pieces import long_trainer
from tests.trainers.toy import make_config, make_model, make_tokenizer, make_trainer
from trainers.cutting import Lengths, cut, padded_tokens, tokens_that_fit
from trainers.errors import ConfigError, OutOfMemoryError
from trainers.pieces import chunks, tokens_of
from trainers.settings.checks import check_config, config_notes

pytestmark = pytest.mark.filterwarnings("ignore")

LOSSES = ["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo"]
BUDGETS = [1, 250, 400, 10**6]
"""Passes of one row, of one to four, of several, and one pass."""
LORA = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
OURS = {"passes/count", "passes/rows_left_out", "passes/replayed"}


# -- Which rows go together -------------------------------------------------------------------------------------------


def test_rows_of_like_length_share_a_pass_within_the_budget():
    lengths = Lengths([5, 1, 2, 5, 3], [10, 2, 3, 9, 4])
    assert cut(range(5), lengths, 30) == [[0, 3], [4, 2, 1]]
    assert cut(range(5), lengths, 29) == [[0], [3, 4], [2, 1]]
    assert cut([4, 1], lengths, 14) == [[4, 1]] and cut([4, 1], lengths, 13) == [[4], [1]]
    assert cut(range(5), lengths, 1) == cut(range(5), lengths, 100, alone=True) == [[0], [3], [4], [2], [1]]


def test_padding_counts():
    """The longest prompt and the longest completion of a pass may be of two rows."""
    lengths = Lengths([10, 1], [1, 9])
    assert padded_tokens([0, 1], lengths) == 38
    assert cut([0, 1], lengths, 37) == [[0], [1]] and cut([0, 1], lengths, 38) == [[0, 1]]


def test_pieces_of_a_row_share_a_pass_within_the_budget():
    parts = [(torch.zeros(size, dtype=torch.int32), []) for size in (4, 6, 2, 9)]
    assert [len(some) for some in chunks(parts, 12)] == [2, 1, 1] and [len(some) for some in chunks(parts, 18)] == [
        3,
        1,
    ]
    assert [len(some) for some in chunks(parts, 1)] == [1, 1, 1, 1] and [len(some) for some in chunks(parts, 36)] == [4]
    assert [len(some) for some in chunks(parts, most=3)] == [3, 1] and tokens_of(parts) == 36


def test_auto_leaves_a_part_of_the_free_memory():
    assert tokens_that_fit(2**30, 1024) == int(0.7 * 2**20)
    assert tokens_that_fit(0, 1024) == tokens_that_fit(-5, 1024) == 1


def test_auto_is_what_a_gpu_has_free_once_the_first_step_was_seen(tmp_path, monkeypatch):
    """A stand-in for torch's figures: 5,000 bytes are taken before a pass, and 1,000 more for each of its tokens."""
    trainer = make_trainer(tmp_path, max_steps=3, micro_batch_tokens="auto")
    weights = sum(p.numel() * 4 for p in trainer.model.parameters())
    taken = {"peak": 0}
    trainer.model.model.register_forward_pre_hook(
        lambda module, args, kwargs: (
            taken.update(peak=max(taken["peak"], 1000 * kwargs["input_ids"].numel()))
            if torch.is_grad_enabled()
            else None
        ),
        with_kwargs=True,
    )
    monkeypatch.setattr("trainers.passes.on_gpu", lambda device: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: taken.update(peak=0))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: 5000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5000 + taken["peak"])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 5000 + 100_000)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (weights + 200_000, 10**9))
    trainer.train()
    trainer.close()
    counts = [line["passes/count"] for line in trainer.logged if "passes/count" in line]
    assert counts[0] == 1 < counts[1] == counts[2]  # 12,288 tokens hold all rows, 0.7 * 300,000 bytes do not
    assert trainer._budget == 210


# -- The gradient and the figures of a step ---------------------------------------------------------------------------


def ready(tmp_path, **changes):
    """A trainer, and the batch of its first step: rows of many lengths, ratios on both sides of every clip."""
    model = make_model(make_tokenizer()).double()
    if changes.pop("adapter", False):
        model = get_peft_model(model, LORA)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(0))
    trainer = make_trainer(tmp_path, model=model, max_steps=1, beta_turn=0.5, **changes)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    rows, width = inputs["completion_ids"].shape
    draw = torch.Generator().manual_seed(1)
    inputs["completion_mask"] = (torch.arange(width) < torch.randint(3, width + 1, (rows, 1), generator=draw)).long()
    start = torch.randint(0, inputs["prompt_ids"].size(1), (rows, 1), generator=draw)
    inputs["prompt_mask"] = (torch.arange(inputs["prompt_ids"].size(1)) >= start).long()
    inputs["num_items_in_batch"] = (inputs["completion_mask"] * inputs["tool_mask"]).sum()
    noise = torch.randn(rows, width, generator=draw) / 2
    inputs["old_per_token_logps"] = inputs["sampling_per_token_logps"].float() + noise
    inputs["advantages"] = torch.randn(rows, width, generator=draw)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer, inputs


def learn(trainer, inputs, budget: int | str = 0):
    """Loss, gradient and figures of a step; in passes of `budget` tokens, or in one of TRL's."""
    trainer.args.micro_batch_tokens = str(budget)
    trainer._budget, trainer._settled = 0, False
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()
    trainer.advantaged = 0.0
    loss = trainer.compute_loss(trainer.model, dict(inputs))
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.requires_grad])
    figures = {name: values for name, values in trainer._metrics["train"].items()}
    assert all(len(values) == 1 for values in figures.values())
    return loss.item(), gradient, {name: values[0] for name, values in figures.items()} | {"with": trainer.advantaged}


def assert_same(one, other, *, figures=True):
    """Two results of `learn`; log-probabilities are float32."""
    assert other[0] == pytest.approx(one[0], rel=1e-5, abs=1e-7)
    assert (one[1] - other[1]).norm() < 1e-6 * one[1].norm()
    if figures:
        assert {k: v for k, v in other[2].items() if k not in OURS} == pytest.approx(one[2], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("loss_type", LOSSES)
def test_the_gradient_is_that_of_one_pass_over_all_rows(tmp_path, loss_type):
    trainer, inputs = ready(tmp_path, loss_type=loss_type)
    whole = learn(trainer, inputs)
    counts = []
    for budget in BUDGETS:
        cut_up = learn(trainer, inputs, budget)
        assert_same(whole, cut_up)
        counts.append(cut_up[2]["passes/count"])
    assert counts[0] == 8 > counts[1] > counts[2] > counts[3] == 1
    trainer.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"beta": 0.1},
        {"entropy_coef": 0.05},
        {"use_adaptive_entropy": True, "entropy_target": 9.0, "entropy_coef": 0.1},
        {"off_policy_mask_threshold": 0.01},
        {"delta": 1.5, "epsilon_high": 0.28},
        {"gradient_checkpointing": True},
        {"sample_dtype": "bfloat16"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_term_of_the_loss_is_that_of_the_step(tmp_path, changes):
    trainer, inputs = ready(tmp_path, **changes)
    if trainer.beta:
        inputs["ref_per_token_logps"] = inputs["old_per_token_logps"] - 0.3
    coef = trainer.entropy_coef
    whole, after = learn(trainer, inputs), trainer.entropy_coef
    for budget in BUDGETS:
        trainer.entropy_coef, trainer._last_world_entropy = coef, float("inf")
        assert_same(whole, learn(trainer, inputs, budget))
        assert trainer.entropy_coef == after
    trainer.close()


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "bnpo", "dr_grpo"])
def test_rows_without_an_advantage_are_left_out_and_counted(tmp_path, loss_type):
    trainer, inputs = ready(tmp_path, loss_type=loss_type)
    inputs["advantages"][[1, 4, 6]] = 0.0
    inputs["tool_mask"][2] = 0  # a stale row, say: its advantages reach nothing
    whole = learn(trainer, inputs)
    seen = []
    trainer.model.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    for budget in BUDGETS:
        seen.clear()
        left_out = learn(trainer, inputs, budget)
        assert_same(whole, left_out, figures=False)
        assert sum(seen) == 4 == left_out[2]["passes/rows_left_out"]
        for name in (n for n in whole[2] if "clip" in n or n == "with"):
            assert left_out[2][name] == pytest.approx(whole[2][name], abs=1e-6)
    alone = {**inputs, **{name: value[[0, 3, 5, 7]] for name, value in inputs.items() if value.dim()}}
    rest = learn(trainer, alone)[2]
    for name in ("entropy", "sampling/logp_difference_mean", "sampling/logp_difference_max"):
        assert left_out[2][name] == pytest.approx(rest[name], rel=1e-4)
    trainer.close()


@pytest.mark.parametrize("changes", [{"beta": 0.1}, {"entropy_coef": 0.05}])
def test_rows_that_another_term_asks_for_stay(tmp_path, changes):
    trainer, inputs = ready(tmp_path, **changes)
    inputs["advantages"][[1, 4, 6]] = 0.0
    inputs["ref_per_token_logps"] = inputs["old_per_token_logps"] - 0.3
    whole, cut_up = learn(trainer, inputs), learn(trainer, inputs, 250)
    assert_same(whole, cut_up)
    assert cut_up[2]["passes/rows_left_out"] == 0
    trainer.close()


def test_a_step_without_any_advantage_makes_no_pass_and_its_gradient_is_zero(tmp_path):
    trainer, inputs = ready(tmp_path)
    inputs["advantages"].zero_()
    trainer.model.model.register_forward_pre_hook(lambda *_: pytest.fail("a forward pass"))
    loss, gradient, figures = learn(trainer, inputs, 250)
    assert loss == 0.0 and gradient.numel() and not gradient.any()  # there, so that momentum acts as ever
    assert figures == {"passes/count": 0.0, "passes/rows_left_out": 8.0, "passes/replayed": 0.0, "with": 0.0}
    trainer.close()


@pytest.mark.parametrize("adapter", [True, False])
def test_old_and_reference_log_probabilities_obey_the_budget(tmp_path, adapter):
    peft = LORA if adapter else None
    seen, found = [], []
    for budget in (0, 60):
        trainer = long_trainer(tmp_path / str(budget), beta=0.05, num_iterations=2, peft_config=peft,
                               micro_batch_tokens=budget)  # fmt: skip
        base = trainer.accelerator.unwrap_model(trainer.model)
        for model in (base.get_base_model() if adapter else base, trainer.ref_model):
            if model is not None:
                model.model.register_forward_pre_hook(
                    lambda module, args, kwargs, b=budget: (
                        seen.append((b, kwargs["input_ids"].numel(), len(kwargs["input_ids"])))
                        if kwargs.get("use_cache") is False
                        else None
                    ),
                    with_kwargs=True,
                )
        inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
        found.append((inputs["old_per_token_logps"], inputs["ref_per_token_logps"]))
        trainer.close()
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() < 1e-5
    assert all(tokens <= 60 or rows == 1 for b, tokens, rows in seen if b) and len([1 for b, *_ in seen if b]) > 2


@pytest.mark.parametrize("budget", [1, 100, 10**6])
def test_pieces(tmp_path, budget):
    """Older observations as lines: each episode is a pass, its pieces cut by the same budget."""
    trainer = long_trainer(tmp_path, num_iterations=2)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    trainer._scoring = True
    inputs["advantages"] = torch.randn(inputs["advantages"].shape, generator=torch.Generator().manual_seed(0))
    cut_up = learn(trainer, inputs, budget)
    whole = learn(trainer, inputs)
    assert cut_up[2]["passes/count"] == 4
    assert (whole[1] - cut_up[1]).norm() < 1e-5 * whole[1].norm()
    assert cut_up[0] == pytest.approx(whole[0], abs=1e-6)
    trainer.close()


# -- In a run ---------------------------------------------------------------------------------------------------------


def weights(trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


ACCUMULATED = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}


@pytest.mark.parametrize(
    ("by_tokens", "by_rows"),
    [
        (ACCUMULATED, {}),
        ({**ACCUMULATED, "num_iterations": 2}, {"num_iterations": 2}),
        ({**ACCUMULATED, "steps_per_generation": 4}, {"steps_per_generation": 2}),
        ({"overlap": 1}, {"overlap": 1}),
    ],
    ids=["one generation", "twice", "two steps of a generation", "overlap"],
)
def test_a_run_learns_the_same(tmp_path, by_tokens, by_rows):
    """By rows, all rows of a step are one pass: the same number of steps of the loop draws the same tasks and seeds."""
    settings = {"max_steps": 4, "beta_turn": 0.5, "optim": "sgd", "learning_rate": 0.05}
    runs = []
    for budget, changes in ((0, by_rows), (250, by_tokens)):
        trainer = make_trainer(tmp_path / str(budget), micro_batch_tokens=budget, **{**settings, **changes})
        start = weights(trainer)
        trainer.train()
        trainer.close()
        runs.append((trainer, weights(trainer) - start))
    (plain, moved), (cut_up, also) = runs
    ids = [[[episode.flat().ids for episode in some] for some in trainer.played] for trainer in (plain, cut_up)]
    assert ids[0] == ids[1]
    assert moved.norm() > 0 and (moved - also).norm() < 1e-4 * moved.norm()
    lines = [[line for line in trainer.logged if "loss" in line] for trainer in (plain, cut_up)]
    for one, other in zip(*lines, strict=True):
        assert other["passes/count"] > 1
        names = {n for n in one if "time" not in n and n not in OURS}
        assert {n: other[n] for n in names} == pytest.approx({n: one[n] for n in names}, rel=1e-3, abs=1e-5)


def test_accumulation_is_folded_into_the_batch(tmp_path):
    config = make_config(tmp_path, micro_batch_tokens=512, gradient_accumulation_steps=2, steps_per_generation=4)
    folded = (config.per_device_train_batch_size, config.gradient_accumulation_steps, config.steps_per_generation)
    assert folded == (16, 1, 2) and config.generation_batch_size == 32 and config.micro_batch_tokens == "512"
    off = make_config(tmp_path, gradient_accumulation_steps=2, steps_per_generation=4)
    assert (off.per_device_train_batch_size, off.gradient_accumulation_steps, off.steps_per_generation) == (8, 2, 4)
    assert [config.rows_of_a_pass(tokens) for tokens in (16, 100, 600)] == [16, 5, 1] and off.rows_of_a_pass(600) == 8
    assert off.generation_batch_size == config.generation_batch_size
    assert off.step_schedule().required_staleness == config.step_schedule().required_staleness


@pytest.mark.parametrize("value", ["many", "-1", "1.5"])
def test_a_budget_is_a_number_or_auto(tmp_path, value):
    with pytest.raises(ValueError, match="micro_batch_tokens"):
        make_config(tmp_path, micro_batch_tokens=value)
    auto, fixed = (make_config(tmp_path, micro_batch_tokens=value) for value in ("auto", 512))
    assert auto.token_budget == auto.tokens_of_a_pass(replayed=False) == 12288
    assert auto.tokens_of_a_pass(replayed=True) == 4096 and fixed.tokens_of_a_pass(replayed=True) == 512
    assert auto.rows_of_a_pass(600, replayed=True) == 6 and auto.rows_of_a_pass(600) == 8
    off = make_config(tmp_path)
    assert off.token_budget is None and off.tokens_of_a_pass(replayed=True) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, True),
        ({"micro_batch_tokens": 512}, True),
        ({"micro_batch_tokens": 0}, False),
        ({"gradient_checkpointing": True}, False),
        ({"overlap": 1}, False),
    ],
)
def test_passes_may_be_replayed_where_settings_and_device_allow_it(tmp_path, monkeypatch, changes, told):
    config = make_config(tmp_path, **{"micro_batch_tokens": "auto", **changes})
    assert config.may_replay_passes(cuda=True, pieces=False) is told
    assert not config.may_replay_passes(cuda=False, pieces=False)
    assert not config.may_replay_passes(cuda=True, pieces=True)
    monkeypatch.setattr(type(config), "world_size", 2)
    assert config.may_replay_passes(cuda=True, pieces=False) is told


def test_padding_that_passes_take_away_is_noted(tmp_path):
    assert not list(config_notes(make_config(tmp_path, micro_batch_tokens=512)))
    (note,) = config_notes(make_config(tmp_path, micro_batch_tokens=512, pad_to_multiple_of=64))
    assert note.startswith("pad_to_multiple_of=64 does nothing: with micro_batch_tokens")
    assert not list(config_notes(make_config(tmp_path, pad_to_multiple_of=64)))


def test_what_a_budget_cannot_carry_is_refused(tmp_path):
    with pytest.raises(ValueError, match="steps_per_generation=1 is no multiple"):
        make_config(tmp_path, micro_batch_tokens=512, gradient_accumulation_steps=2, steps_per_generation=1)
    with pytest.raises(ConfigError, match="micro_batch_tokens.*top_entropy_quantile"):
        check_config(make_config(tmp_path, micro_batch_tokens=512, top_entropy_quantile=0.5))


# -- Out of memory ----------------------------------------------------------------------------------------------------


def full_above(trainer, tokens: int, where: str = "forward") -> list[int]:
    """The model's memory ends above so many tokens of a pass with gradients; returns what was tried."""
    tried: list[int] = []

    def before(module, args, kwargs):
        if not torch.is_grad_enabled() or module.gradient_checkpointing:
            return
        tried.append(kwargs["input_ids"].numel())
        if tried[-1] > tokens and where == "forward":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate a lot\nand more")

    def after(module, args, kwargs, out):
        if where == "backward" and torch.is_grad_enabled() and kwargs["input_ids"].numel() > tokens:

            def burst(_):
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate a lot")

            out.last_hidden_state.register_hook(burst)

    model = trainer.model.get_base_model() if hasattr(trainer.model, "peft_config") else trainer.model
    model.model.register_forward_pre_hook(before, with_kwargs=True)
    model.model.register_forward_hook(after, with_kwargs=True)
    return tried


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_pass_that_does_not_fit_is_cut_and_the_step_repeated(tmp_path, monkeypatch, where):
    trainer, inputs = ready(tmp_path)
    said = []
    monkeypatch.setattr(trainer, "warn", lambda step, message: said.append((step, message)))
    whole = learn(trainer, inputs)
    tried = full_above(trainer, 300, where)
    cut_up = learn(trainer, inputs, 10**6)
    assert_same(whole, cut_up)
    assert max(tried) > 300 and trainer._budget <= 300 and cut_up[2]["passes/count"] > 1
    assert len(said) == 1 and said[0][0] == 1 and f"at most {trainer._budget} tokens" in said[0][1]
    trainer.close()


@pytest.mark.parametrize("adapter", [False, True])
def test_a_row_that_does_not_fit_gets_gradient_checkpointing(tmp_path, monkeypatch, adapter):
    trainer, inputs = ready(tmp_path, adapter=adapter)
    said = []
    monkeypatch.setattr(trainer, "warn", lambda step, message: said.append(message))
    whole = learn(trainer, inputs)
    full_above(trainer, 10)
    assert_same(whole, learn(trainer, inputs, 300))
    assert trainer.model.is_gradient_checkpointing
    assert len(said) == 1 and "gradient_checkpointing is on from now on" in said[0]
    trainer.close()


@pytest.mark.parametrize("budget", [0, 300])
def test_a_run_that_does_not_fit_ends_in_one_line(tmp_path, budget):
    trainer = make_trainer(tmp_path, max_steps=1, gradient_checkpointing=True, micro_batch_tokens=budget)

    def full(module, args, kwargs):
        if torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate a lot\nand more")

    trainer.model.model.register_forward_pre_hook(full, with_kwargs=True)
    with pytest.raises(OutOfMemoryError) as error:
        trainer.train()
    text = str(error.value)
    assert "\n" not in text and text.startswith("step 1: no memory for a learning pass of")
    names = ["gradient_checkpointing", "micro_batch_tokens", "per_device_train_batch_size", "max_turn_tokens", "lora"]
    assert all(name in text for name in names)
    trainer.close()


def test_memory_that_ends_while_sampling_is_not_the_fault_of_learning(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, max_steps=1, micro_batch_tokens=300)

    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer.rollouts, "run", full)
    with pytest.raises(torch.OutOfMemoryError):
        trainer.train()
    trainer.close()
