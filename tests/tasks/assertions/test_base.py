from __future__ import annotations

import pytest

from sandboxes.sandbox import FileEntry
from tasks.answers.number_equals import NumberEquals
from tasks.assertions import AssertionKind, AssertionResult, BaseAssertion, FileContains, FileExists, Verdict, grade
from tasks.assertions.base import Outcome, judge
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


class Odd(BaseAssertion):
    """A check of another package that takes for granted what an agent can spoil."""

    kind: str = "odd"

    def default_name(self) -> str:
        return self.kind

    def check(self, outcome: Outcome) -> AssertionResult:
        return self.passed() if int(outcome.files["n"].content or b"") else self.failed("0")


def test_an_exception_is_a_fail_unless_the_untouched_workspace_raises_the_like() -> None:
    def laid(content: bytes) -> dict[str, FileEntry]:
        return {"n": FileEntry(content=content)}

    (found,) = judge(Odd(), Outcome(laid(b"x"), laid(b"1")))
    assert (found.verdict, found.score, found.broke) == (Verdict.FAIL, 0.0, True)
    assert found.detail.startswith("the check itself failed: ValueError")
    (found,) = judge(Odd(), Outcome(laid(b"x"), laid(b"y")))
    assert (found.verdict, found.score, found.broke) == (Verdict.ERROR, None, False)
    (found,) = judge(Odd(), Outcome(laid(b"x"), {}))  # another kind of exception
    assert found.broke


def test_an_exception_on_an_answer_is_a_fail_unless_a_plain_answer_raises_the_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spoilt(text: str, mode: object = None) -> None:
        if everything or "\ud800" in text:
            raise RecursionError("deep \ud800")

    monkeypatch.setattr("tasks.answers.number_equals.extract_number", spoilt)
    everything = False
    (found,) = judge(NumberEquals(gold="5"), Outcome({}, {}, "#### \ud800"))
    assert (found.verdict, found.broke) == (Verdict.FAIL, True)
    assert found.detail == "the check itself failed: RecursionError: deep \\ud800"  # so that it can be written down
    everything = True
    (found,) = judge(NumberEquals(gold="5"), Outcome({}, {}, "#### 6"))
    assert found.verdict is Verdict.ERROR


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
        "heard",
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
