"""The run folder, written: everything that a run's figures rest on, safe against kill -9, never silently overwritten.

Steps: what belongs to optimizer step S (logs, episodes trained on) carries S, counted from 1; a held-out evaluation
carries the number of optimizer steps taken before it, 0 for the baseline. A run that resumes from checkpoint N keeps
everything up to N; what an earlier process wrote beyond it moves to `superseded/`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from agents.trajectory import Trajectory, write_jsonl
from tasks.problems import TaskError
from tasks.split_lock import write_lock
from tasks.splits import Split
from trainers.measuring.measure import Measurement
from trainers.run.environment import describe_environment
from trainers.run.jsonl import (
    LONE_SURROGATES,
    RunFolderError,
    append_line,
    cut_lines,
    plain,
    read_lines,
    write_json,
    write_whole,
)
from trainers.run.steps_csv import StepRow, StepsCsv
from trainers.run.summary import RunSummary

CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
TASKS = "tasks.lock"
INTENTS = "tasks.jsonl"
METRICS = "metrics.jsonl"
STEPS = "steps.csv"
HELD_OUT = "held_out.jsonl"
SUMMARY = "summary.json"
EPISODES = "trajectories"
HELD_OUT_EPISODES = "held_out"
SUPERSEDED = "superseded"
WARNINGS = "warnings.jsonl"
OCCUPIED = "go on with --resume, choose another --output_dir, or remove it"


class RunRecord:
    """Writer of one run folder.

    Args:
        output_dir: The folder; made if missing.
        resume: Take an occupied folder and go on; without it an occupied folder is refused.

    Raises:
        RunFolderError: The folder is occupied, or is no folder, or cannot be written.
    """

    def __init__(self, output_dir: str | Path, *, resume: bool = False) -> None:
        self.path = Path(output_dir)
        if not resume or not self.path.is_dir():
            refuse_occupied(self.path, hint=OCCUPIED)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / EPISODES).mkdir(exist_ok=True)
            (self.path / HELD_OUT_EPISODES).mkdir(exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot write the run folder {self.path}: {error.strerror}") from error
        self._csv = StepsCsv(self.path / STEPS)
        self._pending: dict[int, StepRow] = {}
        self._before = 0.0
        self._start = time.monotonic()

    # -- once ---------------------------------------------------------------------------------------------------

    def write_config(self, resolved: Mapping[str, Any]) -> None:
        """The resolved settings, as YAML that `--config` takes back; a differing older file is kept beside it."""
        text = yaml.safe_dump(plain(resolved), sort_keys=False, allow_unicode=True)
        path = self.path / CONFIG
        if path.exists() and path.read_text(encoding="utf-8") != text:
            number = len(list(self.path.glob("config.before_resume_*.yaml"))) + 1
            path.rename(self.path / f"config.before_resume_{number}.yaml")
        write_whole(path, text)

    def write_environment(self, **extra: Any) -> None:
        """Versions, machine and commit, with what the caller adds (backend, model hash, prompt hash)."""
        write_json(self.path / ENVIRONMENT, {**describe_environment(), **extra})

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
                f"{path}: the tasks are not those this run started with; resume with the same --tasks and --held_out, "
                f"or choose another --output_dir\n{error}"
            ) from error
        lines = [
            {"id": task.id, "split": name, "family": task.family, "intent": task.intent}
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
        append_line(self.path / METRICS, {"step": step, "wall_seconds": round(self.wall_seconds, 3), **metrics})
        if any(name.startswith("eval_") for name in metrics):
            return  # a held-out evaluation belongs to no row of steps.csv
        for number in sorted(n for n in self._pending if n <= step):
            row = self._pending.pop(number)
            self._csv.append(row.with_metrics(metrics) if number == step else row)

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

    def write_held_out(
        self,
        step: int,
        episodes: Mapping[str, Sequence[Trajectory]],
        settings: Mapping[str, Measurement],
        *,
        best: bool,
        p_value: float | None,
    ) -> None:
        """One held-out evaluation: trajectories by arm, and one line of figures."""
        for name, trajectories in episodes.items():
            _write_trajectories(self.path / HELD_OUT_EPISODES / f"step_{step:06d}_{name}.jsonl", trajectories)
        line = {
            "step": step,
            "wall_seconds": round(self.wall_seconds, 3),
            "settings": {name: m.to_json() for name, m in settings.items()},
            "best": best,
            "p_value": p_value,
        }
        append_line(self.path / HELD_OUT, line)

    def warn(self, step: int, message: str) -> None:
        """A warning that the trainer raised (a collapse, for example), for summary and report."""
        append_line(self.path / WARNINGS, {"step": step, "message": message})

    def warnings(self) -> list[str]:
        """What was warned of so far, by earlier processes of a resumed run too."""
        lines, _ = read_lines(self.path / WARNINGS)
        return list(dict.fromkeys(str(line["message"]) for line in lines))

    def write_summary(self, summary: RunSummary) -> Path:
        """summary.json; returns its path."""
        write_json(self.path / SUMMARY, summary.to_json())
        return self.path / SUMMARY

    # -- resume -------------------------------------------------------------------------------------------------

    def resume_at(self, step: int) -> int:
        """Go on after checkpoint `step`: what was written beyond it moves to `superseded/`.

        Returns:
            How many lines and files were moved (a later step writes them again).
        """
        aside = self.path / SUPERSEDED
        moved = 0
        for name in (METRICS, HELD_OUT, WARNINGS):
            moved += cut_lines(self.path / name, lambda r: int(r["step"]) <= step, aside / name)
        moved += self._csv.cut(step, aside / STEPS)
        for folder in (EPISODES, HELD_OUT_EPISODES):
            for path in sorted((self.path / folder).glob("step_*.jsonl")):
                if int(path.name[5:11]) > step:
                    (aside / folder).mkdir(parents=True, exist_ok=True)
                    os.replace(path, aside / folder / path.name)
                    moved += 1
        (self.path / SUMMARY).unlink(missing_ok=True)
        lines, _ = read_lines(self.path / METRICS)
        self._before = float(lines[-1]["wall_seconds"]) if lines else 0.0
        self._start = time.monotonic()
        return moved


def refuse_occupied(path: Path, *, hint: str) -> None:
    """Refuse a folder that holds something.

    Raises:
        RunFolderError: It does, or it is a file; `hint` says what to do.
    """
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"{path} is a file, not a folder: choose another --output_dir")
    content = sorted(p.name for p in path.iterdir()) if path.exists() else []
    if content:
        raise RunFolderError(f"{path} is occupied ({len(content)} entries, such as {content[0]}): {hint}")


def _write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> None:
    fresh = path.with_name(path.name + ".tmp")
    with open(fresh, "w", encoding="utf-8", errors=LONE_SURROGATES) as file:
        write_jsonl(trajectories, file)
    os.replace(fresh, path)
