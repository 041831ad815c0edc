"""Which checkpoint a run can go on from: one that was written to its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STATE_FILE = "turngym_state.json"
"""Best, patience, held-out history and generation phase of a run, in each of its checkpoints; written first."""

LAST_WRITTEN = "trainer_state.json"
"""What the trainer writes last: without it, or with half of it, the process died while saving."""


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run that is whole; `None` if there is none (the run starts again)."""
    found = [p for p in folder.glob("checkpoint-*") if p.name.rsplit("-", 1)[1].isdigit()]
    for path in sorted(found, key=step_of, reverse=True):
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


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
