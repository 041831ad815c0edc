"""Our shell tasks in stock TRL, for those who want nothing else of ours: `GRPOTrainer(environment_factory=...)`.

TRL owns the loop: it calls the model, runs the tool calls it finds in a reply, and ends an episode when a reply has
none. So there is no turn credit and no cap on a single turn here; `trainers.gigpo` has both.

Contract with TRL 1.16 (held by a test): the factory makes one instance per row of a batch and reuses it; `reset(**row)`
returns text that is added to the last user message; every other public method is a tool, described by its docstring;
whatever a tool raises becomes text for the model; reward functions are given `environments`, and a `None` of all of
them takes the row out of its group's mean and gives it the advantage 0 (a KL or entropy term still sees its tokens).

The asynchronous trainer (`trl.experimental.async_grpo`) differs in two things: it sends the factory, pickled, to a
process that plays the episodes, and it gives reward functions no environments, but asks each environment for
`get_reward()`. Both trainers add what `get_reward` says to the sum of the reward functions, so only environments that
are meant to have it do.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from datasets import Dataset

from envs.actions import Action, Command, MalformedKind, Submit, encodable, malformed
from envs.clawgym import ClawGymEnv
from envs.conversation import StopReason
from envs.prompts import Standard
from envs.rewards import reward_rule
from envs.sandboxed import Place, TaskSource, resolve_tasks
from sandboxes.sandbox import SandboxError, SandboxUnavailable
from tasks.assertions.grade import GradeError
from tasks.task import Task

OVER = "The task is over; nothing was done. Write one last sentence without calling a tool."
BROKEN = "The sandbox failed; the task is over. Write one last sentence without calling a tool."


class ToolStyle(Standard):
    """The standard wording, for an agent that calls tools instead of writing blocks."""

    name = "tools"

    def system(self, task: Task) -> str:
        """What the tools do, in the order in which the agent needs it."""
        return (
            "You work in a Linux shell, in a small workspace of files, and carry out one task.\n"
            "\n"
            "Call `bash` to run a command; you are then shown its exit code and output. The directory and the "
            "variables of the shell are kept from one command to the next. There is no network and no interactive "
            f"program, and a command is stopped after {task.budget.command_seconds:g} seconds.\n"
            "\n"
            f"When the task is done, call `submit`. You have {task.budget.max_turns} calls."
        )

    def feedback(self, reason: str) -> str:
        """The reason, and what is understood."""
        return f"Nothing was run: {reason}."


class _ToolEnv(ClawGymEnv):
    """Shell tasks whose actions come from tool calls: nothing is parsed out of text."""

    def _parsed(self, reply: str) -> Action:
        if isinstance(reply, _SubmitNow):
            return Submit("")
        if not encodable(reply) or "\0" in reply:
            return malformed(MalformedKind.NOT_TEXT)
        if not reply.strip():
            return malformed(MalformedKind.EMPTY_BLOCK)
        return Command(reply)


class _SubmitNow(str):
    """Stands for the call of `submit`, which is no text of the agent's."""


class ShellTask:
    """One rollout: TRL's environment. Its public methods are the tools.

    Made by `ShellTasks`; TRL calls `reset` with the columns of the row before each rollout.
    """

    def __init__(self, env: ClawGymEnv) -> None:
        self._env = env
        self._reward: float | None = None
        self._running = False
        self._info: dict[str, Any] = {}

    def reset(self, *, task_id: str, **row: Any) -> str:
        """Lay the task of the row out; returns the task as text for the first user message.

        Raises:
            SandboxUnavailable: No sandbox works on this machine.
        """
        del row
        self._reward, self._running = None, False
        try:
            text, self._info = self._env.reset(options={"task": task_id})
        except SandboxUnavailable:
            raise  # no episode will ever run here: that is no failure of one
        except (SandboxError, GradeError):
            self._break()
            return BROKEN
        self._running = True
        return text

    def bash(self, command: str) -> str:
        """Run a command in bash.

        Args:
            command: One or more lines of bash.

        Returns:
            The exit code and the output.
        """
        return self._step(str(command))

    def submit(self) -> str:
        """Say that the task is done. It is then graded and cannot be changed any more.

        Returns:
            A confirmation.
        """
        return self._step(_SubmitNow()) or "Submitted."

    def _step(self, reply: str) -> str:
        if not self._running:
            return OVER
        try:
            observation, reward, terminated, truncated, self._info = self._env.step(reply)
        except (SandboxError, GradeError):
            self._break()
            return BROKEN
        self._running = not (terminated or truncated)
        if not self._running:
            self._reward = reward
        return f"{observation}\n{OVER}" if truncated else observation

    def _break(self) -> None:
        """The machinery failed: the episode is over and has no reward."""
        self._running, self._reward = False, None
        _, self._info = self._env.finish(StopReason.INFRASTRUCTURE)

    def _end(self) -> float | None:
        """The episode's reward; one that the agent did not end is graded as it stands."""
        if self._running:
            try:
                self._reward, self._info = self._env.finish(StopReason.MAX_TOKENS)
                self._running = False
            except (SandboxError, GradeError):
                self._break()
        return self._reward


class RewardedShellTask(ShellTask):
    """A rollout that says its own reward, as the asynchronous trainer asks. TRL logs it under this class's name."""

    def get_reward(self) -> float | None:
        """The reward of the episode that has ended; `None` where the infrastructure ended it."""
        return self._end()


class ShellTasks:
    """Makes the environments of a stock trainer: pass it as `environment_factory`, and `close` it at the end.

    Args:
        tasks: A source (`library`, `generated:...`, a folder of YAML files) or tasks.
        sandbox: A backend by name, or a pool with one sandbox per row of a generation batch at least.
        max_turns: Tool calls of an episode at most; default: each task's own budget.
        reward: `shaped`, `binary` or one of your own; of `delta` only the last call's share would reach TRL, so it is
            refused.
        turn_penalty: What all calls together cost under `shaped`.
        agent_errors: `fail` or `error` (see `envs.episode.AgentErrors`).
        owns_reward: The environments say their reward themselves, and `reward_funcs` is left out: the asynchronous
            trainer needs it, `GRPOTrainer` takes it, too. There `sandbox` is a name: it goes to another process.

    Raises:
        tasks.model.TaskError: The tasks could not be loaded.
        ValueError: A setting is not among its choices.

    Example:
        with ShellTasks("library") as tasks:
            trainer = GRPOTrainer(
                model, reward_funcs=episode_reward, train_dataset=tasks.dataset(), environment_factory=tasks, args=args
            )
            trainer.train()
    """

    def __init__(
        self,
        tasks: TaskSource = "library",
        *,
        sandbox: Place = "auto",
        max_turns: int | None = None,
        reward: str = "shaped",
        turn_penalty: float = 0.2,
        agent_errors: str = "fail",
        owns_reward: bool = False,
    ) -> None:
        if reward_rule(reward, turn_penalty).needs_every_turn:
            raise ValueError(f"reward is '{reward}': TRL takes one reward an episode; use 'shaped' or 'binary'")
        self._tasks = resolve_tasks(tasks)
        self._sandbox = sandbox
        self._kind = RewardedShellTask if owns_reward else ShellTask
        self._settings: dict[str, Any] = {
            "max_turns": max_turns, "reward": reward, "turn_penalty": turn_penalty, "agent_errors": agent_errors,
            "prompt_style": ToolStyle(),
        }  # fmt: skip
        self._made: list[ClawGymEnv] = []

    def __call__(self) -> ShellTask:
        """One environment more; its sandbox is opened at its first `reset`."""
        env = _ToolEnv(self._tasks, sandbox=self._sandbox, **self._settings)
        self._made.append(env)
        return self._kind(env)

    def __getstate__(self) -> dict[str, Any]:
        """For the process of the asynchronous trainer, whose environments are its own; it closes them when it ends."""
        if not isinstance(self._sandbox, str):
            raise TypeError(
                "an open sandbox, or a pool, cannot go to another process: name a backend, as in sandbox='auto'"
            )
        return {**vars(self), "_made": []}

    def dataset(self) -> Dataset:
        """One row per task: `prompt` (the system message, and a user message that `reset` fills) and `task_id`."""
        budget = self._settings["max_turns"]
        return Dataset.from_list([_row(task, budget) for task in self._tasks])

    def close(self) -> None:
        """End every environment and its sandbox. Idempotent. A pool stays the caller's."""
        made, self._made = self._made, []
        with ExitStack() as everything:  # one that fails leaves none of the others open, and is still reported
            for env in made:
                everything.callback(env.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def episode_reward(
    *, environments: Sequence[ShellTask] | None = None, log_metric: Any = None, **columns: Any
) -> list[float | None]:
    """Reward function for `GRPOTrainer(reward_funcs=...)`: what each episode got from its environment.

    Args:
        environments: One per completion, as TRL passes them.
        log_metric: TRL's; is given the share of episodes that have no grade, and of those that passed: of the graded
            ones, and of all.
        columns: Not used.

    Returns:
        Rewards in order; `None` where the infrastructure ended the episode: it is no failure of the model.

    Raises:
        ValueError: The environments say their reward themselves, or must, as there are none.
    """
    del columns
    if environments is None:
        raise ValueError(
            "TRL gave no environments: its asynchronous trainer asks them for the reward. Make them with "
            "ShellTasks(..., owns_reward=True), and leave reward_funcs out"
        )
    if any(isinstance(environment, RewardedShellTask) for environment in environments):
        raise ValueError("owns_reward and episode_reward would count each reward twice: leave one of them out")
    rewards = [environment._end() for environment in environments]
    if log_metric is not None and rewards:
        pairs = zip(environments, rewards, strict=True)
        graded = [environment._info["passed"] for environment, reward in pairs if reward is not None]
        log_metric("env/infra_error_frac", 1 - len(graded) / len(rewards))
        log_metric("env/pass_min", sum(map(bool, graded)) / len(rewards))
        if graded:
            log_metric("env/pass_rate", sum(map(bool, graded)) / len(graded))
    return rewards


def _row(task: Task, max_turns: int | None) -> dict[str, Any]:
    if max_turns is not None:
        task = task.model_copy(update={"budget": task.budget.model_copy(update={"max_turns": max_turns})})
    messages = [{"role": "system", "content": ToolStyle().system(task)}, {"role": "user", "content": ""}]
    return {"prompt": messages, "task_id": task.id}
