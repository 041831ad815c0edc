"""A trainer that is put together in Python: the manual's example, guards, and what is refused or said."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from trl import GRPOConfig

from agents.users import RecordedUser
from envs import ClawGymUserEnv
from tests.trainers.toy import ToyEnv, make_config, make_model, make_task, make_tokenizer
from trainers.construction import put_back_in_full, weights_in_full
from trainers.errors import ConfigError
from trainers.gigpo import GiGPOTrainer
from trainers.guards import Guard, Watch
from trainers.guards.guard import stop
from trainers.heldout import HeldOut
from trainers.run.callback import GuardCallback
from trainers.settings import GiGPOConfig

pytestmark = pytest.mark.filterwarnings("ignore")
MANUAL = Path(__file__).parents[2] / "docs" / "library.md"


def parts(tmp_path, **changes):
    tokenizer = make_tokenizer()
    return {
        "model": make_model(tokenizer),
        "args": make_config(tmp_path, **changes),
        "processing_class": tokenizer,
        "pool": [make_task(i) for i in range(4)],
        "make_env": ToyEnv,
        "max_turn_tokens": 8,
    }


def test_the_manuals_example_runs(tmp_path, monkeypatch):
    code = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)[0]
    for name, small in (("n=400", "n=4"), ("n=64", "n=2"), ("max_steps=20", "max_steps=1, use_cpu=True"),
                        ("per_device_train_batch_size=32", "per_device_train_batch_size=4")):  # fmt: skip
        assert name in code
        code = code.replace(name, small)
    monkeypatch.chdir(tmp_path)
    made: dict = {}
    exec(code, made)
    assert made["trainer"].state.global_step == 1 and made["trainer"].held_out.best is not None
    assert (tmp_path / "runs/mine/best").is_dir()


def test_the_manuals_wrapped_environment_is_taken(tmp_path):
    code = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)[1]
    made: dict = {}
    exec(code, made)
    GiGPOTrainer(**parts(tmp_path) | {"make_env": made["make_env"]}).close()


def test_no_held_out_tasks_are_needed(tmp_path):
    own = GiGPOConfig(output_dir=str(tmp_path), use_cpu=True)
    trainer = GiGPOTrainer(**parts(tmp_path) | {"args": own})
    assert trainer.args.eval_strategy == "no"
    trainer.close()


@pytest.mark.parametrize(
    ("changes", "starts"),
    [
        ({"model": "quickstart"}, "model='quickstart': a loaded model"),
        (
            {"args": GRPOConfig(output_dir="x", use_cpu=True, bf16=False)},
            "args: a GiGPOConfig is needed, got GRPOConfig",
        ),
        ({"train_dataset": [1]}, "train_dataset: no argument of GiGPOTrainer; tasks are"),
        ({"reward_funcs": []}, "reward_funcs: no argument"),
        ({"peft_config": LoraConfig(target_modules=["foo"])}, "lora_target_modules=foo: the model has no such layer"),
        ({"pool": []}, "pool: holds no task"),
        ({"make_env": None}, "make_env: what opens"),
        (
            {"make_env": lambda: ClawGymUserEnv(user=RecordedUser("m", []))},
            "make_env: a model answers as the tasks' user",
        ),
        ({"pool": [make_task(0), make_task(0).model_copy(update={"intent": "other"})]}, "pool: two tasks have the id"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_no_trainer_can_be_made_of_is_one_line(changes, starts, tmp_path):
    with pytest.raises(ConfigError) as refused:
        GiGPOTrainer(**parts(tmp_path) | changes)
    assert str(refused.value).startswith(starts) and "\n" not in str(refused.value)


def said(**given) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GiGPOTrainer(**given).close()
    return [str(w.message) for w in caught if "does nothing here" in str(w.message)]


def test_settings_that_only_the_command_line_reads_are_named_once(tmp_path):
    lines = said(**parts(tmp_path, resume=True, patience=2, held_out_samples=3, guards="signal_meter=stop"))
    assert [line.split(" ")[0] for line in lines] == ["resume=True", "patience=2,", "guards=signal_meter=stop"]
    assert "HeldOut.of(args, tasks)" in lines[1] and "GuardCallback(Watch(args.guards))" in lines[2]


def test_nothing_is_said_where_something_acts_on_them(tmp_path):
    given = parts(tmp_path, patience=2, held_out_samples=3, best_metric="greedy_reward", guards="signal_meter=stop")
    held_out = HeldOut.of(given["args"], [make_task(9)], max_turn_tokens=8)
    assert (held_out.patience, held_out.samples, held_out.metric) == (2, 3, "greedy_reward")
    watch = Watch(given["args"].guards)
    assert said(**given, held_out=held_out, callbacks=[GuardCallback(watch)]) == []
    assert said(**given, held_out=replace(held_out, patience=0), callbacks=[GuardCallback(watch)]) != []


class Halts(Guard):
    name = "seeds"
    seen: list = []

    def begin(self, facts):
        self.seen.append(("begin", len(facts.pool)))
        yield from ()

    def episodes(self, step, played):
        self.seen.append(("episodes", step))
        yield from ()

    def measured(self, held_out):
        self.seen.append(("measured", held_out.step))
        yield from ()

    def step(self, step, metrics):
        self.seen.append(("step", step))
        if "update/weight_delta_share" in metrics:
            yield stop("halt", "enough.")


def test_guards_of_a_bare_trainer_see_every_event_and_end_the_run(tmp_path):
    given = parts(tmp_path, max_steps=3, eval_strategy="steps", eval_steps=9, eval_on_start=True, held_out_greedy=False)
    watch = Watch("seeds")
    watch.guards = [Halts()]
    callback = GuardCallback(watch)
    held_out = HeldOut.of(given["args"], [make_task(9)], max_turn_tokens=8)
    trainer = GiGPOTrainer(**given, held_out=held_out, callbacks=[callback])
    trainer.train()
    trainer.close()
    assert Halts.seen == [("begin", 4), ("measured", 0), ("episodes", 1), ("step", 1)]
    assert trainer.state.global_step == 1 and trainer.ended_by_guard()
    (line,) = (tmp_path / "run" / "guards.jsonl").read_text().splitlines()
    assert json.loads(line)["message"].startswith("enough. The run ends here; `best/` holds step 0")


def test_what_is_trained_of_a_model_in_four_bits_is_not_rounded() -> None:
    """TRL gives its adapter back in bfloat16, in which small updates are lost."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    assert weights_in_full(model) is None
    model.is_loaded_in_4bit = True
    model[0].requires_grad_(False)
    model[1].weight.data.fill_(1 + 2**-12)
    kept = weights_in_full(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    model.new = torch.nn.Linear(2, 2, bias=False, dtype=torch.bfloat16)
    put_back_in_full(model, kept)
    assert model[1].weight.dtype == model.new.weight.dtype == torch.float32
    assert (model[1].weight == 1 + 2**-12).all()
    assert model[0].weight.dtype == torch.bfloat16
