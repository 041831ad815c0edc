"""`best/`: the weights with the best held-out figure, kept beside the checkpoints, with the reason.

A folder is swapped in whole, and the one that the newest checkpoint points to stays until the next checkpoint is
written, so that neither a crash nor going back to that checkpoint loses the best.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from agents.models.card import MANIFEST, damage_of, write_manifest
from trainers.errors import BestLostError
from trainers.run.checkpoints import Checkpoint, sync

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
