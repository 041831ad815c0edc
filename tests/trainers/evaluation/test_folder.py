"""The folder of one evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainers.errors import RunFolderError
from trainers.evaluation.folder import EvaluationRecord


def test_a_folder_that_cannot_be_made_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write the folder .*file/measured: Not a directory"):
        EvaluationRecord(tmp_path / "file" / "measured").begin({"model": "quickstart"}, [], model=None)
