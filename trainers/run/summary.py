"""The end of a run in one record, and figures as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.rollout.progress import Timing
from envs.episode import StopReason
from trainers.guards import Finding
from trainers.measure import Confirmation, Measurement
from trainers.run.device import PeakMemory
from trainers.stats import Interval, PairedTest, paired_test

# -- The end of a run in one record: held-out figures before and after, what was chosen, where the time went ----------

DECIDING = "sampled"
"""The decode setting whose figures stand under `held_out.before` and `held_out.after`."""


class Stopped(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    PATIENCE = "patience"
    GUARD = "guard"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(slots=True)
class Steady:
    """Steps at the pace that a long run has: episodes and learning, without evaluations, confirmation and checkpoints.

    Attributes:
        steps: How many; `seconds` their wall time.
        model: Seconds of sampling in them, `sandbox` of waiting for sandboxes; `tokens` sampled.
        busy: Sum of the shares that the GPU was busy, each `looks` at it.
    """

    steps: int = 0
    seconds: float = 0.0
    model: float = 0.0
    sandbox: float = 0.0
    tokens: int = 0
    busy: float = 0.0
    looks: int = 0

    @property
    def gpu_busy(self) -> float | None:
        """Share of the time; `None` where nobody looked."""
        return self.busy / self.looks if self.looks else None

    def to_json(self) -> dict[str, Any]:
        """Figures; `None` for those that nobody knows."""
        return {
            "steps": self.steps,
            "seconds": self.seconds,
            "tokens_per_second_of_model": self.tokens / self.model if self.model else None,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else None,
            "sandbox_share": self.sandbox / self.seconds if self.seconds else None,
            "gpu_busy_share": self.gpu_busy,
        }


@dataclass(slots=True)
class Clock:
    """Where a run's wall time went, in seconds. `add` what each rollout reports.

    Attributes:
        rollout: Playing training episodes; of it `model` sampling, `sandbox` waiting for sandboxes, the rest ours.
        held_out: Playing held-out episodes (not in `rollout`).
        confirm: Measuring start and `best/` once more at the end.
        learn: Forward, backward and optimizer of the training steps.
        turns: Turns of the training episodes; `tokens` sampled in them.
        steps: Optimizer steps taken.
        hidden: Of `rollout`, what passed while the run learned, measured or saved (`overlap`).
        steady: The same of the steps but for the first two of each process, which warm up; see `Steady`.
    """

    rollout: float = 0.0
    model: float = 0.0
    sandbox: float = 0.0
    held_out: float = 0.0
    learn: float = 0.0
    turns: int = 0
    tokens: int = 0
    steps: int = 0
    confirm: float = 0.0
    hidden: float = 0.0
    steady: Steady = field(default_factory=Steady)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Clock:
        """From `dataclasses.asdict`; checkpoints of older releases have no steady figures."""
        return cls(**{**state, "steady": Steady(**state.get("steady", {}))})

    def add(self, timing: Timing) -> None:
        """Count one training rollout."""
        self.rollout += timing.wall_seconds
        self.model += timing.model_seconds
        self.sandbox += timing.sandbox_seconds
        self.turns += timing.turns
        self.tokens += timing.sampled_tokens

    @property
    def overhead(self) -> float:
        """Rollout wall that was neither the model's nor the sandboxes'."""
        return max(0.0, self.rollout - self.model - self.sandbox)

    @property
    def overhead_share(self) -> float | None:
        """Share of rollout wall; `None` before the first rollout."""
        return self.overhead / self.rollout if self.rollout else None

    @property
    def model_time_share(self) -> float | None:
        """Share of rollout wall in which the model sampled; `None` before the first rollout."""
        return self.model / self.rollout if self.rollout else None

    def other(self, wall_seconds: float) -> float:
        """What of the wall time is none of these."""
        return max(0.0, wall_seconds - (self.rollout - self.hidden) - self.held_out - self.confirm - self.learn)

    def to_json(self, wall_seconds: float) -> dict[str, Any]:
        """Totals, milliseconds per turn and seconds per step."""
        out: dict[str, Any] = {
            "rollout_seconds": self.rollout,
            "model_seconds": self.model,
            "sandbox_seconds": self.sandbox,
            "overhead_seconds": self.overhead,
            "hidden_seconds": self.hidden,
            "held_out_seconds": self.held_out,
            "confirm_seconds": self.confirm,
            "learn_seconds": self.learn,
            "other_seconds": self.other(wall_seconds),
            "turns": self.turns,
            "sampled_tokens": self.tokens,
            "steps": self.steps,
            "steady": self.steady.to_json(),
            "overhead_share_of_rollout": self.overhead_share,
        }
        if self.turns:
            out["ms_per_turn"] = {
                name: 1000 * seconds / self.turns
                for name, seconds in (("model", self.model), ("sandbox", self.sandbox), ("overhead", self.overhead))
            }
        if self.steps:
            out["seconds_per_step"] = {
                "rollout": self.rollout / self.steps,
                "learn": self.learn / self.steps,
                "held_out": self.held_out / self.steps,
            }
        return out


def steady_words(figures: Mapping[str, Any], *, gpu: bool) -> str:
    """`Steady.to_json` in one line for people, with its GPU where there is one; empty where no step counts."""
    if not figures.get("steps"):
        return ""
    busy = figures["gpu_busy_share"]
    return (
        f"steady pace ({figures['steps']} steps, without the first two and without measurements): "
        f"{number(figures['tokens_per_second_of_model'], 0)} tokens/s of model time, "
        f"{number(figures['tokens_per_second'], 0)} of wall; waiting for sandboxes "
        f"{percent(figures['sandbox_share'])}"
        + (f"; GPU busy {'not known' if busy is None else percent(busy)}" if gpu else "")
    )


@dataclass(slots=True)
class RunSummary:
    """A finished (or stopped) run.

    Attributes:
        before: Held-out measurement of the start by decode setting; must hold `sampled` or a single setting.
        after: The same for the chosen checkpoint (`best_step`), which is not always the last step.
        last_step: Optimizer steps taken.
        stopped: Why the run ended: `finished`, `patience`, `guard`, `interrupted` or what the trainer says.
        reason: What it failed with; empty after any other end.
        warnings: Notes on the run, as shown.
        findings: What guards warned of or stopped the run for, as shown.
        guards: The guards in figures (`Watch.to_json`), `guards_line` in words.
        confirmation: The headline: start and chosen weights on tasks that nothing chose on, or why there is none.
        memory: The most that the process took.
        checkpoints: One row per measured step, as text, the header first (`trainers.run.checkpoints`).
    """

    before: dict[str, Measurement]
    after: dict[str, Measurement]
    best_step: int
    last_step: int
    wall_seconds: float
    clock: Clock
    seed: int
    config_sha256: str
    best_metric: str = ""
    stopped: str = "finished"
    reason: str = ""
    warnings: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    guards: dict[str, Any] = field(default_factory=dict)
    guards_line: str = ""
    confirmation: Confirmation = field(default_factory=Confirmation)
    memory: PeakMemory | None = None
    checkpoints: tuple[tuple[str, ...], ...] = ()

    @property
    def deciding(self) -> str:
        """The setting that `held_out` reports at its top: `sampled` where it was measured."""
        return DECIDING if DECIDING in self.before else next(iter(self.before))

    def test(self, setting: str) -> PairedTest:
        """Paired test of after against before under one decode setting."""
        return paired_test(self.before[setting].outcomes, self.after[setting].outcomes)

    def to_json(self) -> dict[str, Any]:
        """The record that summary.json holds; the same keys in every run folder."""
        held_out: dict[str, Any] = {}
        if self.before:
            held_out = {"n": self.before[self.deciding].n, **self._pair(self.deciding)}
        held_out |= {"best_step": self.best_step, "best_metric": self.best_metric, "last_step": self.last_step}
        for setting in self.before:
            if setting != self.deciding:
                held_out[setting] = {"n": self.before[setting].n, **self._pair(setting)}
        return {
            "confirmation": self._confirmed(),
            "held_out": held_out,
            "wall_seconds": self.wall_seconds,
            "model_time_share": self.clock.model_time_share,
            "seed": self.seed,
            "config_sha256": self.config_sha256,
            "timing": self.clock.to_json(self.wall_seconds),
            "peak_memory": asdict(self.memory) if self.memory is not None else None,
            "stopped": self.stopped,
            "reason": self.reason,
            "warnings": [*self.warnings, *(finding.message for finding in self.findings)],
            "guards": self.guards,
        }

    def _confirmed(self) -> dict[str, Any]:
        c = self.confirmation
        out: dict[str, Any] = {"tasks": c.source, "why_none": c.why, "best_step": c.step}
        for arm in c.before:
            interval = c.interval(arm)
            out[arm] = {
                "n": c.before[arm].n,
                "decode": {"before": c.before[arm].sampling, "after": c.after[arm].sampling},
                "before": _figures(c.before[arm]),
                "after": _figures(c.after[arm]),
                "paired_test": asdict(c.test(arm)),
                "difference_interval": [interval.low, interval.high] if interval else None,
            }
        return out

    def _pair(self, setting: str) -> dict[str, Any]:
        return {
            "decode": self.before[setting].sampling,
            "before": _figures(self.before[setting]),
            "after": _figures(self.after[setting]),
            "paired_test": asdict(self.test(setting)),
        }


def _figures(m: Measurement) -> dict[str, Any]:
    return {
        "passed": m.passed,
        "assertion_rate": m.assertion_rate,
        "reward": m.reward,
        "mean_turns": m.mean_turns,
        "submitted": m.submitted,
        "pass_rate": m.pass_rate,
        "interval": [m.low, m.high],
        "graded": m.graded,
        "infrastructure": m.infrastructure,
        "pass_min": m.pass_min,
        "excluded": m.excluded,
        "broke": m.broke,
        "stops": m.stops,
    }


# -- Figures as people read them: counts with intervals, tables for the terminal. Used by console and evaluate --------

STOPS = tuple(reason.value for reason in StopReason)
"""Stop reasons, in the order shown."""


LOG_WIDTH = 120
"""Columns of a table where there is no terminal: a line of a log may be long, and a cell is not broken."""


def wide(console: Console) -> Console:
    """The console, at least `LOG_WIDTH` wide where it writes into a pipe or a file."""
    if not console.is_terminal:
        console.width = max(console.width, LOG_WIDTH)
    return console


def percent(value: float | None, digits: int = 1) -> str:
    """A share as percent; `-` for one that does not exist."""
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 2) -> str:
    """A number; `-` for one that does not exist."""
    return "-" if value is None else f"{value:.{digits}f}"


def p_text(p_value: float | None) -> str:
    """A p-value in two digits; `-` without one."""
    if p_value is None:
        return "-"
    return f"{p_value:.2g}" if p_value >= 1e-4 else "<0.0001"


def passes(m: Measurement) -> str:
    """Counts, rate, 95 % interval, and the rate with what was excluded: `152/320 = 47.5 % [42.1, 53.0], 0 excluded`."""
    return f"{rate_text(m)}, {both_ways(m.passed, m.graded, m.infrastructure)}"


def rate_text(m: Measurement) -> str:
    """Counts, rate and 95 % interval of the graded episodes."""
    if m.pass_rate is None or m.low is None or m.high is None:
        return f"nothing graded of {m.n}"
    return f"{m.passed}/{m.graded} = {percent(m.pass_rate)} [{100 * m.low:.1f}, {100 * m.high:.1f}]"


def excluded_text(m: Measurement) -> str:
    """Beside `rate_text`, in a cell of its own: `0`, or how many, and the rate with them counted as not passed."""
    return both_ways(m.passed, m.graded, m.infrastructure).replace(" excluded", "")


def both_ways(passed: int, graded: int, excluded: int) -> str:
    """What stands beside a pass rate: how many episodes have no grade, and the rate with them counted as not passed."""
    if not excluded:
        return "0 excluded"
    return f"{excluded} excluded: {passed}/{graded + excluded} = {percent(passed / (graded + excluded))}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Names with their counts: `script 3, command 1`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def apart(m: Measurement) -> str:
    """What judges said that run the agent's code in their own process: `3 of 6 passed, not counted`."""
    return "{} of {} passed, not counted".format(*m.in_process) if m.in_process else "-"


def stop_mix(m: Measurement) -> str:
    """Stop reasons with their shares of all episodes: `submitted 83 %, max_turns 17 %`."""
    known = [s for s in STOPS if s in m.stops] + sorted(set(m.stops) - set(STOPS))
    return ", ".join(f"{name or 'unfinished'} {percent(m.stops[name] / m.n, 0)}" for name in known) or "-"


def measurement_table(title: str, columns: Mapping[str, Measurement]) -> Table:
    """One column per measurement, one row per figure."""
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column(name)
    ms = list(columns.values())
    table.add_row("passed", *(rate_text(m) for m in ms))
    if any(m.in_process for m in ms):
        table.add_row("in-process judges", *(apart(m) for m in ms))
    table.add_row("excluded", *(excluded_text(m) for m in ms))
    if any(m.infrastructure for m in ms):
        table.add_row("[yellow]because of[/]", *(escape(counts_text(m.excluded)) for m in ms))
    if any(m.broke for m in ms):
        table.add_row("[yellow]fails that broke[/]", *(escape(counts_text(m.broke)) or "0" for m in ms))
    table.add_row("assertion rate", *(percent(m.assertion_rate) for m in ms))
    table.add_row("mean reward", *(number(m.reward, 3) for m in ms))
    table.add_row("mean turns", *(number(m.mean_turns) for m in ms))
    table.add_row("stop mix", *(stop_mix(m) for m in ms))
    table.add_row("decode", *(m.sampling for m in ms))
    return table


def confirmation_lines(c: Confirmation) -> list[str]:
    """The headline of a run in plain lines: one per arm, or why there is none."""
    if c.why:
        return [f"confirmed: nothing ({c.why})"]
    lines = [f"confirmed on {c.source}, on which nothing was trained or chosen: start against step {c.step}"]
    return [*lines, *(f"  {arm}: {_against(c.before[arm], c.after[arm], c.interval(arm))}" for arm in c.before)]


def _against(before: Measurement, after: Measurement, interval: Interval | None = None) -> str:
    """Two policies on the same tasks, in one line; with the interval of their difference, if it is given."""
    how = before.sampling if before.sampling == after.sampling else f"{before.sampling}, then {after.sampling}"
    test = paired_test(before.outcomes, after.outcomes)
    return f"{passes(before)} -> {passes(after)}; decode: {how}; {difference_text(test, interval)}"


def points_text(difference: float, interval: Interval | None = None) -> str:
    """A difference of two pass rates in points, with its interval, if that is given."""
    ends = "" if interval is None else f" [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"
    return f"{100 * difference:+.1f} points{ends}"


def difference_text(test: PairedTest, interval: Interval | None = None) -> str:
    """The difference of two pass rates with its paired p, and with its interval, if that is given."""
    if not test.tasks:
        return "no task was graded in both"
    return (
        f"difference {points_text(test.difference, interval)}, paired p {p_text(test.p_value)} "
        f"({test.test}: {test.better} tasks better, {test.worse} worse)"
    )


def summary_page(summary: RunSummary) -> str:
    """The end of a run as a page of Markdown: the headline, what chose the step, what was warned of."""
    headline, *arms = confirmation_lines(summary.confirmation)
    reason = [summary.reason, ""] if summary.reason else []
    lines = [f"# Run: {summary.stopped}", "", *reason, f"**{headline}**", "", *(f"- {line.strip()}" for line in arms)]
    lines += ["", "## What chose the step (its figures lean high)", ""]
    for arm in summary.before:
        lines.append(f"- held-out, {arm}: {_against(summary.before[arm], summary.after[arm])}")
    chosen = f"step {summary.best_step} of {summary.last_step} by held-out {summary.best_metric}"
    lines.append(f"- chosen: {chosen}" if summary.best_metric else f"- nothing: the last step is {summary.last_step}")
    if summary.checkpoints:
        lines += ["", "## Every measured step", "", *markdown_table(summary.checkpoints), "", " ".join(MEASURED_NOTE)]
    said = [*summary.warnings, *(finding.message for finding in summary.findings)]
    if said:
        lines += ["", "## Warnings", "", *(f"- {' '.join(message.split())}" for message in said)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


MEASURED_NOTE = (
    "p of each row is its own: the best of several rows leans high.",
    "Rows of the pool: the training episodes since the measurement before, of other tasks each time, so without a "
    "difference.",
)
"""What a reader of the table of measured steps should know; the second only where there is a pool."""


def markdown_table(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table of Markdown, the header first."""
    header, *rows = cells
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def text_table(title: str, cells: Sequence[Sequence[str]]) -> Table:
    """A table of rows of text, the header first."""
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    header, *rows = cells
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table
