"""Partial batches: a straggling group goes to a later step, within the bound, and none is lost."""

from __future__ import annotations

import re
import threading
from collections import Counter

import pytest

from agents.policy import Sampling
from agents.rollout import Job, RolloutResult, Timing
from sandboxes.sandbox import SandboxError
from tests.trainers.rollouts.test_overlap import PATIENCE, Ends, logprobs, threads
from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer, make_trainer
from trainers.errors import ConfigError
from trainers.heldout import HeldOut
from trainers.rollouts.partial import PartialBatches
from trainers.settings.checks import check_config

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]

CHANGES = {"overlap": 1, "partial_batches": 1, "rollout_mode": "asynchronous", "lr_scheduler_type": "constant"}


class Slow:
    """Environments in which the second command of one task waits until `open`, or until they are closed.

    Args:
        name: Of the task.
        number: Which of its groups waits, counted from 0.
    """

    def __init__(self, name, number=0):
        self.open, self.waiting = threading.Event(), threading.Event()
        self.aborted = 0
        slow, seen, lock = self, Counter(), threading.Lock()

        class Straggles(ToyEnv):
            def reset(self, *, seed=None, options=None):
                out = super().reset(seed=seed, options=options)
                with lock:
                    self.slow = self.task.id == name and seen[name] // 4 == number
                    seen[self.task.id] += 1
                return out

            def step(self, reply):
                if self.slow and self.turn == 1:
                    slow.waiting.set()
                    assert slow.open.wait(PATIENCE), "somebody waits for a group that need not be waited for"
                    if slow.aborted:
                        raise SandboxError("closed")
                return super().step(reply)

            def abort(self):
                slow.aborted += 1
                slow.open.set()

        self.env = Straggles


def make(tmp_path, env=ToyEnv, *, tasks=4, slots=12, held_out=None, **changes):
    tokenizer = make_tokenizer()
    return NotingTrainer(
        make_model(tokenizer), make_config(tmp_path, **{**CHANGES, "shuffle_dataset": False, **changes}), tokenizer,
        [make_task(i) for i in range(tasks)], env, held_out=held_out, slots=slots, workers=2, max_turn_tokens=12,
    )  # fmt: skip


def groups(trainer):
    """Of each step the tasks of its groups; every one is whole."""
    out = []
    for play in trainer.played:
        cut = [play[i : i + 4] for i in range(0, len(play), 4)]
        assert all({e.task_id for e in group} == {group[0].task_id} for group in cut)
        assert all([e.attempt for e in group] == [0, 1, 2, 3] for group in cut)
        out.append([group[0].task_id for group in cut])
    return out


def seeds(trainer):
    return Counter((e.task_id, e.attempt, e.seed) for play in trainer.played for e in play)


def logged(trainer, name):
    return [log[name] for log in trainer.logged if "loss" in log]


def opened_at(trainer, slow, step):
    """The gate opens when this step has begun to learn."""
    loss = trainer._compute_loss

    def compute(model, inputs):
        if trainer.state.global_step == step - 1:
            slow.open.set()
        return loss(model, inputs)

    trainer._compute_loss = compute
    return trainer


def test_a_straggling_group_goes_to_the_next_step_and_another_takes_its_place(tmp_path):
    """Task 3 of step 2 waits until step 2 learns; the first group of step 3 is learned on instead."""
    slow = Slow("toy-3")
    trainer = opened_at(make(tmp_path, slow.env, max_steps=5), slow, 2)
    before = []
    play = trainer.play

    def snapshot(count):
        before.append({name: value.clone() for name, value in trainer.model.state_dict().items()})
        return play(count)

    trainer.play = snapshot
    trainer.train()
    trainer.close()
    assert slow.waiting.is_set() and not slow.aborted and not threads()
    steps = groups(trainer)
    assert "toy-3" not in steps[0] + steps[1] and "toy-3" in steps[2]
    plain = make_trainer(tmp_path / "plain", max_steps=5, shuffle_dataset=False)
    plain.train()
    plain.close()
    assert seeds(trainer) == seeds(plain), "every group that is drawn is learned on, once"
    stale = logged(trainer, "rollouts/staleness")
    assert stale[0] == 0 and stale[2] == 2 == max(stale) and sum(logged(trainer, "rollouts/stale_dropped")) == 0
    assert logged(trainer, "rollouts/carried_groups")[2] >= 1
    # Its first reply has the weights of when it began, its last one those of the generation that took it up.
    carried = [e for e in trainer.played[2] if e.task_id == "toy-3"]
    sampler = make_model(make_tokenizer())
    gaps = []
    for state in before[:3]:
        sampler.load_state_dict(state)
        found = [abs(a - b) for a, b in (logprobs(sampler, e) for e in carried)]
        turns = [(len(e.turns[0].ids), len(e.turns[-1].ids)) for e in carried]
        parts = [(gap[:first].max(), gap[-last:].max()) for gap, (first, last) in zip(found, turns, strict=True)]
        gaps.append([max(part[i].item() for part in parts) for i in range(2)])
    assert gaps[0][0] < 1e-5 < gaps[1][0] and gaps[1][1] < 1e-5 < gaps[0][1]


def test_the_bound_is_kept_by_waiting(tmp_path):
    """With a bound of 2 a group is carried once: step 3 begins no sooner than the group is there."""
    slow = Slow("toy-3")
    trainer = make(tmp_path, slow.env, max_steps=5)
    begin, learned = trainer.rollouts.begin, []

    def noted(draw, *, end_id):
        begin(draw, end_id=end_id)
        learned.append(trainer.state.global_step)
        if len(learned) == 2:  # the generation of step 3 is sampled; the group of toy-3 must be in it
            assert slow.waiting.wait(PATIENCE)
            pending = trainer.rollouts._pending
            assert not pending._over.wait(0.5), "it did not wait"
            slow.open.set()

    trainer.rollouts.begin = noted
    trainer.train()
    trainer.close()
    assert len(learned) >= 2 and "toy-3" in groups(trainer)[2]
    assert max(logged(trainer, "rollouts/staleness")) == 2 and sum(logged(trainer, "rollouts/stale_dropped")) == 0


def test_a_larger_bound_carries_a_group_further(tmp_path):
    slow = Slow("toy-3")
    trainer = opened_at(make(tmp_path, slow.env, max_steps=6, max_staleness=3), slow, 3)
    trainer.train()
    trainer.close()
    steps = groups(trainer)
    assert "toy-3" in steps[3] and "toy-3" not in steps[2] and max(logged(trainer, "rollouts/staleness")) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"partial_batches": 2},
        {"shuffle_dataset": True},
        {"max_staleness": 5},
        {"num_iterations": 2, "max_staleness": 5},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "per_device_train_batch_size": 4},
        {"slots": 3},
    ],
    ids=["whole batch", "shuffled", "old ones", "two steps a generation", "two generations a step", "few slots"],
)
def test_no_group_is_lost_or_learned_on_twice(tmp_path, changes):
    slots = {"slots": changes.pop("slots")} if "slots" in changes else {}
    if changes.get("steps_per_generation") == 1:
        changes["partial_batches"] = 1
    own = {key: value for key, value in changes.items() if key not in ("partial_batches", "max_staleness")}
    plain = make_trainer(tmp_path / "a", max_steps=4, **{"shuffle_dataset": False, **own})
    partial = make(tmp_path / "b", max_steps=4, **slots, **changes)
    for trainer in (plain, partial):
        trainer.train()
        trainer.close()
    groups(partial)
    assert seeds(partial) == seeds(plain) and not partial.rollouts.rules.partial.groups
    assert max(logged(partial, "rollouts/staleness")) <= partial.args.staleness_bound
    assert sum(logged(partial, "rollouts/stale_dropped")) == 0


def test_a_curriculum_goes_on_in_its_order(tmp_path):
    measured = tmp_path / "measured.jsonl"
    measured.write_text("".join(f'{{"task_id": "toy-{i}", "passes": {5 - i}, "n": 6}}\n' for i in range(4)))
    plain = make_trainer(tmp_path / "a", max_steps=4, curriculum=str(measured))
    partial = make(tmp_path / "b", max_steps=4, curriculum=str(measured))
    for trainer in (plain, partial):
        trainer.train()
        trainer.close()
    assert seeds(partial) == seeds(plain)


def test_a_measurement_waits_for_carried_groups_and_keeps_them(tmp_path):
    slow = Slow("toy-3")
    rule = HeldOut([make_task(100 + i) for i in range(3)], {"sampled": Sampling(1.0, 12)}, "sampled_reward")
    gaps, over = [], []

    def look(evaluation, episodes):
        gaps.append(
            max((a - b).abs().max().item() for a, b in (logprobs(trainer.model, e) for e in episodes["sampled"]))
        )
        over.append([group.complete for group in trainer.rollouts.rules.partial.groups])

    rule.on_evaluation = look
    trainer = make(tmp_path, slow.env, max_steps=4, held_out=rule, eval_strategy="steps", eval_steps=1)
    finish = trainer.rollouts._finish_carried

    def opened():
        slow.open.set()
        finish()

    trainer.rollouts._finish_carried = opened
    trainer.train()
    trainer.close()
    assert slow.waiting.is_set() and len(gaps) == 4 and max(gaps) < 1e-5
    assert all(all(groups) for groups in over) and any(over)
    plain = make_trainer(tmp_path / "plain", max_steps=4, shuffle_dataset=False)
    plain.train()
    plain.close()
    assert seeds(trainer) == seeds(plain)


def test_whose_groups_were_carried_is_said_at_the_end(tmp_path):
    slow = Slow("toy-3")
    trainer = opened_at(make(tmp_path, slow.env, max_steps=5), slow, 2)
    said = []
    trainer.warn = lambda step, message: said.append((step, message))
    trainer.train()
    trainer.close()
    carried = int(sum(logged(trainer, "rollouts/carried_groups")))
    (line,) = [message for step, message in said if step == 5 and "partial batches" in message]
    assert f"partial batches carried {carried} of 10 groups" in line and "toy-3" in line
    assert sum(int(some) for some in re.findall(r"toy-\d (\d+) of", line)) == carried


def test_families_are_named_where_there_are_some():
    def job(name, family):
        return Job(make_task(name).model_copy(update={"family": family}), 0, 0)

    def leaving(*families):
        """Plays what is asked for, but for these families."""

        def play(jobs, enough):
            left = [place for place, job in enumerate(jobs) if job.task.family in families]
            return RolloutResult(["over"] * (len(jobs) - len(left)), Timing(), unfinished=left)

        return play

    slow, *quick = ([job(i, "slow" if i == 0 else "quick")] for i in range(4))
    partial = PartialBatches(1, 1)
    taken, _, carried = partial.generation(leaving("slow"), [slow, quick[0]], [quick[1], quick[2]], 0)
    assert [group.jobs[0].task.family for group in taken] == ["quick", "quick"] and carried == 0
    assert partial.words() is None
    taken, _, carried = partial.generation(leaving(), [quick[1], quick[2]], [], 1)
    assert [(group.jobs[0].task.family, group.version) for group in taken] == [("slow", 0), ("quick", 1)]
    assert carried == 1 and "carried 1 of 4 groups" in partial.words()
    assert "slow 1 of 1; none of the other 1." in partial.words()


# -- every way to end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [None, KeyboardInterrupt()], ids=["a guard", "Ctrl-C"])
def test_a_command_of_a_carried_group_is_ended_with_the_run(tmp_path, how):
    slow = Slow("toy-3")
    trainer = make(tmp_path, slow.env, max_steps=8, max_staleness=9)
    trainer.add_callback(Ends(2, how))
    begin = trainer.rollouts.begin

    def over(draw, *, end_id):
        begin(draw, end_id=end_id)
        trainer.rollouts._pending.wait()  # so that nothing but the carried group is under way

    trainer.rollouts.begin = over
    if how is None:
        trainer.train()
        assert slow.aborted, "the engine is closed before anything else is played"
    else:
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
    trainer.close()
    assert slow.waiting.is_set() and slow.aborted and not threads()
    assert not [t for t in threading.enumerate() if t.name.startswith("turngym-env")]
    assert not trainer.rollouts.rules.partial.groups


def test_a_checkpoint_does_not_lose_groups_and_no_run_is_resumed(tmp_path):
    saves = {"save_strategy": "steps", "save_steps": 2}
    trainer = make(tmp_path, max_steps=6, **saves)
    trainer.train()
    trainer.close()
    plain = make_trainer(tmp_path / "plain", max_steps=6, shuffle_dataset=False)
    plain.train()
    plain.close()
    assert seeds(trainer) == seeds(plain)
    checkpoint = str(tmp_path / "run" / "checkpoint-4")
    for changes in (CHANGES, {"overlap": 1}):
        again = make_trainer(tmp_path, max_steps=6, **saves, **changes)
        with pytest.raises(ConfigError, match="a run with it is not resumed"):
            again.train(resume_from_checkpoint=checkpoint)
        again.close()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"overlap": None}, "without overlap"),
        ({"rollout_mode": "auto"}, "without rollout_mode=asynchronous"),
        ({"refill_rounds": 1}, "wait for whole generations"),
        ({"adaptive_successes": 1, "adaptive_failures": 1}, "wait for whole generations"),
        ({"max_staleness": 1}, "train on samples up to 2 optimizer steps old"),
        ({"partial_batches": 3}, "at most the 2 groups of a generation"),
        ({"resume": True}, "a run with it is not resumed"),
    ],
)
def test_what_cannot_work_is_refused_in_words(tmp_path, changes, why):
    config = make_config(tmp_path, **CHANGES)
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(ConfigError, match=why):
        check_config(config)
    check_config(make_config(tmp_path, **CHANGES))


def test_off_changes_nothing(tmp_path):
    assert make_config(tmp_path, overlap=1).staleness_bound == 1 and make_config(tmp_path).staleness_bound is None
    trainer = make_trainer(tmp_path, max_steps=1, partial_batches=0)
    trainer.train()
    trainer.close()
    assert trainer.rollouts.rules.partial is None and not any(
        "rollouts/carried_groups" in log for log in trainer.logged
    )
