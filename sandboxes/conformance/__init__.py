"""Conformance: named, adversarial checks that every backend must hold. `python -m sandboxes conformance BACKEND`.

Example:
    for verdict in conform("bubblewrap"):
        print(verdict)
"""

from __future__ import annotations

from sandboxes.conformance.check import (
    Check,
    Group,
    Status,
    Trial,
    Verdict,
    Wrong,
    conform,
    passed,
    run_checks,
    select,
    summary,
)
from sandboxes.conformance.confinement import CONFINEMENT
from sandboxes.conformance.files import FILES
from sandboxes.conformance.hostile import CHECKS as HOSTILE
from sandboxes.conformance.isolation import ISOLATION
from sandboxes.conformance.judges import JUDGES
from sandboxes.conformance.processes import LIMITS, PROCESSES
from sandboxes.conformance.services import SERVICES
from sandboxes.conformance.shell import OUTPUT, SHELL

CHECKS: list[Check] = [
    check
    for group in (SHELL, OUTPUT, PROCESSES, SERVICES, FILES, JUDGES, CONFINEMENT, ISOLATION, LIMITS)
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
