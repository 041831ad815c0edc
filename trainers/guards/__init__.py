"""Run-time checks: what a run that learns nothing, or the wrong thing, looks like. Each condition is said once.

All guards are on by default (docs/guards.md): a class or a few per guard, put together by `registry`. `Watch` shows
every event of a run to all of them: its beginning, the episodes of a step, an optimizer step, a held-out evaluation,
the metrics of a step.
"""

from trainers.guards.guard import Alarm, Facts, Finding, Fires, Gauge, Guard, Measured, Severity, Update
from trainers.guards.levels import GuardName, parse_levels
from trainers.guards.watch import GUARDS, Watch

__all__ = [
    "GUARDS",
    "Alarm",
    "Facts",
    "Finding",
    "Fires",
    "Gauge",
    "Guard",
    "GuardName",
    "Measured",
    "Severity",
    "Update",
    "Watch",
    "parse_levels",
]
