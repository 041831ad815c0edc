"""Where tests find data that does not ship with the repository: fixtures, upstream task folders, datasets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_root() -> Path | None:
    """Return the folder of shared test data, or None: ``$TURNGYM_SHARED``, else ``shared`` beside the checkout."""
    named = os.environ.get("TURNGYM_SHARED")
    root = Path(named) if named else REPOSITORY.parent / "shared"
    return root if root.is_dir() else None


def shared(path: str) -> Path:
    """Return the shared file or folder ``path`` (such as ``"fixtures/credit.json"``), or skip the calling test.

    At module level too: the whole test module is then skipped, with the reason.
    """
    root = shared_root()
    if root is None:
        pytest.skip(
            f"needs shared test data ({path}): set TURNGYM_SHARED, or lay a folder 'shared' beside the checkout",
            allow_module_level=True,
        )
    if not (root / path).exists():
        pytest.skip(f"the shared test data in {root} has no {path}", allow_module_level=True)
    return root / path
