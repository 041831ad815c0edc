"""What happens when a guard fires. Apart from the guards, so that settings can name it."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """What happens when a guard fires."""

    NOTE = "note"
    """It is written down, and counted in the summary."""
    WARN = "warn"
    """It is also shown at once and in the summary."""
    STOP = "stop"
    """The run also ends after this step; `best/` and the last checkpoint stay."""
