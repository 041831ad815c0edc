"""ClawGym: shell tasks on a small workspace, one command a turn."""

from __future__ import annotations

from envs.actions import Action, ActionKind, Command, Malformed, Submit, parse
from envs.anchors import ObservationClass, anchor, workspace_hash
from envs.episode import AgentErrors, Exchange
from envs.prompts import PromptStyle, listing
from envs.rewards import RewardKind
from envs.sandboxed import Place, SandboxedEnv, TaskSource
from sandboxes.sandbox import CommandResult, Snapshot
from tasks.assertions.grade import grade_files
from tasks.grader import SandboxGrader
from tasks.outcome import Outcome, cut_short
from tasks.task import Task


class ClawGymEnv(SandboxedEnv):
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
        sandbox: Place = "auto",
        max_turns: int | None = None,
        reward: str | RewardKind = RewardKind.SHAPED,
        turn_penalty: float = 0.2,
        subtract_baseline: bool = False,
        agent_errors: str | AgentErrors = AgentErrors.FAIL,
        allow_exposed_judges: bool = False,
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
            agent_errors: `fail` or `error`.
            allow_exposed_judges: Play tasks whose judge runs code of the agent that nothing keeps apart from it.
            prompt_style: `standard`, `compact`, or a `PromptStyle`.
            render_mode: `ansi` or `None`.

        Raises:
            tasks.task.TaskError: The tasks could not be loaded.
            ValueError: A setting is not among its choices, or has no effect.
        """
        super().__init__(
            tasks,
            task=task,
            sandbox=sandbox,
            max_turns=max_turns,
            reward=reward,
            turn_penalty=turn_penalty,
            subtract_baseline=subtract_baseline,
            agent_errors=agent_errors,
            allow_exposed_judges=allow_exposed_judges,
            prompt_style=prompt_style,
            render_mode=render_mode,
        )

    def _lay(self, task: Task) -> str:
        sandbox = self._place.take()
        sandbox.open(task.files(), workdir=task.workdir)
        self._admit(task)
        self._initial = sandbox.snapshot()
        self._last = ObservationClass.START
        self._show(self._initial, workspace_hash(self._initial))
        return self.style.first(self._shown_task(), listing(self._initial))

    def _exchange(self, reply: str) -> Exchange:
        match self._fitting(self._parsed(reply)):
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
        return parse(reply)

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
        """Take `files` as the workspace now; `digest` is their hash."""
        self._files = files
        self._hash = digest
        self._cut_short = cut_short(files)
        outcome = Outcome(files, self._initial, cut_short=self._cut_short)
        self._file_rate = grade_files(self.task, outcome, broken_errs=self.agent_errors is AgentErrors.ERROR)

    def _outcome(self) -> Outcome:
        assert self._sandbox is not None
        said = self._conversation()
        grader = SandboxGrader(self._sandbox, self.task)
        return Outcome(self._files, self._initial, self._final, said, grader, self._cut_short)

    def _anchor(self) -> str:
        return anchor(self._hash, self._last)
