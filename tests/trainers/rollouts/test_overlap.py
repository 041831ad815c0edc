"""A generation that is sampled while the one before is learned on: whose weights, which tasks, and every way to end."""

from __future__ import annotations

import logging
import threading
import traceback

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import TrainerCallback

from agents.policy import PolicyError, Sampling
from agents.t2po import T2POConfig
from sandboxes.sandbox import SandboxError
from tests.agents.policies.vllm.fake import Fake, running
from tests.trainers.rollouts.planted import make_trainer as make_planted
from tests.trainers.rollouts.test_samplers import make_served
from tests.trainers.test_pieces import long_trainer
from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer, make_trainer
from trainers.errors import ConfigError
from trainers.heldout import HeldOut
from trainers.rollouts.overlap import Ahead
from trainers.rollouts.rules import Draw
from trainers.settings.checks import check_config, check_processes

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]

PATIENCE = 60.0
"""Longest wait of a test for something that must come."""


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def logprobs(model, episode):
    """Of the ids that one episode sampled, as `model` gives them, beside what the sampler said."""
    flat = episode.flat()
    ids, on = torch.tensor([episode.prompt_ids + flat.ids]), torch.tensor(flat.mask).bool()
    with torch.no_grad():
        logits = type(model).forward(model, input_ids=ids).logits[0, len(episode.prompt_ids) - 1 : -1]
    own = logits.float().log_softmax(-1).gather(1, torch.tensor(flat.ids).unsqueeze(1)).squeeze(1)
    return own[on], torch.tensor(flat.logprobs)[on]


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "turngym-ahead"]


class Gate:
    """Keeps environments from answering while a generation is learned on: what is sampled meanwhile ends after it.

    Learning begins once they are asked, so that an optimizer step lies in the middle of their episodes.
    """

    def __init__(self, trainer):
        self.open, self.reached, self.passed = threading.Event(), threading.Event(), 0
        self.open.set()
        trainer.add_callback(_Opens(self))
        begin = trainer.rollouts.begin

        def shut(draw, *, end_id):
            self.open.clear()
            self.reached.clear()
            begin(draw, end_id=end_id)
            assert self.reached.wait(PATIENCE)

        trainer.rollouts.begin = shut

    def env(self):
        gate = self

        class Gated(ToyEnv):
            def step(self, reply):
                if self.turn and not gate.open.is_set():
                    gate.reached.set()
                    assert gate.open.wait(PATIENCE), "learning waits for what is sampled meanwhile"
                    gate.passed += 1
                return super().step(reply)

            def abort(self):
                gate.open.set()

        return Gated


class _Opens(TrainerCallback):
    def __init__(self, gate):
        self.gate = gate

    def on_step_end(self, args, state, control, **kwargs):
        self.gate.open.set()


def gated(tmp_path, **changes):
    """A trainer whose environments answer the second time only after the step beside them, and its gate."""
    made = {}
    tokenizer = make_tokenizer()
    env = type("Later", (), {"__new__": lambda cls: made["gate"].env()() if "gate" in made else ToyEnv()})
    trainer = NotingTrainer(
        make_model(tokenizer), make_config(tmp_path, overlap=1, **changes), tokenizer,
        [make_task(i) for i in range(4)], env, slots=8, workers=8, max_turn_tokens=12,
    )  # fmt: skip
    made["gate"] = Gate(trainer)
    return trainer, made["gate"]


# -- whose weights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["lockstep", "asynchronous"])
def test_what_is_learned_on_was_sampled_with_the_weights_before_and_corrected(tmp_path, mode):
    """An optimizer step lies in the middle of each episode, and its last replies have the old weights all the same."""
    # Of this optimizer torch counts the steps: a copy that follows the weights would notice them.
    changes = {"optim": "adamw_torch", "learning_rate": 3e-3, "lr_scheduler_type": "constant"}
    trainer, gate = gated(tmp_path, max_steps=4, rollout_mode=mode, **changes)
    before, weighed = [], []
    play, loss = trainer.play, trainer._compute_loss

    def snapshot(count):
        before.append({name: value.clone() for name, value in trainer.model.state_dict().items()})
        return play(count)

    def kept(model, inputs):
        out = loss(model, inputs)
        weighed.append((trainer.batches[-1], seen["inputs"]))
        return out

    seen = {}
    own = trainer._get_per_token_logps_and_entropies

    def look(*args, **kwargs):
        out = own(*args, **kwargs)
        seen["inputs"] = {**trainer._loss_inputs, "trained": out[0].detach()}
        return out

    trainer.play, trainer._compute_loss, trainer._get_per_token_logps_and_entropies = snapshot, kept, look
    trainer.train()
    trainer.close()
    assert gate.passed > 0 and not threads()
    logs = [log for log in trainer.logged if "loss" in log]
    assert [log["rollouts/staleness"] for log in logs] == [0, 1, 1, 1]
    assert [log["rollouts/stale_dropped"] for log in logs] == [0, 0, 0, 0]
    assert [log["time/rollout_hidden"] > 0 for log in logs] == [False, True, True, True]
    sampler = make_model(make_tokenizer())
    for number, episodes in enumerate(trainer.played):
        sampler.load_state_dict(before[max(0, number - 1)])
        assert max((a - b).abs().max().item() for a, b in (logprobs(sampler, e) for e in episodes)) < 1e-5
        if number:
            sampler.load_state_dict(before[number])
            assert min((a - b).abs().max().item() for a, b in (logprobs(sampler, e) for e in episodes)) > 1e-3
    for step, (batch, used) in enumerate(weighed):
        ratio = (used["trained"] - batch["sampling_per_token_logps"]).exp().clamp(max=2.0)
        on = (batch["completion_mask"] * batch["tool_mask"]).bool()
        assert torch.allclose(used["advantages"][on], (batch["advantages"] * ratio)[on], rtol=1e-4, atol=1e-7)
        assert ((ratio[on] - 1).abs().max() > 1e-3) == (step > 0)


def test_a_copy_of_the_models_own_type_samples_as_the_model_bit_for_bit(tmp_path):
    plain, ahead = (make_trainer(tmp_path / name, max_steps=1, overlap=on) for name, on in (("a", None), ("b", 1)))
    for trainer in (plain, ahead):
        trainer.train()
        trainer.close()
    assert [[t.logprobs for t in e.turns] for e in plain.played[0]] == [
        [t.logprobs for t in e.turns] for e in ahead.played[0]
    ]
    assert not ahead.rollouts.exact and plain.rollouts.exact


def test_the_same_bytes_whoever_is_faster(tmp_path):
    """Sampling that ends before the step beside it, and sampling that ends after it."""
    slow, gate = gated(tmp_path / "slow", max_steps=4)
    slow.train()
    slow.close()
    fast = make_trainer(tmp_path / "fast", max_steps=4, overlap=1)
    begin = fast.rollouts.begin

    def at_once(draw, *, end_id):
        begin(draw, end_id=end_id)
        fast.rollouts._pending.wait()

    fast.rollouts.begin = at_once
    fast.train()
    fast.close()
    assert gate.passed > 0
    assert torch.equal(weights(slow), weights(fast))
    assert [[e.flat() for e in play] for play in slow.played] == [[e.flat() for e in play] for play in fast.played]


def test_an_evaluation_measures_the_weights_of_now(tmp_path):
    arms = {"sampled": Sampling(1.0, 12)}
    rule = HeldOut([make_task(100 + i) for i in range(3)], arms, "sampled_reward")
    gaps, stale = [], []

    def look(evaluation, episodes):
        both = [logprobs(trainer.model, e) for e in episodes["sampled"]]
        gaps.append(max((own - said).abs().max().item() for own, said in both))
        stale.append(trainer.rollouts._pending is not None)

    rule.on_evaluation = look
    trainer = make_trainer(
        tmp_path, max_steps=4, overlap=1, held_out=rule, eval_strategy="steps", eval_steps=1, learning_rate=3e-3
    )
    trainer.train()
    trainer.close()
    assert max(gaps) < 1e-5 and stale == [True, True, True, False]
    assert [log["rollouts/staleness"] for log in trainer.logged if "loss" in log] == [0, 1, 1, 1]


def test_an_adapter_is_merged_into_the_copy(tmp_path):
    tokenizer = make_tokenizer()
    lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", init_lora_weights=False)
    model = get_peft_model(make_model(tokenizer), lora)
    trainer = make_trainer(tmp_path, model=model, max_steps=3, overlap=1)
    trainer.train()
    trainer.close()
    logs = [log for log in trainer.logged if "loss" in log]
    assert [log["rollouts/staleness"] for log in logs] == [0, 1, 1]
    assert logs[0]["sampling/logp_difference_max"] < 1e-4 < logs[1]["sampling/logp_difference_max"]


def test_prompts_that_show_older_observations_as_lines(tmp_path):
    """What was sampled one step before is scored behind the prompts of then."""
    trainer = long_trainer(tmp_path, overlap=1, max_steps=3, learning_rate=1e-3)
    trainer.train()
    trainer.close()
    logs = [log for log in trainer.logged if "loss" in log]
    assert [log["rollouts/staleness"] for log in logs] == [0, 1, 1]
    assert logs[0]["sampling/logp_difference_max"] < 1e-5 < logs[1]["sampling/logp_difference_max"] < 0.5
    assert any(turn.short_ids for play in trainer.played for episode in play for turn in episode.turns)


# -- which tasks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "stale"),
    [
        ({}, [0, 1, 1, 1, 1]),
        ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}, [0, 1, 1, 1, 1]),
        # Two generations a step: the second one of each has the weights that train on it.
        (
            {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "per_device_train_batch_size": 4},
            [0, 0.5, 0.5, 0.5, 0.5],
        ),
        ({"num_iterations": 2, "max_staleness": 3}, [0, 1, 2, 3, 2]),
        ({"shuffle_dataset": False}, [0, 1, 1, 1, 1]),
        ({"rollout_mode": "asynchronous"}, [0, 1, 1, 1, 1]),
    ],
    ids=["one step", "two micro-steps", "two generations a step", "two steps a generation", "in order", "asynchronous"],
)
def test_tasks_and_seeds_are_those_without_overlap(tmp_path, changes, stale):
    """Three epochs of four tasks."""
    bound = {"max_staleness": changes.pop("max_staleness", None)}
    plain = make_trainer(tmp_path / "a", max_steps=5, **changes)
    ahead = make_trainer(tmp_path / "b", max_steps=5, overlap=1, **bound, **changes)
    for trainer in (plain, ahead):
        trainer.train()
        trainer.close()
    jobs = [[[(e.task_id, e.attempt, e.seed) for e in play] for play in t.played] for t in (plain, ahead)]
    assert jobs[0] == jobs[1] and len({seed for play in jobs[0] for *_, seed in play}) == 8 * len(jobs[0]) // (
        2 if "steps_per_generation" in changes else 1
    )
    assert [log["rollouts/staleness"] for log in ahead.logged if "loss" in log] == stale


def test_rules_that_choose_attempts_and_tasks_draw_as_without_overlap(tmp_path):
    """A curriculum's position, attempts until both outcomes were seen, and refill: none of them sees who samples."""
    measured = tmp_path / "measured.jsonl"
    measured.write_text("".join(f'{{"task_id": "toy-{i}", "passes": {5 - i}, "n": 6}}\n' for i in range(6)))

    def plan(task_id, seed):
        return 0.0 if task_id in ("toy-1", "toy-4") else float(seed % 3 == 0)

    changes = {
        "curriculum": str(measured), "refill_rounds": 1, "adaptive_successes": 1, "adaptive_failures": 1,
        "adaptive_attempts": 6, "max_steps": 4,
    }  # fmt: skip
    plain, ahead = (make_planted(tmp_path / name, plan, overlap=on, **changes) for name, on in (("a", None), ("b", 1)))
    for trainer in (plain, ahead):
        trainer.train()
        trainer.close()
    jobs = [[[(e.task_id, e.attempt, e.seed) for e in play] for play in t.played] for t in (plain, ahead)]
    assert jobs[0] == jobs[1]
    laps = [[log["rollouts/curriculum_laps"] for log in t.logged if "loss" in log] for t in (plain, ahead)]
    assert laps[0] == laps[1] == [1 / 3, 2 / 3, 1, 4 / 3]
    dropped = [[log["rollouts/dropped_groups"] for log in t.logged if "loss" in log] for t in (plain, ahead)]
    assert dropped[0] == dropped[1] and sum(dropped[0]) > 0


def test_another_order_of_the_data_loader_is_an_error(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=3, overlap=1)
    real = trainer._get_train_sampler

    def reversed_rows(dataset=None):
        sampler = real(dataset)
        if dataset is not None:  # the data loader's, not the one that is asked about the rows to come
            rows = list(sampler)[::-1]
            sampler.__class__ = type("Backwards", (type(sampler),), {"__iter__": lambda self: iter(rows)})
        return sampler

    trainer._get_train_sampler = reversed_rows
    with pytest.raises(RuntimeError, match="other tasks than those that the data loader gives"):
        trainer.train()
    trainer.close()
    assert not threads()


# -- every way to end -------------------------------------------------------------------------------------------------


class Breaks(ToyEnv):
    """Fails in the second generation: its tasks are reset for the ninth time then."""

    error: Exception
    resets = 0
    closed = 0

    def reset(self, *, seed=None, options=None):
        type(self).resets += 1
        if type(self).resets > 8:
            raise self.error
        return super().reset(seed=seed, options=options)

    def close(self):
        type(self).closed += 1


def broken(error):
    return type("Broken", (Breaks,), {"error": error, "resets": 0, "closed": 0})


def make(tmp_path, env, **changes):
    tokenizer = make_tokenizer()
    return NotingTrainer(
        make_model(tokenizer), make_config(tmp_path, overlap=1, **changes), tokenizer,
        [make_task(i) for i in range(4)], env, slots=8, workers=2, max_turn_tokens=12,
    )  # fmt: skip


@pytest.mark.parametrize("error", [ZeroDivisionError("a defect"), PolicyError("the engine is gone")])
def test_an_error_beside_learning_is_raised_at_the_next_step_with_its_traceback(tmp_path, error):
    env = broken(error)
    trainer = make(tmp_path, env, max_steps=5)
    with pytest.raises(type(error), match=str(error)) as raised:
        trainer.train()
    assert raised.value is error and trainer.state.global_step == 1
    assert any(frame.name == "reset" for frame in traceback.extract_tb(raised.value.__traceback__))
    assert "sampled ahead" in raised.value.__notes__[0]
    trainer.close()
    assert not threads() and env.closed >= 8


def test_an_error_that_nobody_waits_for_any_more_is_logged(tmp_path, caplog):
    """A guard ends the run after the step beside which sampling failed: the run ends as the guard says."""
    trainer = make(tmp_path, broken(ZeroDivisionError("a defect")), max_steps=5)
    begun = trainer.rollouts.begin

    def failed(draw, *, end_id):
        begun(draw, end_id=end_id)
        trainer.rollouts._pending.wait()

    trainer.rollouts.begin = failed
    trainer.add_callback(Ends(1))
    with caplog.at_level(logging.WARNING):
        trainer.train()
    trainer.close()
    assert trainer.state.global_step == 1 and not threads()
    (record,) = [r for r in caplog.records if r.exc_info and isinstance(r.exc_info[1], ZeroDivisionError)]
    assert "not needed any more" in record.message


class Ends(TrainerCallback):
    """Ends the run after a step, as a guard does, or as Ctrl-C does."""

    def __init__(self, step, how=None):
        self.step, self.how = step, how

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            if self.how is not None:
                raise self.how
            control.should_training_stop = True


class Waits(ToyEnv):
    """In the second generation a command lasts until its sandbox is closed, which is how a lost one behaves."""

    waits = False

    def __init__(self):
        self.over = threading.Event()

    def step(self, reply):
        if self.waits and self.turn:
            self.reached.set()
            assert self.over.wait(PATIENCE), "the environment was not closed"
            raise SandboxError("closed")
        return super().step(reply)

    def abort(self):
        self.over.set()


def waiting(tmp_path, mode="lockstep"):
    """A trainer that begins to learn once a command beside it waits."""
    env = type("Waiting", (Waits,), {"reached": threading.Event()})
    trainer = make(tmp_path, env, max_steps=5, rollout_mode=mode)
    begin = trainer.rollouts.begin

    def later(draw, *, end_id):
        env.waits = True
        begin(draw, end_id=end_id)
        assert env.reached.wait(PATIENCE)

    trainer.rollouts.begin = later
    return trainer


@pytest.mark.parametrize("mode", ["lockstep", "asynchronous"])
@pytest.mark.parametrize("how", [None, KeyboardInterrupt()], ids=["a guard", "Ctrl-C"])
def test_a_run_that_ends_does_not_wait_for_what_is_sampled_ahead(tmp_path, how, mode):
    trainer = waiting(tmp_path, mode)
    trainer.add_callback(Ends(1, how))
    if how is None:
        trainer.train()
    else:
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
        trainer.close()
    assert trainer.state.global_step == 1 and not threads()
    trainer.close()
    trainer.close()


def test_ctrl_c_while_a_step_waits_for_it(tmp_path):
    """The main thread is interrupted in its wait; the sandboxes are closed, and nothing is left."""
    trainer = waiting(tmp_path)
    begin = trainer.rollouts.begin

    def interrupted():
        raise KeyboardInterrupt

    def later(draw, *, end_id):
        begin(draw, end_id=end_id)
        trainer.rollouts._pending.wait = interrupted

    trainer.rollouts.begin = later
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert threads()
    trainer.close()
    assert not threads()


class Hold(threading.Event):
    """Keeps a server's answers back, and counts them."""

    def __init__(self):
        super().__init__()
        self.asked, self.left = threading.Event(), 0

    def wait(self, timeout=None):
        self.asked.set()
        super().wait(timeout)
        self.left += 1


def test_ctrl_c_hangs_up_on_a_server(tmp_path):
    """No reply of a server that is asked beside learning is waited for."""
    tokenizer, hold = make_tokenizer(), Hold()
    lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", init_lora_weights=False)
    with running(Fake(tokenizer=tokenizer)) as server:
        trainer = make_served(tmp_path, server.url, make_model(tokenizer), tokenizer, lora, max_steps=5, overlap=1)
        begin = trainer.rollouts.begin

        def held(draw, *, end_id):
            server.hold = hold
            begin(draw, end_id=end_id)
            assert hold.asked.wait(PATIENCE)

        trainer.rollouts.begin = held
        trainer.add_callback(Ends(1, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
        trainer.close()
        assert hold.left == 0 and not threads() and not server.adapters


def test_a_server_gets_the_weights_before_each_generation_that_is_sampled_ahead(tmp_path):
    """Published by the thread that learns, before the other one begins; replies under way keep their adapter."""
    tokenizer = make_tokenizer()
    lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", init_lora_weights=False)
    with running(Fake(tokenizer=tokenizer)) as server:
        trainer = make_served(tmp_path, server.url, make_model(tokenizer), tokenizer, lora, max_steps=4, overlap=1)
        asked, play = [], trainer.rollouts._play

        def noted(draw, task_ids, end_id):
            before = len(server.sampled)
            out = play(draw, task_ids, end_id)
            asked.append({body["model"] for body in server.sampled[before:]})
            return out

        trainer.rollouts._play = noted
        trainer.train()
        loaded = [body["lora_name"] for kind, body in server.loads if kind == "load"]
        trainer.close()
        assert not server.adapters
    assert len(set(loaded)) == 3 and asked == [{loaded[0]}, {loaded[0]}, {loaded[1]}, {loaded[2]}]


def test_what_is_ended_before_it_began_ends():
    """`stop` may come before there is anything to stop."""
    stopped, begin = threading.Event(), threading.Event()

    def play():
        assert begin.wait(PATIENCE)
        assert stopped.wait(PATIENCE)
        raise RuntimeError("closed")

    calls = []

    def stop():
        calls.append(1)
        (stopped if begin.is_set() else begin).set()

    ahead = Ahead(Draw(["a"], 0, 0), play)
    ahead.end(stop)
    assert ahead.over and len(calls) >= 2 and isinstance(ahead.failure, RuntimeError)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"max_staleness": 0}, "max_staleness=0: overlap=1.* up to 1 optimizer steps old. Use 1 or more"),
        ({"num_iterations": 2}, "max_staleness=1: overlap=1, num_iterations=2 .* up to 3 optimizer steps old. Use 3"),
        ({"steps_per_generation": 4}, "max_staleness=1: .*steps_per_generation=4 train on samples up to 7"),
        ({"overlap": 2}, "overlap=2"),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused(tmp_path, changes, line):
    with pytest.raises(ConfigError, match=line):
        check_config(make_config(tmp_path, **{"overlap": 1, **changes}))


def test_off_is_off(tmp_path):
    config = make_config(tmp_path, overlap=0)
    assert config.overlap is None and config.staleness_bound is None


def test_several_processes_are_refused(tmp_path):
    config = make_config(tmp_path, overlap=1)
    check_processes(config, None)
    config.__class__ = type("Two", (type(config),), {"world_size": 2})
    with pytest.raises(ConfigError, match="overlap=1: 2 processes"):
        check_processes(config, T2POConfig())
    config.overlap = None
    budget = T2POConfig(turn_resample=True, turn_resample_eta=0.1, turn_resample_run_budget=5)
    with pytest.raises(ConfigError, match="turn_resample_run_budget=5: 2 processes would each spend it"):
        check_processes(config, budget)


def test_a_model_that_cannot_be_copied_is_refused_when_the_trainer_is_made(tmp_path):
    tokenizer = make_tokenizer()
    whole = LoraConfig(r=4, lora_dropout=0.0, target_modules=["q_proj"], modules_to_save=["lm_head"])
    with pytest.raises(ConfigError, match="overlap=1 samples from a copy.*modules_to_save"):
        make_trainer(tmp_path, model=get_peft_model(make_model(tokenizer), whole), overlap=1)
