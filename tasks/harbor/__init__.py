"""Harbor task folders: ours as folders that Harbor runs (`write`, `wheels`), theirs as tasks (`read`, `dockerfile`)."""

from __future__ import annotations

from pathlib import Path

SCHEME = "harbor"
CONFIG = "task.toml"
"""The file that makes a folder a task."""
TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
"""Scripts that go into folders, and into judges."""


def is_harbor(path: Path) -> bool:
    """Whether `path` looks like Harbor tasks: a task folder, or a folder of task folders."""
    return path.is_dir() and ((path / CONFIG).is_file() or next(path.glob(f"*/{CONFIG}"), None) is not None)
