from __future__ import annotations

from tasks.model import Problem, TaskError, collected, counted


def test_a_problem_says_where_and_what() -> None:
    assert str(Problem("is missing", "a.yaml", 3, "id")) == "a.yaml:3: id: is missing"
    assert str(Problem("cannot be read", "a.yaml")) == "a.yaml: cannot be read"
    assert str(Problem("no tasks")) == "no tasks"


def test_errors_are_merged_in_order() -> None:
    merged = collected([TaskError("one", Problem("two", "f")), TaskError("three")])
    assert str(merged) == "one\nf: two\nthree"
    assert len(merged.problems) == 3


def test_numbers_have_their_noun() -> None:
    assert [counted(number, "task") for number in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]
