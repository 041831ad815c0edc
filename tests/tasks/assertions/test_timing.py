from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tasks.assertions.base import Outcome
from tasks.assertions.grade import KEPT, Timings, grade, reset_timings, timing_table
from tests.envs.questions import question


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    reset_timings()
    yield
    reset_timings()


def test_percentiles_counts_and_errors_by_kind() -> None:
    timings = Timings()
    for ms in range(1, 101):
        timings.note("b", ms / 1000, errors=ms == 7)
    timings.note("a", 0.5)
    first, second = timings.table()
    assert (first.kind, first.n, first.p50, first.p95) == ("a", 1, 500.0, 500.0)
    assert (second.n, second.errors) == (100, 1)
    assert second.p50 == pytest.approx(51) and second.p95 == pytest.approx(96)
    assert str(second) == "b p50 51 ms, p95 96 ms (n=100, 1 errors)"
    timings.reset()
    assert timings.table() == []


def test_percentiles_are_over_the_last_checks_and_counts_over_all() -> None:
    timings = Timings()
    for _ in range(10):
        timings.note("a", 99.0)
    for _ in range(KEPT):
        timings.note("a", 0.001)
    (row,) = timings.table()
    assert row.n == KEPT + 10 and row.p95 == pytest.approx(1.0)


def test_grading_notes_every_check_from_any_thread() -> None:
    task, outcome = question(), Outcome({}, {}, "#### 72")
    threads = [threading.Thread(target=lambda: [grade(task, outcome) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = timing_table()
    assert (row.kind, row.n, row.errors) == ("number_equals", 400, 0) and row.p95 > 0


def test_a_check_that_breaks_is_counted_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, outcome: Outcome) -> None:
        raise ValueError("defect")

    monkeypatch.setattr(type(question().assertions[0]), "check", broken)
    assert grade(question(), Outcome({}, {}, "#### 72")).errors
    assert timing_table()[0].errors == 1
