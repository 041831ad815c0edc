"""Which checkpoint a run can go on from: one that was written to its end."""

from __future__ import annotations

from pathlib import Path

STATE_FILE = "turngym_state.json"
"""Best, patience and held-out history of a run, in each of its checkpoints."""

LAST_WRITTEN = ("trainer_state.json", STATE_FILE)
"""What the trainer writes last: without it the process died while saving."""


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run that is whole; `None` if there is none (the run starts again)."""
    found = [p for p in folder.glob("checkpoint-*") if p.name.rsplit("-", 1)[1].isdigit()]
    for path in sorted(found, key=lambda p: int(p.name.rsplit("-", 1)[1]), reverse=True):
        if all((path / name).is_file() for name in LAST_WRITTEN):
            return path
    return None
