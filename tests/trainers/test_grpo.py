"""`python -m trainers.grpo` as a user meets it: a real policy in a real sandbox, small."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sandboxes import SandboxUnavailable, probe
from tests.shared_data import REPOSITORY
from tests.test_docs import undocumented
from trainers import evaluate, grpo
from trainers.evaluation.arms import read_arms
from trainers.run.standstill import Standstill

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
needs_sandbox = pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

SMALL = [
    "--use_cpu", "true", "--tasks", "generated:quickstart?n=24&seed=5", "--held_out", "generated:quickstart?n=8&seed=6",
    "--per_device_train_batch_size", "8", "--max_steps", "2", "--eval_steps", "1", "--save_steps", "1", "--slots", "8",
]  # fmt: skip

TASK = """\
schema_version: 1
id: {name}
intent: copy notes.txt to {target}
workspace:
  files:
    notes.txt: "red fox\\n"
budget: {{max_turns: 4}}
assertions:
  - {{kind: file_contains, path: {target}, contains: red fox}}
  - {{kind: file_unchanged, path: notes.txt}}
oracle:
  commands: [cp notes.txt {target}]
"""


def run(*args: str) -> int:
    return grpo.main(list(args))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@needs_sandbox
def test_a_run_leaves_a_whole_record(tmp_path, capsys):
    folder = tmp_path / "run"
    assert run(*SMALL, "--output_dir", str(folder)) == 0
    out = capsys.readouterr().out
    assert "held-out at step 0 (baseline)" in out and "where the time went" in out and "report.html" in out

    summary = json.loads((folder / "summary.json").read_text())
    figures = {"passed", "assertion_rate", "reward", "mean_turns", "submitted"}
    assert figures <= set(summary["held_out"]["before"]) and figures <= set(summary["held_out"]["after"])
    assert summary["held_out"]["n"] == 8 and summary["held_out"]["best_step"] in (0, 1, 2)
    assert {"wall_seconds", "model_time_share", "seed", "config_sha256"} <= set(summary)
    assert [line["step"] for line in lines(folder / "held_out.jsonl")] == [0, 1, 2]
    why = "confirm=0.08 of 32 tasks is 3, and fewer than 20 say too little (more tasks would do)"
    assert f"confirmation at the end: none: {why}" in " ".join(out.split())
    assert f"confirmed: nothing ({why}" in out and summary["confirmation"]["why_none"].startswith(why)
    assert (folder / "SUMMARY.md").read_text().startswith(f"# Run: finished\n\n**confirmed: nothing ({why}")
    assert not (folder / "best.old").exists()
    assert undocumented(folder) == set()
    logged = [line["step"] for line in lines(folder / "metrics.jsonl") if "eval_sampled_pass_rate" in line]
    assert logged == [0, 1, 2]  # each evaluation once, the last one too

    metrics = [line for line in lines(folder / "metrics.jsonl") if "reward" in line]
    assert [line["step"] for line in metrics] == [1, 2]
    for name in (
        "env/pass_rate",
        "env/mean_turns",
        "gigpo/grouped_turn_frac",
        "frac_reward_zero_std",
        "time/learn_seconds",
    ):
        assert name in metrics[0]
    assert (folder / "report.html").stat().st_size > 10_000
    assert len((folder / "steps.csv").read_text().splitlines()) == 3
    lock = json.loads((folder / "tasks.lock").read_text())
    assert not set(lock["pool"].values()) & set(lock["held_out"].values())

    card = json.loads((folder / "best" / "turngym.json").read_text())
    assert (card["prompt_style"], card["environment"]) == ("compact", "ClawGym-v0")
    assert card["prompt_hash"] == json.loads((folder / "environment.json").read_text())["prompt_hash"] != ""
    episodes = lines(folder / "trajectories" / "step_000001.jsonl")
    assert len(episodes) == 8 and all(len(t["ids"]) == len(t["logprobs"]) for e in episodes for t in e["turns"])

    assert run(*SMALL, "--output_dir", str(folder)) == 2
    assert "--resume" in capsys.readouterr().err

    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert run("--use_cpu", "true", "--output_dir", str(folder), "--resume") == 0
    assert "nothing to do, the run ended at step 2" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("given", "settles"),
    [
        ({}, "expandable_segments:True"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}, "max_split_size_mb:512"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:512"}, None),
    ],
)
def test_memory_segments_grow_unless_the_user_says_otherwise(given, settles, monkeypatch):
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("grpo_again", grpo.__file__)
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "grpo_again", again)
    spec.loader.exec_module(again)
    assert os.environ.get("PYTORCH_CUDA_ALLOC_CONF") == settles
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)


@needs_sandbox
def test_one_slot_and_a_best_by_a_set_of_its_own(tmp_path, capsys, monkeypatch):
    """Then Ctrl-C while the report is written: it is said where the run was, and what is left to do."""

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(grpo, "write_report", interrupted)
    start = Standstill.start
    monkeypatch.setattr(Standstill, "start", lambda self: (setattr(self, "_seconds", 0.01), start(self)))
    folder = tmp_path / "run"
    changes = [
        "--held_out",
        "split",
        "--held_out",
        "others=generated:quickstart?n=2&seed=77",
        "--unseen_families",
        "1",
        "--held_out_limit",
        "2",
        "--slots",
        "1",
        "--max_steps",
        "1",
    ]
    small = [*SMALL[:4], *SMALL[6:]]  # without its held-out tasks
    assert run(*small, *changes, "--best_metric", "others_greedy_reward", "--output_dir", str(folder)) == 130
    said = capsys.readouterr()
    assert "while summary and report were written, after step 1 (finished). Use --resume" in said.err
    assert "2 more in others" in " ".join(said.out.split())
    assert "step 1 has stood still for 0 minutes, in held-out: 1 episode for " in " ".join(said.out.split())
    arms = {f"{side}{arm}" for side in ("", "unseen_", "others_") for arm in ("sampled", "greedy")}
    for line in lines(folder / "held_out.jsonl"):
        assert line["metric"] == "others_greedy_reward" and set(line["settings"]) == arms
    assert any("eval_others_sampled_pass_rate" in line for line in lines(folder / "metrics.jsonl"))
    monkeypatch.undo()
    assert run("--use_cpu", "true", "--output_dir", str(folder), "--resume") == 0
    assert "held-out, others_greedy" in (folder / "report.html").read_text()
    assert "others_sampled" in (folder / "SUMMARY.md").read_text()
    others = {line["id"] for line in lines(folder / "tasks.jsonl") if line["split"] == "held_out:others"}
    assert len(others) == 2 and others <= read_arms(folder).hashes.keys()


@needs_sandbox
def test_same_seed_same_run(tmp_path):
    for name in ("a", "b"):
        assert run(*SMALL, "--output_dir", str(tmp_path / name), "--max_steps", "1") == 0
    records = []
    for name in ("a", "b"):
        episodes = lines(tmp_path / name / "trajectories" / "step_000001.jsonl")
        records.append([(e["task_id"], e["reward"], [t["ids"] for t in e["turns"]]) for e in episodes])
    assert records[0] == records[1]
    weights = [(tmp_path / n / "checkpoint-1" / "model.safetensors").read_bytes() for n in ("a", "b")]
    assert weights[0] == weights[1]


@needs_sandbox
def test_hand_written_tasks_of_another_folder(tmp_path, capsys, monkeypatch):
    mine = tmp_path / "my_tasks"
    mine.mkdir()
    for name, target in (("copy-one", "backup.txt"), ("copy-two", "report.txt"), ("copy-three", "list.txt")):
        (mine / f"{name}.yaml").write_text(TASK.format(name=name, target=target))
    monkeypatch.chdir(tmp_path)
    code = run("--tasks", "my_tasks/", "--max_steps", "1", "--output_dir", "out", "--per_device_train_batch_size", "8",
               "--use_cpu", "true")  # fmt: skip
    assert code == 0
    lock = json.loads(Path("out/tasks.lock").read_text())
    assert len(lock["pool"]) + len(lock["held_out"]) == 3 and lock["held_out"]


@needs_sandbox
def test_one_task_trains_and_says_that_nothing_selects(tmp_path, capsys):
    (tmp_path / "one.yaml").write_text(TASK.format(name="copy-one", target="backup.txt"))
    code = run("--tasks", str(tmp_path / "one.yaml"), "--max_steps", "1", "--output_dir", str(tmp_path / "out"),
               "--per_device_train_batch_size", "4", "--use_cpu", "true", "--save_strategy", "no")  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0
    assert "nothing selects a checkpoint" in " ".join(out.split())
    assert (tmp_path / "out" / "last" / "config.json").exists() and not (tmp_path / "out" / "best").exists()
    assert run("--output_dir", str(tmp_path / "out"), "--resume", "--use_cpu", "true") == 0
    assert "nothing to do, the run ended at step 1" in capsys.readouterr().out  # without a checkpoint
    assert evaluate.main(
        ["--model", str(tmp_path / "out"), "--tasks", str(tmp_path / "one.yaml"), "--greedy", "--device", "cpu",
         "--output_dir", str(tmp_path / "measured")]
    ) == 0  # fmt: skip


def test_dry_run_prints_settings_that_can_be_read_back(tmp_path, capsys):
    assert run(*SMALL, "--output_dir", str(tmp_path / "run"), "--dry-run") == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["max_steps"] == 2 and settings["model_name_or_path"] == "quickstart"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--learning_rat", "1"], "did you mean `learning_rate`"),
        (["--user", "openai:m@http://h/v1"], "unknown flag --user: a model as the user is for evaluation"),
        (["--tasks", "no_such_folder/"], "no_such_folder"),
        (["--tasks", "generated:quickstat?n=3"], "quickstart"),
        (["--sandbox", "docker"], "docker"),
        (["--env", "Chess-v0"], "ClawGym-v0"),
        (["--model_name_or_path", "quickstrt"], "quickstart"),
        (["--best_metric", "pool_pass_rate"], "sampled_pass_rate"),
        (["--prompt_style", "fancy"], "compact"),
        (["--reward", "dense"], "shaped"),
        (["--adapter", "prefix"], "lora"),
        (["--think_stop", "soon"], "think_stop='soon': one of none, official, paper"),
        (["--turn_resample_signal", "entropie"], "turn_resample_signal='entropie': one of entropy, confidence"),
        (["--turn_resample_eta", "-1"], "turn_resample_eta=-1.0: above 0, or 0 to leave it out"),
        (["--think_budget", "8", "--think_answer_reserve", "39"], "think_answer_reserve=39: replies have at most 40"),
        (["--turn_resample", "true", "--temperature", "0"], "temperature=0.0: above 0; training samples"),
        (["--slots", "0"], "slots"),
        (["--resume", "--overwrite"], "one goes on with the run that is there, the other starts anew"),
    ],
)
def test_mistakes_are_named_with_a_remedy(tmp_path, capsys, args, words):
    assert run(*SMALL, "--output_dir", str(tmp_path / "run"), *args, "--dry-run") == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_resume_of_a_folder_without_a_run_is_refused_before_a_model_loads(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert run(*SMALL, "--output_dir", str(tmp_path), "--resume", "--dry-run") == 2
    assert (
        "holds no run (1 entries, such as thesis.txt), and --resume goes on with runs only" in capsys.readouterr().err
    )


def test_a_broken_task_names_file_and_line(tmp_path, capsys):
    (tmp_path / "good.yaml").write_text(TASK.format(name="copy-one", target="backup.txt"))
    (tmp_path / "bad.yaml").write_text(TASK.format(name="copy-two", target="b.txt").replace("intent:", "intnet:"))
    assert run("--use_cpu", "true", "--tasks", str(tmp_path), "--output_dir", str(tmp_path / "run")) == 2
    err = capsys.readouterr().err
    assert "bad.yaml:3" in err and "intent" in err


@needs_sandbox
def test_thinking_switches_need_a_model_that_thinks(tmp_path, capsys):
    assert run(*SMALL, "--output_dir", str(tmp_path / "run"), "--think_budget", "20",
               "--think_answer_reserve", "8") == 2  # fmt: skip
    assert "<think>" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@needs_sandbox
def test_turn_resampling_acts_and_is_recorded(tmp_path):
    folder = tmp_path / "run"
    assert run(*SMALL, "--output_dir", str(folder), "--max_steps", "1", "--turn_resample", "true",
               "--turn_resample_eta", "0.5") == 0  # fmt: skip
    episodes = lines(folder / "trajectories" / "step_000001.jsonl")
    resampled = [t for e in episodes for t in e["turns"] if t["candidates"]]
    assert resampled and all(t["uncertainty"] is not None for t in resampled)
    assert not any(e["turns"][0]["candidates"] for e in episodes)
    held_out = lines(folder / "held_out" / "step_000001_sampled.jsonl")
    assert not any(t["candidates"] for e in held_out for t in e["turns"])
    labels = {e["sampling"] for e in episodes}, {e["sampling"] for e in held_out}
    cap = "T=1, max_tokens=40, turn resampling"
    assert labels == ({f"{cap} on (eta=0.5, max_try=2, keep=last)"}, {f"{cap} off"})
    report = (folder / "summary.json").read_text()
    assert f"{cap} off" in report


@needs_sandbox
def test_a_refused_resume_leaves_the_folder_as_it_was(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    assert run(*SMALL, "--output_dir", str(folder), "--max_steps", "1") == 0
    before = {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    pool = json.loads((folder / "tasks.lock").read_text())["pool"]
    counts = (json.dumps({"task_id": name, "passes": 1, "n": 2}) for name in pool)
    (tmp_path / "counts.jsonl").write_text("\n".join(counts))
    for other, words in (
        (["--tasks", "generated:quickstart?n=12&seed=9"], "tasks are not those this run started with"),
        (["--best_metric", "greedy_reward"], "chose its best by 'sampled_pass_rate'"),
        (["--held_out_temperature", "0.5"], "sampled T=0.5, max_tokens=40 (was T=1, max_tokens=40)"),
        (["--curriculum", str(tmp_path / "counts.jsonl")], "curriculum: this run began without"),
    ):
        assert run("--use_cpu", "true", "--output_dir", str(folder), "--resume", "--max_steps", "2", *other) == 2
        assert words in capsys.readouterr().err
        assert {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before

    def broken(*args):
        raise RuntimeError("size mismatch")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="size mismatch"):
        patch.setattr(grpo.GiGPOTrainer, "_load_from_checkpoint", broken)
        run("--use_cpu", "true", "--output_dir", str(folder), "--resume", "--max_steps", "2")
    assert yaml.safe_load((folder / "config.yaml").read_text())["max_steps"] == 1, "what did not go on is not kept"
    assert not (folder / "summary.json").exists()  # it would say that the run ended at step 0

    changed = ["--max_steps", "2", "--held_out_greedy", "false", "--epsilon", "0.3", "--learning_rate", "1e-4"]
    assert run("--use_cpu", "true", "--output_dir", str(folder), "--resume", *changed) == 0
    said = "max_steps is 2, was 1; held_out_greedy is False, was True; epsilon is 0.3, was None"
    summary = json.loads((folder / "summary.json").read_text())
    rate, others = (line for line in summary["warnings"] if "other settings" in line)
    assert "the next step is taken at 0.0001" in rate and others == f"resumed with other settings: {said}."


def test_a_reader_that_goes_away_is_no_traceback_and_pipes_still_report(tmp_path):
    """SIGPIPE must stay ignored: with its default, a sandbox that dies would take the trainer along."""
    before = signal.getsignal(signal.SIGPIPE)
    assert run(*SMALL, "--output_dir", str(tmp_path / "run"), "--dry-run") == 0
    assert signal.getsignal(signal.SIGPIPE) is before is signal.SIG_IGN
    command = [sys.executable, "-m", "trainers.grpo", *SMALL, "--output_dir", str(tmp_path / "run"), "--dry-run"]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait() == 0


@needs_sandbox
def test_a_run_that_is_refused_before_its_first_episode_leaves_no_folder(tmp_path, monkeypatch, capsys):
    def refuse(*args):
        raise SandboxUnavailable("the engine is gone")

    monkeypatch.setattr(grpo.GiGPOTrainer, "play", refuse)
    assert run(*SMALL, "--held_out", "none", "--output_dir", str(tmp_path / "run")) == 2
    assert "the engine is gone" in capsys.readouterr().err and not (tmp_path / "run").exists()


@needs_sandbox
def test_a_run_that_fails_by_any_error_has_a_summary(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def fail(trainer, *args, **kwargs):
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(grpo.GiGPOTrainer, "_compute_loss", fail)
    with pytest.raises(RuntimeError, match="a defect of ours"):
        run(*SMALL, "--held_out", "generated:quickstart?n=1&seed=6", "--output_dir", str(folder))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stopped"] == "failed" and (folder / "report.html").is_file()
    assert summary["reason"] == "RuntimeError: a defect of ours" in (folder / "report.html").read_text()
