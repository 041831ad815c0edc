"""The runs of a campaign as tasks of a Ray cluster: on any node that fits, and on another one when that is lost.

Every node must reach the campaign's folder, and the folder that the campaign is started in, at the same paths and with
locks: a run that goes on elsewhere reads what it wrote before, and no two processes write one run.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxes.nodes import connect
from sandboxes.sandbox import SandboxUnavailable
from trainers.campaigns.process import POLL, Process, RunLost, noted_signals, outputs_of
from trainers.errors import ConfigError
from trainers.run.folder import is_locked

if TYPE_CHECKING:  # a node imports this module, too, and needs a second for what a campaign is
    from trainers.campaigns.plan import Campaign, Manifest, RunEntry

CHECK_SECONDS = 60.0
"""How long a node may take to start a process that looks at the campaign's folder."""
LOCK_SECONDS = 120.0
"""How long a run waits for its own process on a node that was lost: that one may still be writing."""
NODES_SECONDS = 5.0
"""How long what is known of the nodes is taken to hold."""
THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Ray sets it to a task's cores. A run has that of the campaign, so that its figures are those of a run there."""
INTERRUPTED = 130


class RayCluster:
    """Runs are tasks of a Ray cluster. See `trainers.campaigns.run.Machines`.

    Args:
        address: Of the cluster: `HOST:PORT`, or `auto`.
        campaign: What is wanted.
        manifest: Of it.
        command: What Python is told to run.

    Raises:
        ConfigError: No such cluster, or none of its nodes is large enough for a run.
    """

    def __init__(self, address: str, campaign: Campaign, manifest: Manifest, command: Sequence[str]) -> None:
        try:
            self._ray = connect(address)
        except SandboxUnavailable as error:
            raise ConfigError(f"--ray {address}: {error}") from error
        self._campaign, self._command = campaign, command
        self._looked, self._fitting = float("-inf"), 0
        share = campaign.file.ray
        on_cpu = all(settings.get("use_cpu") for settings in manifest.conditions.values())
        gpus = share.num_gpus
        if gpus is None:
            gpus = 0 if on_cpu or not any(node.get("GPU") for node in self._nodes().values()) else 1
        self._asked = {"CPU": share.num_cpus, "GPU": gpus, "memory": (share.memory_gb or 0) * 1e9}
        if not self.workers():
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in self._asked.items() if amount)
            there = "; ".join(
                ", ".join(f"{node.get(name, 0):g} {name}" for name in self._asked) for node in self._nodes().values()
            )
            raise ConfigError(
                f"{campaign.path}: ray: no node of the cluster is large enough for a run, which takes {wanted} "
                f"(the nodes have: {there}). Ask for less in `[ray]`, or add a node"
            )

    def check(self) -> None:
        """Let every node look at the folders. Raises ConfigError."""
        from ray.exceptions import RayError, TaskUnschedulableError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        look = self._ray.remote(num_cpus=0, max_retries=0)(_look)
        looks = {
            node: look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                os.path.abspath(self._campaign.folder), os.getcwd()
            )
            for node in self._nodes()
        }
        faults = []
        for node, reference in looks.items():
            try:
                faults += self._ray.get(reference, timeout=CHECK_SECONDS)
            except TaskUnschedulableError:  # it died a moment ago
                continue
            except RayError as error:
                why = str(error).strip().splitlines()[-1:] or [type(error).__name__]
                faults.append(
                    f"node {node[:8]} cannot look: {why[0]} (the same turngym[train,ray] belongs on all nodes)"
                )
        if faults:
            raise ConfigError("a campaign on Ray needs its folders on all nodes:\n" + "\n".join(faults))

    def workers(self) -> int:
        """As the file says, or as many as fit on the nodes that live."""
        if time.monotonic() >= self._looked + NODES_SECONDS:
            asked = {name: amount for name, amount in self._asked.items() if amount}
            self._fitting = sum(
                min(int(node.get(name, 0) / amount) for name, amount in asked.items())
                for node in self._nodes().values()
            )
            self._looked = time.monotonic()
        return min(self._fitting, self._campaign.file.workers or self._fitting)

    def start(self, run: RunEntry, place: int) -> _Task:
        """A task, which waits in Ray until a node has room."""
        task = self._ray.remote(_train).options(
            name=str(run),
            num_cpus=self._asked["CPU"],
            num_gpus=self._asked["GPU"],
            memory=self._asked["memory"] or None,
            max_retries=self._campaign.file.ray.retries,
        )
        folder = self._campaign.folder.absolute()
        words = [*self._command, *self._campaign.arguments(run.condition, run.seed)]
        outputs = outputs_of(folder / run.folder)
        return _Task(
            self._ray,
            task.remote(words, folder, folder / run.folder, outputs, os.getcwd(), os.environ.get(THREADS_VARIABLE)),
        )

    def _nodes(self) -> Mapping[str, Mapping[str, float]]:
        """What each node that lives has in all, by its id."""
        return {node["NodeID"]: node["Resources"] for node in self._ray.nodes() if node["Alive"]}


class _Task:
    """A run that was handed to Ray. See `trainers.campaigns.run.Job`."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def poll(self) -> int | None:
        """See `Job`."""
        from ray.exceptions import RayError, RayTaskError, TaskCancelledError

        if not self._ray.wait([self._reference], timeout=0)[0]:
            return None
        try:
            return int(self._ray.get(self._reference))
        except TaskCancelledError:  # before it began
            return INTERRUPTED
        except RayTaskError as error:
            raise RunLost(str(error.cause)) from error
        except RayError as error:
            why = " ".join(str(error).split())[:300]
            raise RunLost(f"lost with its node or its Ray process, and no retry is left: {why}") from error

    def interrupt(self) -> None:
        """See `Job`."""
        self._ray.cancel(self._reference)

    def kill(self) -> None:
        """See `Job`."""
        self._ray.cancel(self._reference, force=True)


# -- On the nodes -----------------------------------------------------------------------------------------------------


def _look(folder: str, start: str) -> list[str]:
    """What is wrong, from here, with a campaign's folder, which it has locked, and the one it was started in."""
    faults = []
    if not os.path.isdir(start):
        faults.append(f"{_name()}: has no folder {start}, in which the campaign was started")
    if not is_locked(Path(folder)):
        faults.append(
            f"{_name()}: does not see that {folder} is in use: put `output_dir` on a file system that all nodes share "
            "at the same path, with locks (NFS without `nolock`)"
        )
    return faults


def _train(
    words: Sequence[str], folder: Path, run: Path, outputs: tuple[Path, Path], start: str, threads: str | None
) -> int:
    """Do a run in a process of this node; returns its exit code.

    Raises:
        RunLost: This node does not see the campaign's folders, or the run's process on another one does not end.
    """
    with noted_signals() as signals:
        if faults := _look(str(folder), start):
            raise RunLost("; ".join(faults))
        end = time.monotonic() + LOCK_SECONDS
        while is_locked(run):
            if signals:
                return INTERRUPTED
            if time.monotonic() > end:
                raise RunLost(f"{_name()}: another process still writes {run} after {LOCK_SECONDS:.0f} seconds")
            time.sleep(POLL)
        environment = {name: value for name, value in os.environ.items() if name != THREADS_VARIABLE}
        if threads is not None:
            environment[THREADS_VARIABLE] = threads
        process, told = Process(words, outputs, environment, start), False
        while (code := process.poll()) is None:
            if signals and not told:
                process.interrupt()
                told = True
            time.sleep(POLL)
        return code


def _name() -> str:
    return f"node {socket.gethostname()}"
