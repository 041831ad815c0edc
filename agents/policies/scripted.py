"""Policies without a model: the task's own oracle, nothing at all, and a recorded trajectory again.

They stand behind the same protocol as a model, so that rollouts, environments and graders can be tried end to end.
Their ids carry logprob 0 and entropy 0: the choice was certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agents.policies.bytes import ByteTokenizer
from agents.policy import Completion, FinishReason, PolicyError, Request, Sampling
from agents.trajectory import Trajectory
from envs.actions import STOP_WORD

if TYPE_CHECKING:
    from tasks.task import Task


class _Scripted:
    """Replies that depend on the task and the number of the turn."""

    def __init__(self, tokenizer: Any = None) -> None:
        self.tokenizer: Any = tokenizer if tokenizer is not None else ByteTokenizer()
        self.eos_ids: frozenset[int] = frozenset([self.tokenizer.eos_token_id])
        self._tasks: dict[str, Task] = {}
        self._turns: dict[str, int] = {}

    def begin(self, conversation: str, task: Task) -> None:
        """Remember the task; the conversation starts from its first turn."""
        self._tasks[conversation] = task
        self._turns[conversation] = 0

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over."""
        for conversation in conversations:
            self._tasks.pop(conversation, None)
            self._turns.pop(conversation, None)

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """The scripted reply of each conversation's turn, cut at the request's cap."""
        return [self._complete(request, sampling) for request in requests]

    def _complete(self, request: Request, sampling: Sampling) -> Completion:
        task = self._tasks.get(request.conversation)
        if task is None:
            raise PolicyError(f"conversation {request.conversation}: a scripted policy needs begin() with the task")
        turn = self._turns[request.conversation]
        self._turns[request.conversation] = turn + 1
        cap = sampling.max_tokens if request.max_tokens is None else request.max_tokens
        return self._reply(request, task, turn, cap)

    def _reply(self, request: Request, task: Task, turn: int, cap: int) -> Completion:
        text = self._text(task, turn)
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        return certain(ids[:cap], FinishReason.STOP if len(ids) <= cap else FinishReason.LENGTH)

    def _text(self, task: Task, turn: int) -> str:
        raise NotImplementedError


class OraclePolicy(_Scripted):
    """Plays the task's oracle, one command a turn, then submits with its answer, if it has one."""

    def _text(self, task: Task, turn: int) -> str:
        if task.oracle is None:
            raise PolicyError(f"task '{task.id}' has no oracle: nothing to play")
        commands = task.oracle.commands
        if turn < len(commands):
            return fenced(commands[turn])
        return STOP_WORD if task.oracle.answer is None else f"{task.oracle.answer}\n{STOP_WORD}"


class NoOpPolicy(_Scripted):
    """Submits at once: what a task is worth without any work."""

    def _text(self, task: Task, turn: int) -> str:
        return STOP_WORD


class ReplayPolicy(_Scripted):
    """Replays recorded replies, id for id.

    Args:
        trajectories: One, or several; conversations about a task take its trajectories in order.
        tokenizer: The tokenizer they were recorded with.
        strict: Refuse to go on when the environment shows anything else than it did then.
    """

    def __init__(
        self, trajectories: Trajectory | Iterable[Trajectory], tokenizer: Any = None, *, strict: bool = True
    ) -> None:
        super().__init__(tokenizer)
        given = [trajectories] if isinstance(trajectories, Trajectory) else list(trajectories)
        self._waiting: dict[str, list[Trajectory]] = {}
        for trajectory in given:
            self._waiting.setdefault(trajectory.task_id, []).append(trajectory)
        self._playing: dict[str, Trajectory] = {}
        self._strict = strict

    def begin(self, conversation: str, task: Task) -> None:
        """Take the task's next trajectory; a conversation that begins again plays its own again."""
        super().begin(conversation, task)
        if conversation in self._playing:
            return
        waiting = self._waiting.get(task.id)
        if not waiting:
            raise PolicyError(f"no recorded trajectory of task '{task.id}' is left to replay")
        self._playing[conversation] = waiting.pop(0)

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over."""
        super().forget(conversations)
        for conversation in conversations:
            self._playing.pop(conversation, None)

    def _reply(self, request: Request, task: Task, turn: int, cap: int) -> Completion:
        trajectory = self._playing[request.conversation]
        if turn >= len(trajectory.turns):
            raise PolicyError(f"task '{task.id}': the recording ends after {len(trajectory.turns)} turns")
        recorded = trajectory.turns[turn]
        context = recorded.context_ids if turn else trajectory.prompt_ids
        shown = list(request.prompt_ids)[len(request.prompt_ids) - len(context) :]
        if self._strict and shown != context:
            raise PolicyError(f"task '{task.id}', turn {turn}: the environment shows something else than when recorded")
        completion = certain(list(recorded.ids), recorded.finish)
        completion.logprobs, completion.entropies = list(recorded.logprobs), list(recorded.entropies)
        completion.forced, completion.signal = list(recorded.forced), recorded.uncertainty
        completion.candidates, completion.notes = list(recorded.candidates), dict(recorded.notes)
        return completion


def fenced(command: str) -> str:
    """A command as a reply: in a bash fence that is longer than any fence inside it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", command)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}bash\n{command}\n{fence}"


def certain(ids: list[int], finish: FinishReason) -> Completion:
    """A completion whose ids were not drawn."""
    zeros = [0.0] * len(ids)
    return Completion(ids, zeros, list(zeros), list(zeros), [False] * len(ids), finish)
