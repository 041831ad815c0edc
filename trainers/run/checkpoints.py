"""One row per measured step: passes, assertions, turns, submissions, difference to the start; held-out and pool."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.errors import RunFolderError
from trainers.jsonl import read_lines
from trainers.measure import POOL, Measurement
from trainers.paired import difference_interval
from trainers.run.record import HELD_OUT, STEPS
from trainers.run.summary import number, p_text, percent, points_text
from trainers.stats import Interval, PairedTest, paired_test

HEADER = ("step", "tasks", "passed", "excluded", "assertions", "turns", "submitted", "difference to the start", "p")


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """The figures of one step on one set of episodes; all but `excluded` are of graded ones.

    Attributes:
        tasks: The decode setting of a measurement, or `pool`.
        excluded: Episodes without a grade.
        assertions: How many passed, of how many; those that decide nothing (weight 0) too. `None` where nobody knows.
        submitted: Share that ended by submitting.
        test: Paired against the first measurement with the same decode setting; `None` for that, and for the pool.
        interval: 95 % interval of the difference.
    """

    step: int
    tasks: str
    passed: int
    graded: int
    excluded: int
    assertions: tuple[int, int] | None
    mean_turns: float | None
    submitted: float | None
    test: PairedTest | None = None
    interval: Interval | None = None

    def cells(self) -> tuple[str, ...]:
        """As text, a cell for each of `HEADER`."""
        assertions = "-" if self.assertions is None else "{}/{}".format(*self.assertions)
        difference = p = "-"
        if self.test is not None and self.test.tasks:
            difference, p = points_text(self.test.difference, self.interval), p_text(self.test.p_value)
        share = self.passed / self.graded if self.graded else None
        return (
            str(self.step),
            self.tasks,
            f"{self.passed}/{self.graded} = {percent(share)}",
            str(self.excluded),
            assertions,
            number(self.mean_turns),
            percent(self.submitted, 0),
            difference,
            p,
        )


def measured_rows(points: Iterable[tuple[int, Mapping[str, Measurement]]]) -> list[CheckpointRow]:
    """Rows of measurements, each compared with the first one of its decode setting.

    Args:
        points: Step and measurement by decode setting, in order.
    """
    start: dict[str, Measurement] = {}
    rows = []
    for step, settings in points:
        for name, m in settings.items():
            first = start.setdefault(name, m)
            counts = [sum(column) for column in zip(*m.kinds.values(), strict=True)]
            rows.append(
                CheckpointRow(
                    step=step,
                    tasks=name,
                    passed=m.passed,
                    graded=m.graded,
                    excluded=m.infrastructure,
                    assertions=(counts[0], counts[1]) if counts else None,
                    mean_turns=m.mean_turns,
                    submitted=m.submitted,
                    test=None if first is m else paired_test(first.outcomes, m.outcomes),
                    interval=None if first is m else difference_interval(first.outcomes, m.outcomes),
                )
            )
    return rows


def pool_rows(path: Path, steps: Sequence[int]) -> list[CheckpointRow]:
    """Rows of the training episodes between measurements.

    Args:
        path: The run's steps.csv; without it there are none.
        steps: Of the measurements, ascending.
    """
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        played = [row for row in csv.DictReader(file) if None not in row.values()]  # a torn last row has fewer cells
    rows = []
    for after, step in zip(steps, steps[1:], strict=False):
        if some := [row for row in played if after < int(row["step"]) <= step]:
            rows.append(_pool_row(step, some))
    return rows


def _pool_row(step: int, rows: Sequence[Mapping[str, str]]) -> CheckpointRow:
    graded = [int(row["n_rollouts_used"]) for row in rows]
    n = sum(graded)

    def total(name: str) -> int:
        return sum(int(row[name]) for row in rows)

    def mean(name: str) -> float | None:
        return sum(float(row[name]) * k for row, k in zip(rows, graded, strict=True) if k) / n if n else None

    counted = all(row.get("assertions") for row in rows)  # releases up to 0.6 did not count them
    submitted = mean("task_complete_pct")
    return CheckpointRow(
        step=step,
        tasks=POOL,
        passed=total("task_pass_count"),
        graded=n,
        excluded=total("infrastructure"),
        assertions=(total("assertions_passed"), total("assertions")) if counted else None,
        mean_turns=mean("mean_turns"),
        submitted=None if submitted is None else submitted / 100,
    )


def checkpoint_cells(folder: Path) -> tuple[tuple[str, ...], ...]:
    """The table of a run folder as text, `HEADER` first; empty where nothing was measured.

    Raises:
        RunFolderError: A line of held_out.jsonl is no measurement.
    """
    return cells_of(list(_points(folder / HELD_OUT)), folder / STEPS)


def cells_of(points: Sequence[tuple[int, Mapping[str, Measurement]]], path: Path) -> tuple[tuple[str, ...], ...]:
    """The same of measurements that were read already; `path`: the run's steps.csv."""
    rows = [*measured_rows(points), *pool_rows(path, [step for step, _ in points])]
    return (HEADER, *(row.cells() for row in sorted(rows, key=lambda row: row.step))) if rows else ()


def _points(path: Path) -> Iterator[tuple[int, dict[str, Measurement]]]:
    for line in read_lines(path)[0]:
        try:
            yield line["step"], {name: Measurement.from_json(m) for name, m in line["settings"].items()}
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{path}: step {line.get('step')}: {error}") from error
