"""Output folders that cannot be made are refused beforehand."""

from __future__ import annotations

import os

import pytest

from trainers.errors import RunFolderError
from trainers.run.folder import refuse_unwritable


def test_a_folder_that_can_be_made_is_not_made_yet(tmp_path):
    refuse_unwritable(tmp_path / "a" / "b")
    refuse_unwritable(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_below_a_file_or_in_a_locked_folder_is_refused(tmp_path, monkeypatch):
    (tmp_path / "notes").write_text("")
    with pytest.raises(RunFolderError, match="notes is a file, not a folder: choose another --output_dir"):
        refuse_unwritable(tmp_path / "notes" / "run")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(RunFolderError, match="cannot be written by you"):
        refuse_unwritable(tmp_path / "run")
