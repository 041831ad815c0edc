"""What training and measuring share: the environments by id, their settings, and how many threads torch gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from envs.answers import AnswerEnv
from envs.clawgym import ClawGymEnv
from envs.gsm8k import GSM8KEnv
from envs.ifeval import IFEvalEnv
from envs.math import MATHEnv
from envs.mixed import MixedEnv
from envs.sandboxed import SandboxedEnv
from tasks.task import Task

ENVIRONMENTS: dict[str, type[SandboxedEnv] | type[MixedEnv]] = {
    "ClawGym-v0": ClawGymEnv,
    "GSM8K-v0": GSM8KEnv,
    "MATH-v0": MATHEnv,
    "IFEval-v0": IFEvalEnv,
    "Mixed-v0": MixedEnv,
}
"""What can be trained and measured."""

MIXED_TASKS = "gsm8k:sample,library"
"""What `Mixed-v0` is measured on if nothing is named."""

SMALL_POLICY = 20_000_000
"""Parameters below which one torch thread is faster than several: on a busy machine two take several times longer."""


AHEAD = 8
"""Tasks laid out while the policy decodes: 8 % more episodes a second on two cores, and as many more sandboxes."""


def environment_settings(env: str, *, tools: bool, revise: int) -> dict[str, Any]:
    """Keyword arguments that only environments with questions take.

    Raises:
        ValueError: A setting has no effect in this environment.
    """
    if revise < 0:
        raise ValueError(f"revise={revise}: must be 0 or more")
    if revise and env not in ("IFEval-v0", "Mixed-v0"):
        raise ValueError(f"revise={revise}: only IFEval-v0 and Mixed-v0 let an answer be revised, not {env}")
    if issubclass(ENVIRONMENTS[env], AnswerEnv | MixedEnv):
        return {"tools": tools, "revise": revise}
    if not tools:
        raise ValueError(f"tools=false: {env} is a shell; only environments with questions can do without")
    return {}


def unfit_task(env: str, tasks: Sequence[Task]) -> str | None:
    """Why an environment cannot carry one of the tasks out, with what to do; `None` where it can carry out all."""
    made = ENVIRONMENTS[env]
    for task in tasks:
        if why := made.unfit(task):
            own = getattr(made, "default_tasks", None)
            hint = f"; name tasks for {env}, for example --tasks {own}" if own else ""
            return f"env={env}: task '{task.id}' {why}{hint}"
    return None


def set_threads(model: Any, threads: int) -> None:
    """Give torch `threads` CPU threads; 0 chooses by the size of the model and shares the cores out over processes."""
    import torch  # slow, and a scripted policy needs none

    from trainers.processes import here

    small = sum(p.numel() for p in model.parameters()) < SMALL_POLICY
    torch.set_num_threads(threads or (1 if small else max(1, (os.cpu_count() or 1) // here())))
