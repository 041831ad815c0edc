"""Run the conformance list on one backend and print a JSON report. Started by test_conformance.py.

Usage: conformance_run.py BACKEND FIRST_SEED END_OF_SEEDS [CHECK THAT IS LEFT OUT ...]
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

from sandboxes import client
from sandboxes.conformance import CHECKS, conform, hostile

client.GRACE = 30.0
"""The machine of the test may be busy with anything: an answer may be late, but it must come and be right."""

NEEDS_PEXPECT = "interactive-program-works-and-frees-the-sandbox"
"""A plain user runs this with the system's Python, which may have no pexpect."""


def main(backend: str, first: str, end: str, *left_out: str) -> None:
    """Run and report."""
    hostile.SEEDS = range(int(first), int(end))
    known = {check.name for check in CHECKS}
    assert known.issuperset(left_out), f"no such check: {known.symmetric_difference(left_out) - known}"
    tried = known.difference(left_out, () if find_spec("pexpect") else (NEEDS_PEXPECT,))
    names = [check.name for check in CHECKS if check.name in tried]
    rows = [
        [verdict.check.name, verdict.status, verdict.detail, verdict.seconds]
        for verdict in conform(backend, only=names, lanes=3)
    ]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
