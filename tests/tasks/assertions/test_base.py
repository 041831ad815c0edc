from __future__ import annotations

from sandboxes.sandbox import FileEntry
from tasks.assertions import AssertionKind, FileContains, FileExists, Verdict, grade
from tasks.outcome import Outcome
from tasks.task import Task


def test_the_name_is_kind_and_path_unless_given() -> None:
    assert FileExists(path="a/b").passed().name == "file_exists:a/b"
    assert FileExists(path="a", name="there").passed().name == "there"


def test_the_three_verdicts_and_their_scores() -> None:
    check = FileExists(path="a", weight=2)
    assert (check.passed().verdict, check.passed().score) == (Verdict.PASS, 1.0)
    assert (check.failed("why").verdict, check.failed("why").score) == (Verdict.FAIL, 0.0)
    assert (check.erred("why").verdict, check.erred("why").score) == (Verdict.ERROR, None)
    assert check.erred("why").detail == "why"
    assert check.passed().weight == 2


def test_canonical_leaves_defaults_out_but_not_the_kind() -> None:
    assert FileContains(path="a", contains=("x",)).canonical() == {
        "kind": "file_contains",
        "path": "a",
        "contains": ["x"],
    }
    assert FileExists(path="a", weight=2).canonical() == {"kind": "file_exists", "path": "a", "weight": 2.0}


def test_kinds_are_closed() -> None:
    assert [kind.value for kind in AssertionKind] == [
        "file_exists",
        "file_not_exists",
        "file_contains",
        "file_matches",
        "file_unchanged",
        "file_equals",
        "dir_exists",
        "file_count",
        "file_mode",
        "line_count",
        "sha256",
        "json_value",
        "yaml_value",
        "csv_cell",
        "csv_rows",
        "command",
        "script",
        "number_equals",
        "number_format",
        "math_equivalent",
        "math_format",
        "instruction",
        "any_of",
        "all_of",
        "not",
    ]


def test_a_result_without_weight_is_shown_and_decides_nothing() -> None:
    task = Task.model_validate(
        {
            "id": "t",
            "intent": "i",
            "assertions": [
                {"kind": "file_exists", "path": "here"},
                {"kind": "file_exists", "path": "there", "weight": 0},
                {"kind": "command", "command": "true", "weight": 0},
            ],
        }
    )
    files = {"here": FileEntry(content=b"")}
    found = grade(task, Outcome(files, {}))  # no sandbox: the command errs
    assert [result.verdict for result in found.results] == [Verdict.PASS, Verdict.FAIL, Verdict.ERROR]
    assert found.passed and found.rate == 1.0 and found.errors == () and found.require() is found
