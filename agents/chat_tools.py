"""Conversations with tool calls: what a chat template offers a model, and how a tool's result stands in it.

Nothing changes for what is sampled: a reply stays as it is, and the result of its call adds the ids that the template
puts between an assistant's call and the next generation prompt (see `agents.chat`). A reply without any call is
followed by a message of the user, as under the text protocol.

Each model has a form of its own for a call, and its template writes it. So a template is tried once: it must write the
tools, a call that `envs.calls` reads as that very call, and a result. One that does not is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agents.chat import _NEXT, _REPLY, _USER, ChatError, ChatTemplate, _message, _Seam
from envs.actions import Command
from envs.calls import BASH, parse_call, read_calls
from envs.headers import Header
from envs.protocol import DEFAULT_PROTOCOL, PROTOCOLS, Protocol

_LAST = "SLOT4LAST"
_CALL_ID = "call00001"
"""Names a call that the model gave no name: nine letters and digits, as Mistral's templates ask for."""
_NAMED = re.compile(r"(?!SLOT)[A-Za-z0-9]{9}")
"""Names of calls that are repeated: of the form that templates ask for, and no place holder of this module."""
_TAG = re.compile(r"<[^\s<>]+>|\[[^\s\[\]]+\]")
_PROBE = 'a "b"  \\ c\n\t<d> é 日'
_COMMAND = f"echo {_PROBE}"
_QUOTINGS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1],
)
"""How templates write the text of a result: as it is, or inside a JSON string."""


class ToolTemplate(ChatTemplate):
    """A tokenizer's template, taken apart for conversations with tool calls.

    Args:
        tokenizer: As in `ChatTemplate`, as all that follows.
        eos_ids: Every id that ends a turn.
        protocol: Whose tools are offered.
        **settings: Passed to the template.

    Raises:
        ChatError: As in `ChatTemplate`, or the template cannot carry tool calls.
    """

    def __init__(
        self, tokenizer: Any, eos_ids: Iterable[int] | None = None, *, protocol: Protocol, **settings: Any
    ) -> None:
        super().__init__(tokenizer, eos_ids, **settings)
        self.protocol = protocol
        without = self._first_plain
        self._settings["tools"] = [tool.schema() for tool in protocol.tools]
        try:
            self._first_plain = self._frame([_message("user", _USER)], _USER)
            if self._first_plain == without:
                raise ChatError("it shows no tools")
            self._first_system, self._first_user = self._split_first()
            self._check_call()
            self._quoted = self._quoting()
            plain, other = self._result(0, _CALL_ID), self._result(0, _CALL_ID[::-1])
            self._results = {0: plain}
            self._named, self._by_turn = plain != other, plain != self._result(1, _CALL_ID)
        except ChatError as error:
            raise ChatError(
                f"the chat template carries no tool calls: {error}. Use protocol=text (--protocol text), or give the "
                "tokenizer a chat template with tools"
            ) from error
        self.headers = self._headers([*self.headers.headers, *self._result_headers(plain)])

    def following(self, content: str, *, ended: bool, turn: int = 0, reply: str = "") -> list[int]:
        """Ids between a reply and the next one: the result of its call, or a message of the user where it made none."""
        if not self.protocol.calls(reply):
            return super().following(content, ended=ended, turn=turn, reply=reply)
        return self._joined(self._result_of(turn, reply), self._quoted(self._neutral(content)), ended=ended)

    def ends(self, token: int, turn: int = 0, reply: str = "") -> bool:
        """Whether a reply that was sampled up to `token` needs no end-of-turn id of the template any more."""
        if not self.protocol.calls(reply):
            return super().ends(token, turn, reply)
        return self._closed_by(token, self._result_of(turn, reply))

    def _result_of(self, turn: int, reply: str) -> _Seam:
        """What stands around the result of a reply's call; its name is the one that the model gave it, if it fits."""
        names = [call.id for call in read_calls(reply).calls if call.id and _NAMED.fullmatch(call.id)]
        if self._named and names:
            return self._result(turn, names[0])
        number = turn if self._by_turn else 0
        if number not in self._results:
            self._results[number] = self._result(number, _CALL_ID)
        return self._results[number]

    def _result(self, turn: int, name: str) -> _Seam:
        """What the template puts between a call and the next reply, around the result of the call."""
        earlier = [message for _ in range(turn) for message in (_called("SLOT5OLD", name), _result("SLOT6OLD", name))]
        frame = self._frame([_message("user", _USER), *earlier, _called(_REPLY, name), _result(_NEXT, name)], _NEXT)
        _, before = self._cut(frame.before, _REPLY)
        ids = self._ids(before)
        at = next((index for index, token in enumerate(ids) if token in self.eos_ids), None)
        if at is None:
            raise ChatError("no end-of-turn id stands between a call and its result")
        opening = self._opening(before, ids[at + 1 :], frame)
        usual = self._seams[0]
        return _Seam((ids[at],), opening, usual.shared or ids[at] not in usual.closing)

    def _check_call(self) -> None:
        """Refuse a template whose form of a call is none that is read."""
        _, text = self._cut(self._render([_message("user", _USER), _called(_COMMAND, _CALL_ID)], False), _USER)
        reply = text[len(os.path.commonprefix([text, self._first_plain.after])) :]
        ends = [self.tokenizer.decode([end], skip_special_tokens=False) for end in self.eos_ids]
        reply = reply[: min((reply.rindex(end) for end in ends if end in reply), default=len(reply))]
        found = parse_call(reply)
        if not isinstance(found, Command) or found.text != _COMMAND:
            raise ChatError(f"it writes a call as {reply.strip()!r}; read are the forms of Qwen, Llama 3 and Mistral")

    def _quoting(self) -> Callable[[str], str]:
        """How the template writes the text of a result."""
        text = self._render(
            [_message("user", _USER), _called(_REPLY, _CALL_ID), _result(_NEXT + _PROBE + _LAST, _CALL_ID)]
        )
        _, behind = self._cut(text, _NEXT)
        written, _ = self._cut(behind, _LAST)
        for quote in _QUOTINGS:
            if quote(_PROBE) == written:
                return quote
        raise ChatError(f"it changes the text of a result: {_PROBE!r} becomes {written!r}")

    def _result_headers(self, seam: _Seam) -> Iterator[Header]:
        """What ends or begins a result in ordinary text: a command that prints it could speak as somebody else."""
        yield from self._headers_in(seam.frame.before, attached=bool(seam.closing))
        yield from self._headers_in(seam.frame.after, behind=True)
        literals = "|".join(map(re.escape, sorted(self._literals, key=len, reverse=True)))
        for text, side in ((seam.frame.before, -1), (seam.frame.after, 0)):
            near = re.split(literals, text)[side] if literals else text
            yield from (Header(tag) for tag in _TAG.findall(near))


def template_of(
    tokenizer: Any, eos_ids: Iterable[int] | None, protocol: Protocol, *, raw: bool = False
) -> ChatTemplate:
    """The template of a tokenizer for a protocol.

    Raises:
        ChatError: It cannot carry such conversations.
    """
    if protocol.tools:
        return ToolTemplate(tokenizer, eos_ids, protocol=protocol)
    return ChatTemplate(tokenizer, eos_ids, raw=raw)


def protocol_of(env: Any) -> Protocol:
    """How an agent acts in an environment; in one that does not say, by text."""
    return getattr(env, "protocol", PROTOCOLS[DEFAULT_PROTOCOL])


def _called(command: str, name: str) -> dict[str, Any]:
    """A message of the assistant that calls `bash`."""
    function = {"name": BASH.name, "arguments": {"command": command}}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": name, "type": "function", "function": function}]}


def _result(content: str, name: str) -> dict[str, Any]:
    """A message with the result of a call."""
    return {"role": "tool", "tool_call_id": name, "name": BASH.name, "content": content}
