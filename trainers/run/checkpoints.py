"""Checkpoints of a run: written aside and renamed when whole, so that a folder `checkpoint-N` is never half of one.

Order of a save: every process writes its part into `saving/checkpoint-N`; the list of all files with their hashes comes
last; files and folder are handed to the disk (`fsync`, so that a power cut cannot keep the name and lose the content);
the folder gets its name; older ones go. Whoever reads a checkpoint compares it with its list first.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agents.models.card import MANIFEST, Damage, damage_of, replace_file, write_manifest
from trainers.errors import ConfigError
from trainers.run.jsonl import json_text, write_json

STATE_FILE = "turngym_state.json"
"""Best, patience, held-out history, credit, T2PO calibration and generation phase, in each checkpoint of a run."""

PROCESS_FILE = "turngym_process_{}.json"
"""What each process but the first knows for itself: its share of the rollouts' state and of T2PO's counts."""

BATCH_FILE = "turngym_batch_{}.pt"
"""Of each process: played and not yet trained on. Only in a checkpoint inside a generation cycle."""

FORMAT = 3
"""Of what we add to a checkpoint; 2, that of release 0.6, has no list of its files and is read, too; 1, which no file
names, is that of release 0.5.0 and before."""

READ = (2, FORMAT)
"""Formats of checkpoints that a run goes on from."""

LISTED = 3
"""The first format in which a checkpoint, and the best that it points to, list their files."""

LAST_WRITTEN = "trainer_state.json"
"""What transformers writes last."""

SAVING = "saving"
"""Where checkpoints are while they are written, and while they are removed."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder `checkpoint-N` of a run, or one that is being written aside.

    Attributes:
        folder: Where it is.
    """

    folder: Path

    @classmethod
    def all_of(cls, run: Path) -> list[Checkpoint]:
        """Every folder of a run that bears the name of a checkpoint, the oldest first."""
        found = [cls(p) for p in run.glob("checkpoint-*") if p.name.rsplit("-", 1)[1].isdigit()]
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    @classmethod
    def newest_whole(cls, run: Path) -> Checkpoint | None:
        """The newest checkpoint of a run that is whole; `None` if there is none."""
        return next((checkpoint for checkpoint in reversed(cls.all_of(run)) if checkpoint.whole), None)

    @property
    def step(self) -> int:
        """Optimizer steps taken before it."""
        return int(self.folder.name.rsplit("-", 1)[1])

    # -- verified -----------------------------------------------------------------------------------------------

    @cached_property
    def damage(self) -> tuple[Damage, ...]:
        """Its files that are missing or are not what was written, found once: every file is read.

        One of an older release has no list of its files; they are then looked at one by one.
        """
        state = _json(self.folder / STATE_FILE)
        found = damage_of(self.folder, needs_list=isinstance(state, dict) and state.get("format", 1) >= LISTED)
        if not found and not (self.folder / MANIFEST).exists():
            found = list(_broken(self.folder))
        return tuple(found)

    @property
    def whole(self) -> bool:
        """Whether a run can go on from it."""
        return not self.damage

    def check(self, processes: int) -> None:
        """Refuse what another release wrote, or another number of processes.

        Args:
            processes: How many there are now.

        Raises:
            ConfigError: It cannot be gone on from; the message says what to do.
        """
        state = self.state
        written = state.get("format", 1)
        if written not in READ:
            by = "TurnGym 0.5.0 or an older release" if written < FORMAT else "a newer release of TurnGym"
            raise ConfigError(
                f"{self.folder}: {by} wrote it (format {written}, this release has {FORMAT}). End the run with the "
                "release that began it, or begin a new one in another output_dir: "
                f"{self.folder.parent / 'best'} or the checkpoint itself can be its --model_name_or_path."
            )
        wrote = state["processes"]
        if wrote != processes:
            how = f"with `accelerate launch --num_processes {wrote}`" if wrote > 1 else "without a launcher"
            raise ConfigError(
                f"{self.folder}: {wrote} process{'es' if wrote > 1 else ''} wrote it, now there are {processes}. Each "
                f"has random states of its own: resume {how}."
            )

    # -- read: of one that is whole -----------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """What is saved beside transformers' own files, of the main process or of all."""
        state: dict[str, Any] = json.loads((self.folder / STATE_FILE).read_text(encoding="utf-8"))
        return state

    def process_state(self, rank: int) -> dict[str, Any]:
        """What the process `rank` knows for itself."""
        if rank == 0:
            return self.state
        state: dict[str, Any] = json.loads((self.folder / PROCESS_FILE.format(rank)).read_text(encoding="utf-8"))
        return state

    def batch_file(self, rank: int) -> Path:
        """Where the process `rank` puts what it played and did not train on yet."""
        return self.folder / BATCH_FILE.format(rank)

    @property
    def lists_files(self) -> bool:
        """It, and the best that it points to, have a list of their files."""
        return bool(self.state.get("format", 1) >= LISTED)

    def patience_spent(self, patience: int | None) -> bool:
        """Whether its run had stopped for want of a new best."""
        held_out = self.state.get("held_out")
        return held_out is not None and patience is not None and held_out["since_best"] >= patience

    @property
    def evaluated_steps(self) -> set[int]:
        """Steps of the held-out evaluations that it knows of."""
        return {int(evaluation["step"]) for evaluation in (self.state.get("held_out") or {}).get("history", [])}

    # -- written ------------------------------------------------------------------------------------------------

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Write `state`, with the format that this release writes, into one that is being written."""
        write_json(self.folder / STATE_FILE, {"format": FORMAT, **state})

    def replace_state(self, state: Mapping[str, Any]) -> None:
        """Give one that is written another state; at each moment it is whole."""
        if not (self.folder / MANIFEST).exists():  # of release 0.6
            write_manifest(self.folder)
        replace_file(self.folder, STATE_FILE, json_text({"format": FORMAT, **state}))

    def write_process_state(self, rank: int, state: Mapping[str, Any]) -> None:
        """The same for a process but the first."""
        write_json(self.folder / PROCESS_FILE.format(rank), state)

    def publish(self, final: Path) -> None:
        """List its files, and give one that was written aside its name: whole, or not at all."""
        write_manifest(self.folder)
        run = final.parent
        sync([*self.folder.rglob("*"), self.folder, *run.glob("*.jsonl"), *run.glob("*.csv")])
        if final.exists():  # left by a release that wrote in place, and was killed
            shutil.rmtree(final)
        self.folder.rename(final)
        sync([run])


def rotate(run: Path, keep: int | None, protected: Iterable[str | Path] = ()) -> None:
    """Remove the oldest checkpoints until `keep` are left; `None` or 0 keeps all, the newest always stays."""
    found = [checkpoint.folder for checkpoint in Checkpoint.all_of(run)]
    if not keep or len(found) <= keep:
        return
    stay = {found[-1].resolve(), *(Path(path).resolve() for path in protected)}
    surplus = len(found) - max(keep, len(stay))
    for path in [path for path in found if path.resolve() not in stay][:surplus]:
        gone = run / SAVING / path.name
        gone.parent.mkdir(exist_ok=True)
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)  # first out of the way: a half removed one must not bear the name
        shutil.rmtree(gone)


def tidy(run: Path, keep: int | None, newest: Checkpoint | None) -> None:
    """Finish what a killed process had begun to remove, and remove what it had begun to write.

    Args:
        run: Its folder.
        keep: See `rotate`.
        newest: The checkpoint that the run goes on from.
    """
    for name in (SAVING, "best.tmp", "last.tmp"):
        shutil.rmtree(run / name, ignore_errors=True)
    best = _json(newest.folder / LAST_WRITTEN).get("best_model_checkpoint") if newest else None
    rotate(run, keep, [best] if best else [])
    shutil.rmtree(run / SAVING, ignore_errors=True)


def set_aside(run: Path, step: int, aside: Path) -> None:
    """Move checkpoints that are later than the one a run goes back to out of the way."""
    for checkpoint in reversed(Checkpoint.all_of(run)):
        if checkpoint.step > step:
            aside.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside / checkpoint.folder.name, ignore_errors=True)
            checkpoint.folder.rename(aside / checkpoint.folder.name)


def sync(paths: Iterable[Path]) -> None:
    """Hand files and folders to the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
