"""What a run shows: one progress bar, a table per held-out evaluation, warnings by name, a closing summary.

On a terminal the bar lives at the bottom; elsewhere (a log file, CI) there are plain lines, about twenty for a run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from agents.rollout.progress import Lines, RolloutState, describe
from envs.episode import StopReason
from trainers.guards import Finding, Severity
from trainers.heldout import PoolRate
from trainers.measuring.measure import Measurement
from trainers.run.summary import RunSummary
from trainers.run.tables import (
    both_ways,
    confirmation_lines,
    counts_text,
    excluded_text,
    measurement_table,
    number,
    p_text,
    percent,
    rate_text,
    stop_mix,
)

REWARD = "reward"
PASS_RATE = "env/pass_rate"
TURNS = "env/mean_turns"
PASS_MIN = "env/pass_min"
INFRASTRUCTURE = "env/infra_error_frac"
AGENTS_DOING = {"lost": f"env/stop/{StopReason.LOST}", "broke": "env/broke_frac"}
"""Fails that look like failures of the machinery: shown where there are any."""
PLAIN_LINES = 20
ALPHA = 0.05
"""From this p-value on, a line says that two evaluations do not differ by more than chance explains."""


class RunConsole:
    """The console of one run; a context manager.

    Args:
        total_steps: Optimizer steps planned.
        first_step: Steps already taken (a resumed run).
        console: Where to write; the default is standard output.
    """

    def __init__(self, total_steps: int, *, first_step: int = 0, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.total = total_steps
        self.warnings: list[str] = []
        self._first = first_step
        self._start = time.monotonic()
        self._every = max(1, total_steps // PLAIN_LINES)
        self._lines = Lines()
        self._bar: Progress | None = None
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]train[/]"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[playing]}", markup=False),
                console=self.console,
                transient=True,
            )
            self._task = self._bar.add_task("train", total=total_steps, completed=first_step, figures="", playing="")

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the bar away. Idempotent; tables can be printed afterwards."""
        if self._bar is not None:
            self._bar.stop()

    def note(self, message: str) -> None:
        """One line of information."""
        self.console.print(escape(message))

    def warn(self, message: str) -> None:
        """A note on the run that matters to the result; shown now and in the summary."""
        if message not in self.warnings:
            self.warnings.append(message)
        self.console.print(f"[bold yellow]warning:[/] {escape(message)}")

    def found(self, finding: Finding) -> None:
        """What a guard found, at once; its notes are for the record only."""
        if finding.severity is not Severity.NOTE:
            self.console.print(_found(finding))

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step is done; `metrics` under the names of the logs."""
        parts = [
            f"reward {number(_get(metrics, REWARD), 3)}",
            f"pass {percent(_get(metrics, PASS_RATE), 0)}",
            f"turns {number(_get(metrics, TURNS))}",
        ]
        if excluded := _get(metrics, INFRASTRUCTURE):
            parts.append(f"excluded {percent(excluded, 0)}: pass {percent(_get(metrics, PASS_MIN), 0)}")
        else:
            parts.append("0 excluded")
        parts += [f"{name} {percent(share, 0)}" for name, key in AGENTS_DOING.items() if (share := _get(metrics, key))]
        if self._bar is not None:
            self._bar.update(self._task, completed=step, figures="  ".join(parts))
        elif step == self.total or step % self._every == 0 or step == self._first + 1:
            self.console.print(f"step {step}/{self.total}  {'  '.join(parts)}  left {self._left(step)}", soft_wrap=True)

    def playing(self, name: str, state: RolloutState) -> None:
        """How far a rollout is: behind the bar of the run; without a terminal a line now and then."""
        if self._bar is not None:
            over = state.done == state.total
            self._bar.update(self._task, playing="" if over else describe(name, state))
        elif self._lines.due():
            self.console.print(describe(name, state), markup=False, soft_wrap=True)

    def held_out(
        self,
        step: int,
        settings: Mapping[str, Measurement],
        *,
        best: bool,
        best_step: int | None = None,
        p_value: float | None = None,
        p_values: Mapping[str, float] | None = None,
        metric: str = "",
        pool: PoolRate | None = None,
    ) -> None:
        """A held-out evaluation: one line per arm, its decode settings, and the verdict on the checkpoint.

        Args:
            step: Optimizer steps taken before it; 0 is the baseline.
            settings: Measurements by decode setting.
            best: It became the best.
            best_step: The best step now.
            p_value: Paired test of the deciding arm against the best before it.
            p_values: The same of every arm.
            metric: The deciding figure.
            pool: Training episodes since the evaluation before: shown, and said not to be used.
        """
        table = Table(show_edge=False, pad_edge=False, title_justify="left", title_style="bold")
        table.title = f"held-out at step {step}" + (" (baseline)" if step == 0 else "")
        for column in ("arm", "passed [95 % interval]", "p", "assertions", "turns", "stop mix"):
            table.add_column(column, no_wrap=column in ("arm", "passed [95 % interval]"))
        for name, m in settings.items():
            p = p_text((p_values or {}).get(name))
            table.add_row(name, rate_text(m), p, percent(m.assertion_rate), number(m.mean_turns), stop_mix(m))
        # In a log a line may be long, so that each arm has one.
        self.console.print(table, width=None if self.console.is_terminal else max(self.console.width, 120))
        missing = [f"{name} {excluded_text(m)}" for name, m in settings.items() if m.infrastructure]
        self.console.print(escape(f"excluded: {'; '.join(missing)}" if missing else "0 excluded"), soft_wrap=True)
        broke = [f"{name} {counts_text(m.broke)}" for name, m in settings.items() if m.broke]
        if broke:
            self.console.print(escape(f"fails that broke: {'; '.join(broke)}"), soft_wrap=True)
        arms = (f"{name} {m.n // max(1, m.tasks)} x {m.tasks} tasks, {m.sampling}" for name, m in settings.items())
        self.console.print(escape(f"decode: {'; '.join(arms)}"), soft_wrap=True)
        if step:
            verdict = "[green]new best[/]" if best else f"best stays step {best_step}"
            verdict = "no best yet" if best_step is None else verdict
            by = f" by {metric}" if metric else ""
            self.console.print(
                f"{verdict}{by}; paired p against the best before: {p_text(p_value)}{_evidence(p_value)}",
                soft_wrap=True,
            )
        if pool is not None and pool.graded:
            self.console.print(
                f"pool, steps {pool.first} to {pool.last}: {pool.passed}/{pool.graded} = "
                f"{percent(pool.passed / pool.graded)}, {both_ways(pool.passed, pool.graded, pool.excluded)}; not used "
                "to choose",
                soft_wrap=True,
            )

    def close(self, summary: RunSummary, *, folder: Path, report: Path | None) -> None:
        """The closing summary."""
        self.stop()
        out = self.console
        out.print()
        headline, *arms = confirmation_lines(summary.confirmation)
        out.print(f"[bold]{escape(headline)}[/]", soft_wrap=True)
        for line in arms:
            out.print(escape(line), soft_wrap=True)
        out.print("\nwhat chose the step (its figures lean high):" if summary.before else "")
        for setting in summary.before:
            title = f"held-out, {setting}: start and chosen step {summary.best_step}"
            out.print(measurement_table(title, {"before": summary.before[setting], "after": summary.after[setting]}))
            test = summary.test(setting)
            if not test.tasks:
                out.print("no task was graded in both\n")
                continue
            out.print(
                f"difference {100 * test.difference:+.1f} points, paired p {p_text(test.p_value)} "
                f"({test.test}: {test.better} tasks better, {test.worse} worse)\n"
            )
        out.print(_time_table(summary))
        share, model = summary.clock.overhead_share, summary.clock.model_time_share
        out.print(f"our overhead is {percent(share)} of rollout wall, the model {percent(model)}\n", soft_wrap=True)
        chosen = f"chosen: step {summary.best_step} of {summary.last_step} by held-out {summary.best_metric}"
        if not summary.best_metric:
            chosen = f"last step: {summary.last_step} (no held-out measurement chose one)"
        out.print(f"{chosen}; run ended: {summary.stopped}")
        for message in summary.warnings:
            out.print(f"[bold yellow]warning:[/] {escape(message)}")
        for finding in summary.findings:
            out.print(_found(finding))
        if summary.guards_line:
            out.print(escape(summary.guards_line))
        out.print(f"run folder: {escape(str(folder))}", soft_wrap=True)
        if report is not None:
            out.print(f"report:     {escape(str(report))}", soft_wrap=True)

    def _left(self, step: int) -> str:
        done = step - self._first
        if done <= 0:
            return "?"
        seconds = (time.monotonic() - self._start) / done * (self.total - step)
        return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def _found(finding: Finding) -> str:
    """A guard's message with its name, as markup."""
    if finding.severity is Severity.STOP:
        head = f"[bold red]stopped by guard {finding.guard}[/]"
    else:
        head = f"[bold yellow]guard {finding.guard}[/]"
    return f"{head} (step {finding.step}): {escape(finding.message)}"


def _time_table(summary: RunSummary) -> Table:
    clock = summary.clock
    table = Table(
        title="where the time went", title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )
    for column in ("", "seconds", "per step", "per turn"):
        table.add_column(column, justify="left" if not column else "right")
    rows = (
        ("rollout: model", clock.model, True),
        ("rollout: sandbox", clock.sandbox, True),
        ("rollout: our overhead", clock.overhead, True),
        ("learning", clock.learn, False),
        ("held-out evaluation", clock.held_out, False),
        ("confirmation", clock.confirm, False),
        ("the rest", clock.other(summary.wall_seconds), False),
    )
    for name, seconds, per_turn in rows:
        table.add_row(
            name,
            f"{seconds:.1f}",
            f"{seconds / clock.steps:.2f} s" if clock.steps else "-",
            f"{1000 * seconds / clock.turns:.2f} ms" if per_turn and clock.turns else "",
        )
    table.add_row("[bold]all[/]", f"[bold]{summary.wall_seconds:.1f}[/]", "", "")
    return table


def _evidence(p_value: float | None) -> str:
    return " (no evidence of a change)" if p_value is not None and p_value >= ALPHA else ""


def _get(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    return None if value is None else float(value)
