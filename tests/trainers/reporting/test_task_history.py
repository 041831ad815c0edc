from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.trainers.fake_run import make_run
from trainers.errors import RunFolderError
from trainers.measure import TaskCounts
from trainers.reporting import task_history
from trainers.reporting.folder import RunFolder, StepOutcomes, read_run
from trainers.reporting.task_history import TaskSide, task_sides


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return read_run(make_run(tmp_path_factory.mktemp("runs") / "fake", steps=40, n_held_out=12))


def sides(run: RunFolder) -> tuple[TaskSide, TaskSide]:
    held_out, pool = task_sides(run)
    return held_out, pool


def test_held_out_tasks_have_their_verdict_at_every_evaluation(run: RunFolder) -> None:
    held_out, _ = sides(run)
    assert held_out.name == "Held-out tasks (12)" and len(held_out.tasks) == 12 and held_out.left_out == 0
    assert run.best is not None and f"step {run.best.step} is underlined" in held_out.note
    for view in held_out.tasks:
        assert view.table[0] == ("", "sampled", "greedy")
        for point, row in zip(run.held_out, view.table[1:], strict=True):
            passes = [point.settings[name].outcomes.get(view.task) for name in ("sampled", "greedy")]
            assert row == (f"step {point.step}", *(f"{sum(p)}/{len(p)}" if p else "-" for p in passes))
        assert view.intent.startswith("Append the line") and len(view.strips) == 2
        assert all(picture.count('class="under"') == 1 for _, picture in view.strips)
    rates = [sum(sum(m.outcomes.get(view.task, [])) for m in run.best.settings.values()) / 2 for view in held_out.tasks]
    assert rates == sorted(rates), "the least solved first"


def test_pool_tasks_have_their_attempts_and_what_failed_most(run: RunFolder) -> None:
    _, pool = sides(run)
    attempts, failed = Counter[str](), {}
    for line in (run.path / "outcomes.jsonl").read_text().splitlines():
        record = json.loads(line)
        for counts in record["tasks"] if record["arm"] == "pool" else ():
            attempts[counts["task"]] += counts["graded"]
            failed.setdefault(counts["task"], Counter()).update(dict(counts["failed"]))
    assert sum(attempts.values()) == 40 * 16
    for view in pool.tasks:
        passed, graded = map(int, view.summary.split(" ")[0].split("/"))
        assert graded == attempts[view.task]
        cells = [tuple(map(int, row[1].split("/"))) for row in view.table[1:]]
        assert (sum(p for p, _ in cells), sum(n for _, n in cells)) == (passed, graded)
        assert [count for _, count in view.failed] == [count for _, count in failed[view.task].most_common(5)]


def test_many_draws_are_put_together_in_windows() -> None:
    counts = TaskCounts(4, 3, 2, {"a": 1})
    steps = [StepOutcomes(step, "pool", {"t": counts}, {}) for step in range(1, 31)]
    (pool,) = task_sides(RunFolder(Path("x"), outcomes=steps))
    (view,) = pool.tasks
    assert view.table[1] == ("steps 1 to 3", "6/9, 3 excluded") and len(view.table) == 11
    assert view.failed == [("a", 30)] and view.summary == "60/90, 30 excluded = 67 %"


def test_only_so_many_tasks_are_shown(monkeypatch: pytest.MonkeyPatch, run: RunFolder) -> None:
    monkeypatch.setattr(task_history, "MOST", 5)
    held_out, pool = sides(run)
    assert (len(held_out.tasks), held_out.left_out) == (5, 7) and len(pool.tasks) == 5


def test_a_run_of_an_older_release_has_its_held_out_tasks(run: RunFolder) -> None:
    old = RunFolder(run.path, intents=run.intents, held_out=run.held_out)
    (held_out,) = task_sides(old)
    assert len(held_out.tasks) == 12 and all(view.failed == [] for view in held_out.tasks)
    assert task_sides(RunFolder(run.path)) == []


def test_damaged_outcomes_are_named(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=10, n_held_out=4)
    (folder / "outcomes.jsonl").write_text(
        '{"step": 3, "arm": "pool", "tasks": [{"task": "t", "m": 1}], "losses": {}}\n'
    )
    with pytest.raises(RunFolderError, match=r"outcomes\.jsonl: step 3"):
        read_run(folder)
