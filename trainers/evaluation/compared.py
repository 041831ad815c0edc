"""A comparison of evaluations as tables for people, and as comparison.json: ours, and the shape of field-notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.markup import escape
from rich.table import Table

from agents.trajectory import Trajectory
from trainers.evaluation.arms import Arms
from trainers.evaluation.compare import Comparison, Part, overview
from trainers.evaluation.shown import count_table, instruction_rows
from trainers.jsonl import write_json
from trainers.measure import NO_PART, is_graded
from trainers.run.summary import measurement_table, points_text, text_table
from trainers.stats import shared_tasks, tasks_needed

FILE = "comparison.json"
SCHEMA = 1


def shown(comparisons: Sequence[Comparison]) -> Iterator[Table | str]:
    """Tables and lines for a person: each comparison; of several a table of all, with Holm's p."""
    for one in comparisons:
        yield from _shown(one)
    if len(comparisons) > 1:
        yield _table(comparisons)
        yield ""


def _shown(one: Comparison) -> Iterator[Table | str]:
    a_name, b_name = one.arms
    title = a_name if a_name == b_name else f"{a_name} against {b_name}"
    yield measurement_table(title, {f"A  {one.first}": one.a, f"B  {one.second}": one.b})
    yield from one.figures()
    for name, parts in one.parts.items():
        yield _parts_table(name, parts)
    kinds = {"A": one.a.kinds, "B": one.b.kinds}
    if len({*one.a.kinds, *one.b.kinds}) > 1:
        yield count_table(
            "by assertion kind, all tasks (assertions of an episode are alike)", "kind", kinds, total=True
        )
    if one.instructions is not None:
        sides = dict(zip("AB", one.instructions, strict=True))
        yield text_table("as IFEval and IFBench name them, all tasks", instruction_rows(sides))
    yield f"[bold]{escape(one.sentence())}[/]"
    rates = [rate for rate in (one.a.pass_rate, one.b.pass_rate) if rate is not None]
    if one.smallest is not None and len(rates) == 2 and (needed := tasks_needed(*rates)):
        yield f"unpaired, a difference as large as this one needs about {needed} tasks per side"
    yield ""


def _table(comparisons: Sequence[Comparison]) -> Table:
    """One row per comparison."""
    title = f"against {comparisons[0].first}, p corrected for {len(comparisons)} comparisons (Holm)"
    return text_table(title, overview(comparisons))


def _parts_table(name: str, parts: Mapping[str, Part]) -> Table:
    rows = [(name, "tasks", "A", "B", "B minus A [95 % interval]")]
    for part, row in parts.items():
        sides = ("{}/{}".format(*row.first), "{}/{}".format(*row.second))
        rows.append((part, str(row.tasks), *sides, points_text(row.difference, row.interval)))
    first, second = ("/".join(str(sum(column)) for column in zip(*side, strict=True)) for side in _columns(parts))
    rows.append(("all", str(sum(row.tasks for row in parts.values())), first, second, ""))
    return text_table(f"by {name}, shared tasks (each interval of its row alone)", rows)


def _columns(parts: Mapping[str, Part]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    return [row.first for row in parts.values()], [row.second for row in parts.values()]


# -- comparison.json: the keys of field-notes at its top, of the first comparison; ours under `comparisons` -----------


def write_comparison(path: Path, arms: Sequence[Arms], comparisons: Sequence[Comparison]) -> None:
    """Write the file, whole or not at all.

    Raises:
        RunFolderError: A file of episodes is damaged.
    """
    write_json(
        path, {"schema": SCHEMA, **field_notes(arms, comparisons[0]), "comparisons": list(map(_ours, comparisons))}
    )


def _ours(one: Comparison) -> dict[str, Any]:
    return {
        "first": one.first,
        "second": one.second,
        "arms": list(one.arms),
        "said": one.said,
        "sentence": one.sentence(),
        "differs": list(one.differs),
        "tasks_changed": one.changed,
        "test": asdict(one.test),
        "unpaired_p": one.unpaired_p,
        "p_holm": one.p_holm,
        "interval": one.interval and asdict(one.interval),
        "smallest_difference": one.smallest,
        "a": one.a.to_json(),
        "b": one.b.to_json(),
        **({"instructions": dict(zip("ab", map(asdict, one.instructions), strict=True))} if one.instructions else {}),
        "parts": {name: {part: asdict(row) for part, row in parts.items()} for name, parts in one.parts.items()},
    }


def field_notes(arms: Sequence[Arms], one: Comparison) -> dict[str, Any]:
    """`baseline`, `sft` and `overall` as field-notes write them, of the graded episodes of the tasks that both have.

    `ap` of `at` assertions passed; percentages are of 100. A figure that needs the episodes is `None` where they were
    not kept.
    """
    second = next(arm for arm in arms[1:] if arm.name == one.second)
    shared = {
        task
        for task in shared_tasks(one.a.outcomes, one.b.outcomes)
        if arms[0].hashes.get(task) == second.hashes.get(task, arms[0].hashes.get(task))
    }
    sides = (
        _side(arms[0], one.arms[0], one.a.outcomes, shared),
        _side(second, one.arms[1], one.b.outcomes, shared),
    )
    tasks, assertions = ([_percent(side[p], side[n]) for side in sides] for p, n in (("passed", "n"), ("ap", "at")))
    overall = {
        "base_task_pass_pct": tasks[0],
        "sft_task_pass_pct": tasks[1],
        "delta_task_pp": _minus(tasks),
        "base_assert_pct": assertions[0],
        "sft_assert_pct": assertions[1],
        "delta_assert_pp": _minus(assertions),
    }
    return {"baseline": sides[0], "sft": sides[1], "overall": overall}


def _side(arms: Arms, name: str, outcomes: Mapping[str, Sequence[bool]], shared: set[str]) -> dict[str, Any]:
    passes = [passed for task in outcomes if task in shared for passed in outcomes[task]]
    episodes = [e for e in arms.episodes(name) if e.task_id in shared and is_graded(e)]
    side: dict[str, Any] = {"n": len(passes), "passed": sum(passes)}
    if not episodes:
        return side | dict.fromkeys(("ap", "at", "by_persona", "by_kind", "stops", "mean_turns", "mean_wall"))
    personas: dict[str, dict[str, int]] = {}
    kinds: dict[str, dict[str, int]] = {}
    for episode in episodes:
        verdicts = [(str(record["kind"]), record["verdict"] == "pass") for record in episode.assertions]
        persona = arms.parts.get(episode.task_id, {}).get("persona", NO_PART)
        cell = personas.setdefault(persona, dict.fromkeys(("n", "p", "ap", "at"), 0))
        for key, count in zip(
            cell, (1, bool(episode.passed), sum(ok for _, ok in verdicts), len(verdicts)), strict=True
        ):
            cell[key] += count
        for kind, ok in verdicts:
            counts = kinds.setdefault(kind, {"p": 0, "n": 0})
            counts["p"] += ok
            counts["n"] += 1
    return side | {
        "ap": sum(cell["ap"] for cell in personas.values()),
        "at": sum(cell["at"] for cell in personas.values()),
        "by_persona": dict(sorted(personas.items())),
        "by_kind": dict(sorted(kinds.items())),
        "stops": dict(sorted(Counter(episode.stop_reason for episode in episodes).items())),
        "mean_turns": fmean(len(episode.turns) for episode in episodes),
        "mean_wall": fmean(map(_seconds, episodes)),
    }


def _seconds(episode: Trajectory) -> float:
    """What its turns took: the model's share and the sandbox."""
    return sum(turn.model_seconds + turn.sandbox_seconds for turn in episode.turns)


def _percent(passed: int | None, n: int | None) -> float | None:
    return 100 * passed / n if passed is not None and n else None


def _minus(sides: Sequence[float | None]) -> float | None:
    first, second = sides
    return None if first is None or second is None else second - first
