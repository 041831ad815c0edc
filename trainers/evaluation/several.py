"""Several runs on one page: what differs in their settings, and each one's chosen step against the first one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainers.errors import RunFolderError
from trainers.evaluation.arms import arms_of
from trainers.evaluation.compare import Comparison, Said, compare, overview
from trainers.reporting.charts import Effect, Figure, forest
from trainers.reporting.episodes import shown
from trainers.reporting.folder import RunFolder
from trainers.run.summary import passes

WHERE = "output_dir"
"""The setting in which any two runs differ."""
TONES = {Said.IMPROVEMENT: "good", Said.DEGRADATION: "bad"}


@dataclass(frozen=True, slots=True)
class Versus:
    """One verdict: its sentence, the colour of the page for it, and the figures behind it in lines."""

    head: str
    tone: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Several:
    """The comparison as the page shows it.

    Attributes:
        first: Name of the run that the others are compared with.
        settings: Settings that differ, one row each with the value in every run, the header first; empty for none.
        verdicts: One per other run and decode setting.
        table: All of them with Holm's p, the header first; empty for one alone.
        differences: The same as a picture; `None` where nothing is paired.
        notes: What could not be compared, and why.
    """

    first: str
    settings: list[tuple[str, ...]]
    verdicts: list[Versus] = field(default_factory=list)
    table: list[tuple[str, ...]] = field(default_factory=list)
    differences: Figure | None = None
    notes: list[str] = field(default_factory=list)


def several(runs: Sequence[RunFolder]) -> Several:
    """Compare the runs.

    Raises:
        RunFolderError: A file of a run folder is damaged.
    """
    notes = [f"{run.name} holds no held-out evaluation to compare" for run in runs if run.best is None]
    arms = [replace(arms_of(run), name=run.name) for run in runs if run.best is not None]
    found = Several(arms[0].name if arms else runs[0].name, settings_that_differ(runs), notes=notes)
    if len(arms) < 2:
        return found
    try:
        comparisons = compare(arms)
    except RunFolderError as error:  # no decode setting in common: the rest of the page stands
        return replace(found, notes=[*found.notes, f"{error}: no comparison"])
    paired = [one for one in comparisons if one.interval is not None]
    return replace(
        found,
        verdicts=[_versus(one) for one in comparisons],
        table=overview(comparisons) if len(comparisons) > 1 else [],
        differences=_picture(paired) if paired else None,
    )


def settings_that_differ(runs: Sequence[RunFolder]) -> list[tuple[str, ...]]:
    """Name and value in every run, `-` where a run does not say it."""
    names = dict.fromkeys(name for run in runs for name in run.config if name != WHERE)
    rows = [(name, *(_value(run, name) for run in runs)) for name in names]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    return [("setting", *(run.name for run in runs)), *rows] if rows else []


def _value(run: RunFolder, name: str) -> str:
    return shown(str(run.config[name]), 300) if name in run.config else "-"


def _versus(one: Comparison) -> Versus:
    sides = (("A", one.first, one.a), ("B", one.second, one.b))
    lines = [f"{side}, {name}: {passes(m)}; decode {m.sampling}" for side, name, m in sides]
    return Versus(f"{one.second}, {one.arm}: {one.sentence()}", TONES.get(one.said, ""), [*lines, *one.figures()])


def _picture(comparisons: Sequence[Comparison]) -> Figure:
    effects = [
        Effect(
            f"{one.second}, {one.arms[1]}",
            f"{one.test.tasks} shared tasks",
            one.test.difference,
            one.interval.low,
            one.interval.high,
            TONES.get(one.said, "neutral"),
        )
        for one in comparisons
        if one.interval is not None
    ]
    title = f"Held-out pass rate against {comparisons[0].first}, in points"
    return Figure(title, forest(effects, title, percent=True), [], "95 % intervals, each of its row alone")
