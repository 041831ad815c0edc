"""In which sandbox a script judges: the agent's once all there has ended, a fresh one, or the agent's as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, model_validator

from sandboxes.boot import check_workdir
from sandboxes.sandbox import MOUNTS_FOLDERS, Backend, JudgeIsolation, Sandbox
from tasks.judges import JudgeUse
from tasks.model import Items, StrictModel, fault

if TYPE_CHECKING:
    from tasks.task import Task


class Where(StrEnum):
    """Which sandbox."""

    AGENT = "agent"
    """The agent's, when its processes have ended."""
    FRESH = "fresh"
    """One of the same kind that gets the workspace, and nothing else of the agent's."""
    SHARED = "shared"
    """The agent's, with the processes that it left running: for what is judged by asking those."""


def _check_folder(path: str) -> str:
    if re.fullmatch(r"/[a-z][a-z0-9_-]*", path) is None or path in ("/workspace", "/tmp", "/var", "/root"):
        raise fault(f"'{path}' is no folder of a judge: write one at the root, such as /tests")
    try:
        return check_workdir(path)
    except ValueError:
        raise fault(f"'{path}' is a folder of the system: choose another name, such as /tests") from None


class JudgedIn(StrictModel):
    """The sandbox of a script.

    Attributes:
        sandbox: Which one.
        folders: Real folders at the root that the script alone has, beside `$GRADER`. They are empty when it starts; it
            finds their names in `$GRADER_FOLDERS`, with `:` between, which is empty where none can be mounted.
        network: Why the script needs a network, in words; empty where it needs none.
    """

    sandbox: Annotated[Where, Field(strict=False)] = Where.AGENT
    folders: Items[Annotated[str, AfterValidator(_check_folder)]] = ()
    network: str = ""

    @model_validator(mode="after")
    def _fits(self) -> JudgedIn:
        if self.folders and self.sandbox is Where.AGENT:
            raise fault("only a fresh or a shared sandbox has folders of its judge: write sandbox: fresh", "folders")
        if self.network and self.sandbox is not Where.FRESH:
            raise fault("only a fresh sandbox has a network, else the agent had it: write sandbox: fresh", "network")
        return self


def check_network(name: str) -> str:
    """The name of a network of a container engine that a verifier may have.

    Raises:
        ValueError: It is none, or one that is not the container's own.
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) is None or name in ("none", "host"):
        raise ValueError(
            f"verifier_network is {name!r}: name a network that containers of the engine have for themselves, such as "
            "bridge (`docker network ls` shows all; host and none are not)"
        )
    return name


def mounted(judged_in: JudgedIn, backend: Backend) -> tuple[str, ...]:
    """The folders that a script has in a sandbox of this backend."""
    return judged_in.folders if backend in MOUNTS_FOLDERS else ()


def is_shared(task: Task) -> bool:
    """Whether the agent's processes run on while the task is judged."""
    return any(item.sandbox is Where.SHARED for item in task.judged_in)


def network_reason(task: Task) -> str:
    """Why a judge of the task needs a network; empty where none does."""
    return next((item.network for item in task.judged_in if item.network), "")


def exposed(task: Task, sandbox: Sandbox) -> bool:
    """Whether programs of the agent's could reach the judge of the task, in this sandbox.

    A judge that loads the agent's code into itself is no matter of the sandbox: `Task.judge_use` tells those.
    """
    if task.judge_use is JudgeUse.NEITHER and not is_shared(task):
        return False
    return bool(network_reason(task)) or sandbox.judge_isolation is not JudgeIsolation.FULL


def judge_isolation(task: Task, sandbox: Sandbox) -> JudgeIsolation:
    """Whether the judge of a task is out of reach of the agent's programs in this sandbox, and where it runs."""
    if task.judge_use is JudgeUse.IN_PROCESS or exposed(task, sandbox):
        return JudgeIsolation.NONE
    if is_shared(task):
        return JudgeIsolation.SHARED
    fresh = bool(task.judged_in) and all(item.sandbox is Where.FRESH for item in task.judged_in)
    return JudgeIsolation.SEPARATE if fresh else JudgeIsolation.FULL


class SharedJudge(ValueError):
    """Processes of the agent run beside the judge of a task: what they answer it, they may answer as they like."""


def refuse_shared(tasks: Sequence[Task], allowed: bool) -> None:
    """Refuse tasks with a shared judge, unless they are allowed.

    Raises:
        SharedJudge: The message names them, and the remedy.
    """
    found = [task.id for task in tasks if is_shared(task)]
    if found and not allowed:
        names = ", ".join([*found[:3], *(["..."] if len(found) > 3 else [])])
        raise SharedJudge(
            f"{len(found)} of {len(tasks)} tasks are judged beside processes of the agent (judge_isolation: shared: "
            f"{names}); remedy: other tasks, or allow_shared_judges (docs/judges.md says what such a verdict is worth)"
        )
