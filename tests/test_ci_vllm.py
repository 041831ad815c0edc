"""`.ci/vllm` and `.ci/peer` with a Python that installs nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.shared_data import REPOSITORY

PYTHON = """#!/bin/sh
# Stands for the Python that makes the environment (-m venv FOLDER) and for the one in it.
echo "$@" >>"$CALLS"
case "$*" in
"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && : >"$3/pyvenv.cfg" ;;
*"torch=="*) echo "no such torch" >&2 && exit "$TORCH" ;;
esac
"""


def install(folder: Path, tmp_path: Path, torch: int = 0, *, peer: str = "") -> subprocess.CompletedProcess[str]:
    """What came of it, where installing torch ends with this status."""
    script = ["peer", peer] if peer else ["vllm"]
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(PYTHON)
    python.chmod(0o755)
    calls.write_text("")
    own = {"PYTHON": str(python), "CALLS": str(calls), "TORCH": str(torch)}
    return subprocess.run(
        [str(REPOSITORY / ".ci" / script[0]), *script[1:], str(folder)],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
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


@pytest.mark.parametrize(
    ("peer", "called"),
    [
        ("harbor", ["--no-deps harbor==", "from harbor.lint import lint_task", "import Trajectory"]),
        ("inspect", ["install --no-input --no-compile inspect_ai==", "from inspect_ai.log import read_eval_log"]),
        ("openenv", ["--no-deps openenv-core==", "fastmcp", "from openenv.core import GenericEnvClient"]),
    ],
)
def test_a_peer_is_installed_once_and_only_where_it_may(peer: str, called: list[str], tmp_path: Path) -> None:
    made, mine = tmp_path / "made", tmp_path / "mine"
    done = install(made, tmp_path, peer=peer)
    assert done.returncode == 0 and f"TURNGYM_TEST_{peer.upper()}={made}/bin/python" in done.stdout
    calls = (tmp_path / "calls").read_text()
    assert all(call in calls for call in called)
    assert install(made, tmp_path, peer=peer).returncode == 0 and (tmp_path / "calls").read_text() == ""
    mine.mkdir()
    (mine / "work").write_text("of weeks")
    assert install(mine, tmp_path, peer=peer).returncode == 1 and (mine / "work").exists()


def test_a_peer_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = install(tmp_path / "made", tmp_path, peer="nosuch")
    assert done.returncode == 1 and "there is no 'nosuch'. usage: .ci/peer" in done.stderr
    assert not (tmp_path / "made").exists()
