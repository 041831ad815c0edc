"""Run-time checks: what a run that learns nothing, or the wrong thing, looks like. Each says so once, by name."""

from trainers.guards.checks import (
    InfrastructureFailures,
    NeverStops,
    NoSignal,
    NoTurnSignal,
    RepeatedSamples,
    Resampling,
    StopsAtOnce,
    default_guards,
)
from trainers.guards.guard import Finding, Guard, Severity

__all__ = [
    "Finding",
    "Guard",
    "InfrastructureFailures",
    "NeverStops",
    "NoSignal",
    "NoTurnSignal",
    "RepeatedSamples",
    "Resampling",
    "Severity",
    "StopsAtOnce",
    "default_guards",
]
