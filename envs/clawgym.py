"""ClawGym: shell tasks on a small workspace, one command a turn."""

from __future__ import annotations

from typing import Any

from envs.actions import Action, ActionKind, Command, Malformed, Submit
from envs.episode import AgentErrors, Exchange
from envs.prompts import PromptStyle, in_words, listing
from envs.protocol import DEFAULT_PROTOCOL
from envs.protocol import protocol as named_protocol
from envs.rewards import ObservationClass, anchor, workspace_hash
from envs.sandboxed import SandboxedEnv, TaskSource
from sandboxes.sandbox import CommandResult, Snapshot
from tasks.assertions.base import Outcome, cut_short
from tasks.assertions.grade import grade_files
from tasks.place import begin
from tasks.task import Task


class ClawGymEnv(SandboxedEnv):
    """Shell tasks: the agent writes one bash block a turn, or calls a tool, and is shown what it did.

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
        protocol: str = DEFAULT_PROTOCOL,
        **settings: Any,
    ) -> None:
        """Load the tasks; the sandbox is opened at the first `reset`.

        Args:
            tasks: Where tasks come from.
            task: A task, or the id of one of `tasks`, for every episode.
            protocol: How replies say what to do: `text` (a bash block, a stop word) or `tools` (tool calls).
            **settings: `sandbox` as in `SandboxedEnv`, all others as in `ConversationEnv`.

        Raises:
            tasks.task.TaskError: The tasks could not be loaded.
            ValueError: A setting is not among its choices, or has no effect.
        """
        self.protocol = named_protocol(protocol)
        super().__init__(tasks, task=task, **settings)

    @classmethod
    def unfit(cls, task: Task) -> str | None:
        """See `ConversationEnv.unfit`: nobody answers here."""
        return None if task.user is None else "has a user, who answers in ClawGym-v1 alone: play it there"

    def _lay(self, task: Task) -> str:
        if why := self.unfit(task):
            raise ValueError(f"task '{task.id}' {why}")
        sandbox = self._place.take()
        begin(task, sandbox)
        self._admit(task)
        self._initial = sandbox.snapshot()
        self._last = ObservationClass.START
        self._show(self._initial, workspace_hash(self._initial))
        return self.style.first(self._shown_task(), listing(self._initial))

    def _exchange(self, reply: str) -> Exchange:
        return self._do(self._parsed(reply))

    def _do(self, action: Action) -> Exchange:
        match self._fitting(action):
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

    def _parsed(self, reply: str) -> Action:
        """What a reply asks for."""
        return self.protocol.parse(reply)

    def _style(self, style: str | PromptStyle) -> PromptStyle:
        return in_words(super()._style(style), self.protocol.words)

    def _run(self, command: str) -> CommandResult:
        """Run a command; take the workspace after it, and what the turn earned."""
        result, files, digest = self._execute(command)
        before = self._file_rate
        if files != self._files or cut_short(files) != self._cut_short:
            self._show(files, digest)
        after = self._file_rate
        self._signal = None if before is None or after is None else after - before
        return result

    def _show(self, files: Snapshot, digest: str) -> None:
        super()._show(files, digest)
        self._cut_short = cut_short(files)
        outcome = Outcome(files, self._initial, cut_short=self._cut_short)
        self._file_rate = grade_files(self.task, outcome, broken_errs=self.agent_errors is AgentErrors.ERROR)

    def _outcome(self) -> Outcome:
        said = self._conversation()
        return Outcome(self._files, self._initial, self._final, said, self._grader(), self._cut_short)

    def _anchor(self) -> str:
        return anchor(self._hash, self._last)
