"""Removing what hosts left behind that could not clean up: killed with SIGKILL, or with the machine's power.

Each backend does this by itself for its own kind when a process opens its first sandbox. `sweep` does all of it,
and can end a whole run.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandboxes import cgroup
from sandboxes import local as folder
from sandboxes.docker.containers import sweep_containers


@dataclass(frozen=True, slots=True)
class Swept:
    """How many of each kind were removed.

    Attributes:
        folders: Private folders of landlock and local, with the processes of their users.
        cgroups: Control groups, with the processes in them; one per sandbox.
        containers: Containers, also those that were made and never started.
    """

    folders: int = 0
    cgroups: int = 0
    containers: int = 0


def sweep(run: str | None = None) -> Swept:
    """Remove what belongs to processes that are gone for sure.

    What cannot be told from here (made on another machine, or in another PID namespace) stays.

    Args:
        run: Remove instead everything of this run, whether its processes live or not: the value of TURNGYM_RUN_ID, or
            the token of one process. Its sandboxes are lost; their hosts get a `SandboxError`. A bubblewrap sandbox
            without a control group leaves nothing that could be found, and ends with its host.

    Raises:
        SandboxUnavailable: An engine is named by a setting and does not answer. Folders and groups are removed by then.
        SandboxError: An engine broke off.
    """
    groups = cgroup.sweep(run)  # first, so that nothing still writes into the folders
    folders = folder.sweep(run)
    return Swept(folders=folders, cgroups=groups, containers=sweep_containers(run))
