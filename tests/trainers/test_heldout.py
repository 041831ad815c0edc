from __future__ import annotations

import json

import pytest

from agents.policy import Sampling
from agents.rollout import RolloutResult, Timing
from agents.trajectory import Trajectory
from tests.trainers.toy import make_task
from trainers.heldout import BestLostError, HeldOut


class FakeTrainer:
    """Passes the first `n` tasks; writes its number as its weights."""

    def __init__(self) -> None:
        self.n = 0
        self.seeds: list[list[int]] = []
        self.training: list[bool] = []

    def save_policy(self, folder):
        folder.mkdir(parents=True)
        (folder / "weights").write_text(str(self.n))

    def rollout(self, jobs, sampling, *, training):
        self.seeds.append([job.seed for job in jobs])
        self.training.append(training)
        episodes = []
        for i, job in enumerate(jobs):
            passed = i < self.n
            episodes.append(
                Trajectory(
                    task_id=job.task.id, task_hash="", attempt=0, seed=job.seed, prompt_ids=[1],
                    stop_reason="submitted", reward=float(passed), passed=passed, rate=float(passed),
                    sampling=sampling.label() + ", as played",
                )
            )  # fmt: skip
        timing = Timing(1.0, 0.5, 0.25, len(jobs), 10)
        return RolloutResult(episodes, timing)


@pytest.fixture
def trainer():
    return FakeTrainer()


def make(tmp_path, **changes):
    tasks = [make_task(i) for i in range(10)]
    arms = {"sampled": Sampling(1.0, 8), "greedy": Sampling(0.0, 8)}
    return HeldOut(tasks, arms, "sampled_pass_rate", output_dir=tmp_path, **changes)


def passing(held_out, trainer, step, n):
    trainer.n = n
    return held_out.evaluate(trainer, step)


def test_baseline_competes_and_ties_keep_the_earlier(tmp_path, trainer):
    held_out = make(tmp_path)
    assert passing(held_out, trainer, 0, 5).is_best
    assert not passing(held_out, trainer, 10, 5).is_best
    assert not passing(held_out, trainer, 20, 4).is_best
    assert held_out.best.step == 0
    assert (tmp_path / "best" / "weights").read_text() == "5"
    assert passing(held_out, trainer, 30, 9).is_best
    assert (tmp_path / "best" / "weights").read_text() == "9"
    record = json.loads((tmp_path / "best" / "BEST.json").read_text())
    assert record["step"] == 30 and record["value"] == 0.9 and "0.5000 at step 0" in record["reason"]
    assert not (tmp_path / "best.tmp").exists()
    assert (tmp_path / "best.old" / "weights").read_text() == "5"  # what a checkpoint written before points to
    held_out.checkpoint_written()
    assert not (tmp_path / "best.old").exists()


def test_the_label_is_that_of_what_was_played(tmp_path, trainer):
    arms = passing(make(tmp_path), trainer, 0, 5).arms
    assert {name: m.sampling for name, m in arms.items()} == {
        "sampled": "T=1, max_tokens=8, as played",
        "greedy": "greedy, max_tokens=8, as played",
    }


def test_patience_counts_evaluations_without_a_new_best(tmp_path, trainer):
    held_out = make(tmp_path, patience=2)
    assert not passing(held_out, trainer, 0, 5).stop
    assert not passing(held_out, trainer, 1, 5).stop
    assert passing(held_out, trainer, 2, 3).stop


def test_min_delta(tmp_path, trainer):
    held_out = make(tmp_path, min_delta=0.15)
    passing(held_out, trainer, 0, 5)
    assert not passing(held_out, trainer, 1, 6).is_best
    assert passing(held_out, trainer, 2, 7).is_best


def test_steps_share_their_random_numbers_and_arms_do_not(tmp_path, trainer):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 5)
    passing(held_out, trainer, 1, 5)
    sampled_0, greedy_0, sampled_1, greedy_1 = trainer.seeds
    assert sampled_0 == sampled_1 and greedy_0 == greedy_1 and sampled_0 != greedy_0
    assert trainer.training == [False] * 4


def test_the_same_step_is_not_played_twice(tmp_path, trainer):
    held_out = make(tmp_path)
    first = passing(held_out, trainer, 0, 5)
    assert passing(held_out, trainer, 0, 9) is first
    assert len(trainer.seeds) == 2


def test_p_value_is_paired_against_the_best_before(tmp_path, trainer):
    held_out = make(tmp_path)
    assert passing(held_out, trainer, 0, 2).p_value is None
    evaluation = passing(held_out, trainer, 1, 10)
    assert evaluation.p_value == pytest.approx(2 * 0.5**8)  # 8 tasks changed, all for the better


def test_state_round_trip(tmp_path, trainer):
    held_out = make(tmp_path, patience=3)
    passing(held_out, trainer, 0, 5)
    passing(held_out, trainer, 1, 4)
    again = make(tmp_path, patience=3)
    again.restore(json.loads(json.dumps(held_out.state())))
    assert again.history == held_out.history and again.best == held_out.best
    assert passing(again, trainer, 2, 4).stop is False
    assert passing(again, trainer, 3, 4).stop is True


def test_a_crash_between_the_renames_keeps_the_old_best(tmp_path, trainer):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 5)
    (tmp_path / "best").rename(tmp_path / "best.old")
    again = make(tmp_path)
    again.restore(held_out.state())
    assert (tmp_path / "best" / "weights").read_text() == "5"


def test_going_back_to_a_checkpoint_finds_its_best_again(tmp_path, trainer):
    """Two new bests after the checkpoint: both are taken back."""
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 5)
    state = held_out.state()
    held_out.checkpoint_written()
    passing(held_out, trainer, 1, 7)
    passing(held_out, trainer, 2, 9)
    assert (tmp_path / "best" / "weights").read_text() == "9"
    again = make(tmp_path)
    again.restore(state)
    assert (tmp_path / "best" / "weights").read_text() == "5" and again.best.step == 0
    passing(again, trainer, 1, 6)
    assert (tmp_path / "best" / "weights").read_text() == "6"


def test_lost_best_weights_are_said_to_be_lost(tmp_path, trainer):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 5)
    state = held_out.state()
    (tmp_path / "best" / "BEST.json").unlink()
    with pytest.raises(BestLostError, match="best is step 0"):
        make(tmp_path).restore(state)


def test_an_interruption_while_saving_leaves_the_old_best_in_force(tmp_path, trainer, monkeypatch):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 5)

    def interrupted(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "save_policy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        passing(held_out, trainer, 1, 9)
    assert held_out.best.step == 0 and (tmp_path / "best" / "weights").read_text() == "5"
