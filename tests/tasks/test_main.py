from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.__main__ import run

ROOT = Path(__file__).resolve().parents[2]


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd or ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
    )


def test_help_names_the_commands() -> None:
    done = python("-m", "tasks", "--help")
    assert done.returncode == 0
    for command in ("list", "show", "check", "grade", "new"):
        assert command in done.stdout


def test_a_wrong_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["lst"])
    assert caught.value.code == 2
    for arguments, words in (
        (["--jobs", "0"], "0 is less than 1"),
        (["--sandbox", "dockr"], "invalid choice: 'dockr'"),
    ):
        with pytest.raises(SystemExit):
            run(["check", *arguments])
        assert words in capsys.readouterr().err


def test_listing_loads_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "trl", "numpy", "gymnasium", "rich")
    code = "import sys; from tasks.__main__ import run; run(['list', 'generated:copy']); "
    code += f"print([name for name in {heavy} if name in sys.modules])"
    done = python("-c", code)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_a_reader_that_leaves_early_sees_no_traceback() -> None:
    command = f"{sys.executable} -m tasks list 'generated:quickstart?n=1200' | head -n 1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("id")
    assert done.stderr == ""
