"""What environments with a shell share: the sandbox, how a command runs in it, and when it is given back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.actions import Action, Command, MalformedKind, malformed
from envs.conversation import ConversationEnv, StopReason
from envs.workplace import Workplace
from sandboxes import SandboxPool
from sandboxes.sandbox import Backend, CommandResult, Sandbox, Snapshot
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

    def _execute(self, command: str) -> tuple[CommandResult, Snapshot]:
        """Run a command and take the snapshot after it: in one round trip where the sandbox offers that."""
        sandbox = self._place.take()
        seconds = self.task.budget.command_seconds
        together = getattr(sandbox, "run_and_snapshot", None)
        if together is not None:
            result, files = together(command, timeout=seconds)
            return result, files
        return sandbox.run(command, timeout=seconds), sandbox.snapshot()


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
