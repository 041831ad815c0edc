"""Folders of runs and evaluations, written, read and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from agents.models.loading import ModelSource
from agents.policies.scripted import ByteTokenizer
from agents.policy import Policy
from agents.rollout import RolloutResult
from agents.trajectory import LOSSES, Trajectory, write_jsonl
from tasks.model import LONE_SURROGATES, atomic_file
from tasks.task import Task
from trainers.errors import RunFolderError
from trainers.guards import Finding, Severity
from trainers.jsonl import plain, read_lines, write_json, write_whole
from trainers.measure import Confirmation, Measurement
from trainers.run import record
from trainers.run.machine import describe_environment
from trainers.run.record import CONFIG, ENVIRONMENT, TASKS, refuse_occupied
from trainers.run.summary import measurement_table, p_text
from trainers.stats import Outcomes, fisher_exact, paired_test, tasks_needed

# -- The run folder, read: what `RunRecord` wrote, as plain data, also of a run that was killed or is still going -----


@dataclass(frozen=True, slots=True)
class HeldOutPoint:
    """One held-out evaluation; `settings` by decode setting, `best` when it became the best."""

    step: int
    settings: dict[str, Measurement]
    best: bool


@dataclass(slots=True)
class RunFolder:
    """Everything in a run folder but the episodes, which are read when asked for.

    Attributes:
        name: Last part of the path, for titles and legends.
        intents: What each task asks for, by its id.
        steps: One mapping per logged training step (metric name to value), in order.
        held_out: Held-out evaluations in order.
        confirmation: Start and chosen weights on tasks that nothing chose on; `None` before it is done.
        summary: summary.json; `None` while the run goes on or after it was killed.
        warnings: Notes on the run, and what guards warned of or stopped it for (runs of release 0.5 and earlier
            have all of them in warnings.jsonl).
        findings: What guards found, notes included.
        notes: What is missing or torn, for people.
    """

    path: Path
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    intents: dict[str, str] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    held_out: list[HeldOutPoint] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    confirmation: Confirmation | None = None
    warnings: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
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

    def pool_losses(self) -> list[Trajectory]:
        """Kept training episodes in which a sandbox was lost. Other lines are not even read as JSON."""
        out: list[Trajectory] = []
        for path in sorted((self.path / record.EPISODES).glob("step_*.jsonl")):
            with open(path, encoding="utf-8", errors=LONE_SURROGATES) as file:
                if any(f'"{LOSSES}": [' in line for line in file):
                    out += [episode for episode in self._episodes(path) if LOSSES in episode.notes]
        return out

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
    run.steps = [line for line in _lines(run, record.METRICS) if "reward" in line]
    run.findings = [record.finding_of(line) for line in _lines(run, record.FINDINGS)]
    run.warnings = [str(line["message"]) for line in _lines(run, record.WARNINGS)]
    run.warnings += [finding.message for finding in run.findings if finding.severity is not Severity.NOTE]
    for line in _lines(run, record.HELD_OUT):
        try:
            settings = {name: Measurement.from_json(m) for name, m in line["settings"].items()}
            run.held_out.append(HeldOutPoint(line["step"], settings, line["best"]))
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{run.path / record.HELD_OUT}: step {line.get('step')}: {error}") from error
    if run.summary is None:
        run.notes.append("This run has no summary.json: it is still going, or it was stopped before its end.")
    return run


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


# -- The folder of one evaluation: who was measured on what, every episode, and the figures ---------------------------
# Episodes are written as they end, so that those of an evaluation that failed or was stopped are kept.

FILE = "evaluation.json"


class EvaluationRecord:
    """Writer of an evaluation folder: config.yaml, environment.json, evaluation.json, episodes_<arm>.jsonl.

    Args:
        folder: Made if missing; an occupied one is refused.

    Raises:
        RunFolderError: It is occupied.
    """

    def __init__(self, folder: Path) -> None:
        refuse_occupied(folder, hint="choose another --output_dir, or remove it")
        self.path = folder
        self._tasks: dict[str, str] = {}
        self._in_process: list[str] = []
        self._date = ""
        self._ended = self._broken = 0
        self._model: dict[str, Any] = {}
        self._arms: dict[str, dict[str, Any]] = {}
        self._timing: dict[str, dict[str, Any]] = {}

    def begin(
        self,
        settings: Mapping[str, Any],
        tasks: Sequence[Task],
        *,
        model: ModelSource | None,
        in_process: Collection[str] = (),
        **environment: Any,
    ) -> None:
        """Write what is known before the first episode; `in_process` are ids of tasks that do not count.

        Raises:
            RunFolderError: The folder cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot write the folder {self.path}: {error.strerror}") from error
        self._tasks = {task.id: task.content_hash for task in tasks}
        self._in_process = sorted(in_process)
        self._date = datetime.now(UTC).isoformat(timespec="seconds")
        self._model = {"name": settings["model"]}
        if model is not None:
            self._model |= {"location": model.location, "kind": str(model.kind), "sha256": model.sha256()}
        write_whole(self.path / CONFIG, yaml.safe_dump(plain(settings), sort_keys=False, allow_unicode=True))
        write_json(self.path / ENVIRONMENT, {**describe_environment(), **environment})

    @contextmanager
    def episodes(self, arm: str) -> Iterator[Callable[[Trajectory], None]]:
        """Takes the episodes of one decode setting as they end; `add` puts the whole set in their place."""
        self._ended = self._broken = 0
        with open(self._partial(arm), "w", encoding="utf-8", errors=LONE_SURROGATES) as file:

            def keep(episode: Trajectory) -> None:
                write_jsonl([episode], file)
                self._ended += 1
                self._broken += episode.stop_reason == "infrastructure"

            yield keep

    def kept(self, arm: str) -> str:
        """What is left of a decode setting that did not come to its end, for a person."""
        return (
            f"{self._ended - self._broken} finished episodes (and {self._broken} without a grade) are in "
            f"{self._partial(arm)}"
        )

    def add(self, arm: str, measurement: Measurement, result: RolloutResult, policy: Policy) -> None:
        """One decode setting is done: its episodes, and the figures so far."""
        with atomic_file(self.path / f"episodes_{arm}.jsonl", sync=False) as file:
            write_jsonl(result.trajectories, file)
        self._partial(arm).unlink(missing_ok=True)
        self._arms[arm] = measurement.to_json()
        self._timing[arm] = {**asdict(result.timing), "overhead_seconds": result.timing.overhead_seconds}
        if isinstance(policy.tokenizer, ByteTokenizer):
            self._timing[arm]["sampled_tokens"] = None  # its ids are bytes
        describe = getattr(policy, "describe", None)
        model = {**self._model, **(describe() if describe is not None else {})}
        record = {
            "model": model,
            "date": self._date,
            "tasks": self._tasks,
            "in_process_judges": self._in_process,
            "arms": self._arms,
            "timing": self._timing,
        }
        write_json(self.path / FILE, record)

    def _partial(self, arm: str) -> Path:
        return self.path / f"episodes_{arm}.partial.jsonl"


# ---------------------------------------------------------------------------------------------------------------------
# Two evaluations on the same tasks: paired, with the decode settings of both, or a clear word where that cannot be.


@dataclass(frozen=True, slots=True)
class Arms:
    """Measurements of one folder.

    Attributes:
        name: For tables.
        settings: By decode setting.
        hashes: Content hash of each task measured on.
        prompts: Style and hash of the prompts; empty where the folder is older than that record.
        agent_errors: What counted where the agent kept itself from being judged; empty likewise.
    """

    name: str
    settings: dict[str, Measurement]
    hashes: dict[str, str]
    prompts: str = ""
    agent_errors: str = ""


def read_arms(path: str | Path) -> Arms:
    """Measurements of an evaluation folder, or of a run folder's chosen step.

    Raises:
        RunFolderError: It is neither, or it is damaged.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RunFolderError(f"no such folder: {path} (an evaluation folder or a run folder is needed)")
    if (folder / FILE).exists():
        record = read_mapping(folder / FILE)
        try:
            settings = {name: Measurement.from_json(m) for name, m in record["arms"].items()}
            return Arms(str(path), settings, dict(record["tasks"]), _prompts(folder), _agent_errors(folder))
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{folder / FILE}: not an evaluation ({error})") from error
    run = read_run(folder)
    if run.best is None:
        raise RunFolderError(f"{path} holds no held-out evaluation to compare")
    lock = read_mapping(folder / TASKS)
    measured = {**lock.get("held_out", {}), **lock.get("unseen", {})}
    name = f"{path} (step {run.best.step})"
    return Arms(name, run.best.settings, measured, _prompts(folder), _agent_errors(folder))


def compare_arms(first: Arms, second: Arms) -> Iterator[Table | str]:
    """Tables and lines for a person: each shared decode setting, or the only one of each.

    Raises:
        RunFolderError: The folders share no decode setting and have several.
    """
    pairs = [(name, name) for name in first.settings if name in second.settings]
    if not pairs:
        if len(first.settings) != 1 or len(second.settings) != 1:
            raise RunFolderError(
                f"no decode setting in common: {first.name} has {', '.join(first.settings)}, "
                f"{second.name} has {', '.join(second.settings)}"
            )
        pairs = [(next(iter(first.settings)), next(iter(second.settings)))]
    if first.prompts and second.prompts and first.prompts != second.prompts:
        yield f"[yellow]the prompts differ:[/] A {first.prompts}; B {second.prompts}"
    if first.agent_errors and second.agent_errors and first.agent_errors != second.agent_errors:
        yield f"[yellow]agent_errors differs:[/] A {first.agent_errors}; B {second.agent_errors}"
    changed = {t for t, h in first.hashes.items() if second.hashes.get(t, h) != h}
    for a_name, b_name in pairs:
        yield from _pair(first, second, first.settings[a_name], second.settings[b_name], a_name, b_name, changed)


def _pair(
    first: Arms, second: Arms, a: Measurement, b: Measurement, a_name: str, b_name: str, changed: set[str]
) -> Iterator[Table | str]:
    title = a_name if a_name == b_name else f"{a_name} against {b_name}"
    yield measurement_table(title, {f"A  {first.name}": a, f"B  {second.name}": b})
    if a.sampling != b.sampling:
        yield f"[yellow]the decode settings differ:[/] A {a.sampling}; B {b.sampling}"
    if changed:
        yield f"{len(changed)} tasks have the same id and other content in A and B: they are left out"
    test = paired_test(_without(a.outcomes, changed), _without(b.outcomes, changed))
    if not test.tasks:
        p = fisher_exact(a.passed, a.graded, b.passed, b.graded)
        yield f"no task in common: unpaired p {p_text(p)} (Fisher's exact test, attempts taken as independent)\n"
        return
    yield (
        f"B minus A: {100 * test.difference:+.1f} points on {test.tasks} shared tasks; paired p {p_text(test.p_value)} "
        f"({test.test}: {test.better} tasks better, {test.worse} worse, {test.tasks - test.better - test.worse} equal)"
    )
    if test.unpaired:
        yield f"{test.unpaired} tasks have a graded attempt on one side only and are not in the test"
    if test.p_value > 0.05 and test.difference and a.pass_rate is not None and b.pass_rate is not None:
        needed = tasks_needed(a.pass_rate, b.pass_rate)
        if needed:
            yield f"not significant at 5 %: unpaired, such a difference needs about {needed} tasks per side"
    yield ""


def _without(outcomes: dict[str, list[bool]], tasks: set[str]) -> Outcomes:
    return {task: passes for task, passes in outcomes.items() if task not in tasks}


def _prompts(folder: Path) -> str:
    record = read_mapping(folder / ENVIRONMENT)
    return f"{record['prompt_style']} ({record['prompt_hash']})" if record.get("prompt_hash") else ""


def _agent_errors(folder: Path) -> str:
    return str(read_mapping(folder / CONFIG).get("agent_errors", ""))
