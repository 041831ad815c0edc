"""Policies without a model: the task's own oracle, nothing at all, and a recorded trajectory again.

They stand behind the same protocol as a model, so that rollouts, environments and graders can be tried end to end.
Their ids carry logprob 0 and entropy 0: the choice was certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agents.policies.bytes import ByteTokenizer
from agents.policy import Completion, FinishReason, PolicyError, Request, Sampling
from agents.trajectory import Trajectory
from envs.actions import STOP_WORD, fenced

if TYPE_CHECKING:
    from tasks.task import Task


class ScriptedPolicy:
    """Replies that a program writes: a subclass implements `text`, and is a whole policy.

    Args:
        tokenizer: Turns the texts into ids; default: one id per byte.
    """

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
        """The scripted reply of each conversation's turn, cut at the request's cap.

        Raises:
            PolicyError: A conversation did not begin, has no reply left, or may not say a single id.
        """
        return [self._complete(request, sampling) for request in requests]

    def _complete(self, request: Request, sampling: Sampling) -> Completion:
        task = self._tasks.get(request.conversation)
        if task is None:
            raise PolicyError(f"conversation {request.conversation}: a scripted policy needs begin() with the task")
        cap = request.cap(sampling)
        if cap < 1:
            raise PolicyError(f"conversation {request.conversation}: a reply needs room for 1 id at least, not {cap}")
        turn = self._turns[request.conversation]
        self._turns[request.conversation] = turn + 1
        return self._reply(request, task, turn, cap)

    def _reply(self, request: Request, task: Task, turn: int, cap: int) -> Completion:
        return certain(*spoken(self.tokenizer, self.text(task, turn, request), request.stops, cap))

    def text(self, task: Task, turn: int, request: Request) -> str:
        """The reply.

        Args:
            task: What the conversation is about.
            turn: Replies before this one: 0 for the first.
            request: `self.tokenizer.decode(request.prompt_ids)` is all that was said so far.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it replies: implement text()")


class OraclePolicy(ScriptedPolicy):
    """Plays the task's oracle, one command a turn, then submits with its answer, if it has one."""

    def text(self, task: Task, turn: int, request: Request) -> str:
        """The command of the turn."""
        if task.oracle is None:
            raise PolicyError(f"task '{task.id}' has no oracle: nothing to play")
        commands = task.oracle.commands
        if turn < len(commands):
            return fenced(commands[turn])
        return STOP_WORD if task.oracle.answer is None else f"{task.oracle.answer}\n{STOP_WORD}"


class NoOpPolicy(ScriptedPolicy):
    """Submits at once: what a task is worth without any work."""

    def text(self, task: Task, turn: int, request: Request) -> str:
        """The word that submits."""
        return STOP_WORD


class ReplayPolicy(ScriptedPolicy):
    """Replays recorded replies, id for id; `agents.replay` compares whole episodes, records of text too.

    Args:
        trajectories: One, or several; conversations about a task take its trajectories in order. A conversation that
            begins again under its name (an engine starts over after a failure) plays its own again, also once it is
            forgotten.
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
        own = self._playing.get(conversation)
        if own is not None and own.task_id == task.id:
            return
        waiting = self._waiting.get(task.id)
        if waiting and waiting[0].text_only:
            raise PolicyError(f"task '{task.id}': the recording is text without ids; agents.replay plays its commands")
        if not waiting:
            raise PolicyError(f"no recorded trajectory of task '{task.id}' is left to replay")
        self._playing[conversation] = waiting.pop(0)

    def _reply(self, request: Request, task: Task, turn: int, cap: int) -> Completion:
        trajectory = self._playing[request.conversation]
        if turn >= len(trajectory.turns):
            raise PolicyError(f"task '{task.id}': the recording ends after {len(trajectory.turns)} turns")
        recorded = trajectory.turns[turn]
        context = recorded.context_ids if turn else trajectory.prompt_ids
        shown = list(request.prompt_ids)[len(request.prompt_ids) - len(context) :]
        if self._strict and shown != context:
            then, now = (self.tokenizer.decode(ids, skip_special_tokens=False) for ids in (context, shown))
            raise PolicyError(
                f"task '{task.id}', turn {turn}: the environment shows something else than when recorded\n"
                f"recorded: {then!r}\nnow:      {now!r}"
            )
        assert recorded.finish is not None  # only records of text lack it
        completion = certain(list(recorded.ids), recorded.finish)
        completion.logprobs, completion.entropies = _copy(recorded.logprobs), _copy(recorded.entropies)
        completion.max_logprobs, completion.entropy_bounds = _copy(recorded.max_logprobs), recorded.entropy_bounds
        completion.forced, completion.signal = list(recorded.forced), recorded.uncertainty
        completion.candidates, completion.notes = list(recorded.candidates), dict(recorded.notes)
        return completion


def _copy(values: list[float] | None) -> list[float] | None:
    return None if values is None else list(values)


def spoken(tokenizer: Any, text: str, stops: Sequence[str], cap: int) -> tuple[list[int], FinishReason]:
    """Ids of a reply that is given as text, as an engine would give them: cut at a stop text and at the cap.

    Args:
        tokenizer: Whose ids.
        text: The whole reply.
        stops: The reply ends with the first of these that is complete.
        cap: Most ids.
    """
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    if ends:
        ids, finish = tokenizer.encode(text[: min(ends)], add_special_tokens=False), FinishReason.STOP_TEXT
    else:
        ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        finish = FinishReason.STOP
    return list(ids[:cap]), finish if len(ids) <= cap else FinishReason.LENGTH


def certain(ids: list[int], finish: FinishReason) -> Completion:
    """A completion whose ids were not drawn."""
    zeros = [0.0] * len(ids)
    return Completion(ids, zeros, list(zeros), list(zeros), [False] * len(ids), finish)
