"""`.ci/vllm` and `.ci/harbor` with a Python that installs nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.shared_data import REPOSITORY

PYTHON = """#!/bin/sh
# Stands for the Python that makes the environment (-m venv FOLDER) and for the one in it.
echo "$@" >>"$CALLS"
case "$*" in
"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && : >"$3/pyvenv.cfg" ;;
*"torch=="*) echo "no such torch" >&2 && exit "$TORCH" ;;
esac
"""


def install(folder: Path, tmp_path: Path, torch: int = 0, *, what: str = "vllm") -> subprocess.CompletedProcess[str]:
    """What came of it, where installing torch ends with this status."""
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(PYTHON)
    python.chmod(0o755)
    calls.write_text("")
    own = {"PYTHON": str(python), "CALLS": str(calls), "TORCH": str(torch)}
    return subprocess.run(
        [str(REPOSITORY / ".ci" / what), str(folder)], env={**os.environ, **own}, capture_output=True, text=True
    )


def test_only_what_it_made_itself_is_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "pyvenv.cfg").write_text("")
    (mine / "work").write_text("of weeks")
    done = install(mine, tmp_path)
    assert done.returncode == 1 and (mine / "work").exists()
    assert "this script did not make it. Remedy: name a new folder" in done.stderr
    new = tmp_path / "new"
    new.mkdir()  # empty
    assert install(new, tmp_path, 1).returncode == 3
    assert install(new, tmp_path).returncode == 0, "what it left half made is made anew"


def test_a_machine_without_builds_for_the_cpu_is_told_from_a_failure(tmp_path: Path) -> None:
    done = install(tmp_path / "c", tmp_path, 1)
    assert done.returncode == 3, "CI goes on without"
    assert "no such torch" in done.stderr and "Remedy: let pip look where PyTorch keeps its builds" in done.stderr


def test_harbor_is_installed_once_and_only_where_it_may(tmp_path: Path) -> None:
    made, mine = tmp_path / "made", tmp_path / "mine"
    done = install(made, tmp_path, what="harbor")
    assert done.returncode == 0 and f"TURNGYM_TEST_HARBOR={made}/bin/python" in done.stdout
    calls = (tmp_path / "calls").read_text()
    assert "--no-deps harbor==" in calls and "from harbor.lint import lint_task" in calls
    assert install(made, tmp_path, what="harbor").returncode == 0 and (tmp_path / "calls").read_text() == ""
    mine.mkdir()
    (mine / "work").write_text("of weeks")
    assert install(mine, tmp_path, what="harbor").returncode == 1 and (mine / "work").exists()
