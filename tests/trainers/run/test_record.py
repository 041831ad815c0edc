from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from agents.credited import EpisodeKey, read_advantages
from tasks.splits import Split
from tests.trainers.fake_run import episode, held_out_episodes, make_run, task
from trainers.errors import RunFolderError
from trainers.measure import Confirmation
from trainers.reporting.folder import read_run
from trainers.run.record import RunRecord
from trainers.run.steps import COLUMNS, StepRow


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "steps.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_an_occupied_folder_is_refused_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"is occupied .*--resume.*--output_dir") as error:
        RunRecord(tmp_path)
    assert "\n" not in str(error.value)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    for resume in (False, True):
        with pytest.raises(RunFolderError, match="is a file"):
            RunRecord(tmp_path / "run", resume=resume)


def test_whole_run_reads_back(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=20, n_held_out=12)
    run = read_run(folder)
    assert [s["step"] for s in run.steps] == list(range(1, 21))
    assert [p.step for p in run.held_out] == [0, 10, 20]
    assert run.baseline is not None and run.baseline.settings["greedy"].n == 12
    assert run.training_steps() == [1, 20]
    assert len(run.training_episodes(20)) == 16
    assert len(run.held_out_episodes(10, "sampled")) == 12
    assert run.notes == []
    lock = json.loads((folder / "tasks.lock").read_text())
    assert set(lock) == {"schema_version", "choice", "pool", "held_out", "hash"} and len(lock["held_out"]) == 12
    lines = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    assert {line["id"] for line in lines if line["split"] == "held_out"} == set(lock["held_out"])
    assert run.intents == {line["id"]: line["intent"] for line in lines}
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["packages"]["trl"] and environment["cores"] >= 1 and environment["sandbox"] == "bubblewrap"
    assert yaml.safe_load((folder / "config.yaml").read_text())["max_steps"] == 20


def test_summary_has_the_promised_keys(tmp_path: Path) -> None:
    summary = json.loads((make_run(tmp_path / "run", steps=10, n_held_out=12) / "summary.json").read_text())
    assert {"held_out", "wall_seconds", "model_time_share", "seed", "config_sha256"} <= set(summary)
    held_out = summary["held_out"]
    assert {"n", "before", "after", "best_step"} <= set(held_out)
    for arm in (held_out["before"], held_out["after"], held_out["greedy"]["after"]):
        assert {"passed", "assertion_rate", "reward", "mean_turns", "submitted"} <= set(arm)
    assert held_out["n"] == 12 and 0 <= held_out["before"]["passed"] <= 12
    assert held_out["decode"].startswith("T=1") and held_out["greedy"]["decode"].startswith("greedy")
    assert summary["model_time_share"] == pytest.approx(1.2 / 1.7)
    assert summary["timing"]["ms_per_turn"]["overhead"] == pytest.approx(1000 * 0.15 / 90)


def test_steps_csv_joins_episodes_and_metrics(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=4, n_held_out=2)
    table = rows(folder)
    assert tuple(table[0]) == COLUMNS
    public = {"loss", "grad_norm", "n_rollouts_used", "n_rollouts_total", "zero_var_groups", "task_pass_count"}
    assert public | {"reward_mean", "reward_stdev", "median_turns", "task_complete_pct", "mean_tds_regen"} <= set(
        COLUMNS
    )
    assert [r["step"] for r in table] == ["1", "2", "3", "4"]
    assert table[0]["n_rollouts_total"] == "16" and table[0]["grad_norm"] and table[0]["rollout_seconds"] == "1.7"
    assert float(table[0]["task_pass_rate"]) == pytest.approx(int(table[0]["task_pass_count"]) / 16, abs=1e-5)
    assert [float(r["wall_seconds"]) for r in table] == sorted(float(r["wall_seconds"]) for r in table)
    assert table[0]["weight_delta"] == "" and int(table[0]["assertions"]) == 32
    assert table[0]["kl_loss"] == ""  # never logged: empty, not 0


def test_steps_csv_counts_only_graded_episodes(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run")
    rng, job = random.Random(0), task(0, "pool")
    same = [episode(job, rng, 1.0) for _ in range(2)]
    for attempt, item in enumerate(same):
        item.attempt, item.reward = attempt, 0.5
    record.write_episodes(1, [*same, episode(job, rng, 1.0, broken=True)])
    record.log(1, {"reward": 0.5, "loss": 0.1})
    (row,) = rows(tmp_path / "run")
    assert (row["n_rollouts_used"], row["n_rollouts_total"], row["infrastructure"]) == ("2", "3", "1")
    assert (row["zero_var_groups"], row["reward_mean"], row["reward_stdev"]) == ("1", "0.5", "0")
    again = [replace(item, reward=0.1) for item in same]  # drawn twice: two groups, each without a difference
    twice = StepRow.of(2, [*same, *again])
    assert (twice.n_groups, twice.zero_var_groups) == (2, 2)
    record.write_episodes(2, [episode(job, rng, 1.0, broken=True)])
    record.log(2, {"loss": 0.0})
    assert rows(tmp_path / "run")[1]["reward_mean"] == ""


def test_the_deviation_of_rewards_is_that_of_a_sample(tmp_path: Path) -> None:
    rng, job = random.Random(0), task(0, "pool")
    played = [episode(job, rng, 1.0) for _ in range(3)]
    for item, reward in zip(played, (0.0, 0.5, 1.0), strict=True):
        item.reward = reward
    assert StepRow.of(1, played).reward_stdev == torch.tensor([0.0, 0.5, 1.0]).std().item() == 0.5
    assert StepRow.of(1, played[:1]).reward_stdev is None


def test_two_generations_in_one_step_are_one_row(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run")
    rng, job = random.Random(0), task(0, "pool")
    record.write_episodes(1, [episode(job, rng, 1.0)])
    record.write_episodes(1, [episode(job, rng, 0.0)])
    for seed in (1, 2):
        record.write_advantages(1, {EpisodeKey(job.id, 0, seed): [0.5]})
    record.log(1, {"loss": 0.1})
    (row,) = rows(tmp_path / "run")
    assert row["n_rollouts_total"] == "2" and row["task_pass_count"] == "1"
    run = read_run(tmp_path / "run")
    assert len(run.training_episodes(1)) == 2
    assert len(read_advantages(run.path / "advantages" / "step_000001.json")) == 2
    (outcomes,) = run.outcomes
    assert (outcomes.step, outcomes.arm, outcomes.tasks[job.id].n, outcomes.tasks[job.id].passed) == (1, "pool", 2, 1)


def test_resume_after_kill_cuts_what_is_beyond_the_checkpoint(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=20, n_held_out=6)
    wall = read_run(folder).steps[9]["wall_seconds"]
    (folder / "advantages").mkdir()
    for name in ("step_000010.json", "step_000011.json"):
        (folder / "advantages" / name).write_text("[]")
    for name in (
        "metrics.jsonl",
        "held_out.jsonl",
        "steps.csv",
        "outcomes.jsonl",
        "guard_figures.jsonl",
    ):  # killed in the middle of a write
        path = folder / name
        path.write_bytes(path.read_bytes()[:-9])
    record = RunRecord(folder, resume=True)
    record.resume_at(10)
    assert not (folder / "summary.json").exists()
    assert record.wall_seconds >= wall
    run = read_run(folder)
    assert [s["step"] for s in run.steps] == list(range(1, 11))
    assert [p.step for p in run.held_out] == [0, 10]
    assert [r["step"] for r in rows(folder)] == [str(i) for i in range(1, 11)]
    assert run.training_steps() == [1]
    assert [path.name for path in (folder / "advantages").iterdir()] == ["step_000010.json"]
    assert (folder / "superseded" / "advantages" / "step_000011.json").exists()
    pool, sampled = ([one.step for one in run.outcomes if one.arm == arm] for arm in ("pool", "sampled"))
    assert (pool, sampled) == (list(range(1, 11)), [0, 10])
    (entropy,) = [line for name, line in run.gauges["update_health"].items() if name.startswith("entropy")]
    assert [step for step, _ in entropy.points] == list(range(1, 11))
    assert (folder / "superseded" / "trajectories" / "step_000020.jsonl").exists()
    assert (folder / "superseded" / "metrics.jsonl").exists()
    record.write_episodes(11, [episode(task(0, "pool"), random.Random(0), 1.0)])
    record.log(11, {"reward": 0.1, "loss": 0.1})
    assert read_run(folder).steps[-1]["step"] == 11 and rows(folder)[-1]["step"] == "11"


def test_resume_keeps_what_the_checkpoint_knows_and_no_more(tmp_path: Path) -> None:
    """A last evaluation and the mean loss may bear the checkpoint's step and come after it."""
    record = RunRecord(tmp_path / "run")
    for step in (1, 2):
        record.log(step, {"reward": 0.5})
    record.log(2, {"eval_sampled_reward": 0.5})
    record.log(2, {"train_loss": 0.1})
    (tmp_path / "run" / "guards.jsonl").write_text('{"step": 1, "guard": "a"}\n{"step": 3, "guard": "b"}\n')
    for name in ("config.yaml.tmp", "summary.json", "SUMMARY.md", "report.html"):
        (tmp_path / "run" / name).write_text("half, or of an end that is none any more")
    record.resume_at(2, {0})
    assert len((tmp_path / "run" / "superseded" / "metrics.jsonl").read_text().splitlines()) == 2
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if "reward" in line] == [1, 2] and len(metrics) == 2
    assert '"b"' not in (tmp_path / "run" / "guards.jsonl").read_text()
    assert not {"config.yaml.tmp", "summary.json", "SUMMARY.md", "report.html"} & {
        p.name for p in (tmp_path / "run").iterdir()
    }
    (tmp_path / "run" / "best").mkdir()
    record.resume_at(-1)
    assert (tmp_path / "run" / "superseded" / "best").is_dir() and not (tmp_path / "run" / "best").exists()
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


def test_resume_with_other_tasks_is_refused(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run")
    record.write_tasks(Split((task(0, "pool"),), (task(1, "held"),)))
    again = RunRecord(tmp_path / "run", resume=True)
    again.write_tasks(Split((task(0, "pool"),), (task(1, "held"),)))
    with pytest.raises(RunFolderError, match="(?s)not those this run started with.*held_out"):
        again.write_tasks(Split((task(0, "pool"),), (task(2, "held"),)))


def test_another_image_than_before_is_told(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run")
    record.write_environment(images={"x:1": ["sha256:aa"], "y:1": ["sha256:cc"]})
    assert record.other_images == []
    record.write_environment(images={"x:1": ["sha256:bb"], "y:1": ["sha256:cc"]})
    (line,) = record.other_images
    assert line.startswith("the image x:1 is sha256:bb, and was sha256:aa: ")
    assert json.loads((tmp_path / "run/environment.json").read_text())["images"]["x:1"] == ["sha256:bb"]
    (tmp_path / "run/environment.json").write_text("{")
    with pytest.raises(RunFolderError, match="environment.json: cannot be read"):
        record.write_environment(images={})


def test_changed_settings_keep_the_older_file(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run")
    record.write_config({"max_steps": 10})
    record.write_config({"max_steps": 10})
    record.write_config({"max_steps": 20})
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text()) == {"max_steps": 20}
    kept = sorted(p.name for p in (tmp_path / "run").glob("config.before*"))
    assert kept == ["config.before_resume_1.yaml"]
    assert record.changed == {"max_steps": "max_steps is 20, was 10"}
    record.settings_back()  # they were refused after all
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text()) == {"max_steps": 10}
    assert not list((tmp_path / "run").glob("config.before*"))


def test_same_seed_same_files(tmp_path: Path) -> None:
    one, two = (make_run(tmp_path / name, steps=4, n_held_out=4) for name in "ab")
    names = sorted(str(p.relative_to(one)) for p in one.rglob("*") if p.is_file())
    timed = {"metrics.jsonl", "held_out.jsonl", "environment.json", "steps.csv"}  # hold wall time
    assert names and names == sorted(str(p.relative_to(two)) for p in two.rglob("*") if p.is_file())
    for name in set(names) - timed:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    clocks = {"wall_seconds": ""}
    assert [{**row, **clocks} for row in rows(one)] == [{**row, **clocks} for row in rows(two)]


def test_a_confirmation_is_written_whole_and_moves_aside_when_the_run_goes_on(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=10, n_held_out=6)
    record = RunRecord(folder, resume=True)
    played, settings = held_out_episodes([task(i, "fresh") for i in range(6)], 0, 10, 0)
    found = Confirmation("6 fresh tasks", 10, settings, settings)
    record.write_confirmation(found, {"start": played, "best": played})
    names = {f"confirm_{policy}_{arm}.jsonl" for policy in ("start", "best") for arm in ("sampled", "greedy")}
    assert names <= {path.name for path in (folder / "held_out").iterdir()}
    assert len((folder / "held_out" / "confirm_start_greedy.jsonl").read_text().splitlines()) == 6
    assert read_run(folder).confirmation == found
    first = (folder / "confirmation.json").read_bytes()
    record.resume_at(10)
    assert read_run(folder).confirmation is None
    assert not names & {path.name for path in (folder / "held_out").iterdir()}
    assert (folder / "superseded" / "confirmation.json").read_bytes() == first
    assert names <= {path.name for path in (folder / "superseded" / "held_out").iterdir()}
    (folder / "confirmation.json").write_text('{"step": 1, "chosen": 2}')
    with pytest.raises(RunFolderError, match=r"confirmation.json: not a confirmation \(.*chosen"):
        read_run(folder)
