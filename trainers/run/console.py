"""What a run shows: one progress bar, a table per held-out evaluation, warnings by name, a closing summary.

On a terminal the bar lives at the bottom; elsewhere (a log file, CI) there are plain lines, about twenty for a run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table

from agents.rollout.progress import Lines, RolloutState, describe
from envs.episode import StopReason
from trainers.guards import Finding, Severity
from trainers.heldout import Evaluation, HeldOut
from trainers.run.standstill import Standstill, Where
from trainers.run.summary import (
    MEASURED_NOTE,
    RunSummary,
    both_ways,
    confirmation_lines,
    counts_text,
    difference_text,
    excluded_text,
    measurement_table,
    number,
    p_text,
    percent,
    rate_text,
    steady_words,
    stop_mix,
    text_table,
    wide,
)
from trainers.settings import GiGPOConfig

REWARD = "reward"
PASS_RATE = "env/pass_rate"
TURNS = "env/mean_turns"
PASS_MIN = "env/pass_min"
INFRASTRUCTURE = "env/infra_error_frac"
STALENESS = "rollouts/staleness"
AGENTS_DOING = {"lost": f"env/stop/{StopReason.LOST}", "broke": "env/broke_frac"}
"""Fails that look like failures of the machinery: shown where there are any."""
PLAIN_LINES = 20
HELD_OUT = "held-out"
"""How the trainer calls the rollouts of an evaluation."""
MOST_ROWS = 40
"""Rows of the closing table of measured steps."""
ALPHA = 0.05
"""From this p-value on, a line says that two evaluations do not differ by more than chance explains."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does beside its steps, in episodes: what the time that is left is counted with.

    Attributes:
        step_episodes: Episodes played for one optimizer step.
        eval_steps: Steps between held-out evaluations; 0 where nothing is held out. The last step has one, too.
        held_out_episodes: Episodes of one evaluation, all arms.
        baseline: The start is measured first.
        confirm_episodes: Episodes of the confirmation, both policies.
    """

    step_episodes: float = 0
    eval_steps: int = 0
    held_out_episodes: int = 0
    baseline: bool = False
    confirm_episodes: int = 0

    @classmethod
    def of(cls, config: GiGPOConfig, held_out: HeldOut | None, confirm_tasks: int) -> Plan:
        """The plan that the settings make; `confirm_tasks` are measured at the end, for both policies."""
        episodes = config.generation_batch_size / config.steps_per_generation / config.num_iterations
        if held_out is None:
            return cls(step_episodes=episodes)
        attempts = sum(1 if sampling.greedy else held_out.samples for sampling in held_out.arms.values())
        every = config.eval_steps if config.eval_strategy == "steps" else None
        if every is not None and every < 1:  # a share of all steps, as transformers reads it
            every = math.ceil(config.max_steps * every)
        return cls(
            step_episodes=episodes,
            eval_steps=int(every or config.max_steps),
            held_out_episodes=attempts * len(held_out.everything),
            baseline=bool(config.eval_on_start),
            confirm_episodes=2 * attempts * confirm_tasks,
        )

    def evaluations(self, after: int, total: int) -> int:
        """Evaluations that follow the one after `after` of `total` steps (-1: the baseline is to come, too)."""
        if not self.eval_steps:
            return 0
        start = max(after, 0)
        regular = total // self.eval_steps - start // self.eval_steps
        at_the_end = total % self.eval_steps > 0 and start < total
        return regular + at_the_end + (after < 0 and self.baseline)


class RunConsole:
    """The console of one run; a context manager.

    Args:
        total_steps: Optimizer steps planned.
        first_step: Steps already taken (a resumed run).
        plan: What else is to come.
        console: Where to write; the default is standard output.
    """

    def __init__(
        self, total_steps: int, *, first_step: int = 0, plan: Plan | None = None, console: Console | None = None
    ) -> None:
        self.console = wide(console or Console(highlight=False))
        self.total = total_steps
        self.warnings: list[str] = []
        self.plan = plan or Plan()
        self._first = self._step = first_step
        self._measured = first_step or -1  # the step of the last evaluation
        self._mark = time.monotonic()
        self._training = self._evaluating = 0.0  # seconds of steps and of evaluations, in this process
        self._evaluations = 0
        self._confirmed = 0  # episodes of the confirmation that are over
        self._every = max(1, total_steps // PLAIN_LINES)
        self._lines = Lines()
        self.where: Callable[[], Where] = lambda: Where("", "", ())
        """What is under way, for the line that says where a run stands still."""
        self._still = Standstill(self.note, lambda: self._step + 1, lambda: self.where())
        self._bar: Progress | None = None
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]train[/]"),
                BarColumn(bar_width=24 if self.console.width >= 100 else 12),
                MofNCompleteColumn(),
                TextColumn("left {task.fields[left]}", markup=False),
                # What is cut where the terminal is narrow: never the step, the bar or the time that is left.
                TextColumn(
                    "{task.fields[figures]}  {task.fields[playing]}",
                    markup=False,
                    table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
                ),
                console=self.console,
                transient=True,
                expand=True,
            )
            self._task = self._bar.add_task(
                "train", total=total_steps, completed=first_step, figures="", playing="", left="?"
            )

    def __enter__(self) -> Self:
        self._mark = time.monotonic()
        self._still.start()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the bar away. Idempotent; tables can be printed afterwards."""
        self._still.stop()
        if self._bar is not None:
            self._bar.stop()

    def note(self, message: str) -> None:
        """One line of information."""
        self.console.print(escape(message), soft_wrap=True)

    def warn(self, message: str) -> None:
        """A note on the run that matters to the result; shown now and in the summary."""
        if message not in self.warnings:
            self.warnings.append(message)
        self.console.print(f"[bold yellow]warning:[/] {escape(message)}", soft_wrap=True)

    def found(self, finding: Finding) -> None:
        """What a guard found, at once; its notes are for the record only."""
        if finding.severity is not Severity.NOTE:
            self.console.print(_found(finding), soft_wrap=True)

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step is done; `metrics` under the names of the logs."""
        self._still.moved()
        self._training += self._lap()
        self._step = step
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
        if stale := _get(metrics, STALENESS):
            parts.append(f"staleness {number(stale, 0)}")
        if self._bar is not None:
            self._bar.update(self._task, completed=step, figures="  ".join(parts), left=self.left())
        elif step == self.total or step % self._every == 0 or step == self._first + 1:
            self.console.print(f"step {step}/{self.total}  {'  '.join(parts)}  left {self.left()}", soft_wrap=True)

    def playing(self, name: str, state: RolloutState) -> None:
        """How far a rollout is: behind the bar of the run; without a terminal a line now and then."""
        self._still.moved()
        left = self.left(state if name == HELD_OUT else None)
        over = state.done == state.total
        if over and name == HELD_OUT and not self.plan.evaluations(self._measured, self.total):
            self._confirmed += state.total
        if self._bar is not None:
            self._bar.update(self._task, playing="" if over else describe(name, state), left=left)
        elif self._lines.due():
            self.console.print(f"{describe(name, state)}  left {left}", markup=False, soft_wrap=True)

    def held_out(self, evaluation: Evaluation, *, best_step: int | None = None, metric: str = "") -> None:
        """A held-out evaluation: one line per arm, its decode settings, and the verdict on the checkpoint.

        Args:
            evaluation: As it was judged.
            best_step: The best step now.
            metric: The deciding figure.
        """
        self._still.moved()
        self._evaluating += self._lap()
        self._evaluations += 1
        arms, p_value = evaluation.arms, evaluation.p_value
        self._measured = step = evaluation.step
        if self._bar is not None:
            self._bar.update(self._task, left=self.left())
        table = Table(show_edge=False, pad_edge=False, title_justify="left", title_style="bold")
        table.title = f"held-out at step {step}" + (" (baseline)" if step == 0 else "")
        for column in ("arm", "passed [95 % interval]", "p", "assertions", "turns", "stop mix"):
            table.add_column(column, no_wrap=column in ("arm", "passed [95 % interval]"))
        for name, m in arms.items():
            p = p_text(evaluation.p_values.get(name))
            table.add_row(name, rate_text(m), p, percent(m.assertion_rate), number(m.mean_turns), stop_mix(m))
        self.console.print(table)
        missing = [f"{name} {excluded_text(m)}" for name, m in arms.items() if m.infrastructure]
        self.console.print(escape(f"excluded: {'; '.join(missing)}" if missing else "0 excluded"), soft_wrap=True)
        broke = [f"{name} {counts_text(m.broke)}" for name, m in arms.items() if m.broke]
        if broke:
            self.console.print(escape(f"fails that broke: {'; '.join(broke)}"), soft_wrap=True)
        decode = (f"{name} {m.n // max(1, m.tasks)} x {m.tasks} tasks, {m.sampling}" for name, m in arms.items())
        self.console.print(escape(f"decode: {'; '.join(decode)}"), soft_wrap=True)
        if not step:
            self.console.print(f"step 0/{self.total}  left {self.left()}", soft_wrap=True)
        if step:
            verdict = "[green]new best[/]" if evaluation.is_best else f"best stays step {best_step}"
            verdict = "no best yet" if best_step is None else verdict
            by = f" by {metric}" if metric else ""
            self.console.print(
                f"{verdict}{by}; paired p against the best before: {p_text(p_value)}{_evidence(p_value)}",
                soft_wrap=True,
            )
        pool = evaluation.pool
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
            out.print(f"{difference_text(summary.test(setting))}\n")
        if summary.checkpoints:
            out.print(text_table("every measured step", _latest(summary.checkpoints)))
            out.print(f"{' '.join(MEASURED_NOTE)}\n", soft_wrap=True)
        out.print(_time_table(summary))
        share, model = summary.clock.overhead_share, summary.clock.model_time_share
        out.print(f"our overhead is {percent(share)} of rollout wall, the model {percent(model)}", soft_wrap=True)
        memory = summary.memory
        if steady := steady_words(summary.clock.steady.to_json(), gpu=memory is not None and memory.on_gpu):
            out.print(steady, soft_wrap=True)
        if memory is not None:
            out.print(escape(memory.words()), soft_wrap=True)
        out.print()
        chosen = f"chosen: step {summary.best_step} of {summary.last_step} by held-out {summary.best_metric}"
        if not summary.best_metric:
            chosen = f"last step: {summary.last_step} (no held-out measurement chose one)"
        out.print(f"{chosen}; run ended: {summary.stopped}", soft_wrap=True)
        if summary.reason:
            out.print(escape(summary.reason), soft_wrap=True)
        for message in summary.warnings:
            out.print(f"[bold yellow]warning:[/] {escape(message)}", soft_wrap=True)
        for finding in summary.findings:
            out.print(_found(finding), soft_wrap=True)
        if summary.guards_line:
            out.print(escape(summary.guards_line))
        out.print(f"run folder: {escape(str(folder))}", soft_wrap=True)
        if report is not None:
            out.print(f"report:     {escape(str(report))}", soft_wrap=True)

    def left(self, evaluation: RolloutState | None = None) -> str:
        """The time until the run ends: steps, evaluations and confirmation that are to come, as fast as those so far.

        Args:
            evaluation: How far the evaluation is that goes on now.

        Returns:
            `m:ss` or `h:mm:ss`; with `>` before it until a step was timed, since learning then counts as nothing; `?`
            where nothing was played yet.
        """
        plan, done = self.plan, self._step - self._first
        episode: float | None = None  # seconds of one of an evaluation
        if self._evaluations and plan.held_out_episodes:
            episode = self._evaluating / self._evaluations / plan.held_out_episodes
        elif evaluation is not None and evaluation.done:
            episode = evaluation.seconds / evaluation.done
        step = self._training / done if done else None
        if episode is None and step is not None:  # an upper bound: what is learned is in it
            episode = step / plan.step_episodes if plan.step_episodes else 0.0
        if episode is None:
            return "?"
        episodes = plan.evaluations(self._measured, self.total) * plan.held_out_episodes + plan.confirm_episodes
        episodes -= self._confirmed + (evaluation.done if evaluation is not None else 0)
        each = step if step is not None else plan.step_episodes * episode
        seconds = math.ceil((self.total - self._step) * each + max(0, episodes) * episode)
        minutes, hours = seconds // 60 % 60, seconds // 3600
        text = f"{hours}:{minutes:02d}:{seconds % 60:02d}" if hours else f"{minutes}:{seconds % 60:02d}"
        return text if step is not None or self._step == self.total else f">{text}"

    def _lap(self) -> float:
        """Seconds since the last step or evaluation ended."""
        before, self._mark = self._mark, time.monotonic()
        return self._mark - before


def _found(finding: Finding) -> str:
    """A guard's message with its name, as markup."""
    if finding.severity is Severity.STOP:
        head = f"[bold red]stopped by guard {finding.guard}[/]"
    else:
        head = f"[bold yellow]guard {finding.guard}[/]"
    return f"{head} (step {finding.step}): {escape(finding.message)}"


def _latest(cells: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The header and the last rows; how many were left out is said, for SUMMARY.md has them all."""
    header, *rows = cells
    if len(rows) <= MOST_ROWS:
        return list(cells)
    left_out = (f"({len(rows) - MOST_ROWS} rows before are in SUMMARY.md)", *[""] * (len(header) - 1))
    return [header, left_out, *rows[-MOST_ROWS:]]


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
        *([("rollout: of it hidden behind the rest", -clock.hidden, False)] if clock.hidden else []),
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
