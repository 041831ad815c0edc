"""Whose program it is that a judge starts. That the others are confined is tried in `sandboxes.conformance.judges`."""

from __future__ import annotations

import pytest

from sandboxes.inside.judge import is_judges_own

FOLDER = "/turngym-grader/5f0c"
AT_ROOT = "/tests"
OPEN = ["/workspace", "/tmp", "/dev/shm"]
TEXT = "python3 -I -c \"import os; print(os.environ['GRADER'])\"; sh -c 'cat $GRADER/x'"
TEXT += "; python3 -c 'open(\"/tests/x\")'"
PYTHON, BASH = "/usr/bin/python3.11", "/usr/bin/bash"


def own(program: str, *words: str, here: str = "/workspace") -> bool:
    return is_judges_own(program, list(words), here, [FOLDER, AT_ROOT], TEXT, OPEN)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (PYTHON, ["python3", "-I", f"{FOLDER}/check.py", "/workspace"]),
        (PYTHON, ["python3", "-W", "ignore", "-B", f"{FOLDER}/check.py"]),
        (PYTHON, ["python3", "/usr/bin/pytest", "-q", f"{FOLDER}/test_a.py"]),
        (PYTHON, ["python3", "-m", "pytest", f"{FOLDER}/test_a.py"]),
        (PYTHON, ["python3", "-I", "-c", "import os; print(os.environ['GRADER'])"]),
        (BASH, ["bash", f"{FOLDER}/check.sh"]),
        (BASH, ["/bin/bash", f"{FOLDER}/run"]),
        (BASH, ["bash", "-o", "pipefail", f"{FOLDER}/check.sh"]),
        ("/usr/bin/dash", ["sh", "-c", "cat $GRADER/x"]),
        ("/usr/bin/mawk", ["awk", "-f", f"{FOLDER}/check.awk"]),
        ("/usr/bin/diff", ["diff", "out.txt", f"{FOLDER}/wanted"]),
        ("/usr/bin/grep", ["grep", "-qf", f"{FOLDER}/wanted", "out.txt"]),
        ("/usr/bin/env", ["env", "-u", "X", "python3", f"{FOLDER}/check.py"]),
        ("/usr/bin/timeout", ["timeout", "9", "python3", f"{FOLDER}/check.py"]),
        (f"{FOLDER}/prog", [f"{FOLDER}/prog"]),
        (PYTHON, ["python3", f"{AT_ROOT}/check.py"]),
        ("/usr/bin/pgrep", ["pgrep", "-f", "server.py"]),
        (PYTHON, ["python3", "-m", "pytest", "-rA", f"{AT_ROOT}/test_a.py"]),
        (PYTHON, ["python3", "-c", 'open("/tests/x")']),
        ("/usr/bin/diff", ["diff", "out.txt", f"{AT_ROOT}/wanted"]),
        ("/usr/bin/timeout", ["timeout", "9", "python3", f"{AT_ROOT}/check.py"]),
    ],
)
def test_the_judges_own(program: str, words: list[str]) -> None:
    assert own(program, *words)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (PYTHON, ["python3", "solve.py"]),
        (PYTHON, ["python3", "solve.py", f"{FOLDER}/input.txt"]),
        (PYTHON, ["python3", "/workspace/solve.py", f"--in={FOLDER}/input.txt"]),
        (PYTHON, ["python3", "-I", "-c", "import sys; sys.path.insert(0, '.'); import prices"]),
        (
            PYTHON,
            ["python3", "-c", "print(open(__import__('os').environ['GRADER'] + '/x').read())"],
        ),  # not the grader's
        (PYTHON, [f"python3 {FOLDER}/check.py", "solve.py"]),
        (PYTHON, ["python3", "-m", "unittest"]),
        (PYTHON, ["python3"]),
        (PYTHON, []),
        (BASH, ["bash", "run.sh"]),
        (BASH, ["bash", "-c", f"cat {FOLDER}/x"]),
        ("/usr/bin/dash", ["sh", "-c", "python3 solve.py"]),
        ("/usr/bin/make", ["make", "test"]),
        ("/usr/bin/env", ["env", "python3", "solve.py"]),
        ("/usr/bin/cat", ["cat", "out.txt"]),
        ("/usr/bin/git", ["git", "log"]),
        ("/workspace/prog", ["./prog", f"{FOLDER}/x"]),
        ("/workspace/cat", ["cat", f"{FOLDER}/x"]),
        ("/tmp/python3", ["python3", f"{FOLDER}/check.py"]),
        (PYTHON, ["python3", f"{FOLDER}x/check.py"]),
        (PYTHON, ["python3", f"{FOLDER}/../../workspace/solve.py"]),
        (PYTHON, ["python3", "solve.py", f"{AT_ROOT}/input.txt"]),
        (PYTHON, ["python3", "tests/check.py"]),
        (PYTHON, ["python3", "-c", 'print(open("/tests/x").read())']),  # not the grader's
        ("/workspace/tests/prog", ["./tests/prog"]),
        ("/workspace/pgrep", ["pgrep", "-f", "server.py"]),
        ("/usr/bin/cat", ["cat", "/workspace/tests"]),
        ("/usr/bin/mawk", ["awk", 'BEGIN { system("./prog") }']),
    ],
)
def test_the_agents(program: str, words: list[str]) -> None:
    assert not own(program, *words)


def test_a_folder_says_whose_a_module_is() -> None:
    assert own(PYTHON, "python3", "-m", "unittest", here=FOLDER)
    assert own(PYTHON, "python3", "check.py", here=FOLDER)
    assert not own(PYTHON, "python3", "/workspace/solve.py", here=FOLDER)
