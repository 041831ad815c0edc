"""Checkpoints of a run: written aside and renamed when whole, so that a folder `checkpoint-N` is never half of one.

Order of a save: every process writes its part into `saving/checkpoint-N`; files and folder are handed to the disk
(`fsync`, so that a power cut cannot keep the name and lose the content); the folder gets its name; older ones go.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.models.manifest import MANIFEST, Damage, damage_of

STATE_FILE = "turngym_state.json"
"""Best, patience, held-out history, credit, T2PO calibration and generation phase, in each checkpoint of a run."""

FORMAT = 3
"""Of what we add to a checkpoint; 2, that of release 0.6, has no list of its files and is read, too; 1, which no file
names, is that of release 0.5.0 and before."""

LISTED = 3
"""The first format in which a checkpoint, and the best that it points to, list their files."""

LAST_WRITTEN = "trainer_state.json"
"""What transformers writes last."""

SAVING = "saving"
"""Where checkpoints are while they are written, and while they are removed."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder `checkpoint-N`, compared with what was written into it.

    Attributes:
        step: Optimizer steps taken before it.
        folder: Where it is.
        damage: Its files that are missing or are not what was written.
    """

    step: int
    folder: Path
    damage: tuple[Damage, ...]

    @property
    def whole(self) -> bool:
        """Whether a run can go on from it."""
        return not self.damage


def look_at(folder: Path) -> Checkpoint:
    """Compare a checkpoint with its list of files; of an older release, which has none, see that they can be read."""
    state = _json(folder / STATE_FILE)
    listed = isinstance(state, dict) and state.get("format", 1) >= LISTED
    found = damage_of(folder, needs_list=listed)
    if not found and not (folder / MANIFEST).exists():
        found = list(_broken(folder))
    return Checkpoint(step_of(folder), folder, tuple(found))


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run that is whole; `None` if there is none."""
    return next((path for path in reversed(checkpoint_folders(folder)) if look_at(path).whole), None)


def step_of(checkpoint: Path) -> int:
    """Optimizer steps taken before the checkpoint."""
    return int(checkpoint.name.rsplit("-", 1)[1])


def patience_spent(checkpoint: Path, patience: int) -> bool:
    """Whether the run of this checkpoint had stopped for want of a new best."""
    state = (_json(checkpoint / STATE_FILE) or {}).get("held_out")
    return state is not None and patience > 0 and state["since_best"] >= patience


def evaluated_steps(checkpoint: Path) -> set[int]:
    """Steps of the held-out evaluations that the checkpoint knows of."""
    state = (_json(checkpoint / STATE_FILE) or {}).get("held_out") or {}
    return {int(evaluation["step"]) for evaluation in state.get("history", [])}


def publish(staged: Path, final: Path) -> None:
    """Make a checkpoint that was written aside the one of its name, whole or not at all."""
    run = final.parent
    sync([*staged.rglob("*"), staged, *run.glob("*.jsonl"), *run.glob("*.csv")])
    if final.exists():  # left by a release that wrote in place, and was killed
        shutil.rmtree(final)
    staged.rename(final)
    sync([run])


def rotate(folder: Path, keep: int | None, protected: Iterable[str | Path] = ()) -> None:
    """Remove the oldest checkpoints until `keep` are left; `None` or 0 keeps all, the newest always stays."""
    found = checkpoint_folders(folder)
    if not keep or len(found) <= keep:
        return
    stay = {found[-1].resolve(), *(Path(path).resolve() for path in protected)}
    surplus = len(found) - max(keep, len(stay))
    for path in [path for path in found if path.resolve() not in stay][:surplus]:
        gone = folder / SAVING / path.name
        gone.parent.mkdir(exist_ok=True)
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)  # first out of the way: a half removed one must not bear the name
        shutil.rmtree(gone)


def tidy(folder: Path, keep: int | None, newest: Path | None) -> None:
    """Finish what a killed process had begun to remove, and remove what it had begun to write.

    Args:
        folder: Of the run.
        keep: See `rotate`.
        newest: The checkpoint that the run goes on from.
    """
    for name in (SAVING, "best.tmp", "last.tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)
    best = _json(newest / LAST_WRITTEN).get("best_model_checkpoint") if newest else None
    rotate(folder, keep, [best] if best else [])
    shutil.rmtree(folder / SAVING, ignore_errors=True)


def set_aside(folder: Path, step: int, aside: Path) -> None:
    """Move checkpoints that are later than the one a run goes back to out of the way."""
    for path in reversed(checkpoint_folders(folder)):
        if step_of(path) > step:
            aside.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside / path.name, ignore_errors=True)
            path.rename(aside / path.name)


def sync(paths: Iterable[Path]) -> None:
    """Hand files and folders to the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def checkpoint_folders(folder: Path) -> list[Path]:
    """Every folder of a run that bears the name of a checkpoint, the oldest first."""
    found = [p for p in folder.glob("checkpoint-*") if p.name.rsplit("-", 1)[1].isdigit()]
    return sorted(found, key=step_of)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _broken(folder: Path) -> Iterator[Damage]:
    """Files that cannot be what they are called, in a checkpoint of a release that kept no list."""
    if not folder.is_dir():
        yield Damage(folder, "is missing")
        return
    for name in (LAST_WRITTEN, STATE_FILE):
        if not (folder / name).is_file():
            yield Damage(folder / name, "is missing")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        yield Damage(folder / "model.safetensors", "is missing")
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.stat().st_size:
            yield Damage(path, "is empty")
        elif path.suffix == ".json" and _json(path) is None:
            yield Damage(path, "is not JSON")
        elif (path.suffix == ".safetensors" and not _whole_safetensors(path)) or (
            path.suffix in (".pt", ".pth", ".bin") and not zipfile.is_zipfile(path)
        ):
            yield Damage(path, "is cut short")


def _whole_safetensors(path: Path) -> bool:
    """Whether a file is as long as its own header says: 8 bytes with the header's length, the header, the tensors."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length) if length <= path.stat().st_size else b"")
            ends = [value["data_offsets"][1] for name, value in header.items() if name != "__metadata__"]
        except (ValueError, AttributeError, KeyError, TypeError):
            return False
    return path.stat().st_size == 8 + length + max(ends, default=0)
