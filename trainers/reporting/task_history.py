"""Task by task: attempts, pass rate as the run went on, held-out verdicts, and what failed most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from markupsafe import Markup

from trainers.measure import POOL, TaskCounts
from trainers.reporting.charts import strip
from trainers.reporting.episodes import shown
from trainers.reporting.folder import HeldOutPoint, RunFolder
from trainers.run.summary import percent

MOST = 250
"""Tasks of a side that are shown."""
WINDOWS = 12
"""Columns of a pool task: with more draws, neighbours are put together."""
FAILED = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """Attempts at one task in one step, window or evaluation.

    Attributes:
        when: Such as `step 3` or `steps 3 to 9`.
        chosen: The evaluation that was chosen.
    """

    when: str
    counts: TaskCounts
    chosen: bool = False

    @property
    def share(self) -> float | None:
        """Pass rate of graded attempts; `None` without one."""
        return self.counts.passed / self.counts.graded if self.counts.graded else None

    def text(self) -> str:
        """Passed of graded, and what has no grade."""
        if not self.counts.n:
            return "-"
        excluded = self.counts.n - self.counts.graded
        return f"{self.counts.passed}/{self.counts.graded}" + (f", {excluded} excluded" if excluded else "")


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task as shown.

    Attributes:
        summary: How it stands, in a few words.
        strips: Name and picture of each row of cells.
        table: The same as text, the header first.
        failed: Assertions that failed, the most frequent first, with their counts.
    """

    task: str
    intent: str
    summary: str
    strips: list[tuple[str, Markup]]
    table: list[tuple[str, ...]]
    failed: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class TaskSide:
    """Tasks of one side, the least solved first; `left_out` are not shown, and all of them are solved better."""

    name: str
    note: str
    tasks: list[TaskView]
    left_out: int


Attempts = list[tuple[int, TaskCounts]]
"""Of one task: step and counts."""


def task_sides(run: RunFolder) -> list[TaskSide]:
    """Held-out and pool; a side without attempts is left out."""
    pool: dict[str, Attempts] = {}
    measured: dict[str, Attempts] = {}
    for one in run.outcomes:
        for task, counts in one.tasks.items():
            (pool if one.arm == POOL else measured).setdefault(task, []).append((one.step, counts))
    held_out = dict.fromkeys(task for point in run.held_out for m in point.settings.values() for task in m.outcomes)
    chosen = f", the chosen step {run.best.step} is underlined" if run.best else ""
    note = f"each column a step that drew the task (more than {WINDOWS}: neighbours together), first draws only"
    sides = [
        _side(run, "Held-out tasks", f"each column an evaluation{chosen}", _evaluations(run, held_out), measured),
        _side(run, "Pool tasks", note, {task: {POOL: _windows(drawn)} for task, drawn in pool.items()}, pool),
    ]
    return [side for side in sides if side.tasks]


Rows = dict[str, list[Cell]]
"""Of one task: cells by decode setting, or those of the pool."""


def _side(run: RunFolder, name: str, note: str, tasks: dict[str, Rows], attempts: dict[str, Attempts]) -> TaskSide:
    order = sorted(tasks, key=lambda task: (_standing(tasks[task]), task))
    views = [_view(run, task, tasks[task], attempts.get(task, [])) for task in order[:MOST]]
    return TaskSide(f"{name} ({len(order)})", note, views, max(0, len(order) - MOST))


def _evaluations(run: RunFolder, tasks: Iterable[str]) -> dict[str, Rows]:
    names = dict.fromkeys(name for point in run.held_out for name in point.settings)
    best = run.best
    return {
        task: {name: [_measured(point, name, task, chosen=point is best) for point in run.held_out] for name in names}
        for task in tasks
    }


def _measured(point: HeldOutPoint, name: str, task: str, *, chosen: bool) -> Cell:
    m = point.settings.get(name)
    passes = m.outcomes.get(task, []) if m else []
    return Cell(f"step {point.step}", TaskCounts(len(passes), len(passes), sum(passes)), chosen)


def _windows(drawn: Attempts) -> list[Cell]:
    size = -(-len(drawn) // WINDOWS)
    return [_window(drawn[first : first + size]) for first in range(0, len(drawn), size)]


def _window(drawn: Attempts) -> Cell:
    first, last = drawn[0][0], drawn[-1][0]
    return Cell(f"step {first}" if first == last else f"steps {first} to {last}", _sum(counts for _, counts in drawn))


def _sum(several: Iterable[TaskCounts]) -> TaskCounts:
    total, failed = TaskCounts(), Counter[str]()
    for one in several:
        failed.update(one.failed)
        total = TaskCounts(total.n + one.n, total.graded + one.graded, total.passed + one.passed)
    return replace(total, failed=dict(failed.most_common()))


def _standing(rows: Rows) -> float:
    """Pass rate by which tasks are ordered: at the chosen evaluation, or over all of training."""
    cells = [cell for row in rows.values() for cell in row]
    judged = [cell for cell in cells if cell.chosen] or cells
    total = _sum(cell.counts for cell in judged)
    return total.passed / total.graded if total.graded else -1.0


def _view(run: RunFolder, task: str, rows: Rows, attempts: Attempts) -> TaskView:
    failed = _sum(counts for _, counts in attempts).failed
    strips = []
    for name, cells in rows.items():
        marked = next((place for place, cell in enumerate(cells) if cell.chosen), None)
        strips.append((name, strip([cell.share for cell in cells], marked, f"{name}: pass rate in order")))
    columns = list(rows.values())
    table = [("", *rows), *((row[0].when, *(cell.text() for cell in row)) for row in zip(*columns, strict=True))]
    return TaskView(
        task=shown(task),
        intent=shown(run.intents.get(task, "")),
        summary=_summary(rows),
        strips=strips,
        table=table,
        failed=[(shown(name, 200), count) for name, count in list(failed.items())[:FAILED]],
    )


def _summary(rows: Rows) -> str:
    """Of the pool all attempts; of evaluations the first and the chosen one (without it the last) by decode setting."""
    if list(rows) == [POOL]:
        total = _sum(cell.counts for cell in rows[POOL])
        share = total.passed / total.graded if total.graded else None
        return f"{Cell('', total).text()} = {percent(share, 0)}"
    parts = []
    for name, cells in rows.items():
        now = next((cell for cell in cells if cell.chosen), cells[-1])
        parts.append(f"{name} {cells[0].text()} to {now.text()}" if now is not cells[0] else f"{name} {now.text()}")
    return "; ".join(parts)
