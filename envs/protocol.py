"""How replies say what to do: as text with a bash block and a stop word, or as tool calls. One object for each."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import ClassVar

from envs.actions import STOP_WORD, Action, Message, fenced, parse, parse_with_user
from envs.calls import BASH, SUBMIT, TOOLS, Call, Tool, parse_call, parse_call_with_user, read_calls, written
from envs.prompts import IN_TEXT, Wording


class Protocol(ABC):
    """How an agent acts in a shell: what its replies look like, how it is told so, and how they are read.

    Attributes:
        name: Names it in settings and records.
        words: How prompts explain it.
        tools: What is offered to the model beside the messages (`tools=` of chat templates and endpoints).
    """

    name: ClassVar[str]
    words: ClassVar[Wording]
    tools: ClassVar[tuple[Tool, ...]] = ()

    @abstractmethod
    def parse(self, reply: str) -> Action:
        """What a reply asks for. Never raises for a `str`."""

    @abstractmethod
    def parse_with_user(self, reply: str, *, whole: bool = True) -> Action | Message:
        """The same where a user listens: what asks for nothing is a message to them, if it is `whole`."""

    @abstractmethod
    def command(self, text: str) -> str:
        """A command as a reply."""

    @abstractmethod
    def submission(self, answer: str = "") -> str:
        """The reply that submits, with the answer that a task may ask for."""

    def calls(self, reply: str) -> bool:
        """Whether the environment's answer to a reply is the result of a tool, not a message of the user."""
        return False


class TextProtocol(Protocol):
    """A block of bash is a command, the stop word submits (`envs.actions`)."""

    name = "text"
    words = IN_TEXT

    def parse(self, reply: str) -> Action:
        """See `envs.actions.parse`."""
        return parse(reply)

    def parse_with_user(self, reply: str, *, whole: bool = True) -> Action | Message:
        """See `envs.actions.parse_with_user`."""
        return parse_with_user(reply, whole=whole)

    def command(self, text: str) -> str:
        """A block."""
        return fenced(text)

    def submission(self, answer: str = "") -> str:
        """The stop word, below the answer."""
        return f"{answer}\n{STOP_WORD}" if answer else STOP_WORD


class ToolProtocol(Protocol):
    """The tools `bash` and `submit`, called in the form that the policy's chat template has (`envs.calls`)."""

    name = "tools"
    tools = tuple(TOOLS.values())
    words = Wording(
        act=(
            "Each of your replies is one turn and calls exactly one tool. Call `bash` to run a command of one or more "
            "lines; you are then shown its exit code and output."
        ),
        submit="When the task is done, call `submit`; where the task asks for an answer in words, with that `answer`.",
        remind="Call `bash` with your command, or `submit` when the task is done.",
        remind_with_user=(
            "Call `bash` with your command, write a message to the user without any call, or call `submit` when the "
            "task is done."
        ),
        nothing="a call",
        again=f"call `{SUBMIT.name}`",
        beside=json.dumps([tool.schema() for tool in TOOLS.values()]),
    )

    def parse(self, reply: str) -> Action:
        """See `envs.calls.parse_call`."""
        return parse_call(reply)

    def parse_with_user(self, reply: str, *, whole: bool = True) -> Action | Message:
        """See `envs.calls.parse_call_with_user`."""
        return parse_call_with_user(reply, whole=whole)

    def command(self, text: str) -> str:
        """A call of `bash`."""
        return written([Call(BASH.name, {"command": text})])

    def submission(self, answer: str = "") -> str:
        """A call of `submit`."""
        return written([Call(SUBMIT.name, {"answer": answer} if answer else {})])

    def calls(self, reply: str) -> bool:
        """Whether the reply calls a tool, or tries to."""
        return read_calls(reply).begin is not None


DEFAULT_PROTOCOL = TextProtocol.name
PROTOCOLS: dict[str, Protocol] = {one.name: one for one in (TextProtocol(), ToolProtocol())}
"""The protocols by name."""


def protocol(name: str) -> Protocol:
    """A protocol by its name.

    Raises:
        ValueError: There is none of that name.
    """
    if name not in PROTOCOLS:
        raise ValueError(f"there is no protocol '{name}': choose one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
