"""The panel of guards: what each one judged by over the steps, its limit, where it fired and what it said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from trainers.guards import Fires, GuardName, Severity, parse_levels
from trainers.reporting.charts import spark
from trainers.reporting.episodes import shown
from trainers.reporting.folder import GaugeLine, RunFolder

SIDES: Mapping[Fires, str] = {
    Fires.ABOVE: "fires above",
    Fires.FROM: "fires from",
    Fires.BELOW: "fires below",
    Fires.TO: "fires at or below",
}


@dataclass(frozen=True, slots=True)
class GaugeView:
    """One figure: its name, how it stands and where the guard fires, and the line."""

    name: str
    now: str
    line: Markup


@dataclass(frozen=True, slots=True)
class GuardView:
    """One guard.

    Attributes:
        state: `silent`, `off`, or the hardest severity that it spoke with.
        tone: Class of the page for the state.
        gauges: Empty where it looks at settings, tasks or single episodes, and not at a figure of each step.
        said: Step, severity and message of its findings.
    """

    name: str
    state: str
    tone: str
    gauges: list[GaugeView]
    said: list[tuple[int, str, str]]


TONES: Mapping[Severity, str] = {Severity.NOTE: "no-grade", Severity.WARN: "failed", Severity.STOP: "failed"}


def guard_views(run: RunFolder) -> list[GuardView]:
    """All guards, those that spoke first, then those with figures."""
    try:
        on = parse_levels(str(run.config.get("guards", "all")))
    except ValueError as error:  # of another release, or changed by hand
        run.notes.append(f"config.yaml: guards: {error}: all are taken to be on.")
        on = dict.fromkeys(GuardName)
    views = [_view(run, name, on=name in on) for name in GuardName]
    return sorted(views, key=lambda view: (not view.said, not view.gauges))


def _view(run: RunFolder, name: GuardName, *, on: bool) -> GuardView:
    findings = [finding for finding in run.findings if finding.guard == name]
    said = [(finding.step, str(finding.severity), shown(finding.message)) for finding in findings]
    fired = [(float(step), f"step {step}, {severity}: {message}") for step, severity, message in said if step]
    steps = [float(step["step"]) for step in run.steps] or [0.0]
    span = min(steps), max(steps)
    gauges = [
        GaugeView(shown(title), _now(line), spark(line.points, line.limits, fired, f"{title} by step", span))
        for title, line in run.gauges.get(name, {}).items()
    ]
    if findings:
        hardest = max((finding.severity for finding in findings), key=list(Severity).index)
        return GuardView(name, hardest, TONES[hardest], gauges, said)
    return GuardView(name, "silent" if on else "off", "passed" if on else "no-grade", gauges, said)


def _now(line: GaugeLine) -> str:
    values = [value for _, value in line.points]
    span = f" ({min(values):.3g} to {max(values):.3g})" if min(values) < max(values) else ""
    return f"{values[-1]:.3g}{span}, {SIDES[line.fires]} {line.limits[-1][1]:.3g}"
