"""The folder of one evaluation: who was measured on what, every episode, and the figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from agents.models.loading import ModelSource
from agents.policies.scripted import ByteTokenizer
from agents.policy import Policy
from agents.rollout import RolloutResult
from agents.trajectory import Trajectory, write_jsonl
from tasks.model import LONE_SURROGATES, atomic_file
from tasks.task import Task
from trainers.errors import RunFolderError
from trainers.jsonl import plain, write_json, write_whole
from trainers.measure import Measurement
from trainers.run.machine import describe_environment
from trainers.run.record import CONFIG, ENVIRONMENT, refuse_occupied

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
