"""With a generation sampled ahead a resumed run is the uninterrupted one, bit for bit, wherever a checkpoint lies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback

from tests.trainers.resume.test_exact import RESAMPLING, held_out, run, weights
from tests.trainers.rollouts.planted import make_trainer as make_planted
from tests.trainers.toy import make_trainer
from trainers.checkpoint import STATE_FILE, Checkpoint

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]

CHANGES = {"overlap": 1, "save_strategy": "steps", "lr_scheduler_type": "constant"}


def staleness(trainer):
    return [log["rollouts/staleness"] for log in trainer.logged if "loss" in log]


def episodes(trainer):
    return [[(e.task_id, e.flat()) for e in play] for play in trainer.played]


class Saves(TrainerCallback):
    """A checkpoint that no schedule knows of."""

    def __init__(self, *steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        control.should_save = control.should_save or state.global_step in self.steps


def begun_by(trainer):
    """Micro-steps whose generations a trainer begins to sample ahead, in a list that grows."""
    begun, begin = [], trainer.rollouts.begin

    def noted(draw, *, end_id):
        begun.append(draw.micro_step)
        begin(draw, end_id=end_id)

    trainer.rollouts.begin = noted
    return begun


def saving(trainer, *steps):
    trainer.add_callback(Saves(*steps))
    return trainer


@pytest.mark.parametrize("at", [2, 4, 6], ids=["end of an epoch", "end of a later epoch", "last of them"])
def test_the_generation_after_a_checkpoint_is_sampled_with_its_weights(tmp_path, at):
    """Four tasks, two a step: an epoch is two steps."""
    changes = {**CHANGES, "save_steps": 2}
    whole = run(tmp_path, "whole", max_steps=7, **changes)
    assert staleness(whole) == [0, 1, 0, 1, 0, 1, 0]
    rest = run(tmp_path, "rest", max_steps=7, resume=str(tmp_path / f"whole/run/checkpoint-{at}"), **changes)
    assert episodes(rest) == episodes(whole)[at:]
    assert staleness(rest) == staleness(whole)[at:]
    assert torch.equal(weights(whole), weights(rest))


def test_a_checkpoint_in_the_middle_of_an_epoch(tmp_path):
    changes = {**CHANGES, "save_steps": 3}
    whole = run(tmp_path, "whole", max_steps=5, **changes)
    rest = run(tmp_path, "rest", max_steps=5, resume=str(tmp_path / "whole/run/checkpoint-3"), **changes)
    assert staleness(whole) == [0, 1, 1, 0, 1] and episodes(rest) == episodes(whole)[3:]
    assert torch.equal(weights(whole), weights(rest))


def test_what_is_thrown_away_leaves_no_trace(tmp_path):
    """A run that knows of its checkpoints samples nothing in vain, and is the run that does not, to the last count."""
    changes = {**CHANGES, "t2po": RESAMPLING, "max_steps": 5}
    knows = make_trainer(tmp_path / "knows", **changes, save_steps=2)
    begun = begun_by(knows)
    knows.train()
    knows.close()
    assert begun == [1, 3]
    learns = saving(make_trainer(tmp_path / "learns", **{**changes, "save_strategy": "no"}), 2, 4)
    begun = begun_by(learns)
    learns.train()
    learns.close()
    assert begun == [1, 2, 3, 4]
    assert episodes(knows) == episodes(learns) and torch.equal(weights(knows), weights(learns))
    assert knows.policy.state_dict() == learns.policy.state_dict() and knows.policy.meter.triggered > 0


@pytest.mark.parametrize("t2po", [None, RESAMPLING], ids=["plain", "T2PO calibrates itself"])
def test_a_checkpoint_that_nobody_knew_of(tmp_path, t2po):
    """What is sampled ahead then is thrown away, and with it what it did to a calibration."""
    changes = {**CHANGES, "save_strategy": "no", "t2po": t2po, "max_steps": 5}
    whole = saving(make_trainer(tmp_path / "whole", **changes), 1, 3)
    begun = begun_by(whole)
    whole.train()
    whole.close()
    assert begun == [1, 2, 3, 4] and staleness(whole) == [0, 0, 1, 0, 1]
    assert len({e.seed for play in whole.played for e in play}) == 40
    for at in (1, 3):
        rest = saving(make_trainer(tmp_path / f"rest{at}", **changes), 3)
        rest.train(resume_from_checkpoint=str(tmp_path / f"whole/run/checkpoint-{at}"))
        rest.close()
        assert episodes(rest) == episodes(whole)[at:]
        assert torch.equal(weights(whole), weights(rest))
        if t2po is not None:
            assert rest.policy.state_dict() == whole.policy.state_dict()
    if t2po is not None:
        assert whole.policy.meter.triggered > 0


def test_the_curriculum_stands_where_it_was_learned_on(tmp_path):
    measured = tmp_path / "measured.jsonl"
    measured.write_text("".join(f'{{"task_id": "toy-{i}", "passes": {5 - i}, "n": 6}}\n' for i in range(6)))
    changes = {**CHANGES, "save_strategy": "no", "curriculum": str(measured), "refill_rounds": 1, "max_steps": 5}

    def plan(task_id, seed):
        return 0.0 if task_id in ("toy-1", "toy-4") else float(seed % 3 == 0)

    whole = saving(make_planted(tmp_path / "whole", plan, **changes), 2)
    whole.train()
    whole.close()
    checkpoint = tmp_path / "whole/run/checkpoint-2"
    assert json.loads((checkpoint / STATE_FILE).read_text())["rollouts"]["curriculum"]["position"] == 4
    rest = make_planted(tmp_path / "rest", plan, **changes)
    rest.train(resume_from_checkpoint=str(checkpoint))
    rest.close()
    assert episodes(rest) == episodes(whole)[2:]
    assert torch.equal(weights(whole), weights(rest))


def test_a_checkpoint_inside_a_generation_cycle(tmp_path):
    """Two optimizer steps a generation; at step 3 its second half is in the checkpoint."""
    changes = {**CHANGES, "num_iterations": 2, "max_staleness": 3, "save_steps": 3, "max_steps": 8}
    whole = run(tmp_path, "whole", **changes)
    assert staleness(whole) == [0, 1, 2, 3, 0, 1, 0, 1]
    rest = run(tmp_path, "rest", resume=str(tmp_path / "whole/run/checkpoint-3"), **changes)
    assert staleness(rest) == staleness(whole)[3:] and episodes(rest) == episodes(whole)[2:]
    assert torch.equal(weights(whole), weights(rest))


def test_patience_ends_a_run_beside_a_generation(tmp_path):
    """An evaluation that nobody knew to be the last saves: nothing is sampled for a step that never comes."""
    changes = {**CHANGES, "save_steps": 100, "eval_strategy": "steps", "eval_steps": 1, "learning_rate": 0.0}
    rule = held_out(tmp_path / "best", patience=1)
    whole = run(tmp_path, "whole", max_steps=9, held_out=rule, **changes)
    assert whole.state.global_step == 2 and staleness(whole) == [0, 1]
    newest = Checkpoint.newest_whole(Path(whole.args.output_dir))
    assert newest.step == 2 and whole.rollouts._pending is None


def test_evaluation_leaves_training_bitwise_equal(tmp_path):
    plain = run(tmp_path, "plain", max_steps=4, overlap=1)
    measured = run(
        tmp_path, "measured", max_steps=4, overlap=1, held_out=held_out(), eval_strategy="steps", eval_steps=1,
        eval_on_start=True,
    )  # fmt: skip
    assert episodes(plain) == episodes(measured)
    assert torch.equal(weights(plain), weights(measured))
