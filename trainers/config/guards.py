"""Settings of the run-time checks: which are on, and what each does when it fires."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainers.guards.levels import level_problems


@dataclass
class GuardFields:
    """The guards. All are on by default; docs/guards.md says what each looks at."""

    guards: str = field(
        default="all",
        metadata={
            "help": "Run-time checks: all | none, then `name=off|note|warn|stop` for single ones, with commas between "
            "(`resample_budget=off,update_health=warn`). stop ends the run after the step; notes stay notes."
        },
    )

    def guard_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        yield from level_problems(self.guards)
