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

from trainers.run.checkpoints import sync

BEST_FILE = "BEST.json"


class BestLostError(RuntimeError):
    """The weights that a checkpoint calls its best are not in the run folder any more."""


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
    shutil.rmtree(fresh, ignore_errors=True)
    write(fresh)
    (fresh / BEST_FILE).write_text(json.dumps(asdict(best), indent=2) + "\n")
    sync([*fresh.rglob("*"), fresh])
    if final.exists() and old.exists():
        shutil.rmtree(final)
    elif final.exists():
        final.rename(old)
    fresh.rename(final)


def forget_old(folder: Path) -> None:
    """The newest checkpoint points to the present best: the one before it is no longer needed."""
    shutil.rmtree(folder / "best.old", ignore_errors=True)


def check_kept(folder: Path, best: Best) -> None:
    """Whether the weights that a checkpoint points to are still there.

    Raises:
        BestLostError: They are gone.
    """
    final = folder / "best"
    if best.step not in (step_of(final), step_of(folder / "best.old")):
        raise BestLostError(
            f"{final}: holds step {step_of(final)}, but the checkpoint's best is step {best.step}, whose weights are "
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
    if best is None or step_of(final) != best.step:
        shutil.rmtree(final, ignore_errors=True)
    if best is not None and not final.exists():
        old.rename(final)
    shutil.rmtree(old, ignore_errors=True)  # else the next best would take it for the checkpoint's


def step_of(folder: Path) -> int | None:
    """The step whose weights a `best/` holds; `None` where there is none."""
    path = folder / BEST_FILE
    return int(json.loads(path.read_text())["step"]) if path.is_file() else None
