"""The machine that a run is on: threads, versions for the record, and what an environment can take on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from envs.protocol import DEFAULT_PROTOCOL
from envs.registry import environment, environments, takes
from tasks.task import Task
from trainers.rollouts.manner import Manner

SMALL_POLICY = 20_000_000
"""Parameters below which one torch thread is faster than several: on a busy machine two take several times longer."""


AHEAD = 8
"""Tasks laid out while the policy decodes: 8 % more episodes a second on two cores, and as many more sandboxes."""


def environment_settings(
    env: str,
    *,
    tools: bool,
    revise: int,
    keep_observations: int | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    shots: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:
    """Keyword arguments that only some environments take, or only where they are asked for.

    Raises:
        ValueError: A setting has no effect in this environment, or there is no such environment.
    """
    if revise < 0:
        raise ValueError(f"revise={revise}: must be 0 or more")
    kind = environment(env)
    if revise and not kind.may_revise:
        others = " and ".join(name for name, other in environments() if other.may_revise)
        raise ValueError(f"revise={revise}: only {others} let an answer be revised, not {env}")
    if protocol != DEFAULT_PROTOCOL and not takes(kind, "protocol"):
        others = " and ".join(name for name, other in environments() if takes(other, "protocol"))
        raise ValueError(f"protocol={protocol}: {env} has one way to act; {others} can be played so")
    if shots and not getattr(kind, "shows_examples", False):
        raise ValueError(f"shots={len(shots)}: only GSM8K-v0 and MATH-v0 show examples, not {env}")
    history: dict[str, Any] = {} if keep_observations is None else {"keep_observations": keep_observations}
    if protocol != DEFAULT_PROTOCOL:
        history["protocol"] = protocol
    if takes(kind, "tools") and takes(kind, "revise"):
        return {"tools": tools, "revise": revise, **history, **({"shots": shots} if shots else {})}
    if not tools:
        raise ValueError(f"tools=false: {env} is a shell; only environments with questions can do without")
    return history


def settings_of(manner: Manner) -> dict[str, Any]:
    """`environment_settings` of an environment in which a policy is spoken to as it was decided.

    Raises:
        ValueError: As there.
    """
    return environment_settings(
        manner.env,
        tools=manner.tools,
        revise=manner.revise,
        keep_observations=manner.keep_observations,
        protocol=manner.protocol,
        shots=manner.shots,
    )


def unfit_task(env: str, tasks: Sequence[Task]) -> str | None:
    """Why an environment cannot carry one of the tasks out, with what to do; `None` where it can carry out all."""
    kind = environment(env)
    for task in tasks:
        if why := kind.unfit(task):
            hint = f"; name tasks for {env}, for example --tasks {kind.default_tasks}" if kind.default_tasks else ""
            return f"env={env}: task '{task.id}' {why}{hint}"
    return None


def set_threads(model: Any, threads: int | None) -> None:
    """Give torch `threads` CPU threads; `None` or 0: by the size of the model, cores shared out over processes."""
    import torch  # slow, and a scripted policy needs none

    from trainers.processes import here

    small = sum(p.numel() for p in model.parameters()) < SMALL_POLICY
    torch.set_num_threads(threads or (1 if small else max(1, (os.cpu_count() or 1) // here())))


PACKAGES = ("turngym", "torch", "transformers", "trl", "peft", "accelerate", "datasets", "gymnasium", "numpy")


def describe_environment() -> dict[str, Any]:
    """Versions, machine and commit of this process, JSON-able. Asks nothing of the network.

    Without torch its threads and the GPUs are `None`: nobody was there to ask.
    """
    try:
        import torch
    except ModuleNotFoundError:
        threads, gpus = None, None
    else:
        threads = torch.get_num_threads()
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory_gb(),
        "torch_threads": threads,
        "gpus": gpus,
        "git_commit": _git_commit(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _git_commit() -> str | None:
    """Commit of the checkout that this file is in, with `+changes` when tracked files differ; `None` without one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
