"""Campaigns: what a file comes to, what is refused, and that the same command goes on after any end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandboxes import probe
from tests.shared_data import REPOSITORY
from tests.trainers import stub_run
from tests.trainers.runs import start_together
from trainers.campaign import main
from trainers.campaigns.plan import Manifest, load_campaign
from trainers.campaigns.results import make_report, state_of
from trainers.campaigns.run import devices, seconds_left, work
from trainers.errors import RunFolderError
from trainers.run.summary import Stopped
from trainers.settings.help import CONFIGS

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
STUB = ("-S", stub_run.__file__)
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(120),
    pytest.mark.xdist_group("fork server"),
]
HEAD = """\
name = "small"
config = "quickstart"
output_dir = "{folder}"
seeds = {seeds}
max_steps = {steps}
workers = {workers}
stagger_seconds = 0

[settings]
use_cpu = true
"""
PLAIN = """
[conditions.plain]
turn_grouping = "none"
beta_turn = 0
"""
BETTER = "\n[conditions.better]\nturn_gamma = 0.9\n"
SLOW = "temperature = 0.7\n"  # see stub_run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(
        conditions: str = PLAIN + BETTER,
        *,
        seeds: Sequence[int] = (0, 1),
        steps: int = 2,
        workers: int = 2,
        top: str = "",
    ) -> Path:
        path = tmp_path / "campaign.toml"
        head = HEAD.format(folder=tmp_path / "out", seeds=list(seeds), steps=steps, workers=workers)
        path.write_text(top + head + conditions)
        return path

    return write


def done(file: Path) -> tuple[Manifest, list[str]]:
    said: list[str] = []
    return work(load_campaign(str(file)), said.append, STUB), said


def content(folder: Path) -> dict[str, Any]:
    """The manifest, and the metrics of all runs."""
    files = [folder / "manifest.json", *sorted(folder.glob("*/seed_*/metrics.jsonl"))]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


# -- the plan ---------------------------------------------------------------------------------------------------------


def test_a_seed_is_run_in_all_conditions_before_the_next(write):
    campaign = load_campaign(str(write(seeds=(3, 1))))
    assert list(campaign.names()) == [("plain", 3), ("better", 3), ("plain", 1), ("better", 1)]
    assert campaign.baseline == "plain"
    line = campaign.arguments("plain", 3)
    assert line[0] == "--config=quickstart" and line[-1] == "--resume"
    wanted = {"--seed=3", "--max_steps=2", "--turn_grouping=none", "--beta_turn=0", "--use_cpu=true"}
    assert wanted < set(line) and f"--output_dir={campaign.folder}/plain/seed_3" in line


def test_every_run_has_its_own_hash_and_a_condition_all_its_settings(write):
    manifest = Manifest.of(load_campaign(str(write())))
    assert len({run.config_sha256 for run in manifest.runs.values()}) == 4
    assert manifest.conditions["plain"]["turn_grouping"] == "none" and manifest.conditions["plain"]["max_steps"] == 2
    assert {"seed", "output_dir"}.isdisjoint(manifest.conditions["plain"])
    assert manifest.conditions["plain"]["learning_rate"] == 3e-4, "of the config"


_GRPO, _OUTCOME = ("none", "progress", 0.0, False), ("anchor", "outcome", 1.0, False)
_PROGRESS = ("anchor", "progress", 1.0, False)
SHIPPED = {
    "quickstart_credit": (15, {"grpo": _GRPO, "progress": _PROGRESS, "outcome": _OUTCOME}),
    "multi_turn": (42, {
        "grpo": _GRPO, "progress_03": ("anchor", "progress", 0.3, False), "progress_1": _PROGRESS,
        "outcome": _OUTCOME, "index_exit_code": ("turn_index", "exit_code", 0.3, False),
        "t2po": (*_GRPO[:3], True), "t2po_outcome": (*_OUTCOME[:3], True),
    }),
    "smollm2_turns": (24, {"grpo": _GRPO, "outcome": _OUTCOME, "t2po": (*_GRPO[:3], True)}),
    "qwen0.5b_shell": (18, {"grpo": _GRPO, "outcome": _OUTCOME, "t2po": (*_GRPO[:3], True)}),
}  # fmt: skip
"""Runs and conditions: turn_grouping, turn_signal, beta_turn, turn_resample."""


def test_all_campaigns_that_ship_are_listed():
    assert {path.stem for path in CONFIGS.glob("*.toml")} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_campaign_that_ships_resolves(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", name]) == 0
    runs, expected = SHIPPED[name]
    out = capsys.readouterr().out
    assert f"{runs} runs to do" in out and "no run is over yet" in out and not list(tmp_path.iterdir())
    keys = ("turn_grouping", "turn_signal", "beta_turn", "turn_resample")
    conditions = Manifest.of(load_campaign(name)).conditions
    assert {condition: tuple(c[key] for key in keys) for condition, c in conditions.items()} == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds =", "seed ="), "seed: unknown key 'seed': did you mean 'seeds'?"),
        (('name = "small"\n', ""), "name: is missing"),
        (("max_steps = 2", "max_steps = 2.5"), "max_steps: must be a valid integer, but is a number 2.5"),
        (("[0, 1]", "[0, 0]"), "seeds: 0 is there twice"),
        (("conditions.better", 'conditions."a/b"'), "conditions: the condition 'a/b' names a folder"),
        (
            ("turn_gamma", "turn_gama"),
            "conditions.better.turn_gama: unknown key `turn_gama`; did you mean `turn_gamma`?",
        ),
        (("0.9", '"much"'), "conditions.better.turn_gamma: turn_gamma='much': a number is needed"),
        (("use_cpu", "max_steps"), "settings.max_steps: say `max_steps` at the top"),
        (("use_cpu = true", 'tasks = ["a", "b"]'), "settings.tasks: `tasks` takes one text here"),
        (('"quickstart"', '"quickstrat"'), "conditions.plain: --config quickstrat: no such file"),
        (("name =", 'baseline = "none"\nname ='), "baseline: 'none' is no condition (there are plain, better)"),
        (("[settings]", "[settings"), "not TOML ("),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_file_and_key(change, message, write, capsys):
    file = write()
    assert change[0] in file.read_text()
    file.write_text(file.read_text().replace(*change, 1))
    assert main(["plan", str(file)]) == 2
    error = capsys.readouterr().err
    assert f"trainers.campaign: {file}: {message}" in error


# -- the runs ---------------------------------------------------------------------------------------------------------


def test_seeds_and_conditions_that_are_new_are_run_and_no_others(write):
    first, _ = done(write(PLAIN, seeds=[0]))
    folder = load_campaign(str(write())).folder
    stamp = (folder / "plain/seed_0/summary.json").stat().st_mtime_ns
    manifest, said = done(write())
    assert said[0].startswith("4 runs, 3 to do, 2 at a time")
    assert [run.ended for run in manifest.runs.values()] == [Stopped.FINISHED] * 4
    assert manifest.runs["plain", 0] == first.runs["plain", 0]
    assert (folder / "plain/seed_0/summary.json").stat().st_mtime_ns == stamp
    more = load_campaign(str(write(seeds=range(5))))
    assert seconds_left(more, Manifest.of(more), 2) == (180.0, 4), "6 of 60 s each, 2 at a time"


def test_a_condition_with_other_settings_is_refused(write, capsys):
    done(write(PLAIN, seeds=[0]))
    before = content(Path(load_campaign(str(write())).folder))
    changed = write(PLAIN.replace("beta_turn = 0", "beta_turn = 0.5"), seeds=[0, 1])
    assert main(["run", str(changed)]) == 2
    error = capsys.readouterr().err
    assert "conditions.plain: its runs in" in error and "beta_turn is 0.5, was 0.0. Give the new settings" in error
    assert content(Path(load_campaign(str(changed)).folder)) == before
    assert main(["report", str(write(PLAIN.replace("= 0", "= 1") + BETTER, seeds=[0]))]) == 2
    assert "better seed 0: `python -m" in capsys.readouterr().err
    done(write(seeds=[0]))
    assert main(["report", str(write(PLAIN.replace("= 0", "= 1") + BETTER, seeds=[0]))]) == 2
    assert "conditions.plain: says other settings than when it was run" in capsys.readouterr().err
    same = write(PLAIN + BETTER + "beta_turn = 1.0\n", seeds=[0])  # as the config has it
    assert main(["status", str(same)]) == main(["report", str(same)]) == 0
    assert done(same)[1][0].startswith("2 runs, 0 to do") and main(["report", str(same)]) == 0


def test_a_folder_with_something_else_is_refused(write, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").touch()
    with pytest.raises(RunFolderError, match=r"holds no campaign \(1 entries, such as thesis.txt\)"):
        done(write())
    (tmp_path / "out/thesis.txt").unlink()
    place = tmp_path / "out/plain/seed_0"
    done(write(PLAIN, seeds=[0]))
    (place / "summary.json").write_text(
        (place / "summary.json").read_text().replace('"config_sha256": "', '"config_sha256": "0')
    )
    with pytest.raises(RunFolderError, match="holds a run of other settings"):
        done(write(PLAIN, seeds=[0]))


def test_a_run_that_fails_is_shown_and_stops_no_other_and_is_tried_again(write, tmp_path):
    file = write(PLAIN + "\n[conditions.broken]\nlearning_rate = 0.5\n", workers=1)
    manifest, said = done(file)
    assert [run.ended for run in manifest.runs.values()] == [Stopped.FINISHED, Stopped.FAILED] * 2
    shown = said[said.index(next(line for line in said if line.startswith("broken seed 1: failed"))) + 1 :]
    assert "exit code 1; " in shown[0] and "seed_1.err ends with:" in shown[0]
    assert shown[1:3] == ["  | Traceback", "  | ValueError: no \\x1b[31msuch thing, seed 1"]
    _, again = done(file)
    assert "broken seed 0: started again (failed before)" in again and "4 runs, 2 to do" in again[0]
    assert len((tmp_path / "out/broken/seed_0.err").read_text().splitlines()) == 4


def wait(until: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def whole(write) -> dict[str, Any]:
    """What a campaign comes to that nobody interrupts; its folder is gone again."""
    file = write(steps=12)
    done(file)
    folder = load_campaign(str(file)).folder
    found = content(folder)
    shutil.rmtree(folder)
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_gone_on_with_it_is_the_uninterrupted_one(how, whole, write, tmp_path):
    """Twice; the runs end with the campaign, at the latest before another process goes on with them."""
    file, log = write(steps=12), tmp_path / "log"
    folder = load_campaign(str(file)).folder
    for some in ("plain/seed_0", "better/seed_1"):
        (process,) = start_together(1, log, stub_run.campaign, str(file))
        wait((folder / some / "metrics.jsonl").is_file)
        os.kill(process.pid, how)
        process.join()
        assert process.exitcode == (-how if how is signal.SIGKILL else 130), Path(f"{log}.0").read_text()
    if how is signal.SIGINT:
        assert state_of(folder, Manifest.read(folder).runs["better", 1]) is Stopped.INTERRUPTED
    assert content(folder) != whole
    done(file)
    assert content(folder) == whole


def test_a_killed_run_is_a_failed_one_and_is_done_again(write, tmp_path):
    file, log = write(PLAIN + SLOW, seeds=[0, 1], workers=2), tmp_path / "log"
    folder = load_campaign(str(file)).folder
    (process,) = start_together(1, log, stub_run.campaign, str(file))
    wait(lambda: len(list(folder.glob("plain/*/tasks.lock"))) == 2)
    assert state_of(folder, Manifest.read(folder).runs["plain", 0]) == "running"
    os.kill(int((folder / "plain/seed_0/pid").read_text()), signal.SIGKILL)
    process.join()
    assert process.exitcode == 1
    assert "ended by SIGKILL" in Path(f"{log}.0").read_text()
    ends = {seed: run.ended for (_, seed), run in Manifest.read(folder).runs.items()}
    assert ends == {0: Stopped.FAILED, 1: Stopped.FINISHED}


def test_runs_share_out_the_gpus_that_may_be_used(write, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    file = write(PLAIN + SLOW, seeds=[0, 1], steps=1)
    file.write_text(file.read_text().replace("use_cpu = true", "use_cpu = false").replace("workers = 2", ""))
    _, said = done(file)
    assert "2 at a time" in said[0]
    assert {path.read_text() for path in tmp_path.glob("out/plain/*/gpu")} == {"2", "5"}
    assert devices({"plain": {"use_cpu": True}}) == []


def test_two_processes_do_not_work_on_one_campaign(write, tmp_path, capsys):
    file = write(PLAIN + SLOW, seeds=[0])
    (process,) = start_together(1, tmp_path / "log", stub_run.campaign, str(file))
    wait(lambda: (tmp_path / "out/plain/seed_0/tasks.lock").is_file())
    assert main(["run", str(file)]) == 2
    assert "another process writes" in capsys.readouterr().err
    process.join()
    assert process.exitcode == 0


# -- status and report ------------------------------------------------------------------------------------------------


def test_status_and_report(write, capsys, tmp_path):
    file = write(seeds=range(4), steps=8)
    assert main(["status", str(file)]) == 2
    assert "nothing was run yet" in capsys.readouterr().err
    done(file)
    assert main(["status", str(file)]) == 0
    assert "finished │ 8    │ 30/64 = 46.9 %" in capsys.readouterr().out
    assert main(["report", str(file)]) == 0
    out = capsys.readouterr().out
    assert "better against plain: statistically significant improvement (CONFIRMED)" in out
    assert "this is look 1 of 1 planned" in out and "plain:\n  seed 0: 30/64 = 46.9 %" in out
    found = json.loads((tmp_path / "out/report.json").read_text())
    assert found["verdicts"][0]["recommendation"] == "statistically_significant_improvement"
    assert [result["basis"] for result in found["results"]] == ["planned"] * 8
    assert main(["report", str(file)]) == 0 and "look 1 of 1" in capsys.readouterr().out, (
        "the same results, no new look"
    )
    done(write(seeds=range(5), steps=8))
    assert main(["report", str(file)]) == 0
    assert "nothing of alpha is left" in capsys.readouterr().out


def test_the_confirmation_is_compared_where_the_file_says_so(write):
    file = write(seeds=range(3), steps=8, top='figure = "confirmed"\n')
    done(file)
    report = make_report(load_campaign(str(file)))
    assert {(r.seed, r.passed, r.basis) for r in report.results if r.condition == "plain"} == {
        (0, 20, "fresh"), (1, 21, "fresh"), (2, 22, "fresh")
    }  # fmt: skip
    assert "the chosen step of each run on fresh tasks" in report.lines()[0]


def test_three_seeds_of_the_same_thing_are_insufficient_evidence(write):
    file = write(PLAIN + PLAIN.replace("plain", "again"), seeds=range(3), steps=8)
    done(file)
    (verdict,) = make_report(load_campaign(str(file))).judged
    assert verdict.recommendation == "insufficient_statistical_evidence"


def test_runs_of_other_machines_are_named(write, tmp_path):
    file = write(PLAIN + BETTER, seeds=range(3), steps=8)
    done(file)
    places = [path for path in tmp_path.glob("out/*/seed_*") if path.is_dir()]
    for place in places:
        here = {"packages": {"torch": "2.13.0"}, "cores": 2, "cpu": "a processor", "gpus": []}
        if place.name == "seed_2" or (place.parent.name, place.name) == ("better", "seed_1"):
            here["packages"] = {"torch": "2.11.0"}
        (place / "environment.json").write_text(json.dumps(here))
    notes = make_report(load_campaign(str(file))).notes
    assert notes == (
        "the runs had other machines or versions, which round otherwise: 3 runs with 2 cores (a processor), torch "
        "2.13.0; 3 runs with 2 cores (a processor), torch 2.11.0",
        "seed 1: not all conditions had the same machine",
    )
    for place in places:
        (place / "environment.json").write_text(json.dumps({"packages": {"torch": "2.13.0"}, "gpus": ["H", "H"]}))
    assert make_report(load_campaign(str(file))).notes == ()


def test_runs_that_are_missing_wait_and_those_that_ended_otherwise_are_named(write, tmp_path):
    three = PLAIN + BETTER + "\n[conditions.broken]\nlearning_rate = 0.5\n"
    done(write(three, seeds=range(4), steps=8))
    place = tmp_path / "out/better/seed_3"
    text = (place / "summary.json").read_text()
    (place / "summary.json").write_text(text.replace("finished", "guard"))
    manifest = tmp_path / "out/manifest.json"
    data = json.loads(manifest.read_text())
    for run in data["runs"]:
        if run["folder"] == "better/seed_3":
            run["ended"] = "guard"
    manifest.write_text(json.dumps(data))
    (tmp_path / "out/plain/seed_3/tasks.lock").write_text("others\n")
    report = make_report(load_campaign(str(write(PLAIN + BETTER, seeds=range(4), steps=8))))
    text = "\n".join(report.lines())
    assert "left out: better seed 3: stopped by a guard after 8 of 8 steps" in text
    assert "broken seed 0 is in" in text and "seed 3: the conditions did not have the same tasks" in text
    (tmp_path / "out/plain/seed_2/summary.json").unlink()
    for run in data["runs"]:
        run["ended"] = None if run["folder"] == "plain/seed_2" else run["ended"]
    manifest.write_text(json.dumps(data))
    file = write(three, seeds=range(4), steps=8)
    with pytest.raises(RunFolderError, match=r"1 of 12 runs have not ended, such as plain seed 2 \(killed\)"):
        make_report(load_campaign(str(file)))
    early = "\n".join(make_report(load_campaign(str(file)), early=True).lines())
    assert "left out: plain seed 2: truncated after 8 of 8 steps" in early
    assert "left out: broken seed 1: failed after 0 of 8 steps; has no graded episode" in early


def test_rewards_of_different_kinds_are_not_compared(write):
    file = write(PLAIN + BETTER + 'reward = "binary"\n', seeds=range(3), steps=8)
    done(file)
    report = make_report(load_campaign(str(file)))
    assert {result.reward for result in report.results} == {None}
    assert "rewards of different kinds" in report.notes[0]


# -- a real run -------------------------------------------------------------------------------------------------------

REAL = """
tasks = "generated:quickstart?n=8&seed=5"
held_out = "generated:quickstart?n=4&seed=6"
held_out_greedy = false
confirm = 0.0
per_device_train_batch_size = 8
eval_steps = 1
save_steps = 1
slots = 8
emergence = true
gradient_cosine_steps = 1
"""


@pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
def test_a_real_run_is_an_ordinary_run_with_the_planned_hash(write, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    file = write(REAL + PLAIN, seeds=[7], steps=1)
    assert main(["run", str(file)]) == 0, capsys.readouterr().out
    place = tmp_path / "out/plain/seed_7"
    summary, manifest = json.loads((place / "summary.json").read_text()), Manifest.read(tmp_path / "out")
    assert summary["config_sha256"] == manifest.runs["plain", 7].config_sha256 and summary["seed"] == 7
    assert manifest.runs["plain", 7].ended is Stopped.FINISHED
    assert "held-out at step 0" in place.with_name("seed_7.log").read_text()
    (step,) = [json.loads(line) for line in (place / "emergence/steps.jsonl").read_text().splitlines()]
    assert step["total_count"] == 8 and step["top_surprisal_tokens"] and step["condition"].startswith("grpo+none")
    metrics = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    (cosine,) = [line["cosine/gradient"] for line in metrics if "reward" in line]
    assert cosine == pytest.approx(1.0), "a condition without a turn term is plain GRPO"
