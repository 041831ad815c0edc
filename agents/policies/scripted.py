"""Policies without a model: oracle, no-op, a recorded trajectory; the byte tokenizer they speak with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jinja2

from agents.policy import Completion, FinishReason, PolicyError, Request, Sampling
from agents.trajectory import Trajectory
from envs.actions import fenced as fenced  # programs import it from here
from envs.calls import Call, written
from envs.protocol import protocol
from tasks.assertions.on_files import TooSlow
from tasks.oracle import NotRead, Saying, command_of, names_of, read, resolve

if TYPE_CHECKING:
    from tasks.task import Task


# -- ByteTokenizer: one id per byte and three control ids, so that scripted policies need no model and no download ----

_CONTROLS = ("<|im_start|>", "<|im_end|>")
TOOLS_TURN = "tools"
"""The role of the turn that says which tools there are."""


class ByteTokenizer:
    """The part of a tokenizer that this package uses, with ChatML turns. Ids 0-255 are bytes, then the controls."""

    name_or_path = "bytes"
    chat_template = "chatml"
    vocab_size = 256 + len(_CONTROLS)
    bos_token: str | None = None
    bos_token_id: int | None = None
    eos_token = "<|im_end|>"
    eos_token_id = 257
    pad_token_id = 257
    all_special_ids = (256, 257)

    @property
    def added_tokens_decoder(self) -> dict[int, str]:
        """Control ids and their literals."""
        return {256 + index: literal for index, literal in enumerate(_CONTROLS)}

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text; the control literals become their ids."""
        ids: list[int] = []
        rest = text
        while rest:
            found = [(rest.find(literal), index) for index, literal in enumerate(_CONTROLS) if literal in rest]
            at, index = min(found, default=(len(rest), -1))
            ids += rest[:at].encode("utf-8", "surrogateescape")
            if index < 0:
                break
            ids.append(256 + index)
            rest = rest[at + len(_CONTROLS[index]) :]
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, **kwargs: object) -> str:
        """Text of ids; bytes that are no UTF-8 are replaced."""
        out = bytearray()
        for token in ids:
            if token < 256:
                out.append(token)
            elif not skip_special_tokens:
                out += _CONTROLS[token - 256].encode()
        return out.decode("utf-8", "replace")

    def apply_chat_template(
        self,
        conversation: Sequence[dict[str, Any]],
        *,
        tokenize: bool = False,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
        **kwargs: object,
    ) -> str:
        """ChatML as text, or what another template makes of the conversation.

        Tools stand in a turn of their own before all others, as JSON; calls below what the assistant says.
        """
        if tokenize:
            raise ValueError("ByteTokenizer renders text only; encode it with encode()")
        if chat_template is not None:
            template = jinja2.Template(chat_template)
            return template.render(messages=conversation, add_generation_prompt=add_generation_prompt, **kwargs)
        turns = [(turn["role"], written(list(calls_of(turn)), turn["content"])) for turn in conversation]
        if tools:
            turns.insert(0, (TOOLS_TURN, json.dumps(tools)))
        text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
        return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def calls_of(message: Mapping[str, Any]) -> Iterator[Call]:
    """The calls of an assistant's message, as chat templates and chat endpoints have them (`tool_calls`)."""
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield Call(function["name"], function["arguments"], call.get("id"))


# -- Policies without a model: the task's own oracle, nothing at all, and a recorded trajectory again -----------------
# They stand behind the same protocol as a model, so that rollouts, environments and graders can be tried end to end.
# Their ids carry logprob 0 and entropy 0: the choice was certain.


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
    """Plays the task's oracle, one command or message a turn, then submits with its answer, if it has one.

    What a command reads (`oracle.commands[].reads`) is searched in what the conversation says since that command.
    """

    def __init__(self, tokenizer: Any = None) -> None:
        super().__init__(tokenizer)
        self._known: dict[str, dict[str, str]] = {}
        self._said: dict[str, str] = {}

    def begin(self, conversation: str, task: Task) -> None:
        """Remember the task; nothing is read yet."""
        super().begin(conversation, task)
        self._known[conversation] = {}

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over."""
        super().forget(conversations)
        for conversation in conversations:
            self._known.pop(conversation, None)
            self._said.pop(conversation, None)

    def text(self, task: Task, turn: int, request: Request) -> str:
        """The command of the turn.

        Raises:
            PolicyError: There is no oracle, or nothing to read where the last command was to show it.
        """
        if task.oracle is None:
            raise PolicyError(f"task '{task.id}' has no oracle: nothing to play")
        commands = task.oracle.commands
        known = self._known[request.conversation]
        if 0 < turn <= len(commands) and names_of(commands[turn - 1]):
            prompt = self.tokenizer.decode(request.prompt_ids, skip_special_tokens=True)
            _, said, shown = prompt.rpartition(self._said[request.conversation])
            try:
                known |= read(commands[turn - 1], shown if said else "")
            except (NotRead, TooSlow) as error:
                raise PolicyError(f"task '{task.id}': oracle command {turn} {error}") from error
        if turn < len(commands):
            text = resolve(command_of(commands[turn]), known)
            said = text if isinstance(commands[turn], Saying) else protocol(request.protocol).command(text)
            ids = self.tokenizer.encode(said, add_special_tokens=False)
            self._said[request.conversation] = self.tokenizer.decode(ids, skip_special_tokens=True)
            return said
        answer = task.oracle.answer
        return protocol(request.protocol).submission("" if answer is None else resolve(answer, known))


class NoOpPolicy(ScriptedPolicy):
    """Submits at once: what a task is worth without any work."""

    def text(self, task: Task, turn: int, request: Request) -> str:
        """What submits."""
        return protocol(request.protocol).submission()


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
