"""Evaluation changes nothing, and a resumed run is the uninterrupted one, bit for bit."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from agents.policy import Sampling
from agents.t2po import T2POConfig
from tests.trainers.toy import make_config, make_task, make_trainer
from trainers.checkpoint import FORMAT, STATE_FILE, Best, Checkpoint, save_best
from trainers.errors import ConfigError
from trainers.heldout import HeldOut
from trainers.heldout.selection import random_states_kept
from trainers.run.start import load
from trainers.settings.checks import check_config

pytestmark = pytest.mark.filterwarnings("ignore")


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def held_out(folder: Path | None = None, **changes):
    tasks = [make_task(100 + i) for i in range(3)]
    return HeldOut(tasks, {"sampled": Sampling(1.0, 12)}, "sampled_reward", output_dir=folder, **changes)


def run(tmp_path, name, *, resume=None, **changes):
    trainer = make_trainer(tmp_path / name, **changes)
    trainer.train(resume_from_checkpoint=resume)
    trainer.close()
    return trainer


def test_evaluation_leaves_training_bitwise_equal(tmp_path):
    plain = run(tmp_path, "plain", max_steps=3)
    measured = run(
        tmp_path, "measured", max_steps=3, held_out=held_out(), eval_strategy="steps", eval_steps=1, eval_on_start=True
    )
    assert [e.step for e in measured.held_out.history] == [0, 1, 2, 3]
    assert torch.equal(weights(plain), weights(measured))
    rewards = [[log["reward"] for log in t.logged if "reward" in log] for t in (plain, measured)]
    assert rewards[0] == rewards[1]


def test_an_environment_that_draws_during_a_measurement_changes_nothing():
    def draw():
        return random.random(), np.random.random(), torch.rand(1).item()

    def seed():
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seed()
    first = draw()
    seed()
    with random_states_kept():
        draw()
    assert draw() == first


@pytest.mark.parametrize("at", [1, 3, 4], ids=["first epoch", "later epoch", "end of an epoch"])
def test_resume_is_bitwise_equal(tmp_path, at):
    """Four tasks, two a step: an epoch is two steps."""
    changes = {"save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    whole = run(tmp_path, "whole", max_steps=5, **changes)
    run(tmp_path, "part", max_steps=at, **changes)
    checkpoint = Checkpoint.newest_whole(tmp_path / "part" / "run").folder
    assert checkpoint is not None and checkpoint.name == f"checkpoint-{at}"
    rest = run(tmp_path, "part", max_steps=5, resume=str(checkpoint), **changes)
    assert [e.task_id for play in rest.played for e in play] == [e.task_id for play in whole.played[at:] for e in play]
    assert torch.equal(weights(whole), weights(rest))


RESAMPLING = T2POConfig(
    turn_resample=True, turn_resample_warmup=24, turn_resample_rate=0.4, turn_resample_evaluate=True
)


def test_resume_with_turn_resampling_is_bitwise_equal(tmp_path):
    """The checkpoint lies behind calibration: band and counts go on as they were."""
    changes = {"save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant", "t2po": RESAMPLING}
    whole = run(tmp_path, "whole", max_steps=4, **changes)
    run(tmp_path, "part", max_steps=2, **changes)
    checkpoint = Checkpoint.newest_whole(tmp_path / "part" / "run").folder
    rest = run(tmp_path, "part", max_steps=4, resume=str(checkpoint), **changes)
    assert whole.policy.meter.triggered > 0
    assert rest.policy.state_dict() == whole.policy.state_dict()
    assert torch.equal(weights(whole), weights(rest))


class Told(TrainerCallback):
    """Hears what is said to people."""

    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def warn(self, step: int, message: str) -> None:
        self.said.append((step, message))


def test_resuming_with_another_signal_calibrates_anew_and_warns(tmp_path):
    changes = {"save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    run(tmp_path, "part", max_steps=2, t2po=RESAMPLING, **changes)
    checkpoint = Checkpoint.newest_whole(tmp_path / "part" / "run").folder
    other = make_trainer(
        tmp_path / "part", max_steps=3, t2po=replace(RESAMPLING, turn_resample_signal="top1"), **changes
    )
    told = Told()
    other.add_callback(told)
    other._load_from_checkpoint(str(checkpoint))
    assert other.policy.eta is None
    ((step, message),) = told.said
    assert step == 2 and "signal entropy then, top1 now" in message and "calibrated anew" in message
    state = json.loads((checkpoint / STATE_FILE).read_text())
    state["t2po"] = {"eta": 0.1, "changes": [], "meter": [0, 0, 0, 0]}  # as 0.4.0 wrote it
    (checkpoint / STATE_FILE).write_text(json.dumps(state))
    with pytest.raises(ConfigError, match="another release"):
        other._load_from_checkpoint(str(checkpoint))
    other.close()


def test_resampling_in_evaluation_leaves_training_bitwise_equal_and_says_so(tmp_path):
    plain = run(tmp_path, "plain", max_steps=3, t2po=RESAMPLING)
    measured = run(
        tmp_path, "measured", max_steps=3, t2po=RESAMPLING, held_out=held_out(), eval_strategy="steps", eval_steps=1
    )
    assert measured.policy.state_dict() == plain.policy.state_dict()
    assert torch.equal(weights(plain), weights(measured))
    labels = [e.arms["sampled"].sampling for e in measured.held_out.history]
    eta = plain.policy.eta
    assert labels[-1] == f"T=1, max_tokens=12, turn resampling on (eta={eta:.3g}, max_try=2, keep=last)"
    last = [log for log in measured.logged if "t2po/eta" in log][-1]
    assert last["t2po/eta"] == eta and last["t2po/undecided_frac"] == 0.0
    assert last["t2po/trigger_rate"] == pytest.approx(measured.policy.trigger_rate())


def test_resume_restores_best_patience_and_history(tmp_path):
    changes = {
        "save_strategy": "steps",
        "save_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "eval_on_start": True,
    }
    first = run(tmp_path, "run", max_steps=2, held_out=held_out(tmp_path / "best_a", patience=50), **changes)
    again = held_out(tmp_path / "best_a", patience=50)
    trainer = make_trainer(tmp_path / "run", max_steps=3, held_out=again, **{**changes, "eval_on_start": False})
    trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "run" / "checkpoint-2"))
    trainer.close()
    assert [e.step for e in again.history] == [0, 1, 2, 3]
    assert again.history[:3] == first.held_out.history


def test_a_checkpoint_cut_short_is_not_used(tmp_path):
    trainer = run(tmp_path, "run", max_steps=2, save_strategy="steps", save_steps=1)
    folder = Path(trainer.args.output_dir)
    assert Checkpoint.newest_whole(folder).folder.name == "checkpoint-2"
    (folder / "checkpoint-2" / STATE_FILE).unlink()
    assert Checkpoint.newest_whole(folder).folder.name == "checkpoint-1"
    assert Checkpoint.newest_whole(tmp_path / "nothing") is None


CYCLE = {"num_iterations": 2, "steps_per_generation": 2, "gradient_accumulation_steps": 1}


@pytest.mark.parametrize("budget", [0, 120], ids=["by rows", "by tokens"])
def test_resume_inside_a_generation_cycle_is_bitwise_equal(tmp_path, budget):
    """Four optimizer steps a generation: what was played and not trained on yet is in the checkpoint."""
    changes = {"save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant", "max_steps": 5, **CYCLE}
    changes |= {"per_device_train_batch_size": 4, "micro_batch_tokens": budget}
    whole = run(tmp_path, "whole", **changes)
    for at in (1, 3):
        rest = run(tmp_path, f"rest{at}", resume=str(tmp_path / f"whole/run/checkpoint-{at}"), **changes)
        assert len(whole.played) == 2 and len(rest.played) == 1
        assert torch.equal(weights(whole), weights(rest))
        last = [trainer.state.log_history[-1]["train_loss"] for trainer in (whole, rest)]
        assert last[0] == last[1]
    with pytest.raises(ConfigError, match="inside a generation that is trained on for 4 micro-steps.* are 2"):
        run(tmp_path, "other", resume=str(tmp_path / "whole/run/checkpoint-1"), **{**changes, "num_iterations": 1})


def test_a_step_of_another_size_trains_on_what_it_samples_itself(tmp_path):
    """After three steps of one micro-step a cycle of two would begin in its middle, and span two optimizer steps."""
    changes = {"save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    run(tmp_path, "part", max_steps=3, **changes)
    new = {**changes, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    rest = run(tmp_path, "part", max_steps=5, resume=str(tmp_path / "part/run/checkpoint-3"), **new)
    assert len(rest.played) == 2
    assert max(log["sampling/ratio_max"] for log in rest.logged if "sampling/ratio_max" in log) < 1.0001


def test_saving_between_two_lines_of_metrics_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="save_steps=2: a checkpoint between two lines of metrics"):
        check_config(make_config(tmp_path, save_strategy="steps", save_steps=2, logging_steps=4))
    check_config(make_config(tmp_path, save_strategy="steps", save_steps=4, logging_steps=2))


def test_another_number_of_processes_is_refused(tmp_path):
    trainer = run(tmp_path, "run", max_steps=1, save_strategy="steps", save_steps=1)
    checkpoint = Checkpoint.newest_whole(Path(trainer.args.output_dir)).folder
    state = json.loads((checkpoint / STATE_FILE).read_text())
    (checkpoint / STATE_FILE).write_text(json.dumps({**state, "processes": 2}))
    with pytest.raises(ConfigError, match="2 processes wrote it, now there are 1.*accelerate launch --num_processes 2"):
        trainer._load_from_checkpoint(str(checkpoint))


def test_a_checkpoint_of_another_release_is_refused(tmp_path):
    """Before a model loads: see `trainers.run.start.load`, which asks the same question first."""
    folder = tmp_path / "checkpoint-3"
    folder.mkdir()
    (folder / STATE_FILE).write_text(json.dumps({"held_out": None, "processes": 1}))  # as 0.5.0 wrote it
    run_ = type("Run", (), {"settings": type("S", (), {"config": make_config(tmp_path)}), "model_folder": None})
    with pytest.raises(ConfigError, match="TurnGym 0.5.0 or an older release wrote it.*--model_name_or_path"):
        load(run_, Checkpoint(folder))
    (folder / STATE_FILE).write_text(json.dumps({"format": FORMAT + 1, "processes": 1}))
    with pytest.raises(ConfigError, match="a newer release"):
        Checkpoint(folder).check(1)


def test_settings_said_anew_hold(tmp_path):
    """The optimizer's state would bring the old ones back, while config.yaml says the new ones."""
    changes = {"save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "linear", "weight_decay": 0.1}
    run(tmp_path, "part", max_steps=2, **changes)
    checkpoint = str(Checkpoint.newest_whole(tmp_path / "part" / "run").folder)
    new = {"save_steps": 2, "learning_rate": 1e-5, "adam_epsilon": 1e-3, "adam_beta2": 0.99, "weight_decay": 0.3}
    trainer, told = make_trainer(tmp_path / "part", max_steps=4, **{**changes, **new}), Told()
    trainer.add_callback(told)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.close()
    kept = sorted(path.name for path in (tmp_path / "part" / "run").glob("checkpoint-*"))
    assert kept == ["checkpoint-1", "checkpoint-2", "checkpoint-4"]  # every second one from here on
    group = trainer.optimizer.param_groups[0]
    assert (group["eps"], group["betas"], group["weight_decay"]) == (1e-3, (0.9, 0.99), 0.3)
    assert [g["weight_decay"] for g in trainer.optimizer.param_groups][1:] == [0.0]  # norms and biases have none
    assert [log["learning_rate"] for log in trainer.logged if "learning_rate" in log] == [5e-6, 2.5e-6]
    ((step, message),) = told.said
    assert step == 2 and "learning_rate is 1e-05, was 0.001" in message and "weight_decay is 0.3, was 0.1" in message
    assert "adam_epsilon is 0.001, was 1e-08" in message and "was (0.9, 0.999)" in message


def test_entropy_controller_goes_on(tmp_path):
    changes = {"save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant", "use_adaptive_entropy": True}
    changes |= {"entropy_target": 6.0}
    whole = run(tmp_path, "whole", max_steps=3, **changes)
    rest = run(tmp_path, "rest", max_steps=3, resume=str(tmp_path / "whole/run/checkpoint-2"), **changes)
    assert rest.entropy_coef == whole.entropy_coef != rest.args.entropy_coef
    assert torch.equal(weights(whole), weights(rest))


def test_two_bests_after_a_checkpoint_twice(tmp_path):
    """A best that the checkpoint points to survives a resume, a new best, and a second resume."""

    def best(name: str) -> str:
        return json.loads((tmp_path / name / "BEST.json").read_text())["step"]

    class Player:
        def save_policy(self, folder):
            folder.mkdir()

    rule = held_out(tmp_path)
    for step in (1, 2):
        save_best(tmp_path, Best(step, 0.1 * step, "sampled_reward", ""), Player().save_policy)
        rule.best = Best(step, 0.1 * step, "sampled_reward", "")
        if step == 2:
            state = rule.state()  # of a checkpoint, whose process dies before it takes best.old away
    assert (best("best"), best("best.old")) == (2, 1)
    for later in (3, 4):
        again = held_out(tmp_path)
        again.restore(state)
        assert best("best") == 2
        save_best(tmp_path, Best(later, 0.1 * later, "sampled_reward", ""), Player().save_policy)
    again = held_out(tmp_path)
    again.restore(state)
    assert best("best") == 2
