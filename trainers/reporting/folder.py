"""The run folder, read: what `RunRecord` wrote, as plain data, also of a run that was killed or is still going."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agents.trajectory import LOSSES, Trajectory
from tasks.model import LONE_SURROGATES
from trainers.errors import RunFolderError
from trainers.guards import Finding, Fires, Severity
from trainers.jsonl import read_lines
from trainers.measure import POOL, Confirmation, Measurement, TaskCounts, losses_of
from trainers.run import record


@dataclass(frozen=True, slots=True)
class HeldOutPoint:
    """One held-out evaluation; `settings` by decode setting, `best` when it became the best."""

    step: int
    settings: dict[str, Measurement]
    best: bool


@dataclass(frozen=True, slots=True)
class GaugeLine:
    """One figure that a guard judges by, over the steps: (step, value) and (step, limit); it fires on `fires` of it."""

    fires: Fires
    points: list[tuple[float, float]] = field(default_factory=list)
    limits: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StepOutcomes:
    """Attempts by task of one training step (`arm` is `pool`) or of one held-out evaluation; lost sandboxes."""

    step: int
    arm: str
    tasks: dict[str, TaskCounts]
    losses: dict[str, dict[str, int]]


@dataclass(slots=True)
class RunFolder:
    """Everything in a run folder but the episodes, which are read when asked for.

    Attributes:
        name: Last part of the path, for titles and legends.
        intents: What each task asks for, by its id.
        parts: The parts that each task is of (`trainers.measure.parts_of`); empty in runs of release 0.6 and earlier.
        steps: One mapping per logged training step (metric name to value), in order.
        held_out: Held-out evaluations in order.
        confirmation: Start and chosen weights on tasks that nothing chose on; `None` before it is done.
        summary: summary.json; `None` while the run goes on or after it was killed.
        warnings: Notes on the run, and what guards warned of or stopped it for (runs of release 0.5 and earlier
            have all of them in warnings.jsonl).
        findings: What guards found, notes included.
        gauges: What guards judged by, by guard and name; empty in runs of release 0.6 and earlier.
        outcomes: Attempts by task, in order; empty in runs of release 0.6 and earlier.
        notes: What is missing or torn, for people.
    """

    path: Path
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    intents: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    held_out: list[HeldOutPoint] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    confirmation: Confirmation | None = None
    warnings: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    gauges: dict[str, dict[str, GaugeLine]] = field(default_factory=dict)
    outcomes: list[StepOutcomes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> HeldOutPoint | None:
        """The chosen evaluation: the last that became the best."""
        return next((point for point in reversed(self.held_out) if point.best), None)

    @property
    def baseline(self) -> HeldOutPoint | None:
        """The evaluation at step 0."""
        return self.held_out[0] if self.held_out and self.held_out[0].step == 0 else None

    def series(self, metric: str) -> list[tuple[float, float]]:
        """(step, value) of a logged metric, steps without it left out."""
        return [(float(s["step"]), float(s[metric])) for s in self.steps if isinstance(s.get(metric), int | float)]

    def held_out_episodes(self, step: int, setting: str) -> list[Trajectory]:
        """Episodes of one held-out evaluation; none when they were not kept."""
        return self._episodes(self.path / record.HELD_OUT_EPISODES / f"step_{step:06d}_{setting}.jsonl")

    def training_steps(self) -> list[int]:
        """Steps whose episodes were kept, ascending."""
        return sorted(int(p.name[5:11]) for p in (self.path / record.EPISODES).glob("step_*.jsonl"))

    def training_episodes(self, step: int) -> list[Trajectory]:
        """Episodes of one training step; none when they were not kept."""
        return self._episodes(self.path / record.EPISODES / f"step_{step:06d}.jsonl")

    def pool_losses(self) -> dict[str, dict[str, int]]:
        """Sandboxes that were lost in training (`trainers.measure.Measurement.losses`).

        A run of release 0.6 or earlier wrote no outcomes: of it the kept episodes are searched, and only those lines
        read as JSON that have a loss.
        """
        if self.outcomes:
            total: dict[str, dict[str, int]] = {}
            for one in self.outcomes:
                for task, commands in one.losses.items() if one.arm == POOL else ():
                    counts = total.setdefault(task, {})
                    for command, count in commands.items():
                        counts[command] = counts.get(command, 0) + count
            return total
        out: list[Trajectory] = []
        for path in sorted((self.path / record.EPISODES).glob("step_*.jsonl")):
            with open(path, encoding="utf-8", errors=LONE_SURROGATES) as file:
                if any(f'"{LOSSES}": [' in line for line in file):
                    out += [episode for episode in self._episodes(path) if LOSSES in episode.notes]
        return losses_of(out)

    def _episodes(self, path: Path) -> list[Trajectory]:
        lines, torn = read_lines(path)
        if torn:
            self.notes.append(torn)
        try:
            return [Trajectory.from_json(line) for line in lines]
        except (TypeError, KeyError, ValueError) as error:
            raise RunFolderError(f"{path}: not a trajectory ({error})") from error


def read_run(path: str | Path) -> RunFolder:
    """Read a run folder.

    Raises:
        RunFolderError: It is no run folder, or a file in it is damaged (other than a torn last line).
    """
    run = RunFolder(Path(path), Path(path).resolve().name)
    if not run.path.is_dir():
        raise RunFolderError(f"no such run folder: {path}")
    if not (run.path / record.METRICS).exists() and not (run.path / record.HELD_OUT).exists():
        raise RunFolderError(f"{path} is no run folder: neither {record.METRICS} nor {record.HELD_OUT} is in it")
    run.config = read_mapping(run.path / record.CONFIG)
    run.environment = read_mapping(run.path / record.ENVIRONMENT)
    run.summary = read_mapping(run.path / record.SUMMARY) or None
    if found := read_mapping(run.path / record.CONFIRMATION):
        try:
            run.confirmation = Confirmation.from_json(found)
        except (TypeError, ValueError) as error:
            raise RunFolderError(f"{run.path / record.CONFIRMATION}: not a confirmation ({error})") from error
    for line in _lines(run, record.INTENTS):
        run.intents[line["id"]] = line["intent"]
        run.parts[line["id"]] = line.get("parts", {})
    run.steps = [line for line in _lines(run, record.METRICS) if "reward" in line]
    run.findings = [record.finding_of(line) for line in _lines(run, record.FINDINGS)]
    run.warnings = [str(line["message"]) for line in _lines(run, record.WARNINGS)]
    run.warnings += [finding.message for finding in run.findings if finding.severity is not Severity.NOTE]
    _read_gauges(run)
    for line in _lines(run, record.OUTCOMES):
        try:
            run.outcomes.append(_outcomes_of(line))
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{run.path / record.OUTCOMES}: step {line.get('step')}: {error}") from error
    for line in _lines(run, record.HELD_OUT):
        try:
            settings = {name: Measurement.from_json(m) for name, m in line["settings"].items()}
            run.held_out.append(HeldOutPoint(line["step"], settings, line["best"]))
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{run.path / record.HELD_OUT}: step {line.get('step')}: {error}") from error
    if run.summary is None:
        run.notes.append("This run has no summary.json: it is still going, or it was stopped before its end.")
    return run


def _read_gauges(run: RunFolder) -> None:
    try:
        for line in _lines(run, record.GAUGES):
            for guard, name, value, fires, limit in line["figures"]:
                if value is not None and limit is not None:  # no number, which JSON does not hold
                    gauge = run.gauges.setdefault(guard, {}).setdefault(name, GaugeLine(Fires(fires)))
                    gauge.points.append((line["step"], value))
                    gauge.limits.append((line["step"], limit))
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{run.path / record.GAUGES}: not figures of guards ({error})") from error


def _outcomes_of(line: Mapping[str, Any]) -> StepOutcomes:
    tasks = {t["task"]: TaskCounts(t["n"], t["graded"], t["passed"], dict(t["failed"])) for t in line["tasks"]}
    return StepOutcomes(line["step"], line["arm"], tasks, line["losses"])


def _lines(run: RunFolder, name: str) -> list[dict[str, Any]]:
    lines, torn = read_lines(run.path / name)
    if torn:
        run.notes.append(torn)
    return lines


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON or YAML file of a folder; empty where there is none, or where it holds something else.

    Raises:
        RunFolderError: It cannot be read.
    """
    if not path.exists():
        return {}
    text, is_yaml = path.read_text(encoding="utf-8"), path.suffix == ".yaml"
    try:
        value = yaml.safe_load(text) if is_yaml else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        raise RunFolderError(f"{path}: not {'YAML' if is_yaml else 'JSON'} ({error})") from error
    return value if isinstance(value, dict) else {}
