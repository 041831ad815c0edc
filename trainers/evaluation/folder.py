"""The folder of one evaluation: who was measured on what, every episode, and the figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from agents.models.loading import ModelSource
from agents.policies.scripted import ByteTokenizer
from agents.policy import Policy
from agents.rollout import RolloutResult
from agents.rollout.progress import Timing
from agents.trajectory import Attempt, RecordError, Trajectory, attempt_of, read_jsonl, write_jsonl
from tasks.images import IMAGES, other_images
from tasks.model import LONE_SURROGATES, atomic_file, counted, remove_part_files
from tasks.task import Task
from trainers.errors import RunFolderError
from trainers.jsonl import plain, write_json, write_whole
from trainers.measure import Measurement, is_graded, parts_of
from trainers.reporting.folder import read_mapping
from trainers.run.folder import lock_folder
from trainers.run.machine import describe_environment
from trainers.run.record import CONFIG, ENVIRONMENT, refuse_occupied

# Episodes are written as they end, so that those of an evaluation that failed or was stopped are kept: one that goes on
# plays the others only.

FILE = "evaluation.json"
OCCUPIED = "go on with --resume, choose another --output_dir, or remove it"
"""What to do where the folder holds something."""
FREE = frozenset(
    ("output_dir", "resume", "compare", "all_checkpoints", "open", "price", "concurrency", "timeout", "retries")
) | {"sandbox_workers"}
"""Arguments that no episode depends on: they may be others where an evaluation goes on."""


def episodes_file(folder: Path, arm: str) -> Path:
    """Where the episodes of a decode setting are."""
    return folder / f"episodes_{arm}.jsonl"


def settings_of(folder: Path) -> dict[str, Any]:
    """The arguments of the evaluation in a folder, for one that goes on with it.

    Raises:
        RunFolderError: There is none.
    """
    if not (folder / CONFIG).is_file():
        raise RunFolderError(f"{folder} holds no evaluation to go on with ({CONFIG} is not there): leave --resume out")
    return read_mapping(folder / CONFIG)


class EvaluationRecord:
    """Writer of an evaluation folder: config.yaml, environment.json, evaluation.json, episodes_<arm>.jsonl.

    Args:
        folder: Made if missing; an occupied one is refused, but for `resume`.
        resume: Go on with the evaluation that is there.

    Raises:
        RunFolderError: It is occupied, or holds no evaluation to go on with.
    """

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        if not resume:
            refuse_occupied(folder, hint=OCCUPIED)
        self.path = folder
        self._before = settings_of(folder) if resume else None
        self._tasks: dict[str, str] = {}
        self._parts: dict[str, dict[str, str]] = {}
        self._in_process: list[str] = []
        self._left_out: list[str] = []
        self._date = ""
        self._ended = self._broken = 0
        self._model: dict[str, Any] = {}
        self._described: dict[str, Any] = {}
        self._arms: dict[str, dict[str, Any]] = {}
        self._timing: dict[str, dict[str, Any]] = {}
        self._more: dict[str, dict[str, Any]] = {}
        self._lock: int | None = None

    def begin(
        self,
        settings: Mapping[str, Any],
        tasks: Sequence[Task],
        *,
        model: ModelSource | None,
        in_process: Collection[str] = (),
        left_out: Collection[str] = (),
        **environment: Any,
    ) -> list[str]:
        """Write what is known before the first episode.

        `in_process` are ids of tasks that do not count, `left_out` of those that are not played for want of a setting.

        Returns:
            A line for each image that the evaluation which goes on knew by another id.

        Raises:
            RunFolderError: The folder cannot be made, another process writes it, or the evaluation that goes on in it
                had other settings, tasks or weights; the message says which.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot write the folder {self.path}: {error.strerror}") from error
        self._lock = lock_folder(self.path)
        self._tasks = {task.id: task.content_hash for task in tasks}
        self._parts = parts_of(tasks)
        self._in_process = sorted(in_process)
        self._left_out = sorted(left_out)
        self._date = datetime.now(UTC).isoformat(timespec="seconds")
        self._model = {"name": settings["model"]}
        if model is not None:
            self._model |= {"location": model.location, "kind": str(model.kind), "sha256": model.sha256()}
        images: list[str] = []
        if self._before is not None:
            images = self._go_on(plain(settings), plain(environment))
        else:
            write_whole(self.path / CONFIG, yaml.safe_dump(plain(settings), sort_keys=False, allow_unicode=True))
            write_json(self.path / ENVIRONMENT, {**describe_environment(), **environment})
        self._write(self._model)
        return images

    def _go_on(self, settings: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
        """Take over what is there; returns what `begin` does.

        Raises:
            RunFolderError: It was made otherwise.
        """
        remove_part_files(self.path)
        there = read_mapping(self.path / ENVIRONMENT)
        images = other_images(there.pop(IMAGES, {}), environment.get(IMAGES, {}))
        other = _differences(self._before or {}, {k: v for k, v in settings.items() if k not in FREE})
        other += _differences(there, environment)
        if record := read_mapping(self.path / FILE):
            other += _differences(record["model"], {k: v for k, v in self._model.items() if k != "location"}, "model ")
            hashes: dict[str, str] = record["tasks"]
            changed = [task for task in {**hashes, **self._tasks} if hashes.get(task) != self._tasks.get(task)]
            if changed:
                other.append(f"{counted(len(changed), 'task')} ({', '.join(changed[:3])}) other than before")
            self._date, self._arms, self._timing = record["date"], record["arms"], record["timing"]
            self._described = record["model"]
        if other:
            raise RunFolderError(
                f"{self.path}: cannot go on with this evaluation, for figures of different settings do not mix: "
                f"{'; '.join(other)}. Leave out what differs, or choose another --output_dir without --resume"
            )
        return images

    def graded(self, arm: str) -> list[Trajectory]:
        """Episodes of a decode setting that have a grade, from an earlier process; those without are played again.

        Raises:
            RunFolderError: A file of episodes is damaged, other than by a cut last line.
        """
        found: dict[Attempt, Trajectory] = {}
        for path in (episodes_file(self.path, arm), self._partial(arm)) if self._before is not None else ():
            try:
                episodes = list(read_jsonl(path, allow_cut=True)) if path.exists() else []
            except RecordError as error:
                raise RunFolderError(str(error)) from error
            found |= {attempt_of(episode): episode for episode in episodes if is_graded(episode)}
        return list(found.values())

    def timing(self, arm: str) -> Timing | None:
        """Where the time of a decode setting went that an earlier process measured to its end; `None`: none did."""
        kept = self._timing.get(arm)
        names = {one.name for one in fields(Timing)}
        return None if kept is None else Timing(**{name: value or 0 for name, value in kept.items() if name in names})

    def close(self) -> None:
        """Let other processes write the folder. Idempotent; happens by itself when the process ends."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def episodes(self, arm: str, kept: Sequence[Trajectory] = ()) -> Iterator[Callable[[Trajectory], None]]:
        """Takes the episodes of one decode setting as they end, behind those `kept`; `add` puts all in their place."""
        self._ended = self._broken = 0
        with atomic_file(self._partial(arm), sync=False) as file:
            write_jsonl(kept, file)
        with open(self._partial(arm), "a", encoding="utf-8", errors=LONE_SURROGATES) as file:

            def keep(episode: Trajectory) -> None:
                write_jsonl([episode], file)
                self._ended += 1
                self._broken += episode.stop_reason == "infrastructure"

            yield keep

    def kept(self, arm: str) -> str:
        """What is left of a decode setting that did not come to its end, for a person."""
        return (
            f"{self._ended - self._broken} finished episodes (and {self._broken} without a grade) are in "
            f"{self._partial(arm)}; --output_dir {self.path} --resume plays the others"
        )

    def add(
        self, arm: str, measurement: Measurement, result: RolloutResult, policy: Policy, more: Mapping[str, Any]
    ) -> None:
        """One decode setting is done: its episodes, and the figures so far; `more` of it goes under keys of its own."""
        with atomic_file(episodes_file(self.path, arm), sync=False) as file:
            write_jsonl(result.trajectories, file)
        self._arms[arm] = measurement.to_json()
        for name, value in more.items():
            self._more.setdefault(name, {})[arm] = value
        self._timing[arm] = {**asdict(result.timing), "overhead_seconds": result.timing.overhead_seconds}
        if isinstance(policy.tokenizer, ByteTokenizer):
            self._timing[arm]["sampled_tokens"] = None  # its ids are bytes
        describe = getattr(policy, "describe", None)
        self._write({**self._model, **(_since(self._described, describe()) if describe is not None else {})})
        self._partial(arm).unlink(missing_ok=True)

    def _write(self, model: Mapping[str, Any]) -> None:
        record = {
            "model": model,
            "date": self._date,
            "tasks": self._tasks,
            "parts": self._parts,
            "in_process_judges": self._in_process,
            **({"left_out": self._left_out} if self._left_out else {}),
            "arms": self._arms,
            **self._more,
            "timing": self._timing,
        }
        write_json(self.path / FILE, record)

    def _partial(self, arm: str) -> Path:
        return self.path / f"episodes_{arm}.partial.jsonl"


def _since(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What a policy says of itself, with the `usage` of earlier processes added and what servers called themselves."""
    usage = {name: value + before.get("usage", {}).get(name, 0) for name, value in now.get("usage", {}).items()}
    said = {
        name: sorted({*before.get("server_says", {}).get(name, ()), *now.get("server_says", {}).get(name, ())})
        for name in {**before.get("server_says", {}), **now.get("server_says", {})}
    }
    joined = {"usage": usage, "server_says": said}
    return {name: joined.get(name, value) for name, value in now.items()}


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], what: str = "") -> list[str]:
    """What has other values than before, with both; what was not written down then is left out."""
    return [
        f"{what}{name} is {value}, was {before[name]}"
        for name, value in now.items()
        if name in before and before[name] != value
    ]
