from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agents.policy import Sampling
from agents.rollout import Job, RolloutResult, Timing
from agents.trajectory import Trajectory
from tests.trainers.toy import make_task
from trainers.errors import BestLostError, ConfigError
from trainers.heldout import HeldOut, PoolRate
from trainers.stats import effective_n, sign_flip_test, wilson


class FakeTrainer:
    """Passes the first `n` tasks; writes its number as its weights."""

    def __init__(self) -> None:
        self.n = self.n_unseen = 0
        self.passes = None
        self.jobs: list[list] = []
        self.seeds: list[list[int]] = []
        self.training: list[bool] = []

    def save_policy(self, folder):
        folder.mkdir(parents=True)
        (folder / "weights").write_text(str(self.n))

    def rollout_together(self, parts):
        return [self.rollout(jobs, sampling, training=False) for jobs, sampling in parts]

    def rollout(self, jobs, sampling, *, training):
        self.seeds.append([job.seed for job in jobs])
        self.training.append(training)
        self.jobs.append(list(jobs))
        episodes = []
        for job in jobs:
            side, i = job.task.id.rsplit("-", 1)[0], int(job.task.id.rsplit("-", 1)[1])
            unseen = side == "unseen"
            passed = self.passes(job) if self.passes else i < (self.n_unseen if unseen else self.n)
            episodes.append(
                Trajectory(
                    task_id=job.task.id, task_hash="", attempt=job.attempt, seed=job.seed, prompt_ids=[1],
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
    tmp_path.mkdir(exist_ok=True)
    return HeldOut(tasks, arms, **{"metric": "sampled_pass_rate", "output_dir": tmp_path, **changes})


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


# -- two sets, several samples, the pool -----------------------------------------------------------------------------


UNSEEN = [make_task(50 + i).model_copy(update={"id": f"unseen-{i}"}) for i in range(4)]


def test_unseen_families_are_a_set_of_their_own_and_decide_only_when_asked(tmp_path, trainer):
    held_out = make(tmp_path, unseen=UNSEEN)
    trainer.n_unseen = 1
    first = passing(held_out, trainer, 0, 5)
    assert set(first.arms) == {"sampled", "greedy", "unseen_sampled", "unseen_greedy"}
    assert (first.arms["sampled"].n, first.arms["unseen_sampled"].n) == (10, 4)
    assert first.metrics["sampled_pass_rate"] == 0.5 and first.metrics["unseen_sampled_pass_rate"] == 0.25
    trainer.n_unseen = 4
    second = passing(held_out, trainer, 1, 5)
    assert not second.is_best and second.p_values["sampled"] == 1.0
    assert second.p_values["unseen_sampled"] == pytest.approx(2 * 0.5**3)
    trainer.n_unseen = 0
    assert passing(held_out, trainer, 2, 6).is_best  # the other set got worse, and says nothing

    by_unseen = make(tmp_path / "other", unseen=UNSEEN, metric="unseen_sampled_pass_rate")
    trainer.n_unseen = 1
    assert passing(by_unseen, trainer, 0, 9).is_best
    trainer.n_unseen = 2
    assert passing(by_unseen, trainer, 1, 1).is_best and by_unseen.best.tasks == 4


def test_further_sets_have_figures_of_their_own_and_decide_only_when_asked(tmp_path, trainer):
    sets = {"aime": UNSEEN[:3], "ood": UNSEEN[3:]}
    held_out = make(tmp_path, sets=sets)
    trainer.n_unseen = 1
    first = passing(held_out, trainer, 0, 5)
    assert {name: m.n for name, m in first.arms.items() if name.endswith("sampled")} == {
        "sampled": 10,
        "aime_sampled": 3,
        "ood_sampled": 1,
    }
    assert first.metrics["aime_greedy_pass_rate"] == pytest.approx(1 / 3) and len(held_out.everything) == 14
    alone = passing(make(tmp_path / "alone"), trainer, 0, 5)
    assert {name: first.metrics[name] for name in alone.metrics} == alone.metrics

    by_set = make(tmp_path / "other", sets=sets, metric="aime_sampled_pass_rate")
    assert passing(by_set, trainer, 0, 9).is_best
    trainer.n_unseen = 2
    assert passing(by_set, trainer, 1, 1).is_best and by_set.best.tasks == 3
    only = HeldOut([], by_set.arms, "ood_greedy_reward", sets=sets)
    assert set(passing(only, trainer, 0, 5).arms) == {"aime_sampled", "aime_greedy", "ood_sampled", "ood_greedy"}
    with pytest.raises(ValueError, match="'math_greedy' is not measured, only sampled, greedy, aime_sampled"):
        make(tmp_path, sets=sets, metric="math_greedy_reward")


def test_without_unseen_families_nothing_is_named_after_them(tmp_path, trainer):
    assert not any("unseen" in name for name in passing(make(tmp_path), trainer, 0, 5).metrics)
    with pytest.raises(ValueError, match="'unseen_greedy' is not measured, only sampled, greedy"):
        make(tmp_path, metric="unseen_greedy_reward")


def test_several_samples_a_task(tmp_path, trainer):
    held_out = make(tmp_path, samples=4)
    trainer.passes = lambda job: job.attempt < 2 and job.task.id != "toy-9"
    first = held_out.evaluate(trainer, 0)
    sampled, greedy = trainer.jobs
    assert [(j.task.id, j.attempt) for j in sampled[:5]] == [("toy-0", a) for a in range(4)] + [("toy-1", 0)]
    assert len(sampled) == 40 and len(greedy) == 10  # greedy attempts would all be alike
    m = first.arms["sampled"]
    assert (m.n, m.tasks, m.passed) == (40, 10, 18) and m.effective_n == effective_n(m.outcomes)
    assert (m.low, m.high) == pytest.approx(tuple(vars_of(wilson(0.45 * m.effective_n, m.effective_n))))
    trainer.passes = lambda job: job.attempt < 3 and job.task.id != "toy-9"
    second = held_out.evaluate(trainer, 1)
    assert [job.seed for job in trainer.jobs[2]] == [job.seed for job in sampled]  # common random numbers
    assert second.p_value == sign_flip_test([0.25] * 9)  # per-task means, not 40 independent episodes


def vars_of(interval):
    return interval.low, interval.high


def test_one_sample_has_the_seeds_of_the_first_of_several(tmp_path, trainer):
    make(tmp_path / "a").evaluate(trainer, 0)
    make(tmp_path / "b", samples=3).evaluate(trainer, 0)
    assert trainer.jobs[0] == [job for job in trainer.jobs[2] if job.attempt == 0]


def pool_episodes(trainer, passed, n=8):
    trainer.n = passed
    return trainer.rollout([Job(make_task(i), 0, 0) for i in range(n)], Sampling(1.0, 8), training=True).trajectories


def test_the_pool_is_shown_and_never_used(tmp_path, trainer):
    runs = []
    for name, pool in (("poor", 0), ("rich", 8)):
        held_out = make(tmp_path / name, patience=2)
        for step, n in ((0, 5), (1, 6), (2, 6), (3, 4)):
            if step:
                held_out.saw_pool(step, pool_episodes(trainer, pool if step != 3 else 8 - pool))
            passing(held_out, trainer, step, n)
        runs.append(held_out)
    poor, rich = runs
    assert [e.pool and e.pool.passed for e in poor.history] == [None, 0, 0, 8]
    assert [e.pool and e.pool.passed for e in rich.history] == [None, 8, 8, 0]
    assert poor.best == rich.best and poor.best.step == 1
    assert [replace(e, pool=None) for e in poor.history] == [replace(e, pool=None) for e in rich.history]


def test_the_pool_counts_the_graded_episodes_since_the_evaluation_before(tmp_path, trainer):
    held_out = make(tmp_path)
    episodes = pool_episodes(trainer, 3)
    episodes[0].stop_reason, episodes[0].reward, episodes[0].passed = "infrastructure", None, None
    held_out.saw_pool(1, episodes)
    held_out.saw_pool(2, pool_episodes(trainer, 4))
    again = make(tmp_path)
    again.restore(json.loads(json.dumps(held_out.state())))
    assert passing(again, trainer, 2, 5).pool == PoolRate(6, 15, 1, 2, excluded=1)
    assert passing(again, trainer, 3, 5).pool is None


def test_best_says_what_it_rests_on(tmp_path, trainer):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 2)
    passing(held_out, trainer, 7, 10)
    record = json.loads((tmp_path / "best" / "BEST.json").read_text())
    assert (record["step"], record["metric"], record["value"]) == (7, "sampled_pass_rate", 1.0)
    assert (record["passed"], record["graded"], record["tasks"], record["high"]) == (10, 10, 10, 1.0)
    assert record["p_value"] == pytest.approx(2 * 0.5**8) and record["decode"] == "T=1, max_tokens=8, as played"


def test_both_sets_with_several_samples_go_on_where_they_stood(tmp_path, trainer):
    changes = {"unseen": UNSEEN, "samples": 3, "patience": 3}
    whole, part = make(tmp_path / "whole", **changes), make(tmp_path / "part", **changes)
    for step, n in ((0, 5), (1, 4)):
        for held_out in (whole, part):
            passing(held_out, trainer, step, n)
    again = make(tmp_path / "part", **changes)
    again.restore(json.loads(json.dumps(part.state())))
    for step, n in ((2, 8), (3, 8), (4, 3), (5, 3)):
        assert passing(again, trainer, step, n) == passing(whole, trainer, step, n)
    assert again.best == whole.best and again.best.step == 2 and again.exhausted


def test_a_best_of_another_figure_is_not_gone_on_with(tmp_path, trainer):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 5)
    with pytest.raises(ConfigError, match="chose its best by 'sampled_pass_rate'"):
        make(tmp_path, metric="greedy_reward").restore(held_out.state())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.arms.update(sampled=Sampling(0.5, 8)), r"sampled T=0.5, max_tokens=8 \(was T=1, max_tokens=8\)"),
        (lambda h: setattr(h, "seed", 1), r"seed 1 \(was 0\)"),
        (lambda h: (h.arms.pop("greedy"), setattr(h, "samples", 4)), None),
    ],
    ids=["temperature", "seed", "no greedy arm, more samples"],
)
def test_a_best_that_was_measured_in_another_way_is_not_gone_on_with(tmp_path, trainer, change, words):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 5)
    other = make(tmp_path)
    change(other)
    if words is not None:
        with pytest.raises(ConfigError, match=words):
            other.check(held_out.state())
        return
    other.restore(held_out.state())
    assert passing(other, trainer, 1, 6).is_best


def test_a_checkpoint_without_a_best_leaves_none(tmp_path, trainer):
    """What a process chose after it is chosen again, or not."""
    state = make(tmp_path).state()
    passing(make(tmp_path), trainer, 0, 5)
    make(tmp_path).restore(state)
    assert not (tmp_path / "best").exists()


def test_a_few_survivors_do_not_become_the_first_best(tmp_path, trainer):
    """They would be all that later weights are compared on."""
    held_out = make(tmp_path, patience=1)
    lose(trainer, range(1, 10))
    first = passing(held_out, trainer, 0, 9)
    assert not first.is_best and not first.stop and held_out.best is None and not (tmp_path / "best").exists()
    assert "only 1 of 10 episodes were graded, fewer than 50%" in first.lost
    lose(trainer, range(5, 10))
    assert passing(held_out, trainer, 1, 4).is_best
    assert held_out.best.reason == "first measurement of which enough was graded"


def test_a_reward_that_is_no_number_enters_nothing(tmp_path, trainer):
    held_out = make(tmp_path, metric="sampled_reward")
    passing(held_out, trainer, 0, 5)
    play = trainer.rollout

    def rollout(jobs, sampling, *, training):
        result = play(jobs, sampling, training=training)
        result.trajectories[9].reward = float("nan")
        return result

    trainer.rollout = rollout
    verdict = passing(held_out, trainer, 1, 6)
    assert verdict.is_best and held_out.best.value == pytest.approx(6 / 9) and verdict.arms["sampled"].graded == 9


def lose(trainer, lost):
    """The infrastructure ends the episodes of the tasks of these numbers."""
    play = FakeTrainer.rollout

    def rollout(jobs, sampling, *, training):
        result = play(trainer, jobs, sampling, training=training)
        for job, episode in zip(jobs, result.trajectories, strict=True):
            if int(job.task.id.rsplit("-", 1)[1]) in lost:
                episode.stop_reason, episode.reward, episode.passed, episode.rate = "infrastructure", None, None, None
        return result

    trainer.rollout = rollout


@pytest.mark.parametrize("lost", [range(1, 10), range(2), range(10)], ids=["all but one", "two of ten", "all"])
def test_what_survived_is_not_chosen_for_having_survived(tmp_path, trainer, lost):
    held_out = make(tmp_path, patience=1)
    passing(held_out, trainer, 0, 6)
    lose(trainer, lost)
    verdict = passing(held_out, trainer, 1, 10)
    assert not verdict.is_best and held_out.best.step == 0
    assert "decides nothing and costs no patience" in verdict.lost and not verdict.stop
    lose(trainer, ())
    again = make(tmp_path, patience=1)
    again.restore(json.loads(json.dumps(held_out.state())))
    assert again.history == held_out.history
    assert passing(again, trainer, 2, 5).stop  # this one counts


def test_weights_are_compared_on_what_was_graded_for_both(tmp_path, trainer):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 6)
    lose(trainer, [9])  # one that failed before: 6 of 9 are more than 6 of 10, and no better
    verdict = passing(held_out, trainer, 1, 6)
    assert verdict.arms["sampled"].pass_rate > 0.6 and verdict.lost is None and not verdict.is_best
    assert passing(held_out, trainer, 2, 7).is_best
    reason = "0.7778 beats 0.6667 at step 0 on the 9 episodes graded for both (paired p of the passes: 1)"
    assert held_out.best.reason == reason


def test_tasks_of_the_caller_choose_nothing(tmp_path, trainer):
    held_out = make(tmp_path)
    passing(held_out, trainer, 0, 5)
    before = json.dumps(held_out.state())
    trainer.n = 3
    assert held_out.measure(trainer, [make_task(i) for i in range(3)])["sampled_pass_rate"] == 1.0
    assert json.dumps(held_out.state()) == before
