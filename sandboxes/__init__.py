r"""Where commands run: sandboxes with one contract and several ways of confinement.

Example:
    with open_sandbox() as sandbox:
        sandbox.open({"names.txt": "b\na\n"})
        print(sandbox.run("sort names.txt").stdout_text)

Inside, imports point one way: cli -> conformance, pool -> opening -> docker, landlock, nodes -> bubblewrap,
client, local -> transport -> boot, cgroup, terminal -> guard, inside, owner, sandbox.
"""

from __future__ import annotations

from sandboxes.client import SupervisedSandbox
from sandboxes.opening import Probe, choose, open_sandbox, probe
from sandboxes.pool import SandboxPool
from sandboxes.sandbox import (
    Backend,
    CommandResult,
    EntryKind,
    FileEntry,
    Files,
    Limits,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
    Snapshot,
)

__all__ = [
    "Backend",
    "CommandResult",
    "EntryKind",
    "FileEntry",
    "Files",
    "Limits",
    "Probe",
    "Sandbox",
    "SandboxError",
    "SandboxPool",
    "SandboxUnavailable",
    "Snapshot",
    "SupervisedSandbox",
    "choose",
    "open_sandbox",
    "probe",
]
