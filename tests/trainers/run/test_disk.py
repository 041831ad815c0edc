"""A full disk ends a run with one line, and leaves nothing half written."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sandboxes import probe
from tests.trainers.toy import make_trainer
from trainers import grpo
from trainers.checkpoint import Best, Checkpoint, save_best
from trainers.jsonl import append_line, read_lines
from trainers.run.folder import disk_full, full_line

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "model.safetensors")


def test_a_full_disk_is_told_from_other_errors() -> None:
    assert disk_full(full()) and disk_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert not disk_full(OSError(errno.EACCES, "Permission denied")) and not disk_full(ValueError("os error 28"))
    assert disk_full(Exception("No space left on device (os error 28)")), "as tokenizers raises it"
    behind = RuntimeError("saving failed")
    behind.__cause__ = full()
    assert disk_full(behind)


def test_half_a_best_is_removed_and_the_old_one_stays(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_text("weights")

    def half(folder: Path) -> None:
        write(folder)
        raise full()

    save_best(tmp_path, Best(1, 0.1, "sampled_reward", ""), write)
    with pytest.raises(OSError, match="No space left"):
        save_best(tmp_path, Best(2, 0.2, "sampled_reward", ""), half)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert json.loads((tmp_path / "best" / "BEST.json").read_text())["step"] == 1


def test_half_a_checkpoint_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path, save_strategy="steps", save_steps=1, max_steps=2)
    real = torch.save

    def save(value: Any, path: Any, *more: Any, **named: Any) -> None:
        if "checkpoint-2" in str(path):
            raise full()
        real(value, path, *more, **named)

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(OSError, match="No space left"):
        trainer.train()
    trainer.close()
    run = tmp_path / "run"
    assert [path.name for path in run.iterdir()] == ["checkpoint-1"]
    assert Checkpoint.newest_whole(run) == Checkpoint(run / "checkpoint-1")
    need = trainer.checkpoint_bytes()
    weights = sum(p.numel() * p.element_size() for p in trainer.model.parameters())
    assert 4 * weights < need < 4 * weights + 2**22  # weights twice (checkpoint and best), and Adam's two moments
    there = sum(path.stat().st_size for path in (run / "checkpoint-1").iterdir())
    assert there < need
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, need - 3_000_000))
    line = full_line(run, need)
    assert "about 3.0 MB are missing" in line and "--resume goes on from step 1" in line and "\n" not in line
    shutil.rmtree(run / "checkpoint-1")
    assert "--resume starts over: there is no checkpoint yet" in full_line(run, need)


def test_a_line_that_does_not_fit_leaves_no_half_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_line(path, {"step": 1})
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30, 30))\n"
        "from pathlib import Path\nfrom trainers.jsonl import append_line\n"
        "try:\n    append_line(Path(sys.argv[1]), {'step': 2, 'text': 'x' * 100})\n"
        "except OSError as error:\n    sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 7
    append_line(path, {"step": 3})
    assert read_lines(path) == ([{"step": 1}, {"step": 3}], None)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 20 MB: room for the start and one checkpoint of the shipped policy, not for two."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


ARGS = [
    "--use_cpu", "true", "--tasks", "generated:quickstart?n=16&seed=5", "--held_out", "generated:quickstart?n=4&seed=6",
    "--per_device_train_batch_size", "8", "--max_steps", "2", "--eval_steps", "2", "--save_steps", "1", "--slots", "8",
    "--held_out_greedy", "false",
]  # fmt: skip


@pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
def test_a_run_on_a_disk_that_fills_up_says_so_and_goes_on(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_disk / "run"
    assert grpo.main([*ARGS, "--output_dir", str(run)]) == 1
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.splitlines() if line.startswith("trainers.grpo:")]
    assert "MB are missing" in line and "Make room, then --resume goes on from step 1" in line
    assert "Traceback" not in captured.err
    left = {path.name for path in run.iterdir()}
    assert not left & {"best.tmp", "saving", "checkpoint-2"} and {"best", "checkpoint-1"} <= left
    subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
    assert grpo.main([*ARGS, "--output_dir", str(run), "--resume"]) == 0
    assert Checkpoint.newest_whole(run) == Checkpoint(run / "checkpoint-2")


@pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
def test_a_best_that_does_not_fit_ends_the_run_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainers.gigpo import GiGPOTrainer

    def save(self: GiGPOTrainer, folder: Path) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        raise full()

    monkeypatch.setattr(GiGPOTrainer, "save_policy", save)
    run = tmp_path / "run"
    assert grpo.main([*ARGS, "--output_dir", str(run)]) == 1
    err = capsys.readouterr().err
    assert err.count("trainers.grpo:") == 1 and "the disk of" in err and "starts over: there is no checkpoint" in err
    assert "Traceback" not in err and not any(path.name.startswith(("best", "saving")) for path in run.iterdir())
