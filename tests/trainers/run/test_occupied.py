"""A taken output folder: refused, replaced without a loss, locked against a second writer."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.model import atomic_file
from trainers import grpo
from trainers.errors import ConfigError, RunFolderError
from trainers.run.folder import LOCK, lock_folder
from trainers.run.record import RunRecord

HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


def a_run(path: Path) -> Path:
    path.mkdir()
    (path / "metrics.jsonl").write_text('{"step": 1}\n')
    (path / "best").mkdir()
    (path / "best" / "weights").write_text("dear")
    return path


def test_overwrite_keeps_the_old_run_beside_the_new_one(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = a_run(tmp_path / "run")
        record = RunRecord(folder, overwrite=True)
        assert record.moved_to == tmp_path / f"run.replaced-{number}"
        assert not (folder / "metrics.jsonl").exists() and not (folder / "best").exists()
        record.close()
        for path in (folder / "trajectories", folder / "held_out"):
            path.rmdir()
        (folder / LOCK).unlink()
        folder.rmdir()
    kept = sorted(p.parent.parent.name for p in tmp_path.glob("*/best/weights"))
    assert kept == ["run.replaced-1", "run.replaced-2"]


def test_overwrite_starts_where_nothing_is_and_again_where_little_is(tmp_path: Path) -> None:
    first = RunRecord(tmp_path / "run", overwrite=True)
    assert first.moved_to is None
    first.close()
    again = RunRecord(tmp_path / "run", overwrite=True)  # killed before it had written anything
    assert again.moved_to == tmp_path / "run.replaced-1"


@pytest.mark.parametrize("how", ["resume", "overwrite"])
def test_a_folder_that_holds_no_run_is_left_alone(tmp_path: Path, how: str) -> None:
    """A run that goes on cuts files, and removes *.tmp and what was half saved: not in a folder of something else."""
    (tmp_path / "thesis.txt.tmp").write_text("mine")
    with pytest.raises(RunFolderError, match="holds no run .*thesis.txt.*--output_dir"):
        RunRecord(tmp_path, resume=how == "resume", overwrite=how == "overwrite")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt.tmp"]


def test_a_run_goes_on_that_was_killed_before_it_had_written_anything(tmp_path: Path) -> None:
    RunRecord(tmp_path / "run", resume=True).close()
    with atomic_file(tmp_path / "run" / "tasks.lock") as file:  # under the name that it has until it is whole
        unfinished = Path(file.name)
    (tmp_path / "run" / "tasks.lock").rename(unfinished)
    RunRecord(tmp_path / "run", resume=True).close()


def test_a_run_behind_a_link_is_replaced(tmp_path: Path) -> None:
    a_run(tmp_path / "disk")
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    record = RunRecord(tmp_path / "run", overwrite=True)
    assert record.moved_to == tmp_path / "disk.replaced-1" and (tmp_path / "disk" / LOCK).exists()
    record.withdraw()
    assert (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_folder_that_cannot_be_locked_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(RunFolderError, match="gives no lock .No locks available"):
        lock_folder(tmp_path)
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).mkdir()
    with pytest.raises(RunFolderError, match="cannot write the run folder"):
        lock_folder(tmp_path)


@pytest.mark.parametrize("how", ["resume", "overwrite"])
def test_a_run_that_is_being_written_is_left_alone(tmp_path: Path, how: str) -> None:
    folder = a_run(tmp_path / "run")
    writer = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / LOCK)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None and writer.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match="another process writes this run"):
            RunRecord(folder, resume=how == "resume", overwrite=how == "overwrite")
    finally:
        writer.kill()
        writer.wait()
    RunRecord(folder, resume=True).close()  # the lock ends with its process, however that ended


@pytest.mark.parametrize("before", ["nothing", "an empty folder", "a run"])
def test_a_start_that_is_refused_leaves_what_was_there(tmp_path: Path, before: str) -> None:
    folder = tmp_path / "run"
    if before == "a run":
        a_run(folder)
    elif before == "an empty folder":
        folder.mkdir()
    record = RunRecord(folder, overwrite=before == "a run")
    (folder / "config.yaml").write_text("seed: 1\n")
    record.withdraw()
    assert folder.exists() == (before != "nothing")
    assert [p.name for p in tmp_path.iterdir()] == (["run"] if before != "nothing" else [])
    if before == "a run":
        assert sorted(p.name for p in folder.iterdir()) == [LOCK, "best", "metrics.jsonl"]
        RunRecord(folder, resume=True).withdraw()
        assert (folder / "metrics.jsonl").exists(), "a run that goes on is never taken away"


def test_a_refused_trainer_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no server answers"), grpo.withdrawn_if_refused(RunRecord(tmp_path / "run")):
        raise ConfigError("no server answers")
    assert not (tmp_path / "run").exists()
