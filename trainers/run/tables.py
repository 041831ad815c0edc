"""Figures as people read them: counts with intervals, tables for the terminal. Used by console and evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from envs.episode import StopReason
from trainers.measuring.confirmation import Confirmation
from trainers.measuring.measure import Measurement
from trainers.stats import wilson

STOPS = tuple(reason.value for reason in StopReason)
"""Stop reasons, in the order shown."""


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
    for arm, before in c.before.items():
        after, test, interval = c.after[arm], c.test(arm), c.interval(arm)
        how = before.sampling if before.sampling == after.sampling else f"{before.sampling}, then {after.sampling}"
        head = f"  {arm}: {passes(before)} -> {passes(after)}; decode: {how}"
        if interval is None:
            lines.append(f"{head}; no task was graded in both")
            continue
        lines.append(
            f"{head}; difference {100 * test.difference:+.1f} points [{100 * interval.low:+.1f}, "
            f"{100 * interval.high:+.1f}], paired p {p_text(test.p_value)} ({test.test}: {test.better} tasks better, "
            f"{test.worse} worse)"
        )
    return lines


def count_table(title: str, names: str, columns: Mapping[str, Mapping[str, Sequence[int]]]) -> Table:
    """Passed of total with interval, one row per key (family or assertion kind), one column per measurement."""
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False)
    table.add_column(names)
    for name in columns:
        table.add_column(name)
    for key in sorted({k for counts in columns.values() for k in counts}):
        table.add_row(escape(key), *(_cell(counts.get(key)) for counts in columns.values()))
    return table


def _cell(count: Sequence[int] | None) -> str:
    if not count or not count[1]:
        return "-"
    passed, n = count
    interval = wilson(passed, n)
    return f"{passed}/{n} = {percent(passed / n, 0)} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"
