"""What environments with a shell share: the sandbox, how a command runs in it, and when it is given back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.actions import Action, Command, MalformedKind, malformed
from envs.conversation import ConversationEnv, StopReason
from envs.recovery import Recovery
from envs.rewards import workspace_hash
from envs.workplace import Workplace
from sandboxes import SandboxPool
from sandboxes.sandbox import Backend, CommandResult, JudgeIsolation, Sandbox, Snapshot
from tasks.assertions.grade import Grade
from tasks.assertions.grader import SandboxGrader
from tasks.judged_in import exposed, judge_isolation, refuse_shared
from tasks.place import refuse_unplaceable
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
            tasks.task.TaskError: The tasks could not be loaded, or ask for what the sandbox cannot give.
            ValueError: A setting is not among its choices, or has no effect.
        """
        super().__init__(resolve_tasks(tasks), **settings)
        self._place = sandbox if isinstance(sandbox, Workplace) else Workplace(sandbox)
        self._place.refuse([*self._tasks, *([self._fixed] if self._fixed else [])], self.verifier_network)
        self._recovery: Recovery | None = None
        self._isolation = JudgeIsolation.FULL
        self._ending = False
        """The grade of the end is being made, not one in between."""

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
        """Refuse a task whose judge the agent's programs could reach. Raises ExposedJudge, SharedJudge, TaskError."""
        assert self._sandbox is not None
        refuse_unplaceable([task], self._sandbox.backend, self.verifier_network)
        refuse_shared([task], self.allow_shared_judges)
        self._isolation = judge_isolation(task, self._sandbox)
        refuse_exposed([task], self._sandbox, self.allow_exposed_judges)

    def _judge_isolation(self) -> JudgeIsolation:
        return self._isolation

    def _grader(self) -> SandboxGrader:
        """Runs commands of graders in the episode's sandbox, and beside it where they ask for that."""
        return SandboxGrader(self._place.take(), self.task, network=self.verifier_network, twin=self._place.beside)

    def _choose(self, seed: int | None, options: dict[str, Any] | None) -> None:
        super()._choose(seed, options)
        self._recovery = Recovery(self.task, self._place, self.agent_errors)

    def _uncounted(self) -> float:
        return 0.0 if self._recovery is None else self._recovery.seconds

    def _graded(self) -> Grade:
        if not self._turns:  # nothing of the agent has run yet: a loss is the machinery's
            return self._judged()
        assert self._recovery is not None
        return self._recovery.keep(self._judged, self._turns)

    def _judged(self) -> Grade:
        if self._ending and self.task.services:
            self._settle()
        return super()._graded()

    def _settle(self) -> None:
        """End the services of the task; what they left then is what is graded."""
        sandbox = self._place.take()
        sandbox.end_services()
        files = sandbox.snapshot()
        self._show(files, workspace_hash(files))

    def _show(self, files: Snapshot, digest: str) -> None:
        """Take `files` as the workspace now; `digest` is their hash."""
        self._files, self._hash = files, digest

    def _end(self, reason: StopReason) -> float:
        self._ending = True
        try:
            return super()._end(reason)
        finally:
            self._ending = False
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


def refuse_exposed(tasks: Sequence[Task], sandbox: Sandbox, allowed: bool) -> None:
    """Refuse tasks whose judge runs code of the agent in a sandbox that cannot keep them apart, unless it is allowed.

    A judge that loads such code into itself is no matter of the sandbox: `tasks check` and the trainer name those.

    Raises:
        ExposedJudge: The message names the tasks and the remedies.
    """
    found = [] if allowed else [task for task in tasks if exposed(task, sandbox)]
    if not found:
        return
    names = ", ".join([*(task.id for task in found[:3]), *(["..."] if len(found) > 3 else [])])
    where = f"the {sandbox.backend} sandbox"
    remedy = "docker, bubblewrap or landlock on Linux 5.14 or newer with Landlock, other tasks"
    if sandbox.judge_isolation is JudgeIsolation.FULL:  # but not where a judge installs packages
        where, remedy = "a verifier with a network is root, and its sandbox", "other tasks"
    raise ExposedJudge(
        f"{where} cannot keep judges apart from programs of the agent's that they run "
        f"(judge_isolation: none), and {len(found)} of {len(tasks)} tasks have such a judge ({names}); remedy: "
        f"{remedy}, or allow_exposed_judges where a forged pass does no harm"
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
