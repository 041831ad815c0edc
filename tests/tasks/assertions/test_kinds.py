from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Literal

import pytest
from pydantic import ValidationError

from tasks import task as kinds
from tasks.assertions import AssertionKind, AssertionResult, BaseAssertion, grade
from tasks.assertions.base import Outcome
from tasks.model import TaskError
from tasks.yaml import _kinds, dump_task, parse_task
from tests.tasks.assertions.build import build


class Polite(BaseAssertion):
    kind: Literal["polite"] = "polite"
    word: str = "please"

    def check(self, outcome: Outcome) -> AssertionResult:
        return self.passed() if self.word in (outcome.final_message or "") else self.failed("not polite")

    def default_name(self) -> str:
        return f"polite:{self.word}"


NOT_A_KIND = str

TASK = "id: t\nintent: do\nassertions:\n  - {kind: polite, word: thanks}\n  - kind: not\n    of: {kind: polite}\n"


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    monkeypatch.setattr(kinds, "plugins", lambda group: found)
    return found


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{value}", "turngym.assertions")


def test_every_kind_can_be_written() -> None:
    assert {str(kind) for kind in AssertionKind} == set(_kinds())


def test_a_kind_of_another_package(offered: dict[str, EntryPoint]) -> None:
    offered["polite"] = entry("polite", "Polite")
    task = parse_task(TASK)
    assert parse_task(dump_task(task)) == task
    results = grade(task, Outcome({}, {}, "thanks")).results
    assert [(r.name, str(r.verdict), r.record()["kind"]) for r in results] == [
        ("polite:thanks", "pass", "polite"),
        ("not(polite:please)", "pass", "not"),
    ]
    with pytest.raises(TaskError, match="wrd"):
        parse_task(TASK.replace("word", "wrd"))


def test_unknown_and_broken_kinds_are_named(offered: dict[str, EntryPoint]) -> None:
    with pytest.raises(TaskError, match="unknown kind 'polite'"):
        parse_task(TASK)
    offered["polite"] = entry("polite", "NOT_A_KIND")
    with pytest.raises(ValidationError, match="is no subclass of"):
        build("polite")
    offered["polite"] = entry("polite", "gone")
    with pytest.raises(TaskError, match="cannot be imported: AttributeError"):
        parse_task(TASK)
