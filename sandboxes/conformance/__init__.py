"""Conformance: named, adversarial checks that every backend must hold. `python -m sandboxes conformance BACKEND`.

Example:
    for verdict in conform("bubblewrap"):
        print(verdict)
"""

from __future__ import annotations

from sandboxes.conformance.check import Check, Group, Status, Trial, Verdict, Wrong
from sandboxes.conformance.commands import SHELL
from sandboxes.conformance.confinement import CONFINEMENT
from sandboxes.conformance.files import FILES
from sandboxes.conformance.hostile import CHECKS as HOSTILE
from sandboxes.conformance.isolation import ISOLATION
from sandboxes.conformance.judges import JUDGES
from sandboxes.conformance.limits import LIMITS
from sandboxes.conformance.output import OUTPUT
from sandboxes.conformance.processes import PROCESSES
from sandboxes.conformance.runner import conform, passed, run_checks, select, summary

CHECKS: list[Check] = [
    check
    for group in (SHELL, OUTPUT, PROCESSES, FILES, JUDGES, CONFINEMENT, ISOLATION, LIMITS)
    for check in group.checks
] + HOSTILE
"""Every check, by theme."""

__all__ = [
    "CHECKS",
    "Check",
    "Group",
    "Status",
    "Trial",
    "Verdict",
    "Wrong",
    "conform",
    "passed",
    "run_checks",
    "select",
    "summary",
]
