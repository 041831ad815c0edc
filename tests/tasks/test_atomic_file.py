from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks.model import atomic_file


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    with atomic_file(path) as file:
        file.write("a\ud800b\n")
        assert not path.exists()
    assert path.read_text() == "a\\ud800b\n"
    with pytest.raises(KeyboardInterrupt), atomic_file(path, sync=False) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert path.read_text() == "a\\ud800b\n"
    assert os.listdir(tmp_path) == ["f.json"]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "no" / "f.json"):
        raise AssertionError("nothing to write to")
