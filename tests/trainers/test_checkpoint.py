"""A folder `checkpoint-N` is whole, whatever happened while it was written or removed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from agents.models.card import MANIFEST
from tasks.model import SUFFIX
from trainers import checkpoint as checkpoints
from trainers.checkpoint import FORMAT, LAST_WRITTEN, SAVING, STATE_FILE, Checkpoint, rotate


def staged(run: Path, step: int) -> Checkpoint:
    folder = run / SAVING / f"checkpoint-{step}"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "weights").write_text(str(step))
    for name in (LAST_WRITTEN, STATE_FILE):
        state = {"format": FORMAT, "held_out": {"history": [{"step": 0}, {"step": step}]}}
        (folder / name).write_text(json.dumps(state))
    return Checkpoint(folder)


def test_the_name_comes_last_and_after_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    folder, order = staged(tmp_path, 4), []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (order.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle))
    )
    folder.publish(tmp_path / "checkpoint-4")
    checkpoint = Checkpoint.newest_whole(tmp_path)
    assert checkpoint == Checkpoint(tmp_path / "checkpoint-4") and checkpoint.evaluated_steps == {0, 4}
    written = [Path(path).relative_to(tmp_path) for path in order if not path.endswith(SUFFIX)]  # the list of files
    inside = {Path(SAVING, "checkpoint-4", *rest) for rest in
              [(), ("adapter",), ("adapter", "weights"), (LAST_WRITTEN,), (STATE_FILE,), (MANIFEST,)]}  # fmt: skip
    assert set(written[:-1]) == inside | {Path("metrics.jsonl")} and written[-1] == Path(".")


def test_a_torn_file_of_either_kind_makes_no_checkpoint(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        staged(tmp_path, step).publish(tmp_path / f"checkpoint-{step}")
    for step, name in ((3, STATE_FILE), (2, LAST_WRITTEN)):
        (tmp_path / f"checkpoint-{step}" / name).write_text('{"held_out": {"hist')
        assert Checkpoint.newest_whole(tmp_path) == Checkpoint(tmp_path / f"checkpoint-{step - 1}")


def test_one_written_aside_is_not_seen_and_replaces_what_an_old_release_left(tmp_path: Path) -> None:
    folder = staged(tmp_path, 2)
    assert Checkpoint.newest_whole(tmp_path) is None
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "old").write_text("")
    folder.publish(tmp_path / "checkpoint-2")
    assert not (tmp_path / "checkpoint-2" / "old").exists()


def test_a_removal_that_is_interrupted_leaves_no_half_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (2, 10, 9):
        staged(tmp_path, step).publish(tmp_path / f"checkpoint-{step}")

    def killed(path: Path, ignore_errors: bool = False) -> None:
        if path.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        rotate(tmp_path, 1)
    assert not (tmp_path / "checkpoint-2").exists() and (tmp_path / SAVING / "checkpoint-2").exists()
    monkeypatch.undo()
    (tmp_path / "best.tmp").mkdir()
    checkpoints.tidy(tmp_path, 1, Checkpoint(tmp_path / "checkpoint-10"))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-10"]


@pytest.mark.parametrize(
    ("keep", "protected", "left"),
    [
        (None, [], {1, 2, 3, 10}),
        (0, [], {1, 2, 3, 10}),
        (2, [], {3, 10}),
        (1, [], {10}),
        (1, [2], {2, 10}),
        (3, [1], {1, 3, 10}),
    ],
)
def test_the_newest_and_the_protected_stay(
    tmp_path: Path, keep: int | None, protected: list[int], left: set[int]
) -> None:
    for step in (1, 2, 3, 10):
        staged(tmp_path, step).publish(tmp_path / f"checkpoint-{step}")
    rotate(tmp_path, keep, [tmp_path / f"checkpoint-{step}" for step in protected])
    assert {checkpoint.step for checkpoint in Checkpoint.all_of(tmp_path)} == left
