from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from sandboxes.sandbox import FileEntry, SandboxError
from tasks.assertions import AssertionResult, Verdict, grade, grade_files
from tasks.assertions.base import Outcome
from tasks.task import Task
from tests.tasks.assertions.build import FakeHandle, build


def run(printed: str | bytes, exit_code: int = 0, mode: str = "json", **facts: Any) -> list[AssertionResult]:
    check = build("script", name="s", command="x", mode=mode, weight=3)
    return list(check.check_each(Outcome({}, {}, grader=FakeHandle(printed, exit_code, **facts))))


def test_each_sub_score_is_a_result_and_the_weight_is_shared() -> None:
    results = run('{"a": 0.25, "b": 1, "c": true}')
    assert [(r.name, str(r.verdict), r.score, r.weight) for r in results] == [
        ("s.a", "fail", 0.25, 1.0),
        ("s.b", "pass", 1.0, 1.0),
        ("s.c", "pass", 1.0, 1.0),
    ]


def test_a_number_is_one_score_and_an_empty_object_is_zero() -> None:
    assert [(r.name, r.score, r.weight) for r in run("0.5")] == [("s", 0.5, 3.0)]
    assert [(r.name, str(r.verdict), r.score) for r in run("{}")] == [("s", "fail", 0.0)]


def test_the_last_line_may_be_the_score() -> None:
    assert [r.score for r in run("checking...\n0.75\n", mode="last_float")] == [0.75]
    assert run("0.75\ndone", mode="last_float")[0].verdict is Verdict.ERROR
    assert run("nan", mode="last_float")[0].verdict is Verdict.ERROR


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("NaN", "the score is nan"),
        ("Infinity", "the score is inf"),
        ("1.5", "the score 1.5 is not in [0, 1]"),
        ("-0.1", "not in [0, 1]"),
        ("1e999", "the score is inf"),
        ("1" + "0" * 400, "not in [0, 1]"),
        ("1" * 5000, "did not print JSON"),
        ("true", "neither an object of sub-scores nor a number"),
        ('"true"', "neither an object"),
        ("null", "neither an object"),
        ("[1]", "neither an object"),
        ("", "the script printed nothing"),
        ("score: 1", "did not print JSON"),
        ("{} {}", "did not print JSON"),
        ('{"a": 1, "a": 0}', "'a' twice"),
        ("[" * 100_000, "did not print JSON"),
        (json.dumps({str(i): 1 for i in range(1001)}), "1001 sub-scores"),
        (b"\xff\xfe", "did not print JSON"),
    ],
)
def test_what_is_no_score_is_an_error(printed: str, why: str) -> None:
    (result,) = run(printed)
    assert result.verdict is Verdict.ERROR and result.score is None and why in result.detail


@pytest.mark.parametrize("value", ['{"x": 1}', "[1]", '"1"', "null", "NaN", "1.5", "-1", "1e999"])
def test_one_bad_sub_score_errs_and_the_others_stand(value: str) -> None:
    good, bad = run(f'{{"good": 1, "bad": {value}}}')
    assert good.verdict is Verdict.PASS
    assert bad.name == "s.bad" and bad.verdict is Verdict.ERROR


def test_a_script_that_does_not_end_well_is_an_error() -> None:
    assert "exit code 3: boom" in run("1", 3, stderr=b"Traceback\nboom\n")[0].detail
    assert "out of time (60 s)" in run("1", 137, timed_out=True)[0].detail
    assert "more than the sandbox keeps" in run("1", truncated=True)[0].detail
    for results in (run("1", 3), run("1", 137, timed_out=True), run("1", truncated=True)):
        assert results[0].verdict is Verdict.ERROR


def test_without_a_sandbox_it_is_an_error() -> None:
    check = build("script", command="x")
    assert "only after the agent has ended" in check.check(Outcome({}, {})).detail
    assert check.check(Outcome({}, {})).verdict is Verdict.ERROR


@pytest.mark.parametrize("printed", ["", "nan", "{", '{"a": 2}', '{"a": "b"}'])
def test_what_works_on_the_untouched_workspace_and_not_after_the_agent_is_the_agents_doing(printed: str) -> None:
    check = build("script", name=f"s{printed}", command="x")
    handle = FakeHandle(printed)
    handle.task_hash, handle.untouched = "hash", FakeHandle('{"a": 0}')
    result = check.check_each(Outcome({}, {}, grader=handle))[0]
    assert (result.verdict, result.score, result.broke) == ("fail", 0.0, True) and "untouched" in result.detail
    check.check_each(Outcome({}, {}, grader=handle))
    assert len(handle.untouched.asked) == 1  # remembered
    other = build("script", name=f"t{printed}", command="x")
    handle.untouched = FakeHandle("oops")
    assert other.check_each(Outcome({}, {}, grader=handle))[0].verdict is Verdict.ERROR


def test_a_judge_that_ran_out_of_time_is_run_once_more() -> None:
    handle = FakeHandle("1", 137, timed_out=True)
    handle.again = FakeHandle("1")
    assert build("script", command="x").check(Outcome({}, {}, grader=handle)).verdict is Verdict.PASS
    late = FakeHandle("1", 137, timed_out=True)
    assert build("command", command="x").check(Outcome({}, {}, grader=late)).verdict is Verdict.FAIL
    assert len(late.asked) == 2


FRESH = {"sandbox": "fresh", "folders": ["/tests"]}
NOTHING, ZERO, ONE = "", "0", "1"
ROOMS = {
    "a verdict": (False, [ONE], "pass"),
    "none": (False, [NOTHING, ZERO], "fail"),
    "none on the untouched one either": (False, [NOTHING, NOTHING], "error"),
    "network: a verdict": (True, [ZERO], "fail"),
    "network: away for a moment": (True, [NOTHING, ZERO, ONE], "pass"),
    "network: away": (True, [NOTHING, NOTHING, NOTHING], "error"),
    "network: the agent's doing": (True, [NOTHING, ZERO, NOTHING, ZERO], "fail"),
    "network: away again": (True, [NOTHING, ZERO, NOTHING, NOTHING], "error"),
}
"""Whether it needs a network, what is printed in each fresh sandbox in turn, and the verdict."""


@pytest.mark.parametrize("case", ROOMS)
def test_a_fresh_sandbox_gets_the_workspace_and_is_tried_on_the_untouched_one(case: str) -> None:
    network, printed, verdict = ROOMS[case]
    check = build("script", name=case, command="x", judged_in={**FRESH, "network": "pip" if network else ""})
    handle = FakeHandle(ONE)
    handle.task_hash = "hash"
    rooms = [FakeHandle(text) for text in printed]
    handle.rooms = list(rooms)
    files = {"a": FileEntry()}
    assert check.check(Outcome(files, {}, grader=handle)).verdict == verdict
    assert handle.rooms == [] and handle.asked == []  # nothing ran where the agent worked
    assert handle.carried[:2] == [files, None][: len(printed)]
    assert rooms[0].env == {"GRADER_FOLDERS": "/tests"}


def test_a_shared_judge_runs_once_where_the_agent_worked() -> None:
    handle = FakeHandle("1", 137, timed_out=True)
    check = build("script", command="x", judged_in={"sandbox": "shared"})
    assert check.check(Outcome({}, {}, grader=handle)).verdict is Verdict.ERROR
    assert len(handle.asked) == 1 and handle.env == {"GRADER_FOLDERS": ""}


def task(*assertions: dict[str, Any]) -> Task:
    return Task.model_validate({"id": "t", "intent": "do", "assertions": list(assertions)})


SCRIPT = {"kind": "script", "command": "x"}
FILE = {"kind": "file_exists", "path": "a"}


def test_the_rate_is_the_mean_of_the_sub_scores() -> None:
    outcome = Outcome({}, {}, grader=FakeHandle('{"a": 1, "b": 0, "c": 0.5}'))
    assert grade(task(SCRIPT), outcome).rate == pytest.approx(0.5)
    assert grade(task(SCRIPT, FILE), outcome).rate == pytest.approx(0.25)
    assert grade(task(SCRIPT), Outcome({}, {}, grader=FakeHandle('{"a": 1, "b": NaN}'))).rate is None


def test_a_lost_sandbox_is_no_verdict() -> None:
    handle = FakeHandle()
    handle.raises = SandboxError("gone")
    nested = {"kind": "not", "of": {"kind": "all_of", "of": [{"kind": "any_of", "of": [SCRIPT]}]}}
    for assertion in (SCRIPT, {"kind": "command", "command": "x"}, nested):
        with pytest.raises(SandboxError, match="gone"):
            grade(task(assertion), Outcome({}, {}, grader=handle))


def test_the_signal_of_a_turn_asks_no_grader() -> None:
    handle = FakeHandle("1")
    mixed = task(SCRIPT, {"kind": "command", "command": "x"}, FILE, {"kind": "not", "of": SCRIPT})
    assert grade_files(mixed, Outcome({}, {}, grader=handle)) == 0.0
    assert grade_files(task(SCRIPT), Outcome({}, {}, grader=handle)) is None
    assert handle.asked == []


def test_the_payload_tells_what_was_said() -> None:
    handle = FakeHandle("1")
    check = build("script", command="x", files={"c.py": "1"}, payload={"task_id": "t"})
    said = ({"role": "user", "content": "do"}, {"role": "assistant", "content": "done \0 \ud800"})
    check.check(Outcome({}, {}, "done", said, handle))
    ((_, files, timeout),) = handle.asked
    assert timeout == 60.0
    assert set(files) == {"c.py", "payload.json"} and files["payload.json"].isascii()
    assert json.loads(files["payload.json"]) == {"task_id": "t", "final_message": "done", "transcript": list(said)}


def test_as_one_result_it_is_the_mean() -> None:
    check = build("script", name="s", command="x")
    assert check.check(Outcome({}, {}, grader=FakeHandle('{"a": 1, "b": 0.5}'))).score == 0.75
    assert check.check(Outcome({}, {}, grader=FakeHandle('{"a": 1, "b": 1}'))).verdict is Verdict.PASS
    assert check.check(Outcome({}, {}, grader=FakeHandle('{"a": 1, "b": 2}'))).verdict is Verdict.ERROR


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"command": "a\r\nb"}, "carriage return"),
        ({"command": "  "}, "blank"),
        ({"command": "x\0"}, "NUL"),
        ({"command": "x", "files": {"../c": ""}}, "leaves the workspace"),
        ({"command": "x", "files": {"/c": ""}}, "absolute"),
        ({"command": "x", "files": {"c": "\0"}}, "NUL"),
        ({"command": "x", "files": {"c.sh": "a\r\nb"}}, "CRLF"),
        ({"command": "x", "files": {"c": "", "c/d": ""}}, "itself a file"),
        ({"command": "x", "files": {"c": "x" * 5_000_000}}, "characters together"),
        ({"command": "x", "timeout": 0}, "greater than 0"),
        ({"command": "x", "timeout": float("inf")}, "finite"),
        ({"command": "x", "mode": "yaml"}, "json"),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        build("script", **keys)


@pytest.mark.parametrize("printed", ["", "nan", "1.5", "{", '{"a": "b"}', '{"a": 2}'])
def test_a_script_that_runs_the_agents_program_may_say_that_its_failure_is_the_agents(printed: str) -> None:
    for on_failure, wanted in (("error", "error"), ("fail", "fail")):
        check = build("script", name="s", command="x", on_failure=on_failure)
        assert check.check(Outcome({}, {}, grader=FakeHandle(printed))).verdict == wanted
        assert check.check(Outcome({}, {}, grader=FakeHandle("1", exit_code=1))).verdict == wanted
    assert build("script", command="x", on_failure="fail").check(Outcome({}, {})).verdict == "error"  # no sandbox
