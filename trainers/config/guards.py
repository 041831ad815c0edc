"""Settings of the run-time checks: which are on, and what each does when it fires."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class GuardFields:
    """The guards. All are on by default."""

    def guard_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        return iter(())
