"""Checkpoints and best/ of a run: written whole, listed with hashes, verified, read."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agents.models.card import MANIFEST, Damage, damage_of, replace_file, write_manifest
from trainers.errors import BestLostError, ConfigError
from trainers.jsonl import json_text, write_json

# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints of a run: written aside and renamed when whole, so that a folder `checkpoint-N` is never half of one.
#
# Order of a save: every process writes its part into `saving/checkpoint-N`; the list of all files with their hashes
# comes last; files and folder are handed to the disk (`fsync`, so that a power cut cannot keep the name and lose the
# content); the folder gets its name; older ones go. Whoever reads a checkpoint compares it with its list first.

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


# -- `best/`: the weights with the best held-out figure, kept beside the checkpoints, with the reason -----------------
# A folder is swapped in whole, and the one that the newest checkpoint points to stays until the next checkpoint is
# written, so that neither a crash nor going back to that checkpoint loses the best.

BEST_FILE = "BEST.json"
NO_MODEL = ("optimizer.", "scheduler.", "rng_state", "trainer_state", "training_args", "entropy_ctrl", "turngym_state",
            "turngym_process_", "turngym_batch_")  # fmt: skip
"""How the names of files of a checkpoint begin that are the state of its training."""


@dataclass(slots=True)
class Best:
    """The best held-out figure so far: the record in `BEST.json`.

    Attributes:
        step: Optimizer steps taken before it; 0 is the start.
        value: Of `metric`.
        metric: The deciding figure, as `best_metric` names it.
        reason: Why it is the best, for people.
        passed: Episodes that passed, of `graded`, of `tasks` tasks.
        low: Ends of the pass rate's 95 % Wilson interval (`high` the other).
        p_value: Paired test of its passes against the best before it; `None` for the first.
        decode: Decode settings of the deciding arm.
        excluded: Episodes without a grade, beside `graded`.
    """

    step: int
    value: float
    metric: str
    reason: str
    passed: int = 0
    graded: int = 0
    tasks: int = 0
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    decode: str = ""
    excluded: int = 0


def save_best(folder: Path, best: Best, write: Callable[[Path], None]) -> None:
    """Write the weights to `best.tmp`, then swap: a crash leaves the old best or the new one, whole.

    Args:
        folder: The run folder.
        best: Their record.
        write: Puts weights, and what belongs beside them, into a folder that does not exist yet.
    """
    fresh, final, old = (folder / name for name in ("best.tmp", "best", "best.old"))

    def with_record(path: Path) -> None:
        write(path)
        (path / BEST_FILE).write_text(json.dumps(asdict(best), indent=2) + "\n")

    _write_aside(fresh, with_record)
    if final.exists() and old.exists():
        shutil.rmtree(final)
    elif final.exists():
        final.rename(old)
    fresh.rename(final)


def write_last(folder: Path, write: Callable[[Path], None]) -> None:
    """Write the weights of a run that chose none to `last/`, whole or not at all."""
    fresh, final = folder / "last.tmp", folder / "last"
    _write_aside(fresh, write)
    shutil.rmtree(final, ignore_errors=True)
    fresh.rename(final)


def _write_aside(fresh: Path, write: Callable[[Path], None]) -> None:
    """A folder of weights with the list of its files, handed to the disk; gone again where it cannot be whole."""
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        write(fresh)
        write_manifest(fresh)
        sync([*fresh.rglob("*"), fresh])
    except BaseException:  # a full disk: half of it is in nobody's way
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def forget_old(folder: Path) -> None:
    """The newest checkpoint points to the present best: the one before it is no longer needed."""
    shutil.rmtree(folder / "best.old", ignore_errors=True)


def list_files(folder: Path) -> None:
    """A best of a release that kept no list of its files gets one, before a checkpoint counts on it."""
    final = folder / "best"
    if (final / BEST_FILE).is_file() and not (final / MANIFEST).exists():
        write_manifest(final)


def kept(folder: Path, best: Best, *, listed: bool = False) -> bool:
    """Whether the weights of a best are in the run folder, and whole.

    Args:
        folder: The run folder.
        best: As a checkpoint has it.
        listed: The checkpoint counts on a list of their files.
    """
    places = (folder / "best", folder / "best.old")
    return any(_step_in(path) == best.step and not damage_of(path, needs_list=listed) for path in places)


def can_remake(folder: Path, best: Best) -> bool:
    """Whether the weights of a best can be written again: they are the start's, or those of a checkpoint."""
    return best.step == 0 or Checkpoint(folder / f"checkpoint-{best.step}").whole


def remake(folder: Path, best: Best, write: Callable[[Path], None], *, listed: bool) -> None:
    """Write the weights of a best again, where they are gone or damaged.

    Args:
        folder: The run folder.
        best: As the checkpoint has it that the run goes back to.
        write: Writes the weights that the run started from; used where they are the best.
        listed: See `kept`.
    """
    if not kept(folder, best, listed=listed):
        source = folder / f"checkpoint-{best.step}"
        save_best(folder, best, write if best.step == 0 else lambda fresh: _copy_model(source, fresh))


def _copy_model(checkpoint: Path, folder: Path) -> None:
    """What of a checkpoint is a model: not the state of its training, nor the reference beside an adapter."""
    folder.mkdir()
    for path in sorted(checkpoint.iterdir()):
        if path.is_file() and path.name != MANIFEST and not path.name.startswith(NO_MODEL):
            shutil.copyfile(path, folder / path.name)


def check_kept(folder: Path, best: Best) -> None:
    """Whether the weights that a checkpoint points to are still there.

    Raises:
        BestLostError: They are gone.
    """
    final = folder / "best"
    if best.step not in (_step_in(final), _step_in(folder / "best.old")):
        raise BestLostError(
            f"{final}: holds step {_step_in(final)}, but the checkpoint's best is step {best.step}, whose weights are "
            "gone; start again in another --output_dir"
        )


def go_back(folder: Path, best: Best | None) -> None:
    """Make `best/` the weights that a checkpoint points to, whatever an earlier process did after it.

    Raises:
        BestLostError: They are gone.
    """
    final, old = folder / "best", folder / "best.old"
    if best is not None:
        check_kept(folder, best)
    if best is None or _step_in(final) != best.step:
        shutil.rmtree(final, ignore_errors=True)
    if best is not None and not final.exists():
        old.rename(final)
    shutil.rmtree(old, ignore_errors=True)  # else the next best would take it for the checkpoint's


def _step_in(folder: Path) -> int | None:
    """The step whose weights a `best/` holds; `None` where there is none, or its record cannot be read."""
    try:
        return int(json.loads((folder / BEST_FILE).read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
