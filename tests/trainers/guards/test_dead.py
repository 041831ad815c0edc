"""Dead updates, made real in short runs: they end within five steps, and no others do."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import peft
import pytest
import torch
from peft import LoraConfig

from tests.trainers.guards.conftest import FLAGS, SANDBOX
from tests.trainers.guards.planted import kinds, on, only
from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer
from trainers import grpo
from trainers.gigpo import GiGPOTrainer
from trainers.guards import Finding, GuardName, Severity, Update, Watch
from trainers.run.callback import GuardCallback

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

LORA = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")


def loss_times_0(patch: pytest.MonkeyPatch) -> None:
    right = GiGPOTrainer._compute_loss
    patch.setattr(GiGPOTrainer, "_compute_loss", lambda self, model, inputs: 0 * right(self, model, inputs))


def optimizer_without_effect(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.optim.AdamW, "step", lambda self, closure=None: None)


def adapter_without_gradient(patch: pytest.MonkeyPatch) -> None:
    right = peft.tuners.lora.layer.Linear.forward
    patch.setattr(
        peft.tuners.lora.layer.Linear,
        "forward",
        lambda self, x, *rest, **named: self.base_layer(x, *rest, **named) + 0 * right(self, x, *rest, **named),
    )


DEATHS = {
    loss_times_0: ([], "no_gradient"),
    optimizer_without_effect: ([], "still"),
    adapter_without_gradient: (["--adapter", "lora"], "no_gradient"),
}


@pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
@pytest.mark.parametrize("death", DEATHS)
def test_a_real_run_that_is_dead_ends_within_five_steps(death, tmp_path, monkeypatch, capsys):
    """In 0.6.0 each of them ran to its end, 14 steps, `12 guards on, 12 silent`, exit code 0."""
    flags, kind = DEATHS[death]
    death(monkeypatch)
    folder = tmp_path / "run"
    assert grpo.main([*FLAGS, "--max_steps", "14", *flags, "--output_dir", str(folder)]) == 3
    found = [json.loads(line) for line in (folder / "guards.jsonl").read_text().splitlines()]
    (stopped,) = [line for line in found if line["severity"] == "stop"]
    assert (stopped["guard"], stopped["kind"]) == ("dead_update", kind) and stopped["step"] <= 5
    assert json.loads((folder / "summary.json").read_text())["stopped"] == "guard"
    assert "dead update" in capsys.readouterr().out


def toy_run(folder: Path, *, adapter: bool = False, model=None, watch: Watch | None = None, **changes) -> GuardCallback:
    """A run of the toy policy with guards."""
    tokenizer = make_tokenizer()
    callback = GuardCallback(watch or Watch("none,dead_update"))
    trainer = NotingTrainer(
        model or make_model(tokenizer), make_config(folder, **{"max_steps": 8, **changes}), tokenizer,
        [make_task(i) for i in range(4)], ToyEnv, max_turn_tokens=8, callbacks=[callback],
        peft_config=LORA if adapter else None,
    )  # fmt: skip
    trainer.train()
    trainer.close()
    callback.steps, callback.advantaged = trainer.state.global_step, trainer.advantaged
    return callback


@pytest.mark.parametrize(
    ("changes", "adapter"),
    [({"num_iterations": 2}, False), ({"gradient_accumulation_steps": 2}, True), ({"logging_steps": 8}, False)],
)
@pytest.mark.parametrize("death", [loss_times_0, optimizer_without_effect])
def test_every_optimizer_step_counts(death, changes, adapter, tmp_path, monkeypatch):
    """Also those that generate nothing, and those that are not logged."""
    death(monkeypatch)
    callback = toy_run(tmp_path, adapter=adapter, **changes)
    assert callback.stopped is not None and callback.stopped.step == callback.steps == 3


def test_a_loss_that_dies_on_the_way_is_told_although_momentum_still_moves_the_weights(tmp_path, monkeypatch):
    right, calls = GiGPOTrainer._compute_loss, [0]

    def dying(self, model, inputs):
        calls[0] += 1
        return right(self, model, inputs) * (calls[0] <= 2)

    monkeypatch.setattr(GiGPOTrainer, "_compute_loss", dying)
    callback = toy_run(tmp_path, weight_decay=0.1)
    assert callback.stopped is not None and (callback.stopped.step, callback.stopped.kind) == (5, "no_gradient")


def test_an_adapter_that_is_switched_off_is_told(tmp_path, monkeypatch):
    """Inputs that require gradients (gradient checkpointing) keep the backward pass from failing."""
    right = GiGPOTrainer._compute_loss

    def off(self, model, inputs):
        model.enable_input_require_grads()
        model.base_model.disable_adapter_layers()
        return right(self, model, inputs)

    monkeypatch.setattr(GiGPOTrainer, "_compute_loss", off)
    callback = toy_run(tmp_path, adapter=True)
    assert callback.stopped is not None and callback.stopped.kind == "still" and callback.stopped.step <= 5
    assert "switched off" in callback.stopped.message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"warmup_steps": 4, "lr_scheduler_type": "constant_with_warmup"},  # the first step has a rate of 0
        {"num_iterations": 4},
        {"adapter": True},
        {"adapter": True, "num_iterations": 2, "beta": 0.04},
        {"learning_rate": 1e-9},
        {"optim": "sgd"},
    ],
)
def test_a_run_that_is_well_is_not_dead(changes, tmp_path):
    callback = toy_run(tmp_path, max_steps=6, **changes)
    assert (callback.findings, callback.steps) == ([], 6) and callback.advantaged > 0


def test_groups_without_an_advantage_are_not_dead(tmp_path, monkeypatch):
    right = ToyEnv.step

    def flat(self, reply):
        observation, _, terminated, truncated, info = right(self, reply)
        return observation, 0.0, terminated, truncated, {**info, "signal": None}

    monkeypatch.setattr(ToyEnv, "step", flat)
    optimizer_without_effect(monkeypatch)
    callback = toy_run(tmp_path)
    assert (callback.findings, callback.steps, callback.advantaged) == ([], 8, 0.0)


def test_bfloat16_that_rounds_every_step_away_is_a_warning_that_says_so(tmp_path):
    model = make_model(make_tokenizer()).to(torch.bfloat16)
    callback = toy_run(tmp_path, model=model, learning_rate=1e-12, weight_decay=0.0)
    (finding,) = callback.findings
    assert (finding.severity, finding.kind, callback.steps) == (Severity.WARN, "rounded", 8)
    assert "bfloat16" in finding.message and "--dtype float32" in finding.message


def dead(**changes) -> Update:
    return Update(**{"rate": 1e-4, "advantages": 40.0, "moved": 0.0, "slope": True, **changes})


def shown(*updates: Update) -> list[Finding]:
    watch = on(GuardName.DEAD_UPDATE)
    for step, update in enumerate(updates, 1):
        watch.update(step, update)
    return watch.findings


def test_steps_that_say_nothing_neither_break_nor_lengthen_a_row():
    silent = [dead(advantages=0.0), dead(rate=0.0)]
    (finding,) = shown(dead(), *silent, dead(), *silent, dead(), dead())
    assert (finding.step, finding.severity, finding.kind) == (7, Severity.STOP, "still")
    assert "40 trained tokens of step 7" in finding.message and "the optimizer's step has no effect" in finding.message
    assert shown(dead(), dead(), dead(moved=0.1), dead(), dead()) == []
    assert shown(*[dead(moved=None, slope=None)] * 9) == []  # another process holds the weights
    (cut,) = shown(*[dead(slope=None)] * 4)
    assert "takes no part in the loss" in cut.message


def test_the_row_goes_on_after_a_resume():
    first, second = on(GuardName.DEAD_UPDATE), on(GuardName.DEAD_UPDATE)
    first.update(1, dead())
    first.update(2, dead())
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.update(3, dead())
    assert kinds(second) == [(3, "stop", "still")] and only(second).guard == "dead_update"
    assert SimpleNamespace(**second.state_dict()["DeadUpdate"])._still == 3
