"""What the report page shows, computed from run folders: headline figures, charts, tables.

The template only lays this out; every number is made here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from agents.view.page import PAGE
from trainers.measure import Confirmation, Measurement
from trainers.reporting.charts import Figure
from trainers.reporting.episodes import SampleView, sample_episodes, shown
from trainers.reporting.folder import RunFolder
from trainers.reporting.guard_panel import GuardView, guard_views
from trainers.reporting.run_charts import run_figures, time_figure
from trainers.reporting.task_history import TaskSide, task_sides
from trainers.run.checkpoints import cells_of
from trainers.run.record import STEPS
from trainers.run.summary import both_ways, counts_text, number, p_text, passes, percent, points_text, stop_mix
from trainers.stats import paired_test


@dataclass(frozen=True, slots=True)
class Card:
    """One headline figure: what it is, before, after, and a line of detail."""

    name: str
    before: str
    after: str
    detail: str


@dataclass(frozen=True, slots=True)
class RunView:
    """One run's part of the page."""

    name: str
    path: str
    state: str
    lead: str
    cards: list[Card]
    warnings: list[str]
    notes: list[str]
    losses: list[tuple[str, str, str, int]]
    """Sandboxes that were lost: where it was played, task, command (empty while it was graded), how often."""
    checkpoints: list[tuple[str, ...]]
    """One row per measured step, the header first."""
    figures: list[Figure]
    time: Figure | None
    guards: list[GuardView]
    tasks: list[TaskSide]
    samples: list[SampleView]
    browser: str
    """Where the page of all episodes is (`python -m agents view`), seen from the report; empty where there is none."""
    decode: list[tuple[str, str]]
    config: str
    environment: str


def view_run(run: RunFolder, folder: Path | None = None) -> RunView:
    """Everything that the page shows of one run; `folder`: where it will stand, for links (default: the run's)."""
    browser = _browser(run, folder or run.path)
    samples, guards = sample_episodes(run), guard_views(run)  # first: they may add notes
    return RunView(
        name=run.name,
        path=str(run.path),
        state=_state(run),
        lead=_lead(run),
        cards=_cards(run),
        warnings=[shown(w) for w in dict.fromkeys(run.warnings)],
        notes=run.notes,
        losses=_losses(run),
        checkpoints=list(cells_of([(point.step, point.settings) for point in run.held_out], run.path / STEPS)),
        figures=run_figures(run, browser),
        time=time_figure(run),
        guards=guards,
        tasks=task_sides(run),
        samples=samples,
        browser=browser,
        decode=decode_rows(run),
        config=yaml_text(run.config),
        environment=yaml_text(run.environment),
    )


def headline(runs: Sequence[RunFolder]) -> str:
    """What came out, in one line."""
    if len(runs) > 1:
        return f"{len(runs)} runs compared"
    if (c := runs[0].confirmation) is not None and not c.why:
        sides = [
            f"{percent(b.pass_rate, 0)} to {percent(c.after[arm].pass_rate, 0)} {arm}" for arm, b in c.before.items()
        ]
        return f"Confirmed pass: {', '.join(sides)}"
    best, base = runs[0].best, runs[0].baseline
    if best is None or base is None:
        return f"Run {runs[0].name}"
    parts = [
        f"{percent(base.settings[s].pass_rate, 0)} to {percent(m.pass_rate, 0)} {s} "
        f"({both_ways(m.passed, m.graded, m.infrastructure)})"
        for s, m in best.settings.items()
        if s in base.settings
    ]
    return f"Held-out pass: {', '.join(parts)}"


def comparison(runs: Sequence[RunFolder]) -> list[tuple[str, ...]]:
    """One row per run: name, seed, before and after by setting, chosen step."""
    rows: list[tuple[str, ...]] = []
    for run in runs:
        best, base = run.best, run.baseline
        for setting in best.settings if best else ():
            assert best is not None
            before = base.settings.get(setting) if base else None
            rows.append(
                (
                    run.name,
                    str(run.config.get("seed", "-")),
                    setting,
                    passes(before) if before else "-",
                    passes(best.settings[setting]),
                    str(best.step),
                )
            )
    return rows


# -- headline -----------------------------------------------------------------------------------------------------


def _state(run: RunFolder) -> str:
    if not run.summary or "stopped" not in run.summary:
        return "unfinished"
    reason = run.summary.get("reason")  # summaries of older releases have none
    return f"{run.summary['stopped']}: {shown(str(reason), 400)}" if reason else str(run.summary["stopped"])


def _lead(run: RunFolder) -> str:
    best, base = run.best, run.baseline
    steps = int(run.steps[-1]["step"]) if run.steps else 0
    if best is None or base is None:
        return f"{steps} steps on the pool; nothing was measured on held-out tasks."
    setting = "sampled" if "sampled" in best.settings else next(iter(best.settings))
    n = best.settings[setting].tasks
    text = f"{steps} steps on the pool, measured on {n} held-out tasks that were never trained on."
    if best.step == 0:
        return text + " No checkpoint beat the start, so the start was chosen."
    text += f" Step {best.step} was chosen by its held-out score among {len(run.held_out)} evaluations, so its "
    if run.confirmation is not None and not run.confirmation.why:
        return f"{text}held-out figure leans high; the confirmed one, on {run.confirmation.source}, does not."
    why = f" (not confirmed: {run.confirmation.why})" if run.confirmation is not None else ""
    fresh = "measure it on fresh tasks with `python -m trainers.evaluate` before you quote it."
    return f"{text}figure leans high: {fresh}{why}"


def _cards(run: RunFolder) -> list[Card]:
    best, base = run.best, run.baseline
    cards = _confirmed_cards(run.confirmation)
    if best is not None and base is not None:
        for setting in (s for s in best.settings if s in base.settings):
            b, a = base.settings[setting], best.settings[setting]
            test = paired_test(b.outcomes, a.outcomes)
            detail = f"{passes(a)}; before {passes(b)}; paired p {p_text(test.p_value)}"
            cards.append(Card(f"held-out pass, {setting}", percent(b.pass_rate), percent(a.pass_rate), detail))
        setting = "sampled" if "sampled" in best.settings else next(iter(best.settings))
        b, a = base.settings[setting], best.settings[setting]
        cards.append(Card("assertion rate", percent(b.assertion_rate), percent(a.assertion_rate), setting))
        cards.append(Card("mean turns", number(b.mean_turns), number(a.mean_turns), stop_mix(a)))
        cards += _excluded_cards(base.settings, best.settings)
        cards.append(Card("chosen step", "", str(best.step), _chosen_by(run)))
    wall = (
        run.summary.get("wall_seconds") if run.summary else (run.steps[-1].get("wall_seconds") if run.steps else None)
    )
    if isinstance(wall, int | float):
        cards.append(Card("wall time", "", _duration(wall), _speed(run)))
    return cards


def _confirmed_cards(c: Confirmation | None) -> list[Card]:
    """The headline: start and chosen weights on tasks that nothing chose on."""
    if c is None:
        return []
    if c.why:
        return [Card("confirmed pass", "", "none", c.why)]
    cards = []
    for arm, before in c.before.items():
        after, test, interval = c.after[arm], c.test(arm), c.interval(arm)
        detail = f"{passes(after)}; before {passes(before)}; {before.sampling}"
        if interval is not None:
            detail += f"; {points_text(test.difference, interval)}, paired p {p_text(test.p_value)}"
        name = f"confirmed pass, {arm} ({c.source})"
        cards.append(Card(name, percent(before.pass_rate), percent(after.pass_rate), detail))
    return cards


def _excluded_cards(before: Mapping[str, Measurement], after: Mapping[str, Measurement]) -> list[Card]:
    """Episodes without a grade, and fails that look like it, for each setting that has any."""
    cards = []
    for setting in (s for s in after if s in before):
        b, a = before[setting], after[setting]
        if any(m.infrastructure or m.lost or m.broke for m in (b, a)):
            why = {**a.excluded, **({"lost (fails)": a.lost} if a.lost else {})}
            why |= {f"{kind} broke (fails)": count for kind, count in a.broke.items()}
            counts = str(b.infrastructure), str(a.infrastructure)
            cards.append(Card(f"excluded, {setting}", *counts, f"of {a.n}; {counts_text(why) or 'none at this step'}"))
    return cards


def _losses(run: RunFolder) -> list[tuple[str, str, str, int]]:
    """Those of held-out evaluations, and of training."""
    found = {"pool": run.pool_losses()}
    for point in run.held_out:
        for setting, m in point.settings.items():
            if m.losses:
                found[f"held-out, {setting}, step {point.step}"] = m.losses
    return [
        (where, shown(task), shown(command), count)
        for where, tasks in found.items()
        for task, commands in tasks.items()
        for command, count in commands.items()
    ]


def _chosen_by(run: RunFolder) -> str:
    metric = (run.summary or {}).get("held_out", {}).get("best_metric") or run.config.get("best_metric", "score")
    return f"best held-out {str(metric).replace('_', ' ')}"


def _speed(run: RunFolder) -> str:
    per_turn = (run.summary or {}).get("timing", {}).get("ms_per_turn")
    if not per_turn:
        return ""
    return "a turn: " + ", ".join(f"{name} {value:.1f} ms" for name, value in per_turn.items())


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def decode_rows(run: RunFolder) -> list[tuple[str, str]]:
    """What was sampled, and how: held-out measurements by their labels, the pool by its temperature."""
    rows: list[tuple[str, str]] = []
    for setting, m in (run.held_out[-1].settings if run.held_out else {}).items():
        rows.append((f"held-out, {setting}", m.sampling))
    if "temperature" in run.config:
        rows.append(("pool (training)", f"T={run.config['temperature']}"))
    return rows


def yaml_text(value: Mapping[str, Any]) -> str:
    """Settings as YAML, safe to show; empty for none."""
    return shown(yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True), 20_000) if value else ""


def rendered(template: str, **shown_there: Any) -> str:
    """A page as text, of a template in `trainers/templates`; a name that it lacks is an error."""
    environment = Environment(
        loader=PackageLoader("trainers", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["marked"] = _marked
    return environment.get_template(template).render(**shown_there)


def _marked(text: str) -> Markup:
    """Text, escaped; what stands between backticks is a command or a name, and is shown as one."""
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))


def _browser(run: RunFolder, folder: Path) -> str:
    page = run.path / PAGE
    if not page.exists():
        return ""
    return PAGE if folder.resolve() == run.path.resolve() else page.resolve().as_uri()


def default_output(runs: Sequence[RunFolder]) -> Path:
    """Where the page goes: into the folder of one run; for several, into the current folder."""
    return runs[0].path / "report.html" if len(runs) == 1 else Path("comparison.html")
