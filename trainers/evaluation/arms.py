"""What a folder measured, read for a comparison: figures by decode setting, how they were made, single episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.trajectory import RecordError, Trajectory, read_jsonl
from tasks.images import IMAGES
from tasks.splits import SET
from trainers.answers import Instructions
from trainers.errors import RunFolderError
from trainers.evaluation.folder import FILE, episodes_file
from trainers.measure import Measurement
from trainers.reporting.folder import RunFolder, read_mapping, read_run
from trainers.run.record import CONFIG, ENVIRONMENT, HELD_OUT_EPISODES, TASKS

COMPARED = ("env", "agent_errors", "allow_shared_judges", "verifier_network", "tools", "revise", "max_turns",
            "keep_observations", "max_episode_tokens")  # fmt: skip
"""Settings, beside prompts and decode settings, that change what an episode comes to."""
PROMPTS = "prompts"


@dataclass(frozen=True, slots=True)
class Arms:
    """Measurements of one folder.

    Attributes:
        name: For tables.
        settings: By decode setting.
        hashes: Content hash of each task measured on.
        manner: How episodes were played: `COMPARED` settings and prompts, as text; what the folder does not say is left
            out.
        parts: The parts that each task is of (`trainers.measure.parts_of`).
        files: Episodes by decode setting, where they were kept.
        instructions: The figures of IFEval by decode setting, where tasks are of instructions; of evaluations only.
    """

    name: str
    settings: dict[str, Measurement]
    hashes: dict[str, str]
    manner: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    instructions: Mapping[str, Instructions] = field(default_factory=dict)

    def episodes(self, setting: str) -> list[Trajectory]:
        """Episodes of one decode setting; none where they were not kept.

        Raises:
            RunFolderError: The file is damaged.
        """
        try:
            return list(read_jsonl(self.files[setting])) if setting in self.files else []
        except RecordError as error:
            raise RunFolderError(str(error)) from error


def read_arms(path: str | Path) -> Arms:
    """Measurements of an evaluation folder, or of a run folder's chosen step.

    Raises:
        RunFolderError: It is neither, or it is damaged.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RunFolderError(f"no such folder: {path} (an evaluation folder or a run folder is needed)")
    return _of_evaluation(folder) if (folder / FILE).exists() else _of_run(folder)


def _of_evaluation(folder: Path) -> Arms:
    record = read_mapping(folder / FILE)
    try:
        settings = {name: Measurement.from_json(m) for name, m in record["arms"].items()}
        hashes, parts = dict(record["tasks"]), record.get("parts", {})  # releases up to 0.6 wrote no parts
        answers = {name: said for name, said in record.get("answers", {}).items() if said}
        instructions = {name: Instructions(**s["instructions"]) for name, s in answers.items() if "instructions" in s}
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{folder / FILE}: not an evaluation ({error})") from error
    if not settings:
        raise RunFolderError(f"{folder}: nothing is measured yet: go on with it (--output_dir {folder} --resume)")
    files = {name: episodes_file(folder, name) for name in settings}
    return Arms(str(folder), settings, hashes, dict(_manner(folder)), parts, _there(files), instructions)


def _of_run(folder: Path) -> Arms:
    return arms_of(read_run(folder))


def arms_of(run: RunFolder) -> Arms:
    """Measurements of a run's chosen step.

    Raises:
        RunFolderError: Nothing was measured, or a file is damaged.
    """
    folder = run.path
    if run.best is None:
        raise RunFolderError(f"{folder} holds no held-out evaluation to compare")
    lock, step = read_mapping(folder / TASKS), run.best.step
    measured = {**lock.get("held_out", {}), **lock.get("unseen", {})}
    for side in lock:
        measured |= lock[side] if side.startswith(SET) else {}
    files = {name: folder / HELD_OUT_EPISODES / f"step_{step:06d}_{name}.jsonl" for name in run.best.settings}
    return Arms(f"{folder} (step {step})", run.best.settings, measured, dict(_manner(folder)), run.parts, _there(files))


def _there(files: Mapping[str, Path]) -> dict[str, Path]:
    return {name: path for name, path in files.items() if path.exists()}


def _manner(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and value of what stands in config.yaml and environment.json; 0, off and none are one value."""
    environment, config = read_mapping(folder / ENVIRONMENT), read_mapping(folder / CONFIG)
    if environment.get("prompt_hash"):
        yield PROMPTS, f"{environment['prompt_style']} ({environment['prompt_hash']})"
    for name, ids in environment.get(IMAGES, {}).items():
        yield f"image {name}", " ".join(ids)
    if isinstance(config.get("no_tools"), bool):  # an evaluation says it the other way round than a run
        config["tools"] = not config["no_tools"]
    for name in COMPARED:
        if name in config and not (name == "tools" and config[name] is None):
            yield name, _text(config[name])


def _text(value: Any) -> str:
    return "0" if value in (None, 0) and not isinstance(value, bool) else str(value)
