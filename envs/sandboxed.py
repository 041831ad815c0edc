"""What environments with a shell share: the sandbox, how a command runs in it, and when it is given back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.actions import Action, Command, MalformedKind, malformed
from envs.conversation import ConversationEnv, StopReason
from envs.recovery import Recovery
from envs.workplace import Workplace
from sandboxes import SandboxPool
from sandboxes.sandbox import Backend, CommandResult, JudgeIsolation, Sandbox, Snapshot
from tasks.assertions.grade import Grade
from tasks.judges import JudgeUse
from tasks.sources import load_tasks
from tasks.task import Task

TaskSource = str | Path | Sequence[str | Path | Task]
"""Tasks themselves, or what `tasks.sources.load_tasks` takes: `library`, `generated:...`, a YAML file, a folder."""

Place = str | Backend | Sandbox | SandboxPool | Workplace
"""What an environment takes as `sandbox`; a workplace is shared by environments of which one plays at a time."""


class SandboxedEnv(ConversationEnv):
    """A conversation with a sandbox behind it, which is given back at the end of an episode and after a failure."""

    def __init__(self, tasks: TaskSource, *, sandbox: Place = "auto", **settings: Any) -> None:
        """Load the tasks; nothing is opened.

        Args:
            tasks: Where tasks come from.
            sandbox: A backend by name (`auto`, `docker`, `bubblewrap`, `landlock`, `local`), or an open sandbox, or a
                pool as large as the number of episodes at a time; what is open stays the caller's to close.
            **settings: As in `ConversationEnv`.

        Raises:
            tasks.task.TaskError: The tasks could not be loaded.
            ValueError: A setting is not among its choices, or has no effect.
        """
        super().__init__(resolve_tasks(tasks), **settings)
        self._place = sandbox if isinstance(sandbox, Workplace) else Workplace(sandbox)
        self._recovery: Recovery | None = None
        self._isolation = JudgeIsolation.FULL

    @property
    def losses(self) -> list[dict[str, Any]]:
        """See `ConversationEnv.losses`."""
        return [] if self._recovery is None else [loss.record() for loss in self._recovery.losses]

    def finish(self, reason: StopReason | str) -> tuple[float | None, dict[str, Any]]:
        """See `ConversationEnv.finish`."""
        result = super().finish(reason)
        self._place.give_back()
        return result

    def abort(self) -> None:
        """See `ConversationEnv.abort`."""
        self._place.abort()

    @property
    def _sandbox(self) -> Sandbox | None:
        return self._place.sandbox

    def _admit(self, task: Task) -> None:
        """Refuse a task whose judge the agent's programs could reach. Raises ExposedJudge."""
        assert self._sandbox is not None
        self._isolation = judge_isolation(task, self._sandbox)
        refuse_exposed([task], self._sandbox, self.allow_exposed_judges)

    def _judge_isolation(self) -> JudgeIsolation:
        return self._isolation

    def _choose(self, seed: int | None, options: dict[str, Any] | None) -> None:
        super()._choose(seed, options)
        self._recovery = Recovery(self.task, self._place, self.agent_errors)

    def _graded(self) -> Grade:
        if not self._turns:  # nothing of the agent has run yet: a loss is the machinery's
            return super()._graded()
        assert self._recovery is not None
        return self._recovery.keep(super()._graded, self._turns)

    def _end(self, reason: StopReason) -> float:
        try:
            return super()._end(reason)
        finally:
            self._place.give_back()  # of an episode that is over only the snapshot is needed

    def _release(self) -> None:
        self._place.release()

    def _fitting(self, action: Action) -> Action:
        """The action, or `too_long`: what the sandbox would refuse is the agent's doing, not a failure of machinery."""
        if isinstance(action, Command) and len(action.text.encode()) > self._place.take().limits.command_bytes:
            return malformed(MalformedKind.TOO_LONG)
        return action

    def _execute(self, command: str) -> tuple[CommandResult, Snapshot, str]:
        """Run a command: its result, the workspace after it, and the workspace's hash (see `Recovery.run`)."""
        assert self._recovery is not None
        return self._recovery.run(command, self._turns + 1)


class ExposedJudge(ValueError):
    """A judge runs code of the agent, and nothing keeps that from the judge: a forged pass could not be told."""


def judge_isolation(task: Task, sandbox: Sandbox) -> JudgeIsolation:
    """Whether the judge of a task is out of reach of the agent's programs, in this sandbox."""
    if task.judge_use is JudgeUse.NEITHER:
        return JudgeIsolation.FULL
    return JudgeIsolation.NONE if task.judge_use is JudgeUse.IN_PROCESS else sandbox.judge_isolation


def refuse_exposed(tasks: Sequence[Task], sandbox: Sandbox, allowed: bool) -> None:
    """Refuse tasks whose judge runs code of the agent in a sandbox that cannot keep them apart, unless it is allowed.

    A judge that loads such code into itself is no matter of the sandbox: `tasks check` and the trainer name those.

    Raises:
        ExposedJudge: The message names the tasks and the remedies.
    """
    exposed = [task.id for task in tasks if task.judge_use is not JudgeUse.NEITHER]
    if allowed or not exposed or sandbox.judge_isolation is JudgeIsolation.FULL:
        return
    names = ", ".join([*exposed[:3], *(["..."] if len(exposed) > 3 else [])])
    raise ExposedJudge(
        f"the {sandbox.backend} sandbox cannot keep judges apart from programs of the agent's that they run "
        f"(judge_isolation: none), and {len(exposed)} of {len(tasks)} tasks have such a judge ({names}); remedy: "
        "docker, bubblewrap or landlock on Linux 5.14 or newer with Landlock, other tasks, or allow_exposed_judges "
        "where a forged pass does no harm"
    )


def resolve_tasks(tasks: TaskSource) -> list[Task]:
    """The tasks of a source; a sequence may mix tasks and sources.

    Raises:
        tasks.task.TaskError: A source could not be loaded.
    """
    if isinstance(tasks, str | Path):
        return load_tasks(tasks)
    out: list[Task] = []
    for item in tasks:
        out += [item] if isinstance(item, Task) else load_tasks(item)
    return out
