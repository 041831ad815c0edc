"""Mixed: tasks of several sets in one environment, each carried out as its own environment would."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, cast

from envs.answer_prompts import ANSWER_STYLES
from envs.clawgym import ClawGymEnv
from envs.conversation import ConversationEnv
from envs.episode import Phase, StopReason
from envs.prompts import PromptStyle, prompt_style
from envs.questions import AnswerEnv
from envs.registry import asking_for, environments
from envs.sandboxed import Place, SandboxedEnv, TaskSource, resolve_tasks
from envs.user import ClawGymUserEnv
from envs.workplace import Workplace
from tasks.assertions.base import BaseAssertion, leaves
from tasks.task import Task


def kind_of_env(task: Task) -> type[SandboxedEnv]:
    """The environment that carries a task out.

    Where somebody answers it is ClawGym-v1, where something beside the answer decides it is ClawGym-v0; else the kind
    of the first assertion that decides says which form the answer has.
    """
    if task.user is not None:
        return ClawGymUserEnv
    if AnswerEnv.unfit(task) is not None:
        return ClawGymEnv
    asking = (asking_for(kind) for kind in _kinds(task.assertions))
    return next((kind for _, kind in filter(None, asking) if issubclass(kind, SandboxedEnv)), AnswerEnv)


def _kinds(assertions: Sequence[BaseAssertion]) -> Iterator[str]:
    return (str(leaf.kind) for item in assertions if item.weight for leaf in leaves(item))


class MixedEnv(ConversationEnv):
    """Tasks of several sets, in one place: at most one sandbox, whatever the task of the episode is.

    Observations, rewards and `info` are those of the environment that carries the task out; `info["environment"]` names
    it. `info` therefore has other keys for shell tasks than for questions.
    """

    default_tasks: ClassVar[str] = "gsm8k:sample,library"
    may_revise: ClassVar[bool] = True

    def __init__(
        self,
        tasks: TaskSource = default_tasks,
        task: str | Task | None = None,
        *,
        sandbox: Place = "auto",
        tools: bool = True,
        revise: int = 0,
        **settings: Any,
    ) -> None:
        """Load the tasks; nothing is opened before a task needs it.

        Args:
            tasks: Where tasks come from: a list of sources, or one text with commas between them.
            task: A task, or the id of one of `tasks`, for every episode.
            sandbox: As in `SandboxedEnv`; a pool serves the episodes of all sets.
            tools: As in `AnswerEnv`; shell tasks always have a shell.
            revise: As in `IFEvalEnv`, for tasks that judge instructions.
            **settings: As in `ConversationEnv`; `prompt_style` is `standard` or `compact`, which every set has.

        Raises:
            tasks.task.TaskError: The tasks could not be loaded, or ask for what the sandbox cannot give.
            ValueError: A setting is not among its choices, or has no effect.
        """
        super().__init__(resolve_tasks(tasks), task=task, **settings)
        self._place = sandbox if isinstance(sandbox, Workplace) else Workplace(sandbox)
        self._place.refuse([*self._tasks, *([self._fixed] if self._fixed else [])])
        self._settings = settings
        self.tools, self.revisions = tools, revise
        self._members: dict[type[SandboxedEnv], SandboxedEnv] = {}
        self._member: SandboxedEnv = self._enter(ClawGymEnv)  # before the first reset it is only asked what it shows

    @classmethod
    def unfit(cls, task: Task) -> str | None:
        """See `ConversationEnv.unfit`: nobody answers here."""
        return ClawGymEnv.unfit(task)

    @property
    def system_prompt(self) -> str:
        """The system message for the current task."""
        return self._member.system_prompt

    @property
    def prompt_hash(self) -> str:
        """Over what the environment of every set says, whichever of them the tasks need."""
        asking = [kind for _, kind in environments() if kind.judged_by and issubclass(kind, SandboxedEnv)]
        hashes = [self._enter(kind).prompt_hash for kind in (ClawGymEnv, AnswerEnv, *asking)]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]

    def summary(self, observation: str) -> str:
        """See `ConversationEnv.summary`: of the environment that carries the task out."""
        return self._member.summary(observation)

    @property
    def losses(self) -> list[dict[str, Any]]:
        """See `ConversationEnv.losses`."""
        return self._member.losses

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """See `ConversationEnv.reset`."""
        self._choose(seed, options)
        if why := self.unfit(self.task):
            raise ValueError(f"task '{self.task.id}' {why}")
        self._member = self._enter(kind_of_env(self.task))
        self._member.step_limit = self._limit  # a time limit is around this environment, not around its member
        self._phase = Phase.RUNNING  # the member keeps the episode; here it only says that there is one
        observation, info = self._member.reset(seed=self._seed, options={"task": self.task})
        return observation, self._named(info)

    def start_clock(self) -> None:
        """See `ConversationEnv.start_clock`."""
        self._member.start_clock()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """See `ConversationEnv.step`."""
        self._running("step")
        observation, reward, terminated, truncated, info = self._member.step(action)
        return observation, reward, terminated, truncated, self._named(info)

    def finish(self, reason: StopReason | str) -> tuple[float | None, dict[str, Any]]:
        """See `ConversationEnv.finish`."""
        self._running("finish")
        reward, info = self._member.finish(reason)
        return reward, self._named(info)

    def render(self) -> str | None:
        """See `ConversationEnv.render`."""
        return self._member.render()

    def close(self) -> None:
        """Free what is held. Idempotent; a later `reset` opens again."""
        with ExitStack() as everything:  # one that fails leaves none of the others open, and is still reported
            everything.callback(super().close)
            for member in self._members.values():
                everything.callback(member.close)

    def abort(self) -> None:
        """See `ConversationEnv.abort`."""
        self._place.abort()

    def _style(self, style: str | PromptStyle) -> PromptStyle:
        if isinstance(style, PromptStyle):
            raise ValueError("a mixed environment takes a prompt style by name: each set has its own of that name")
        if style in ANSWER_STYLES and ANSWER_STYLES[style].raw:
            raise ValueError(f"prompt_style '{style}' is for questions alone: shell tasks have standard and compact")
        return prompt_style(style)

    def _enter(self, kind: type[SandboxedEnv]) -> SandboxedEnv:
        """The member of a kind, made at first use."""
        member = self._members.get(kind)
        if member is None:
            extra: dict[str, Any] = {}
            if issubclass(kind, AnswerEnv):
                extra = {"tools": self.tools, "revise": self.revisions if kind.may_revise else 0}
            member = self._members[kind] = kind([], sandbox=self._place, **extra, **self._settings)
        return member

    def _named(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "environment": self._member.form.name if isinstance(self._member, AnswerEnv) else "clawgym"}

    def _release(self) -> None:
        self._place.release()

    def _of_the_member(self, *args: Any) -> Any:
        raise NotImplementedError("the environment that carries the task out does this")

    _lay = _exchange = _outcome = _anchor = cast(Any, _of_the_member)
