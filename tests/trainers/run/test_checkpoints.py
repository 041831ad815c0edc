"""One row per measured step, of measurements and of steps.csv."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.trainers.fake_run import make_run
from trainers.errors import RunFolderError
from trainers.reporting.folder import read_run
from trainers.run.checkpoints import HEADER, POOL, checkpoint_cells, measured_rows, pool_rows
from trainers.run.record import RunRecord
from trainers.run.steps import COLUMNS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("rows") / "run", steps=20, n_held_out=12)


def test_rows_of_measurements_are_compared_with_the_first_of_their_setting(run: Path) -> None:
    points = read_run(run).held_out
    rows = measured_rows([(point.step, point.settings) for point in points])
    assert [(row.step, row.tasks) for row in rows] == [(s, t) for s in (0, 10, 20) for t in ("sampled", "greedy")]
    for row, m in zip(rows, [m for point in points for m in point.settings.values()], strict=True):
        assert (row.passed, row.graded, row.excluded) == (m.passed, m.graded, m.infrastructure)
        assert row.assertions is not None and row.assertions[1] == 2 * m.graded
        assert row.assertions[0] == pytest.approx((m.assertion_rate or 0) * 2 * m.graded)
        assert (row.mean_turns, row.submitted) == (m.mean_turns, m.submitted)
    assert [row.test is None for row in rows] == [True, True, False, False, False, False]
    last = rows[-1]
    assert last.test is not None and last.interval is not None
    assert last.interval.low < last.test.difference < last.interval.high
    cells = last.cells()
    assert len(cells) == len(HEADER) and cells[2].startswith(f"{last.passed}/12 = ") and " points [" in cells[7]


def test_rows_of_the_pool_are_the_steps_between_measurements(run: Path) -> None:
    with open(run / "steps.csv", newline="") as file:
        steps = list(csv.DictReader(file))
    first, second = pool_rows(run / "steps.csv", [0, 10, 20])
    assert (first.step, first.tasks, second.step, first.test) == (10, POOL, 20, None)
    some = steps[10:]
    assert (second.passed, second.graded) == (sum(int(row["task_pass_count"]) for row in some), 160)
    assert second.assertions == (sum(int(row["assertions_passed"]) for row in some), 320)
    assert second.mean_turns == pytest.approx(sum(float(row["mean_turns"]) for row in some) / 10)
    assert pool_rows(run / "steps.csv", [20]) == [] == pool_rows(run / "nothing.csv", [0, 20])


def test_the_table_is_by_step_and_a_damaged_line_is_named(run: Path, tmp_path: Path) -> None:
    header, *rows = checkpoint_cells(run)
    assert header == HEADER
    assert [row[:2] for row in rows][2:6] == [("10", "sampled"), ("10", "greedy"), ("10", "pool"), ("20", "sampled")]
    assert checkpoint_cells(tmp_path) == ()
    (tmp_path / "held_out.jsonl").write_text('{"step": 5, "settings": {"greedy": {}}}\n')
    with pytest.raises(RunFolderError, match="held_out.jsonl: step 5: not a measurement"):
        checkpoint_cells(tmp_path)


def test_a_run_of_an_earlier_release_goes_on_with_its_rows(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=4, n_held_out=2)
    new = {"policy_loss", "weight_delta", "assertions_passed", "assertions", "wall_seconds"}
    with open(folder / "steps.csv", newline="") as file:
        before = [{name: row[name] for name in row if name not in new} for row in csv.DictReader(file)]
    with open(folder / "steps.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(before[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(before)
    RunRecord(folder, resume=True).resume_at(3)
    with open(folder / "steps.csv", newline="") as file:
        after = list(csv.DictReader(file))
    assert after == [{name: row.get(name, "") for name in COLUMNS} for row in before[:3]]
    (row,) = pool_rows(folder / "steps.csv", [0, 3])
    assert row.assertions is None and row.graded == 48 and row.cells()[4] == "-"
