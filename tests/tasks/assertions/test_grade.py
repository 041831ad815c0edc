from __future__ import annotations

import json
from typing import Any

import pytest

from sandboxes.sandbox import FileEntry
from tasks.assertions import FileExists, Grade, GradeError, Verdict, grade, grade_files
from tasks.assertions.base import Outcome
from tasks.task import Task
from tests.shared_data import shared


def task(*assertions: dict[str, Any], files: dict[str, str] | None = None) -> Task:
    return Task.model_validate(
        {"id": "t", "intent": "do", "workspace": {"files": files or {}}, "assertions": list(assertions)}
    )


def outcome(**files: bytes | None) -> Outcome:
    """`None` is a file that was laid too large for the snapshot."""
    entries = {path: FileEntry(content=content, size=9) for path, content in files.items()}
    return Outcome(files=entries, initial={path: entry for path, entry in entries.items() if entry.content is None})


EXISTS_A = {"kind": "file_exists", "path": "a"}
EXISTS_B = {"kind": "file_exists", "path": "b", "weight": 3}
TEXT_C = {"kind": "file_contains", "path": "c", "contains": "x"}


def test_all_must_pass() -> None:
    two = task(EXISTS_A, EXISTS_B)
    assert grade(two, outcome(a=b"", b=b"")).passed
    assert not grade(two, outcome(a=b"")).passed
    assert [result.verdict for result in grade(two, outcome(a=b"")).results] == [Verdict.PASS, Verdict.FAIL]


def test_the_rate_is_weighted() -> None:
    two = task(EXISTS_A, EXISTS_B)
    assert grade(two, outcome()).rate == 0.0
    assert grade(two, outcome(a=b"")).rate == pytest.approx(0.25)
    assert grade(two, outcome(b=b"")).rate == pytest.approx(0.75)
    assert grade(two, outcome(a=b"", b=b"")).rate == 1.0


def test_an_error_leaves_no_rate_and_never_passes() -> None:
    both = task(EXISTS_A, TEXT_C)
    result = grade(both, outcome(a=b"", c=None))
    assert result.rate is None
    assert not result.passed
    assert [error.name for error in result.errors] == ["file_contains:c"]
    assert grade_files(both, outcome(a=b"", c=None)) is None
    with pytest.raises(GradeError, match="file_contains:c: c: content not in the snapshot"):
        result.require()


def test_an_empty_grade_is_no_pass() -> None:
    empty = Grade(())
    assert not empty.passed
    assert empty.rate is None
    with pytest.raises(GradeError, match="nothing to grade"):
        empty.require()


def test_a_decided_grade_is_returned_as_it_is() -> None:
    result = grade(task(EXISTS_A), outcome())
    assert result.require() is result


def test_a_defect_in_a_check_is_an_error_not_a_failed_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FileExists, outcome: Outcome) -> None:
        raise KeyError("gone")

    monkeypatch.setattr(FileExists, "check", broken)
    result = grade(task(EXISTS_A), outcome(a=b""))
    assert result.errors[0].verdict is Verdict.ERROR
    assert "KeyError" in result.errors[0].detail


def test_file_rate() -> None:
    assert grade_files(task(EXISTS_A, EXISTS_B), outcome(b=b"")) == pytest.approx(0.75)


def test_the_five_kinds_judge_as_the_original_grader_did() -> None:
    """Same verdicts as recorded, for the kinds taken over; its automatic passes and unknown kinds are refused here."""
    cases = json.loads(shared("fixtures/credit.json").read_text(encoding="utf-8"))["cases"]
    case = next(case for case in cases if case["id"] == "grader_five_kinds")
    given = case["inputs"]["task"]
    seeds = {file["path"]: file["content"] for file in given["workspace_seed"]["files"]}
    names = {
        "file_contents_contain": ("file_contains", "must_contain", "contains"),
        "file_contents_match_regex": ("file_matches", "regex", "pattern"),
    }
    after_action = {"b.txt": seeds["a.txt"], "keep.txt": seeds["keep.txt"]}  # mv a.txt b.txt
    compared = 0
    for moment, files in (("before", seeds), ("after", after_action)):
        for assertion, wanted in zip(
            given["verifiable_assertions"], case["expected"][moment]["assertions"], strict=True
        ):
            kind, old, new = names.get(assertion["kind"], (assertion["kind"], "", ""))
            if kind == "weird" or (kind == "file_unchanged" and assertion["path"] not in seeds):
                continue
            record = {"kind": kind, "path": assertion["path"], **({new: assertion[old]} if new else {})}
            ours = task(record, files=seeds)
            state = {path: FileEntry(content=text.encode()) for path, text in files.items()}
            result = grade(ours, Outcome(files=state, initial=ours.files()))
            assert result.passed == wanted["passed"], (moment, assertion)
            compared += 1
    assert compared == 10
