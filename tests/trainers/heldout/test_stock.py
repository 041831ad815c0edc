"""Transformers' own ways to choose a checkpoint: understood, and never against `best/`."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig
from transformers import EarlyStoppingCallback, TrainerCallback

from agents.policy import Sampling
from tests.trainers.resume.test_exact import Told
from tests.trainers.toy import make_config, make_model, make_task, make_tokenizer, make_trainer
from trainers.checkpoint import Best
from trainers.errors import ConfigError
from trainers.heldout import HeldOut
from trainers.heldout.selection import load_weights
from trainers.settings.checks import check_config
from trainers.settings.parsing import parse

pytestmark = pytest.mark.filterwarnings("ignore")
EVERY_STEP = {
    "eval_strategy": "steps",
    "eval_steps": 1,
    "eval_on_start": True,
    "save_strategy": "steps",
    "save_steps": 1,
}


def held_out(folder, **changes):
    tasks = [make_task(100 + i) for i in range(3)]
    return HeldOut(tasks, {"sampled": Sampling(1.0, 12)}, "sampled_reward", output_dir=folder, **changes)


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "metric"),
    [
        ({}, "sampled_pass_rate"),
        ({"best_metric": "greedy_reward"}, "greedy_reward"),
        ({"best_metric": "held_out_sampled_reward"}, "sampled_reward"),
        ({"metric_for_best_model": "sampled_reward"}, "sampled_reward"),
        ({"metric_for_best_model": "eval_unseen_sampled_pass_rate"}, "unseen_sampled_pass_rate"),
        ({"best_metric": "eval_aime_sampled_reward"}, "aime_sampled_reward"),
        ({"metric_for_best_model": "eval_greedy_reward", "best_metric": "greedy_reward"}, "greedy_reward"),
        ({"load_best_model_at_end": True, **EVERY_STEP}, "sampled_pass_rate"),
    ],
)
def test_the_deciding_figure(tmp_path, settings, metric):
    config = make_config(tmp_path, **settings)
    check_config(config)
    assert config.best_metric == metric
    if config.metric_for_best_model is not None:
        assert config.metric_for_best_model == f"eval_{metric}" and config.greater_is_better is True


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"best_metric": "sampled_pas_rate"}, "did you mean 'sampled_pass_rate'"),
        ({"metric_for_best_model": "eval_greedy_pass_rat"}, "did you mean 'greedy_pass_rate'"),
        ({"best_metric": "aime_greedy_reward", "held_out_greedy": False}, "held_out_greedy off"),
        ({"metric_for_best_model": "eval_loss"}, "no figure of the held-out tasks"),
        ({"best_metric": "greedy_reward", "held_out_greedy": False}, "held_out_greedy off"),
        ({"metric_for_best_model": "greedy_reward", "best_metric": "sampled_pass_rate"}, "Set one of the two"),
        ({"metric_for_best_model": "sampled_reward", "greater_is_better": False}, "better when it is larger"),
        ({"load_best_model_at_end": True}, "nothing is measured with eval_strategy=no"),
        ({"held_out_samples": 0}, "held_out_samples=0"),
    ],
)
def test_what_cannot_work_is_said_before_a_model_loads(tmp_path, settings, message):
    with pytest.raises(ConfigError, match=message):
        check_config(make_config(tmp_path, **settings))


def test_the_resolved_settings_mean_the_same_again(tmp_path):
    first = parse(["--metric_for_best_model", "eval_greedy_reward", "--best_metric", "greedy_reward"])
    path = tmp_path / "again.yaml"
    path.write_text("\n".join(f"{k}: {v}" for k, v in first.resolved().items() if k.endswith(("metric", "best_model"))))
    again = parse(["--config", str(path)])
    assert again.config.best_metric == "greedy_reward"
    check_config(again.config)


# -- callbacks and the end of training -------------------------------------------------------------------------------


def run(tmp_path, folder, callbacks=(), **changes):
    trainer = make_trainer(tmp_path, held_out=held_out(folder), **{**EVERY_STEP, **changes})
    told = Told()
    for callback in (*callbacks, told):
        trainer.add_callback(callback)
    trainer.train()
    trainer.close()
    return trainer, told


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("lr", [0.0, 1e-2], ids=["the baseline stays best", "a later step may win"])
def test_best_is_loaded_at_the_end_whatever_trls_record_says(tmp_path, lr):
    trainer, told = run(tmp_path, tmp_path, load_best_model_at_end=True, learning_rate=lr, max_steps=2)
    best = trainer.held_out.best
    kept = type(trainer.model).from_pretrained(tmp_path / "best")
    assert torch.equal(weights(kept), weights(trainer.accelerator.unwrap_model(trainer.model)))
    assert sum("eval_sampled_reward" in log for log in trainer.logged) == 3  # each evaluation once, the last one too
    assert trainer.state.best_global_step == best.step and trainer.state.best_metric == best.value
    assert trainer.state.best_model_checkpoint == str(tmp_path / "best")
    if lr == 0.0:  # TRL's record never has the baseline
        ((_, message),) = told.said
        assert "calls step 1 the best" in message and "`best/` is step 0" in message and "`best/` wins" in message
    folder = tmp_path / "run"
    assert sorted(p.name for p in folder.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "adapter"])
def test_weights_go_back_into_the_model_in_place(tmp_path, adapter):
    from peft import get_peft_model

    def make(seed):
        model = make_model(make_tokenizer(), seed)
        if adapter:
            torch.manual_seed(seed)
            model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
        return model

    model = make(0)
    pointers = [p.data_ptr() for p in model.parameters()]
    model.save_pretrained(tmp_path / "best")
    before = weights(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.5)
    assert not torch.equal(weights(model), before)
    load_weights(model, tmp_path / "best")
    assert torch.equal(weights(model), before)
    assert [p.data_ptr() for p in model.parameters()] == pointers


def test_early_stopping_of_transformers_counts_beside_our_patience(tmp_path):
    callback = EarlyStoppingCallback(early_stopping_patience=2)
    trainer, told = run(tmp_path, None, [callback], learning_rate=0.0, max_steps=9)
    # Step 1 is the first of its count, 2 and 3 do not beat it: the weights never change.
    assert trainer.state.global_step == 3 and trainer.held_out.best.step == 0
    assert any("EarlyStoppingCallback ends the run at step 3" in m and "`best/` is step 0" in m for _, m in told.said)
    assert any("`best/` wins" in m for _, m in told.said)


class Guard(TrainerCallback):
    """Ends the run after its first step, as `RunCallback` does for a guard."""

    stopped = None

    def on_step_end(self, args, state, control, **kwargs):
        self.stopped = "planted"
        control.should_training_stop = True
        control.should_evaluate = control.should_save = False


def test_what_a_guard_ended_is_not_measured(tmp_path):
    trainer, _ = run(tmp_path, tmp_path, [Guard()], load_best_model_at_end=True, max_steps=3)
    assert trainer.ended_by_guard() and trainer.state.global_step == 1
    assert [e.step for e in trainer.held_out.history] == [0]
    kept = type(trainer.model).from_pretrained(tmp_path / "best")
    assert torch.equal(weights(kept), weights(trainer.accelerator.unwrap_model(trainer.model)))


def test_a_run_that_was_killed_after_its_last_step_settles_too(tmp_path):
    changes = {"metric_for_best_model": "sampled_reward", "learning_rate": 0.0, "max_steps": 1}
    _, told = run(tmp_path, tmp_path, **changes)
    again = make_trainer(tmp_path, held_out=held_out(tmp_path), **{**EVERY_STEP, **changes})
    late = Told()
    again.add_callback(late)
    again.stand_at(tmp_path / "run" / "checkpoint-1")
    again.close()
    assert late.said == told.said and "`best/` wins" in late.said[0][1]
    assert again.state.best_model_checkpoint == str(tmp_path / "best")


def test_a_run_with_both_sets_and_several_samples_goes_on_where_it_stood(tmp_path):
    def rule(name):
        folder = tmp_path / name / "run"
        unseen = [make_task(200), make_task(201)]
        return held_out(folder, unseen=unseen, samples=2, patience=2)

    def go(name, steps, resume=None):
        changes = {**EVERY_STEP, "eval_on_start": resume is None, "lr_scheduler_type": "constant"}
        trainer = make_trainer(tmp_path / name, held_out=rule(name), max_steps=steps, learning_rate=0.0, **changes)
        trainer.train(resume_from_checkpoint=resume)
        trainer.close()
        return trainer

    whole = go("whole", 5)
    go("part", 1)
    part = go("part", 5, str(tmp_path / "part" / "run" / "checkpoint-1"))
    assert [e.step for e in whole.held_out.history] == [0, 1, 2]  # patience was spent, also across the resume
    assert part.held_out.history == whole.held_out.history and part.held_out.best == whole.held_out.best
    assert {m.n for m in part.held_out.history[-1].arms.values()} == {6, 4}


def test_early_stopping_where_nothing_is_measured_is_refused(tmp_path):
    from trainers.heldout.selection import satisfy_callbacks

    config = make_config(tmp_path)
    with pytest.raises(ConfigError, match="it would never stop"):
        satisfy_callbacks(config, [EarlyStoppingCallback()], held_out(None))
    config = make_config(tmp_path, **EVERY_STEP)
    with pytest.raises(ConfigError, match="it would never stop"):
        satisfy_callbacks(config, [EarlyStoppingCallback()], None)
    satisfy_callbacks(config, [EarlyStoppingCallback()], held_out(None))
    assert config.metric_for_best_model == "eval_sampled_pass_rate"
    config = make_config(tmp_path, load_best_model_at_end=True, **EVERY_STEP)
    with pytest.raises(ConfigError, match="no best weights are kept"):
        satisfy_callbacks(config, [], held_out(None))


def test_other_tasks_can_be_measured_and_data_sets_cannot(tmp_path):
    trainer = make_trainer(tmp_path, held_out=held_out(None))
    before = weights(trainer.model)
    figures = trainer.evaluate([make_task(7), make_task(8)], metric_key_prefix="other")
    assert "other_sampled_reward" in figures and trainer.held_out.history == [] and trainer.held_out.best is None
    assert torch.equal(weights(trainer.model), before)
    with pytest.raises(ConfigError, match="give a list of tasks"):
        trainer.evaluate(trainer.eval_dataset)
    trainer.held_out = None
    with pytest.raises(ConfigError, match="pass held_out="):
        trainer.evaluate([make_task(7)])
    trainer.close()


def test_trls_record_is_the_first_of_the_largest_without_the_baseline(tmp_path):
    from tests.trainers.heldout.test_held_out import FakeTrainer, make, passing
    from trainers.heldout.selection import stock_best

    rule, player = make(tmp_path, min_delta=0.35), FakeTrainer()
    for step, n in ((0, 6), (1, 4), (2, 9), (3, 9)):
        passing(rule, player, step, n)
    assert stock_best(rule.history, "sampled_pass_rate") == 2 and rule.best.step == 0
    assert isinstance(rule.best, Best)
