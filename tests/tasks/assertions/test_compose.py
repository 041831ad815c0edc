from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sandboxes.sandbox import FileEntry
from tasks.model import TaskError
from tasks.task import Task
from tasks.yaml import dump_task, parse_task
from tests.tasks.assertions.build import build, judge, verdict

PASS = {"kind": "file_exists", "path": "here"}
FAIL = {"kind": "file_exists", "path": "gone"}
ERROR = {"kind": "file_unchanged", "path": "never-laid"}
FILES = {"here": "", "never-laid": ""}


@pytest.mark.parametrize(
    ("kind", "of", "result"),
    [
        ("any_of", [FAIL, PASS], "pass"),
        ("any_of", [ERROR, PASS], "pass"),
        ("any_of", [FAIL, FAIL], "fail"),
        ("any_of", [FAIL, ERROR], "error"),
        ("all_of", [PASS, PASS], "pass"),
        ("all_of", [PASS, FAIL], "fail"),
        ("all_of", [PASS, ERROR], "error"),
        ("all_of", [ERROR, FAIL], "fail"),
        ("not", PASS, "fail"),
        ("not", FAIL, "pass"),
        ("not", ERROR, "error"),
        ("not", {"kind": "all_of", "of": [PASS, {"kind": "not", "of": PASS}]}, "pass"),
    ],
)
def test_verdicts(kind: str, of: Any, result: str) -> None:
    assert verdict(build(kind, of=of), FILES) == result


def test_the_detail_tells_what_each_said() -> None:
    assert judge(build("any_of", of=[FAIL]), FILES).detail == "none holds: file_exists:gone: gone: nothing there"
    assert judge(build("not", of=PASS), FILES).detail == "holds: here exists"
    assert build("any_of", of=[PASS, FAIL]).describe() == "(here exists) or (gone exists)"


BROKE = {"kind": "file_matches", "path": "slow", "pattern": "(a|aa)+$"}


@pytest.mark.parametrize(
    ("kind", "of", "broke"),
    [
        ("any_of", [BROKE, FAIL], True),
        ("all_of", [BROKE, PASS], True),
        ("all_of", [BROKE, FAIL], False),
        ("all_of", [BROKE, ERROR], True),
        ("not", BROKE, True),
        ("not", {"kind": "not", "of": BROKE}, True),
        ("not", {"kind": "any_of", "of": [BROKE, FAIL]}, True),
        ("not", {"kind": "all_of", "of": [BROKE, PASS]}, True),
    ],
)
def test_breaking_a_check_is_never_a_way_to_pass(
    monkeypatch: pytest.MonkeyPatch, kind: str, of: Any, broke: bool
) -> None:
    monkeypatch.setattr("tasks.assertions.on_files.REGEX_SECONDS", 0.05)
    found = judge(build(kind, of=of), {**FILES, "slow": "a" * 60 + "b"})
    assert (found.verdict, found.broke) == ("fail", broke)
    assert judge(build("any_of", of=[BROKE, PASS]), {**FILES, "slow": "a" * 60 + "b"}).verdict == "pass"
    inverse = build("not", of={"kind": "all_of", "of": [BROKE, FAIL]})
    assert judge(inverse, {**FILES, "slow": "a" * 60 + "b"}).verdict == "pass"  # the other decides


def test_too_many_paths_hide_nothing_from_a_mixed_not() -> None:
    from tasks.assertions.base import Outcome

    mixed = build("not", of={"kind": "any_of", "of": [FAIL, {"kind": "number_equals", "gold": "5"}]})
    assert mixed.check(Outcome({}, {}, "#### 6")).verdict == "pass"
    found = mixed.check(Outcome({}, {}, "#### 6", cut_short=True))
    assert (found.verdict, found.broke) == ("fail", True)


def test_a_defect_in_one_is_an_error() -> None:
    class Broken(dict[str, FileEntry]):
        def __contains__(self, key: object) -> bool:
            raise RuntimeError("broken")

    from tasks.assertions.base import Outcome

    result = build("not", of=PASS).check(Outcome(Broken(), Broken()))
    assert result.verdict == "error" and "the check itself failed: RuntimeError" in result.detail
    result = build("not", of=PASS).check(Outcome(Broken(), {}))  # on the workspace as laid it works
    assert (result.verdict, result.broke) == ("fail", True)


def test_files_alone_decide_where_all_inside_do() -> None:
    script = {"kind": "script", "command": "x"}
    assert build("any_of", of=[PASS, {"kind": "not", "of": FAIL}]).on_files
    assert not build("any_of", of=[PASS, {"kind": "not", "of": script}]).on_files


def nested(depth: int) -> dict[str, Any]:
    return PASS if depth == 1 else {"kind": "not", "of": nested(depth - 1)}


def test_depth_is_bounded_and_weights_stand_outside() -> None:
    build("all_of", of=[nested(3)])
    with pytest.raises(ValidationError, match="more than 4 deep"):
        build("all_of", of=[nested(4)])
    with pytest.raises(ValidationError):
        build("not", of=nested(400))
    with pytest.raises(ValidationError, match="has no weight"):
        build("not", of={**PASS, "weight": 2})
    with pytest.raises(ValidationError):
        build("any_of", of=[])


@pytest.mark.parametrize("depth", [10, 60, 200, 900])
def test_no_depth_breaks_the_reader(depth: int) -> None:
    inner = "{kind: not, of: " * depth + "{kind: file_exists, path: a}" + "}" * depth
    with pytest.raises(TaskError):
        parse_task(f"id: t\nintent: do\nassertions: [{inner}]\n")


TASK = """
id: t
intent: do
assertions:
  - kind: any_of
    weight: 2
    of:
      - {kind: file_exists, path: a}
      - kind: not
        of: {kind: file_contains, path: b, contains: [x, "y"]}
"""


def test_a_task_with_them_reads_back_the_same() -> None:
    task = parse_task(TASK)
    again = parse_task(dump_task(task))
    assert again == task and again.content_hash == task.content_hash
    assert task.canonical()["assertions"][0]["of"][1]["of"] == {
        "kind": "file_contains",
        "path": "b",
        "contains": ["x", "y"],
    }


def test_what_is_wrong_inside_is_named_with_its_place() -> None:
    with pytest.raises(TaskError) as wrong:
        parse_task(TASK.replace("path: a", "pth: a"), "t.yaml")
    assert "t.yaml:8: assertions[0].of[0].pth: unknown key 'pth': did you mean 'path'?" in str(wrong.value)
    with pytest.raises(TaskError, match=r"assertions\[0\].of\[1\].of.kind|unknown kind 'file_contain'"):
        parse_task(TASK.replace("file_contains", "file_contain"), "t.yaml")


def test_what_must_be_laid_must_be_laid_inside_too() -> None:
    with pytest.raises(ValidationError, match="file_unchanged needs a path of the workspace"):
        Task.model_validate({"id": "t", "intent": "do", "assertions": [{"kind": "not", "of": ERROR}]})
