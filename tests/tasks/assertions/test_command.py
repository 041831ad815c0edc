from __future__ import annotations

from typing import Any

import pytest

from tasks.assertions import AssertionResult
from tasks.assertions import on_files as patterns
from tasks.assertions.base import Outcome
from tests.tasks.assertions.build import FakeHandle, build


def run(handle: FakeHandle, **keys: Any) -> AssertionResult:
    return build("command", command="make test", **keys).check(Outcome({}, {}, grader=handle))


def test_exit_code() -> None:
    assert run(FakeHandle()).verdict == "pass"
    assert run(FakeHandle(exit_code=2), exit_code=2).verdict == "pass"
    result = run(FakeHandle(exit_code=2, stderr=b"no rule\n"))
    assert result.detail == "the command 'make test' ended with exit code 2 instead of 0: no rule"


def test_stdout() -> None:
    said = FakeHandle("3 passed\n")
    assert run(said, stdout="3 passed").verdict == "pass"
    assert run(said, stdout="passed").verdict == "fail"
    assert run(said, stdout="").verdict == "fail" and run(FakeHandle("\n"), stdout="").verdict == "pass"
    assert run(said, stdout_contains="passed").verdict == "pass"
    assert run(said, stdout_contains=["passed", "4"]).detail == "the command 'make test' did not print '4'"
    assert run(said, stdout_matches=r"^\d passed").verdict == "pass"
    assert run(said, stdout_matches=r"failed").verdict == "fail"
    assert run(FakeHandle("3 passed", truncated=True), stdout="3 passed").verdict == "fail"


def test_what_the_agent_made_may_not_hang_itself_out_of_a_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(FakeHandle(timed_out=True)).verdict == "fail"
    assert build("command", command="x").check(Outcome({}, {})).verdict == "error"
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    assert run(FakeHandle("a" * 60 + "b"), stdout_matches="(a|aa)+$").verdict == "fail"


@pytest.mark.parametrize(
    ("code", "said", "tool"),
    [
        (1, b"/usr/bin/python3: No module named pytest\n", "pytest"),
        (127, b"bash: line 2: node: command not found\n", "node"),
    ],
)
def test_a_tool_that_the_grader_lacks_is_an_error(code: int, said: bytes, tool: str) -> None:
    handle = FakeHandle(exit_code=code, stderr=said)
    handle.task_hash = tool
    result = run(handle)
    assert result.verdict == "error" and f"needs {tool}" in result.detail
    # The same words out of the agent's program: on the untouched workspace nobody says them.
    handle.untouched, handle.task_hash = FakeHandle(exit_code=2), f"{tool} said by the agent"
    assert run(handle).verdict == "fail"
    missing = FakeHandle(exit_code=127, stderr=b"bash: line 1: ./prog: No such file or directory\n")
    assert run(missing).verdict == "fail"


def test_names_and_words() -> None:
    check = build("command", command="make test\nmake lint", stdout="ok")
    assert check.default_name() == "command:make test"
    assert "ends with 0 and prints what it should" in check.describe()
    assert not check.on_files
