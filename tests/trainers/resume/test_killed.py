"""`kill -9` at any moment, the same command again: the run is the uninterrupted one, file by file."""

from __future__ import annotations

import csv
import json
import random
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sandboxes import probe
from sandboxes.opening import Swept, sweep
from tests.trainers.runs import Moment, run_name, start
from trainers.errors import DamagedError
from trainers.run.start import going_on

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
pytestmark = [
    pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("fork server"),  # it loads the libraries once in each worker that needs it
]

ARGS = [
    "--resume", "--use_cpu", "true", "--tasks", "generated:quickstart?n=40&seed=5", "--confirm", "0.45",
    "--held_out", "generated:quickstart?n=6&seed=7", "--best_metric", "sampled_reward",
    "--adapter", "lora", "--num_iterations", "2", "--turn_resample", "true", "--turn_resample_warmup", "24",
    "--per_device_train_batch_size", "8", "--slots", "8", "--learning_rate", "3e-3", "--warmup_steps", "0",
    "--max_steps", "9", "--eval_steps", "3", "--save_steps", "3", "--save_total_limit", "2",
]  # fmt: skip
"""T2PO that calibrates itself, a new adapter, checkpoints inside a generation cycle, two held-out arms."""

EARLY = (r"tasks.lock|config.yaml|environment.json|step_00000[01]|best", 0, 14)
SAVING = (r"saving|checkpoint|best.old", 3, 20)
BEST = (r"best", 12, 26)
MEASURING = (r"held_out", 3, 12)
LINES = (r"open /(metrics.jsonl|steps.csv|held_out.jsonl|warnings.jsonl|guards.jsonl|outcomes.jsonl)", 2, 8)
THE_END = (r"checkpoint-9/turngym_|os.rename /(saving/checkpoint-9|checkpoint-3)|summary|report", 1, 14)
CONFIRMING = (r"held_out/confirm_|confirmation.json", 0, 3)
SOMEWHERE = ("", 10, 120)
LATER = ("", 10, 60)
"""Which events, and from which to which of them: in a run, and in one that goes on."""


def moment(draw: random.Random, part: tuple[str, int, int]) -> Moment:
    pattern, first, last = part
    after = draw.uniform(0.0, 0.3) if part in (SOMEWHERE, LATER) else 0.0
    return Moment(pattern, draw.randrange(first, last), after=after)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    process = start([*ARGS, "--output_dir", str(folder)], folder, folder.with_name("log"))
    process.join()
    assert process.exitcode == 0, folder.with_name("log").read_text()
    return folder


@pytest.fixture(scope="module")
def whole(made) -> dict[str, Any]:
    return content(made)


def content(folder: Path) -> dict[str, Any]:
    """All of a run that is not a time."""

    def lines(name: str) -> list[dict[str, Any]]:
        path = folder / name  # guards that find nothing write none
        return [_timeless(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    names = ("metrics", "held_out", "warnings", "guards", "guard_figures", "outcomes", "tasks")
    out: dict[str, Any] = {name: lines(f"{name}.jsonl") for name in names}
    with open(folder / "steps.csv") as file:
        out["steps"] = [_timeless(row) for row in csv.DictReader(file)]
    for path in sorted([*folder.glob("trajectories/*"), *folder.glob("held_out/*")]):
        episodes = [json.loads(line) for line in path.read_text().splitlines()]
        out[path.name] = [(e["task_id"], e["reward"], [turn["ids"] for turn in e["turns"]]) for e in episodes]
    for path in (*folder.glob("checkpoint-*/*.safetensors"), *folder.glob("best/*")):
        out[str(path.relative_to(folder))] = path.read_bytes()
    summary = json.loads((folder / "summary.json").read_text())
    out["summary"] = (summary["held_out"], summary["confirmation"])
    out["page"] = (folder / "SUMMARY.md").read_text()
    out["confirmation"] = (folder / "confirmation.json").read_bytes()
    out["config"] = [line for line in (folder / "config.yaml").read_text().splitlines() if "output_dir" not in line]
    out["names"] = sorted(path.name for path in folder.iterdir() if path.name != "superseded")
    return out


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    words = ("seconds", "time", "train_wall", "per_second")
    return {name: value for name, value in record.items() if not any(word in name for word in words)}


def kill_twice(
    tmp_path: Path, moments: Sequence[Moment], whole: dict[str, Any], args: Sequence[str] = ARGS
) -> list[str]:
    """Two processes die, a third ends the run; returns where they died."""
    folder, log = tmp_path / "run", tmp_path / "log"
    command = [*args, "--output_dir", str(folder)]
    for when in moments:
        process = start(command, folder, log, when)
        process.join()
        assert process.exitcode == -signal.SIGKILL, log.read_text()
    process = start(command, folder, log)
    process.join()
    assert process.exitcode == 0, log.read_text()
    again = content(folder)
    assert {name for name in whole if again.get(name) != whole[name]} == set()
    assert again.keys() == whole.keys()
    assert sweep(run_name(folder)) == Swept(), "what the killed runs left behind was not swept"
    return [line for line in log.read_text().splitlines() if line.startswith("killed")]


@pytest.mark.slow
def test_killed_twice(tmp_path, whole):
    """Half way through a checkpoint, and after the last step: between checkpoint, summary and report."""
    draw = random.Random(7)
    assert len(kill_twice(tmp_path, [moment(draw, SAVING), moment(draw, THE_END)], whole)) == 2
    shutil.rmtree(tmp_path)


@pytest.mark.whole
def test_killed_twice_beside_a_generation_that_is_sampled_ahead(tmp_path):
    """Two steps a generation, and the next one played beside them in real sandboxes: what that leaves is swept, too."""
    args, folder, log = [*ARGS, "--overlap", "1", "--max_staleness", "3"], tmp_path / "whole", tmp_path / "log"
    process = start([*args, "--output_dir", str(folder)], folder, log)
    process.join()
    assert process.exitcode == 0, log.read_text()
    whole = content(folder)
    # Generations begin at the steps 1, 3, 5, ...; those of 5, 7 and 9 follow the checkpoints of 3 and 6, or 6 follows.
    ages = [line["rollouts/staleness"] for line in whole["metrics"] if "rollouts/staleness" in line]
    assert ages == [0, 1, 2, 3, 0, 1, 0, 1, 2], ages
    draw = random.Random(7)
    assert len(kill_twice(tmp_path, [moment(draw, SAVING), moment(draw, LATER)], whole, args)) == 2
    shutil.rmtree(tmp_path)


@pytest.mark.slow
def test_killed_before_and_while_the_choice_is_confirmed(tmp_path, whole):
    """Half a second after the last state of the last checkpoint, while it is played; then while it is written."""
    said = json.loads(whole["confirmation"])
    assert said["why"] == "" and said["step"] > 0 and said["before"]["sampled"]["n"] == 21, "nothing is confirmed here"
    playing = Moment(r"open /checkpoint-9/turngym_state", 0, after=0.5)
    first, second = kill_twice(tmp_path, [playing, Moment(r"confirmation.json", 0)], whole)
    assert first.startswith("killed 0.50 s after") and "confirmation.json" in second
    aside = {path.name for path in (tmp_path / "run" / "superseded" / "held_out").iterdir()}
    assert {"confirm_start_sampled.jsonl", "confirm_best_sampled.jsonl"} <= aside
    shutil.rmtree(tmp_path)


@pytest.mark.slow
def test_training_is_the_same_without_a_confirmation(tmp_path, whole):
    folder, log = tmp_path / "run", tmp_path / "log"
    process = start([*ARGS, "--confirm", "0", "--output_dir", str(folder)], folder, log)
    process.join()
    assert process.exitcode == 0, log.read_text()
    without = content(folder)
    differ = {name for name in whole if without.get(name) != whole[name]}
    confirmed = {"confirmation", "page", "summary", "tasks", "config"}
    arms = {f"confirm_{policy}_{arm}.jsonl" for policy in ("start", "best") for arm in ("sampled", "greedy")}
    assert differ == confirmed | arms
    assert without["summary"][0] == whole["summary"][0] and without["summary"][1]["why_none"] == "confirm=0"
    assert [line for line in whole["tasks"] if line["split"] != "confirm"] == without["tasks"]
    assert "confirmed: nothing (confirm=0)" in log.read_text()


PARTS = [(EARLY, SAVING), (MEASURING, THE_END), (BEST, LINES), (SAVING, LATER), (SOMEWHERE, LATER), (CONFIRMING, LATER)]


@pytest.mark.whole
@pytest.mark.parametrize("seed", range(len(PARTS)))
def test_killed_at_random(tmp_path, whole, seed):
    """Twelve kills: in each part of a run, and three anywhere, between two changes to its files."""
    draw = random.Random(seed)
    moments = [moment(draw, part) for part in PARTS[seed]]
    died = kill_twice(tmp_path, moments, whole)
    print(seed, *died, sep="\n  ")
    assert len(died) == 2


@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused_and_going_back_ends_the_run_as_it_was(tmp_path, made, whole):
    """Every file of the last checkpoint, cut in half; then one real refusal, and the way out that it names."""
    folder, log = tmp_path / "run", tmp_path / "log"
    shutil.copytree(made, folder)
    newest = folder / "checkpoint-9"
    files = sorted(path for path in newest.rglob("*") if path.is_file())
    assert {"adapter_model.safetensors", "optimizer.pt", "turngym_batch_0.pt"} <= {path.name for path in files}
    for path in files:
        text = path.read_bytes()
        for spoiled in (text[: len(text) // 2], b"", files[0].read_bytes() if path != files[0] else b"{}"):
            path.write_bytes(spoiled)
            with pytest.raises(DamagedError, match=r"checkpoint-9 is damaged.*`--resume --from 6`"):
                going_on(folder)
        path.write_bytes(text)
    (newest / "optimizer.pt").write_bytes((newest / "optimizer.pt").read_bytes()[:1000])
    before = sorted(folder.rglob("*"))
    command = [*ARGS, "--output_dir", str(folder)]
    process = start(command, folder, log)
    process.join()
    assert process.exitcode == 2 and sorted(folder.rglob("*")) == before, log.read_text()
    assert "optimizer.pt is shorter than written (1,000 of" in log.read_text()
    process = start([*command, "--from", "6"], folder, log)
    process.join()
    assert process.exitcode == 0, log.read_text()
    again = content(folder)
    again["names"].remove("config.before_resume_1.yaml")  # of the copy, which stands elsewhere
    assert {name for name in whole if again.get(name) != whole[name]} == set()
    assert (folder / "superseded" / "checkpoint-9" / "optimizer.pt").stat().st_size == 1000


@pytest.mark.slow
def test_sigterm_is_ctrl_c(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    process = start([*ARGS, "--output_dir", str(folder)], folder, log, Moment("step_000001.jsonl", 0, signal.SIGTERM))
    process.join()
    assert process.exitcode == 143, log.read_text()
    assert json.loads((folder / "summary.json").read_text())["stopped"] == "interrupted"
    assert (folder / "report.html").is_file() and "Traceback" not in log.read_text()
    assert sweep(run_name(folder)) == Swept()
