"""What an evaluation tells people on the console."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.models.card import ModelCard
from agents.policies.openai import Usage
from agents.policies.opening import Actor, PolicyKind
from agents.rollout import RolloutResult
from envs.protocol import DEFAULT_PROTOCOL
from tasks.model import counted
from tasks.splits import parted_twins
from tasks.task import Task
from trainers.answers import Answers, Instructions, attempts_shown
from trainers.evaluation.check import Checked
from trainers.measure import Measurement, part_counts, parts_of, tag_counts
from trainers.rollouts.manner import AUTO
from trainers.run.summary import measurement_table, percent, text_table
from trainers.stats import mean_pass_at_k, wilson


def introduce(a: argparse.Namespace, checked: Checked, actor: Actor, other: Sequence[str], console: Console) -> None:
    """What is about to be played, and what a reader of its figures should know."""
    manner, named = checked.manner, checked.named
    style = manner.prompt_style
    protocol = "" if manner.protocol == DEFAULT_PROTOCOL else f", protocol {manner.protocol}"
    console.print(
        f"{a.model}: {len(checked.tasks)} tasks x {a.samples} attempts, sandbox {checked.backend}, "
        f"prompt style {style}{protocol}",
        markup=False,
    )
    apart = (
        f"{counted(len(checked.in_process), 'task')} with a judge that runs the agent's code in its own process, "
        "where that code can write the verdict: played, and not counted (--allow_in_process_judges counts them)"
    )
    for note in ([apart] if checked.in_process else []) + checked.judges.notes():
        console.print(note, markup=False)
    if checked.split is not None:
        for problem in parted_twins(checked.split, Path(a.split)):
            console.print(f"warning: {problem}", markup=False, soft_wrap=True)
    if checked.coverage is not None:
        console.print(checked.coverage.text(), markup=False)
    if named.kind is PolicyKind.VLLM and actor.card == ModelCard() and a.prompt_style == AUTO:
        console.print(
            f"no model card is known for what {named.url} serves, so it gets the prompt style {style}; if it was "
            "trained with another, name that: --prompt_style",
            markup=False,
        )
    for why in (*checked.manner.asked, *other):
        console.print(f"warning: as asked, {why}", markup=False, soft_wrap=True)


def show(console: Console, name: str, m: Measurement, samples: int, tasks: Sequence[Task]) -> None:
    """The figures of one decode setting: all, pass@k, by family, assertion kind and tag, what was excluded."""
    console.print()
    console.print(measurement_table(name, {m.sampling: m}))
    if samples > 1:
        cells = [f"pass@{k} {percent(mean_pass_at_k(m.outcomes, k))}" for k in attempts_shown(samples)]
        console.print(
            f"{'  '.join(cells)}  (unbiased, mean over tasks; a pass is every assertion; "
            f"interval on {m.effective_n:.0f} independent episodes)"
        )
    note = " (attempts taken as independent)" if samples > 1 else ""
    parts = part_counts(parts_of(tasks), m.outcomes)
    parts.setdefault("family", m.families)
    tables = [(name, counts, True) for name, counts in parts.items()]
    tables.append(("assertion kind", m.kinds, True))
    if tags := tag_counts(tasks, m.outcomes):
        tables.append(("tag", tags, False))
    for name, counts, adds_up in tables:
        console.print()
        console.print(
            count_table(f"by {name}{note}", name.split()[-1], {"passed [95 % interval]": counts}, total=adds_up)
        )
    for message, count in m.errors.items():
        console.print(f"excluded, {count} times: {message}", markup=False)
    for task, commands in m.losses.items():
        for command, count in commands.items():
            console.print(f"sandbox lost, {count} times: {task}: {command or '(while it was graded)'}", markup=False)


def show_answers(console: Console, answers: Answers, m: Measurement) -> None:
    """Of question sets: the strict, flexible and verifier's figures side by side, and what attempts vote for."""
    if answers.majority:
        cells = [f"majority@{k} {percent(share)}" for k, share in answers.majority.items()]
        console.print(f"\n{'  '.join(cells)}  (the most frequent answer of k attempts, mean over tasks)")
    r = answers.readings
    columns = {"strict": r.strict, "flexible": r.flexible, "verifier": r.verifier}
    rows = [["reading", *columns, "right, not as the strict one wants it"]]
    rates = (f"{passed}/{r.n} = {percent(passed / r.n)}" for passed in columns.values())
    rows.append(["passed", *rates, str(r.unmarked)])
    console.print()
    console.print(text_table("by reading (the verifier decides)", rows))
    if answers.instructions is not None:
        console.print()
        console.print(text_table("as IFEval and IFBench name them", instruction_rows({"share": answers.instructions})))
    if left_out := m.graded + (m.in_process[1] if m.in_process else 0) - r.n:
        console.print(f"{left_out} graded episodes are of no question, or a reading of theirs could not be judged")


def instruction_rows(columns: Mapping[str, Instructions]) -> list[tuple[str, ...]]:
    """One row per figure of IFEval, one column per measurement, the header first."""
    rows: list[tuple[str, ...]] = [("figure", *columns)]
    for cells in zip(*(one.named() for one in columns.values()), strict=True):
        rows.append((cells[0][0], *(f"{round(share * n)}/{n} = {percent(share)}" for _, share, n in cells)))
    return rows


def speed(result: RolloutResult, seconds: float) -> str:
    """How long it took, and where the time of a turn went."""
    timing = result.timing
    parts = (
        ("model", timing.model_seconds),
        ("sandbox", timing.sandbox_seconds),
        ("overhead", timing.overhead_seconds),
    )
    per_turn = ", ".join(f"{name} {1000 * spent / max(1, timing.turns):.1f} ms" for name, spent in parts)
    return f"{seconds:.1f} s; per turn: {per_turn}\n"


def show_episodes(folder: Path, console: Console) -> None:
    """Write the page of all episodes into an evaluation's folder, and open it where there is a browser."""
    from agents.view.page import PAGE, write_page  # only where it is asked for

    page = folder / PAGE
    write_page([folder], page)
    console.print(f"all episodes: {page}", markup=False, soft_wrap=True)
    webbrowser.open(page.resolve().as_uri())


def usage_line(usage: Usage) -> str:
    """What an evaluation has cost so far."""
    missing = f" ({usage.without_usage} of the replies came without counts)" if usage.without_usage else ""
    return (
        f"used so far, as the server counts: {usage.replies} replies, {usage.prompt_tokens:,} prompt tokens, "
        f"{usage.completion_tokens:,} completion tokens{missing}"
    )


def count_table(
    title: str, names: str, columns: Mapping[str, Mapping[str, Sequence[int]]], *, total: bool = False
) -> Table:
    """Passed of total with interval, one row per key (family or assertion kind), one column per measurement.

    Args:
        title: Above the table.
        names: What the keys are.
        columns: [passed, all] by key, by title of the column.
        total: Keys are parts of a whole: a last row has their sum.
    """
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    table.add_column(names)
    for name in columns:
        table.add_column(name)
    for key in sorted({k for counts in columns.values() for k in counts}):
        table.add_row(escape(key), *(_cell(counts.get(key)) for counts in columns.values()))
    if total:
        table.add_row("[bold]all[/]", *(_total(counts.values()) for counts in columns.values()))
    return table


def _total(counts: Iterable[Sequence[int]]) -> str:
    """The sum of the parts; without an interval, for the one of all stands elsewhere, on independent episodes."""
    passed, n = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    return f"{passed}/{n} = {percent(passed / n, 0)}" if n else "-"


def _cell(count: Sequence[int] | None) -> str:
    if not count or not count[1]:
        return "-"
    passed, n = count
    interval = wilson(passed, n)
    return f"{passed}/{n} = {percent(passed / n, 0)} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"
