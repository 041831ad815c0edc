from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainers.fake_run import make_run
from trainers.errors import RunFolderError
from trainers.reporting.folder import read_run


def test_no_run_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such run folder"):
        read_run(tmp_path / "nothing")
    with pytest.raises(RunFolderError, match="is no run folder: neither metrics.jsonl nor held_out.jsonl"):
        read_run(tmp_path)


def test_a_killed_run_reads_with_notes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=10, n_held_out=4)
    (folder / "summary.json").unlink()
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    run = read_run(folder)
    assert len(run.steps) == 9
    assert any("is cut" in note for note in run.notes)
    assert any("no summary.json" in note for note in run.notes)


def test_best_is_the_last_that_became_the_best(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "run", steps=20, n_held_out=30))
    assert run.best is not None
    rates = {p.step: p.settings["sampled"].pass_rate for p in run.held_out}
    assert rates[run.best.step] == max(rates.values())


def test_damaged_files_are_named(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=10, n_held_out=4)
    (folder / "config.yaml").write_text("a: [")
    with pytest.raises(RunFolderError, match=r"config\.yaml: not YAML"):
        read_run(folder)
