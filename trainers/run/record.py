"""Every file of a run folder, written."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from agents.credited import FOLDER, Advantages, EpisodeKey, advantages_file, write_advantages
from agents.trajectory import Trajectory, write_jsonl
from tasks.images import IMAGES, other_images, recorded_images
from tasks.model import TaskError, atomic_file, remove_part_files
from tasks.splits import Split, write_lock
from trainers.errors import RunFolderError
from trainers.guards import Finding, Gauge, Severity
from trainers.jsonl import append_line, cut_lines, plain, read_lines, write_json, write_whole
from trainers.measure import POOL, Confirmation, Episodes, losses_of, parts_of, task_counts
from trainers.rollouts.rules import first_drawn
from trainers.run.folder import GOES_ON, OCCUPIED, lock_folder, refuse_no_run, refuse_occupied, replace_run
from trainers.run.machine import describe_environment
from trainers.run.steps import StepRow, StepsCsv
from trainers.run.summary import RunSummary, summary_page

if TYPE_CHECKING:
    from trainers.heldout import Evaluation


# ---------------------------------------------------------------------------------------------------------------------
# The run folder, written: everything that a run's figures rest on, safe against kill -9, never silently overwritten.
#
# Steps: what belongs to optimizer step S (logs, episodes trained on) carries S, counted from 1; a held-out evaluation
# carries the number of optimizer steps taken before it, 0 for the baseline. A run that resumes from checkpoint N keeps
# everything up to N; what an earlier process wrote beyond it moves to `superseded/`. One process writes at a time.

CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
TASKS = "tasks.lock"
INTENTS = "tasks.jsonl"
METRICS = "metrics.jsonl"
STEPS = "steps.csv"
HELD_OUT = "held_out.jsonl"
SUMMARY = "summary.json"
SUMMARY_PAGE = "SUMMARY.md"
REPORT = "report.html"
EPISODES = "trajectories"
ADVANTAGES = FOLDER
HELD_OUT_EPISODES = "held_out"
CONFIRMATION = "confirmation.json"
CONFIRMED = "confirm_"
"""Begins the names of the confirmation's episodes, which lie beside those of the held-out evaluations."""
SUPERSEDED = "superseded"
EMERGENCE = ("emergence/steps.jsonl", "emergence/generations.jsonl")
"""Logs of other projects, where a run writes them."""
WARNINGS = "warnings.jsonl"
FINDINGS = "guards.jsonl"
GAUGES = "guard_figures.jsonl"
OUTCOMES = "outcomes.jsonl"
"""Attempts by task: of each training step (arm `POOL`), and of each held-out evaluation."""
TRAINED = "train_loss"
"""In the metrics line that is written when training is over."""
BEST_FOLDERS = ("best", "best.old", "best.tmp")


class RunRecord:
    """Writer of one run folder.

    `changed` are the settings that another process of the run had not, `other_images` the images: lines for people.

    Args:
        output_dir: The folder; made if missing.
        resume: Go on with the run in an occupied folder; without it an occupied folder is refused.
        overwrite: Where a run is, move it to `<output_dir>.replaced-<n>` first.

    Raises:
        RunFolderError: The folder is occupied, holds no run to go on with, is no folder, cannot be written, or another
            process writes it.
    """

    def __init__(self, output_dir: str | Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path = Path(output_dir)
        self._lock: int | None = None
        self.moved_to = replace_run(self.path) if overwrite else None
        if resume:
            refuse_no_run(self.path, how=GOES_ON)
        else:
            refuse_occupied(self.path, hint=OCCUPIED)
        self._made = not self.path.is_dir()
        self._fresh = self._made or not any(self.path.iterdir())
        self._settings_before: str | None = None
        self.changed: dict[str, str] = {}
        self.other_images: list[str] = []
        try:
            self.path.resolve().mkdir(parents=True, exist_ok=True)  # a link may stand for a folder that was moved
            (self.path / EPISODES).mkdir(exist_ok=True)
            (self.path / HELD_OUT_EPISODES).mkdir(exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot write the run folder {self.path}: {error.strerror}") from error
        self._lock = lock_folder(self.path)
        self._csv = StepsCsv(self.path / STEPS)
        self._pending: dict[int, StepRow] = {}
        self._credited: tuple[int, dict[EpisodeKey, Sequence[float | None]]] = (0, {})
        self._before = 0.0
        self._start = time.monotonic()

    # -- once ---------------------------------------------------------------------------------------------------

    def write_config(self, resolved: Mapping[str, Any]) -> None:
        """The resolved settings, as YAML that `--config` takes back; a differing older file is kept beside it."""
        text = yaml.safe_dump(plain(resolved), sort_keys=False, allow_unicode=True)
        path = self.path / CONFIG
        before = path.read_text(encoding="utf-8") if path.exists() else text
        if before != text:
            # A copy: at no moment is a run without its settings, which --resume alone would look for.
            write_whole(self._kept_config(), before)
            self._settings_before = before
            self.changed = _differences(before, text)
        write_whole(path, text)

    def settings_back(self) -> None:
        """The settings of this start were not gone on with: the next `--resume` finds those from before."""
        if self._settings_before is not None:
            write_whole(self.path / CONFIG, self._settings_before)
            self._kept_config(-1).unlink(missing_ok=True)
            self._settings_before = None

    def _kept_config(self, after: int = 0) -> Path:
        number = len(list(self.path.glob("config.before_resume_*.yaml"))) + 1 + after
        return self.path / f"config.before_resume_{number}.yaml"

    def write_environment(self, *, images: Mapping[str, Sequence[str]], **extra: Any) -> None:
        """Versions, machine and commit, ids of images by name, with what the caller adds (backend, prompt hash).

        Raises:
            RunFolderError: What an earlier process wrote there is damaged.
        """
        path = self.path / ENVIRONMENT
        try:
            self.other_images = other_images(recorded_images(path), images)
        except ValueError as error:
            raise RunFolderError(f"{path}: cannot be read ({error})") from error
        write_json(path, {**describe_environment(), **extra, IMAGES: images})

    def write_tasks(self, split: Split) -> None:
        """The lock file of the run's tasks; intent and family of each, for people.

        Raises:
            RunFolderError: The run resumes and its tasks are not those it started with.
        """
        path = self.path / TASKS
        try:
            write_lock(split, path)
        except TaskError as error:
            raise RunFolderError(
                f"{path}: the tasks are not those this run started with; resume with the same --tasks, --held_out "
                f"and --confirm, or choose another --output_dir\n{error}"
            ) from error
        parts = parts_of([task for tasks in split.sides.values() for task in tasks])
        lines = [
            {"id": task.id, "split": name, "family": task.family, "intent": task.intent, "parts": parts[task.id]}
            for name, tasks in split.sides.items()
            for task in tasks
        ]
        write_whole(self.path / INTENTS, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    # -- as the run goes ----------------------------------------------------------------------------------------

    @property
    def wall_seconds(self) -> float:
        """Wall time of the run so far, that of earlier processes of a resumed run included."""
        return self._before + time.monotonic() - self._start

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl; completes the rows of steps.csv up to `step`."""
        metrics = {"wall_seconds": round(self.wall_seconds, 3), **metrics}
        append_line(self.path / METRICS, {"step": step, **metrics})
        if any(name.startswith("eval_") for name in metrics):
            return  # a held-out evaluation belongs to no row of steps.csv
        for number in sorted(n for n in self._pending if n <= step):
            row = self._pending.pop(number)
            self._csv.append(row.with_metrics(metrics) if number == step else row)
            self._write_outcomes(number, POOL, first_drawn(row.episodes), losses_of(row.episodes))

    def _write_outcomes(
        self, step: int, arm: str, episodes: Iterable[Trajectory], losses: Mapping[str, Mapping[str, int]]
    ) -> None:
        tasks = [
            {"task": task, **asdict(counts), "failed": list(counts.failed.items())}
            for task, counts in task_counts(episodes).items()
        ]
        append_line(self.path / OUTCOMES, {"step": step, "arm": arm, "tasks": tasks, "losses": losses})

    def write_episodes(self, step: int, trajectories: Sequence[Trajectory], *, keep: bool = True) -> None:
        """The episodes of optimizer step `step` (counted from 1: `global_step + 1` while they are played).

        Args:
            step: The step that trains on them.
            trajectories: All attempts of the step, those without a grade included.
            keep: Write the trajectories; without it only their figures go into steps.csv.
        """
        if step in self._pending:  # several generations in one optimizer step
            self._pending[step] = self._pending[step].joined(trajectories)
        else:
            self._pending[step] = StepRow.of(step, trajectories)
        if keep:
            _write_trajectories(self.path / EPISODES / f"step_{step:06d}.jsonl", self._pending[step].episodes)

    def write_advantages(self, step: int, advantages: Advantages) -> None:
        """What the turns of the step's episodes were credited with (`agents.credited`)."""
        if self._credited[0] != step:
            self._credited = (step, {})
        self._credited[1].update(advantages)  # several generations in one optimizer step
        (self.path / ADVANTAGES).mkdir(exist_ok=True)
        write_advantages(advantages_file(self.path, Path(f"step_{step:06d}.jsonl")), self._credited[1])

    def write_held_out(
        self,
        evaluation: Evaluation,
        episodes: Mapping[str, Sequence[Trajectory]],
        *,
        best_step: int | None = None,
        metric: str = "",
    ) -> None:
        """One held-out evaluation: trajectories by arm, and one line of figures.

        Args:
            evaluation: As it was judged.
            episodes: By arm.
            best_step: The best step now.
            metric: The deciding figure.
        """
        step = evaluation.step
        for name, trajectories in episodes.items():
            _write_trajectories(self.path / HELD_OUT_EPISODES / f"step_{step:06d}_{name}.jsonl", trajectories)
        line = {
            "step": step,
            "wall_seconds": round(self.wall_seconds, 3),
            "settings": {name: m.to_json() for name, m in evaluation.arms.items()},
            "best": evaluation.is_best,
            "p_value": evaluation.p_value,
            "p_values": evaluation.p_values,
            "best_step": best_step,
            "metric": metric,
            "pool_not_used": asdict(evaluation.pool) if evaluation.pool else None,
        }
        append_line(self.path / HELD_OUT, line)
        for name, trajectories in episodes.items():
            self._write_outcomes(step, name, trajectories, losses_of(trajectories))

    def write_confirmation(self, confirmation: Confirmation, episodes: Episodes) -> None:
        """What the start and `best/` do on tasks that nothing chose on; the episodes first, by policy and arm."""
        for policy, arms in episodes.items():
            for name, trajectories in arms.items():
                path = self.path / HELD_OUT_EPISODES / f"{CONFIRMED}{policy}_{name}.jsonl"
                _write_trajectories(path, trajectories)
        write_json(self.path / CONFIRMATION, confirmation.to_json())

    def warn(self, step: int, message: str) -> None:
        """A note on the run that is no guard's (few held-out tasks, a setting that does nothing), for the report.

        A resumed run comes to the same step again: what stands there is not written twice.
        """
        line = {"step": step, "message": message}
        if line not in read_lines(self.path / WARNINGS)[0]:
            append_line(self.path / WARNINGS, line)

    def warnings(self) -> list[str]:
        """What was warned of so far, by earlier processes of a resumed run too."""
        lines, _ = read_lines(self.path / WARNINGS)
        return list(dict.fromkeys(str(line["message"]) for line in lines))

    def write_finding(self, finding: Finding) -> None:
        """What a guard found: one line of guards.jsonl."""
        append_line(self.path / FINDINGS, asdict(finding))

    def write_gauges(self, step: int, gauges: Mapping[str, Sequence[Gauge]]) -> None:
        """What the guards judge by after a step: `[guard, name, value, side, limit]` of each, one line for the step."""
        figures = [[guard, one.name, one.value, one.fires, one.limit] for guard, some in gauges.items() for one in some]
        append_line(self.path / GAUGES, {"step": step, "figures": figures})

    def findings(self) -> list[Finding]:
        """What guards found so far, in earlier processes of a resumed run too."""
        lines, _ = read_lines(self.path / FINDINGS)
        return [finding_of(line) for line in lines]

    def write_summary(self, summary: RunSummary) -> None:
        """SUMMARY.md, then summary.json."""
        write_whole(self.path / SUMMARY_PAGE, summary_page(summary))
        write_json(self.path / SUMMARY, summary.to_json())

    # -- resume -------------------------------------------------------------------------------------------------

    def resume_at(self, step: int, evaluated: Collection[int] | None = None) -> None:
        """Go on after checkpoint `step`: what was written beyond it moves to `superseded/`, and is written again.

        Args:
            step: Optimizer steps taken before the checkpoint; -1 starts from nothing.
            evaluated: Steps of the held-out evaluations that the checkpoint knows of; `None` takes all up to `step`.
        """

        def trained(number: int) -> bool:
            return number <= step

        def measured(number: int) -> bool:
            return number <= step if evaluated is None else number in evaluated

        def keep(record: Mapping[str, Any]) -> bool:
            if TRAINED in record:
                return False  # written after the last checkpoint
            if any(name.startswith("eval_") for name in record):
                return measured(record["step"])
            return int(record["step"]) <= step

        aside = self.path / SUPERSEDED
        cut_lines(self.path / HELD_OUT, lambda r: measured(int(r["step"])), aside / HELD_OUT)
        for name in (METRICS, WARNINGS, FINDINGS, GAUGES, *EMERGENCE):
            cut_lines(self.path / name, keep, aside / name)
        cut_lines(
            self.path / OUTCOMES,
            lambda r: r["step"] <= step if r["arm"] == POOL else measured(r["step"]),
            aside / OUTCOMES,
        )
        self._csv.cut(step, aside / STEPS)
        beyond: list[Path] = []
        for folder, stays in ((EPISODES, trained), (ADVANTAGES, trained), (HELD_OUT_EPISODES, measured)):
            remove_part_files(self.path / folder)
            beyond += [p for p in sorted((self.path / folder).glob("step_*.json*")) if not stays(int(p.name[5:11]))]
        remove_part_files(self.path)
        # Of weights that may not be the last chosen any more.
        beyond += [self.path / CONFIRMATION, *(self.path / HELD_OUT_EPISODES).glob(f"{CONFIRMED}*.jsonl")]
        if step < 0:  # a run that starts from nothing has no best yet
            beyond += [self.path / name for name in BEST_FOLDERS]
        for path in beyond:
            self._set_aside(path, aside / path.relative_to(self.path))
        for name in (SUMMARY, SUMMARY_PAGE, REPORT):  # of an end that is none any more
            (self.path / name).unlink(missing_ok=True)
        lines, _ = read_lines(self.path / METRICS)
        self._before = float(lines[-1]["wall_seconds"]) if lines else 0.0
        self._start = time.monotonic()

    @staticmethod
    def _set_aside(path: Path, target: Path) -> None:
        """Move a file or a folder, if it is there, in the place of what was set aside before."""
        if path.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(path, target)

    def close(self) -> None:
        """Let other processes write the folder. Idempotent; happens by itself when the process ends."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def withdraw(self) -> None:
        """Take a folder back that this start made, before anything was trained; a replaced run returns to its place.

        What an earlier process left (`resume`) stays.
        """
        self.close()
        self.settings_back()
        if not self._fresh:
            return
        for entry in self.path.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if self._made:
            self.path.resolve().rmdir()
        if self.moved_to is not None:
            self.moved_to.rename(self.path.resolve())


def finding_of(line: Mapping[str, Any]) -> Finding:
    """A line of guards.jsonl, read.

    Raises:
        RunFolderError: It is none.
    """
    try:
        return Finding(**{**line, "severity": Severity(line["severity"])})
    except (TypeError, KeyError, ValueError) as error:
        raise RunFolderError(f"{FINDINGS}: not a finding ({error}): {line}") from error


def _differences(before: str, now: str) -> dict[str, str]:
    """Settings that differ between two config files, each with both values; not where the folder is."""
    try:
        old, new = (dict(yaml.safe_load(text)) for text in (before, now))
    except (yaml.YAMLError, TypeError, ValueError):  # changed by hand
        return {}
    names = [name for name in {**old, **new} if name != "output_dir" and old.get(name) != new.get(name)]
    return {name: f"{name} is {new.get(name)}, was {old.get(name)}" for name in names}


def _write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> None:
    with atomic_file(path, sync=False) as file:
        write_jsonl(trajectories, file)
