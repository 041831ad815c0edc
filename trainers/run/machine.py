"""What training and measuring share: the settings of an environment, and how many threads torch gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from envs.registry import environment, environments, takes
from tasks.task import Task

SMALL_POLICY = 20_000_000
"""Parameters below which one torch thread is faster than several: on a busy machine two take several times longer."""


AHEAD = 8
"""Tasks laid out while the policy decodes: 8 % more episodes a second on two cores, and as many more sandboxes."""


def environment_settings(env: str, *, tools: bool, revise: int) -> dict[str, Any]:
    """Keyword arguments that only environments with questions take.

    Raises:
        ValueError: A setting has no effect in this environment, or there is no such environment.
    """
    if revise < 0:
        raise ValueError(f"revise={revise}: must be 0 or more")
    kind = environment(env)
    if revise and not kind.may_revise:
        others = " and ".join(name for name, other in environments() if other.may_revise)
        raise ValueError(f"revise={revise}: only {others} let an answer be revised, not {env}")
    if takes(kind, "tools") and takes(kind, "revise"):
        return {"tools": tools, "revise": revise}
    if not tools:
        raise ValueError(f"tools=false: {env} is a shell; only environments with questions can do without")
    return {}


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
