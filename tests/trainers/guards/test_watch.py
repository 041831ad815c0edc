"""The guards together: settings, severities, guards.jsonl, resume, and the end of a run that one of them asks for."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState

from tasks.splits import Split
from tests.shared_data import REPOSITORY
from tests.trainers.guards.planted import METRICS, attempts, evaluation, facts, kinds, result, steps
from tests.trainers.toy import make_config, make_task, make_trainer
from trainers import grpo
from trainers import resume as exact
from trainers.checkpoint import STATE_FILE, Checkpoint
from trainers.errors import ConfigError
from trainers.guards import GUARDS, Finding, GuardName, Severity, Watch, parse_levels
from trainers.guards.guard import Guard, Window, stop
from trainers.heldout import HeldOut
from trainers.jsonl import read_lines
from trainers.reporting.folder import read_run
from trainers.run.callback import RunCallback, facts_of
from trainers.run.console import RunConsole
from trainers.run.record import RunRecord
from trainers.run.summary import Stopped
from trainers.run.tasks import TaskSets
from trainers.settings.checks import check_config

pytestmark = pytest.mark.filterwarnings("ignore")


# -- settings -----------------------------------------------------------------------------------------------------


def test_all_are_on_unless_asked_otherwise():
    assert list(GUARDS) == list(GuardName)
    assert all(kind.name == name for name, kinds_ in GUARDS.items() for kind in kinds_)
    assert parse_levels("all") == parse_levels("") == dict.fromkeys(GuardName)
    assert parse_levels("none") == {} and parse_levels("none, seeds") == {GuardName.SEEDS: None}
    some = parse_levels("resample_budget=off, update_health=warn")
    assert len(some) == len(GUARDS) - 1 and some[GuardName.UPDATE_HEALTH] is Severity.WARN


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("updat_health=warn", "did you mean `update_health`?"),
        ("seeds=wran", "did you mean `warn`?"),
        ("seeds,none", "`none` stands first or not at all"),
    ],
)
def test_a_misspelt_guard_is_refused_before_a_model_loads(tmp_path, text, remedy):
    with pytest.raises(ConfigError, match="guards=") as error:
        check_config(make_config(tmp_path, guards=text))
    assert remedy in str(error.value) and "ship_by_held_out" in str(error.value)


def test_a_level_replaces_the_severity_of_faults_and_leaves_notes():
    watch = Watch("none,update_health=warn,signal_meter=stop,seeds=note")
    watch.begin(facts({"adam_epsilon": 1e-8}))
    steps(watch, [{"gigpo/frac_zero_adv": 1.0, "env/impossible_duplicate_frac": 0.5}] * 3 + [{"kl": 50.0}])
    assert kinds(watch) == [
        (0, "note", "optimizer"), (1, "note", "repeated_samples"), (3, "stop", "no_signal"), (4, "warn", "kl"),
    ]  # fmt: skip
    assert watch.describe() == "3 guards on, 0 silent, 2 notes in guards.jsonl"
    assert watch.to_json()["findings"]["update_health"] == {"note": 1, "warn": 1}


def test_a_window_holds_the_last_values():
    window = Window(3)
    assert [window.add(value) for value in (4, None, 1, 9, 2)] == [False, False, False, True, True]
    assert (window.values, window.mean, window.median, window.low, window.high) == ([1, 9, 2], 4, 2, 1, 9)


# -- record and resume --------------------------------------------------------------------------------------------


def test_findings_go_to_guards_jsonl_and_come_back(tmp_path):
    record = RunRecord(tmp_path / "run")
    found = [
        Finding(0, "split_lint", Severity.NOTE, "chosen by outcome", "outcome"),
        Finding(4, "seeds", Severity.WARN, "4 of 32 episodes are equal", "equal_seeds"),
        Finding(9, "update_health", Severity.STOP, "kl is 2685", "kl"),
    ]
    for finding in found:
        record.write_finding(finding)
    record.warn(0, "a note on the run")
    assert record.findings() == found
    lines = [json.loads(line) for line in (record.path / "guards.jsonl").read_text().splitlines()]
    assert lines[2] == {"step": 9, "guard": "update_health", "severity": "stop", "message": "kl is 2685", "kind": "kl"}
    record.log(1, METRICS)
    run = read_run(record.path)
    assert run.findings == found
    assert run.warnings == ["a note on the run", found[1].message, found[2].message]


def test_resume_cuts_findings_behind_the_checkpoint_and_says_the_others_no_more(tmp_path):
    record = RunRecord(tmp_path / "run")
    equal = {"env/impossible_duplicate_frac": 0.5}
    first = Watch("none,seeds,signal_meter")
    dead = {"gigpo/frac_zero_adv": 1.0}
    for step, changes in enumerate([{}, equal, {}, dead, dead, dead], 1):
        for finding in first.step(step, {**METRICS, **changes}):
            record.write_finding(finding)
    assert kinds(first) == [(2, "warn", "repeated_samples"), (6, "warn", "no_signal")]
    (record.path / "tasks.lock").write_text("")  # what marks a run
    again = RunRecord(record.path, resume=True)
    again.resume_at(4)
    assert "no_signal" in (record.path / "superseded" / "guards.jsonl").read_text()
    second = Watch("none,seeds,signal_meter")
    second.restore(again.findings())
    steps(second, [equal, {}], first=5)
    assert kinds(second) == [(2, "warn", "repeated_samples")]


def test_a_resumed_watch_judges_as_an_uninterrupted_one():
    """Every guard's memory is part of a checkpoint: cut anywhere, the findings and the memory at the end are equal."""

    def show(watch: Watch, step: int) -> None:
        skill = 0.5 + 0.02 * step
        watch.episodes(step, result(attempts(skill, seed=step)))
        changes = {"grad_norm": 0.1 + 0.01 * (step % 3), "entropy": 0.3 - 0.02 * step, "gigpo/turn_adv_abs_mean": 0.0}
        watch.step(step, {**METRICS, **changes, "credit/changed_frac": 0.001, "reward": 0.6 - 0.02 * step})
        if step % 4 == 0:
            watch.measured(evaluation(step, 0.5, best=step == 4, p=0.4, seed=step))

    def begun() -> Watch:
        watch = Watch()
        watch.begin(facts({"beta_turn": 0.3}, resampling=lambda: None))
        watch.findings.clear()
        return watch

    whole = begun()
    for step in range(1, 25):
        show(whole, step)
    assert {"inert", "no_turn_signal", "entropy"} <= {kind for _, _, kind in kinds(whole)}
    for cut in (1, 5, 16):
        before, after = begun(), begun()
        for step in range(1, cut + 1):
            show(before, step)
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        after.restore(before.findings)
        for step in range(cut + 1, 25):
            show(after, step)
        assert [(f.step, f.kind, f.message) for f in after.findings] == [
            (f.step, f.kind, f.message) for f in whole.findings
        ]
        assert after.state_dict() == whole.state_dict()


# -- the end of a run ---------------------------------------------------------------------------------------------


def watched_trainer(folder: Path, *, spoiled: int = 3, every: int = 1):
    """The toy trainer with a run folder, held-out tasks and a fault: no gradient from a backward pass on."""
    held_out = HeldOut(
        tasks=[make_task(50 + i) for i in range(2)], arms={"sampled": facts().sampling}, metric="sampled_reward",
        output_dir=folder,
    )  # fmt: skip
    trainer = make_trainer(
        folder.parent, held_out=held_out, output_dir=str(folder), max_steps=6, eval_strategy="steps", eval_steps=3,
        eval_on_start=True, save_strategy="steps", save_steps=every, save_total_limit=2, logging_steps=every,
    )  # fmt: skip
    callback = RunCallback(RunRecord(folder), RunConsole(8), Watch(), keep_trajectories=False)
    callback.trainer = trainer
    trainer.run_state = callback.state
    held_out.on_evaluation = callback.on_evaluation
    trainer.on_episodes = callback.on_episodes
    trainer.add_callback(callback)
    passes = [0]

    def spoil(gradient):
        passes[0] += 1
        return gradient * math.nan if passes[0] >= spoiled else gradient

    next(p for p in trainer.model.parameters() if p.requires_grad).register_hook(spoil)
    return trainer, callback


def test_stop_ends_the_run_after_the_step_and_keeps_what_was_before(tmp_path, capsys):
    trainer, callback = watched_trainer(tmp_path / "run")
    trainer.train()
    trainer.close()
    assert trainer.state.global_step == 3
    assert callback.stopped is not None and callback.stopped.kind == "not_finite"
    last = Checkpoint.newest_whole(tmp_path / "run")
    assert last is not None and last.step == 2, "the broken weights of step 3 were saved"
    assert [e.step for e in trainer.held_out.history] == [0], "the broken weights of step 3 were measured"
    message = callback.record.findings()[-1].message
    assert "grad_norm is nan at step 3" in message
    assert "checkpoint from before is step 2: --resume" in message and "`best/` holds step 0" in message
    assert "stopped by guard update_health" in capsys.readouterr().out
    assert json.loads((last.folder / STATE_FILE).read_text())["run"]["guards"]["UpdateHealth"]["_grads"]


def stopping(event: str, step: int) -> Guard:
    """A guard that ends the run at one event."""

    class Planted(Guard):
        name = GuardName.SHIP_BY_HELD_OUT

        def begin(self, facts):
            yield from [stop("planted", "planted.")] * (event == "begin")

        def episodes(self, now, played):
            yield from [stop("planted", "planted.")] * (event == "episodes" and now == step)

        def measured(self, held_out):
            yield from [stop("planted", "planted.")] * (event == "measured" and held_out.step == step)

    return Planted()


@pytest.mark.parametrize(
    ("event", "step", "every", "ends", "kept", "measured"),
    [
        ("begin", 0, 1, 0, None, []),
        ("measured", 0, 1, 0, None, [0]),
        ("measured", 3, 1, 3, 2, [0, 3]),
        ("episodes", 2, 5, 2, None, [0]),
    ],
)
def test_a_stop_ends_the_run_whichever_event_it_was(tmp_path, event, step, every, ends, kept, measured):
    begun = facts()  # first: a new config resets accelerate's state
    trainer, callback = watched_trainer(tmp_path / "run", spoiled=99, every=every)
    callback.watch.guards = [stopping(event, step)]
    callback.begin(begun, 0)
    trainer.train()
    trainer.close()
    assert callback.stopped is not None and callback.stopped.step == step
    assert trainer.state.global_step == ends
    last = Checkpoint.newest_whole(tmp_path / "run")
    assert (last.step if last else None) == kept
    assert [evaluation.step for evaluation in trainer.held_out.history] == measured


KL = SimpleNamespace(beta=0.5)


def test_what_ended_an_earlier_process_is_a_warning_in_this_one(tmp_path):
    record = RunRecord(tmp_path / "run")
    record.write_finding(Finding(2, "update_health", Severity.STOP, "kl is 2685", "kl"))
    callback = RunCallback(record, RunConsole(8), Watch(), keep_trajectories=False)
    (tmp_path / STATE_FILE).write_text("{}")
    callback.restore(Checkpoint(tmp_path))
    callback.on_log(KL, TrainerState(global_step=3), TrainerControl(), logs={**METRICS, "kl": 0.01})
    assert callback.stopped is None
    (logged,) = read_lines(record.path / "metrics.jsonl")[0]
    assert logged["policy_loss"] == METRICS["loss"] - 0.5 * 0.01
    assert [(f.severity, f.message) for f in callback.findings] == [(Severity.WARN, "kl is 2685")]
    callback.on_log(KL, TrainerState(global_step=4), TrainerControl(), logs={**METRICS, "grad_norm": math.nan})
    assert callback.findings[-1].severity is Severity.STOP and "The run ends here" in callback.findings[-1].message


@pytest.mark.parametrize(("rank", "others"), [(1, (True, False, False, False)), (0, (True, True, True, True))])
def test_a_decision_of_the_main_process_holds_on_every_process(monkeypatch, rank, others):
    control = TrainerControl(should_log=True, should_evaluate=True, should_save=True)
    trainer = SimpleNamespace(control=control, accelerator=SimpleNamespace(num_processes=2))
    monkeypatch.setattr(exact, "gather_object", lambda mine: [others, *mine] if rank else [*mine, others])
    exact.ExactResume._agree(trainer)
    flags = (control.should_training_stop, control.should_log, control.should_evaluate, control.should_save)
    assert flags == (True, False, False, False) if rank else (True, True, True, True)


def test_guards_see_tasks_of_unseen_families(tmp_path):
    unseen = make_task(0).model_copy(update={"family": "other"})
    run = SimpleNamespace(
        tasks=TaskSets(Split((make_task(1),), (), unseen=(unseen,))),
        settings=SimpleNamespace(
            config=make_config(tmp_path),
            env=SimpleNamespace(env="", max_episode_tokens=None),
            t2po=SimpleNamespace(turn_resample_rate=0.1),
        ),
        prompt_hash="", model_folder=tmp_path, prompt_style="", self_test=None, t2po=None, reply_cap=12,
    )  # fmt: skip
    trainer = make_trainer(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainers.run.callback.reply_cap", lambda run: 12)
        seen = facts_of(run, trainer, trainer.processing_class)
    trainer.close()
    assert seen.held_out == (unseen,) and seen.exact
    watch = Watch("none,ship_by_held_out,split_lint")
    watch.begin(seen)
    assert [finding.kind for finding in watch.findings] == ["not_measured"]  # eval_strategy=no, but there is something
    watch.begin(replace(seen, pool=[unseen]))
    assert watch.findings[-1].kind == "overlap"


@pytest.mark.parametrize(("guards", "stops"), [("all", True), ("update_health=warn", False), ("none", False)])
def test_what_a_fault_does_is_a_setting(tmp_path, guards, stops):
    record = RunRecord(tmp_path / "run")
    callback = RunCallback(record, RunConsole(8), Watch(guards), keep_trajectories=False)
    control, state = TrainerControl(should_save=True, should_evaluate=True), TrainerState(global_step=3)
    callback.on_log(KL, state, control, logs={**METRICS, "grad_norm": math.nan})
    assert control.should_training_stop is stops and (callback.stopped is not None) is stops
    assert control.should_save is control.should_evaluate is not stops
    assert len(record.findings()) == (guards != "none")
    if stops:
        assert "no checkpoint was written before" in record.findings()[0].message


def test_a_guard_has_an_exit_code_of_its_own():
    assert grpo.EXIT_CODES[Stopped.GUARD] == 3
    assert len(set(grpo.EXIT_CODES)) == len(Stopped)


def test_the_guard_that_the_manual_shows_works():
    page = (REPOSITORY / "docs" / "guards.md").read_text(encoding="utf-8")
    counted = Watch().describe()
    assert f"`{counted}`" in page and counted in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in GuardName)
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class" in block)
    space: dict = {}
    exec(code, space)
    guard = space["SlowSteps"]()
    said = [list(guard.step(step, {"step_time": 50.0 + 4 * step})) for step in range(1, 8)]
    assert [len(alarms) for alarms in said] == [0, 0, 0, 0, 1, 1, 1]
