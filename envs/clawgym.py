"""ClawGym: shell tasks on a small workspace, one command a turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.actions import Action, ActionKind, Command, Malformed, MalformedKind, Submit, malformed, parse
from envs.anchors import ObservationClass, anchor, workspace_hash
from envs.conversation import ConversationEnv, Exchange, StopReason
from envs.prompts import PromptStyle, listing
from envs.rewards import RewardKind
from sandboxes import SandboxPool, open_sandbox
from sandboxes.client import SupervisedSandbox
from sandboxes.sandbox import Backend, CommandResult, Sandbox, Snapshot
from tasks.assertions.grade import grade_files
from tasks.grader import SandboxGrader
from tasks.outcome import Outcome, cut_short
from tasks.sources import load_tasks
from tasks.task import Task

TaskSource = str | Path | Sequence[str | Path | Task]
"""Tasks themselves, or what `tasks.sources.load_tasks` takes: `library`, `generated:...`, a YAML file, a folder."""


POOL_SECONDS = 300.0
"""How long an environment waits for a sandbox of its pool. Longer means that the pool is too small, and a deadlock."""


class ClawGymEnv(ConversationEnv):
    """Shell tasks: the agent writes one bash block a turn and is shown what it did.

    The signal of a turn is the change of the rate over the *file* assertions, taken on the host from the workspace's
    snapshot after the turn. A turn that only submits has none (a signal there would reward stopping), a malformed turn
    has 0, and on a task without file assertions no turn has one.

    One sandbox is opened at the first `reset` and serves every episode; after a failure the next `reset` opens another.
    With a pool, each episode has a sandbox of the pool, from its `reset` to its end.
    """

    def __init__(
        self,
        tasks: TaskSource = "library",
        task: str | Task | None = None,
        *,
        sandbox: str | Backend | Sandbox | SandboxPool = "auto",
        max_turns: int | None = None,
        reward: str | RewardKind = RewardKind.SHAPED,
        turn_penalty: float = 0.2,
        subtract_baseline: bool = False,
        prompt_style: str | PromptStyle = "standard",
        render_mode: str | None = None,
    ) -> None:
        """Load the tasks; the sandbox is opened at the first `reset`.

        Args:
            tasks: Where tasks come from.
            task: A task, or the id of one of `tasks`, for every episode.
            sandbox: A backend by name (`auto`, `docker`, `bubblewrap`, `landlock`, `local`), or an open sandbox, or a
                pool as large as the number of episodes at a time; what is open stays the caller's to close.
            max_turns: As in `ConversationEnv`, like all that follow.
            reward: `shaped`, `binary` or `delta`.
            turn_penalty: What all turns together cost under `shaped`.
            subtract_baseline: Take the rate above that of doing nothing.
            prompt_style: `standard`, `compact`, or a `PromptStyle`.
            render_mode: `ansi` or `None`.

        Raises:
            tasks.task.TaskError: The tasks could not be loaded.
            ValueError: A setting is not among its choices, or has no effect.
        """
        super().__init__(
            resolve_tasks(tasks),
            task=task,
            max_turns=max_turns,
            reward=reward,
            turn_penalty=turn_penalty,
            subtract_baseline=subtract_baseline,
            prompt_style=prompt_style,
            render_mode=render_mode,
        )
        self._pool = sandbox if isinstance(sandbox, SandboxPool) else None
        self._given = None if isinstance(sandbox, str | SandboxPool) else sandbox
        self._backend = sandbox if isinstance(sandbox, str) else "auto"
        if self._backend not in ("auto", *Backend):
            raise ValueError(f"unknown sandbox '{self._backend}': choose one of {', '.join(('auto', *Backend))}")
        self._sandbox: Sandbox | None = None
        self._leased: SupervisedSandbox | None = None
        """The sandbox that the pool lent last; it is asked for again, so that equal runs see equal process numbers."""

    def _lay(self, task: Task) -> str:
        if self._sandbox is None:
            self._sandbox = self._lease() if self._pool else self._given or open_sandbox(self._backend)
        self._sandbox.open(task.files(), workdir=task.workdir)
        self._initial = self._sandbox.snapshot()
        self._last = ObservationClass.START
        self._show(self._initial)
        return self.style.first(self._shown_task(), listing(self._initial))

    def _exchange(self, reply: str) -> Exchange:
        match self._fitting(parse(reply)):
            case Malformed(reason, kind):
                self._last = ObservationClass.MALFORMED
                signal = None if self._file_rate is None else 0.0
                return Exchange(self.style.feedback(reason), ActionKind.MALFORMED, signal=signal, malformed=kind)
            case Submit(text):
                return Exchange("", ActionKind.SUBMIT, final_message=text)
            case Command(text, then_submit, message):
                result = self._run(text)
                self._last = ObservationClass.of(result)
                return Exchange(
                    self.style.observation(result),
                    ActionKind.COMMAND,
                    final_message=message if then_submit else None,
                    command=text,
                    exit_code=result.exit_code,
                    timed_out=result.timed_out,
                    signal=self._signal,
                )

    def _fitting(self, action: Action) -> Action:
        """The action, or `too_long`: what the sandbox would refuse is the agent's doing, not a failure of machinery."""
        assert self._sandbox is not None
        if isinstance(action, Command) and len(action.text.encode()) > self._sandbox.limits.command_bytes:
            return malformed(MalformedKind.TOO_LONG)
        return action

    def _run(self, command: str) -> CommandResult:
        """Run a command and take the snapshot after it: in one round trip where the sandbox offers that."""
        assert self._sandbox is not None
        seconds = self.task.budget.command_seconds
        together = getattr(self._sandbox, "run_and_snapshot", None)
        if together is not None:
            result, files = together(command, timeout=seconds)
        else:
            result, files = self._sandbox.run(command, timeout=seconds), self._sandbox.snapshot()
        before = self._file_rate
        if files != self._files:
            self._show(files)
        after = self._file_rate
        self._signal = None if before is None or after is None else after - before
        return result

    def _show(self, files: Snapshot) -> None:
        """Take `files` as the workspace now."""
        assert self._sandbox is not None
        self._files = files
        self._hash = workspace_hash(files)
        self._cut_short = cut_short(files, self._sandbox.limits)
        self._file_rate = grade_files(self.task, Outcome(files, self._initial, cut_short=self._cut_short))

    def _outcome(self) -> Outcome:
        assert self._sandbox is not None
        said = self._conversation()
        return Outcome(self._files, self._initial, self._final, said, SandboxGrader(self._sandbox), self._cut_short)

    def _anchor(self) -> str:
        return anchor(self._hash, self._last)

    def _lease(self) -> Sandbox:
        assert self._pool is not None
        self._leased = self._pool.acquire(POOL_SECONDS, prefer=self._leased)
        return self._leased

    def _end(self, reason: StopReason) -> float:
        try:
            return super()._end(reason)
        finally:
            self._give_back()

    def finish(self, reason: StopReason | str) -> tuple[float | None, dict[str, Any]]:
        """See `ConversationEnv.finish`."""
        result = super().finish(reason)
        self._give_back()
        return result

    def _give_back(self) -> None:
        """Let the pool have the sandbox back: of an episode that is over only the snapshot is needed."""
        if self._pool is not None and self._sandbox is not None:
            self._release()

    def _release(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None or sandbox is self._given:
            return
        if self._pool is None:
            sandbox.close()
        else:
            assert self._leased is not None
            self._pool.release(self._leased)


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
