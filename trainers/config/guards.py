"""Settings of the run-time checks: which are on, and what each does when it fires."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.settings import Settings, setting


@dataclass
class GuardFields(Settings):
    """The guards. All are on by default; docs/guards.md says what each looks at."""

    guards: str = setting(
        "all",
        "Run-time checks: all | none, then `name=off|note|warn|stop` for single ones, with commas between "
        "(`resample_budget=off,update_health=warn`). stop ends the run after the step; notes stay notes.",
        common=True,
    )
