"""Checkpoints of a run: written aside and renamed when whole, so that a folder `checkpoint-N` is never half of one.

Order of a save: every process writes its part into `saving/checkpoint-N`; files and folder are handed to the disk
(`fsync`, so that a power cut cannot keep the name and lose the content); the folder gets its name; older ones go.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STATE_FILE = "turngym_state.json"
"""Best, patience, held-out history, credit, T2PO calibration and generation phase, in each checkpoint of a run."""

FORMAT = 2
"""Of what we add to a checkpoint; 1, which no file names, is that of release 0.5.0 and before."""

LAST_WRITTEN = "trainer_state.json"
"""What transformers writes last."""

SAVING = "saving"
"""Where checkpoints are while they are written, and while they are removed."""


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run that is whole; `None` if there is none (the run starts again)."""
    for path in reversed(_checkpoints(folder)):
        if _json(path / LAST_WRITTEN) is not None and _json(path / STATE_FILE) is not None:
            return path
    return None


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
    found = _checkpoints(folder)
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


def tidy(folder: Path, keep: int | None) -> None:
    """Finish what a killed process had begun to remove, and remove what it had begun to write."""
    for name in (SAVING, "best.tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)
    newest = last_complete_checkpoint(folder)
    best = _json(newest / LAST_WRITTEN).get("best_model_checkpoint") if newest else None
    rotate(folder, keep, [best] if best else [])
    shutil.rmtree(folder / SAVING, ignore_errors=True)


def sync(paths: Iterable[Path]) -> None:
    """Hand files and folders to the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _checkpoints(folder: Path) -> list[Path]:
    found = [p for p in folder.glob("checkpoint-*") if p.name.rsplit("-", 1)[1].isdigit()]
    return sorted(found, key=step_of)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
