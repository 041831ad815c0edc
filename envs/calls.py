"""What a reply asks for where the agent calls tools: the tools, the forms in which models write a call, its action."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.actions import (
    Action,
    Command,
    Malformed,
    MalformedKind,
    Message,
    Submit,
    encodable,
    malformed,
)
from envs.fences import MAX_LOOKS, THINK_CLOSE, THINK_OPEN

# -- The tools ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool; all are text.

    Attributes:
        name: Its key.
        description: For the model.
        required: Whether a call without it is malformed.
    """

    name: str
    description: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it is offered to a model.

    Attributes:
        name: As a call names it.
        description: For the model.
        arguments: What it takes.
    """

    name: str
    description: str
    arguments: tuple[Argument, ...]

    def schema(self) -> dict[str, Any]:
        """The tool as chat templates and chat endpoints take it (`tools=`)."""
        properties = {one.name: {"type": "string", "description": one.description} for one in self.arguments}
        required = [one.name for one in self.arguments if one.required]
        parameters = {"type": "object", "properties": properties, "required": required}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


BASH = Tool(
    "bash",
    "Run a command in bash. Returns its exit code and output.",
    (Argument("command", "One or more lines of bash."),),
)
SUBMIT = Tool(
    "submit",
    "Say that the task is done. Nothing can be changed after it.",
    (Argument("answer", "What to answer, where the task asks for an answer in words.", required=False),),
)
TOOLS = {tool.name: tool for tool in (BASH, SUBMIT)}
"""The tools by name."""


# -- Calls in a reply --------------------------------------------------------------------------------------------------
# Models write a call as their chat template taught them. The forms that are read:
#
#   Hermes, Qwen 3 <tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>
#   Qwen 3.5       <tool_call><function=bash><parameter=command>ls</parameter></function></tool_call>, tag by line
#   Mistral        [TOOL_CALLS] [{"name": "bash", "arguments": {"command": "ls"}, "id": "a1b2c3d4e"}]
#                  [TOOL_CALLS]bash[ARGS]{"command": "ls"}
#   Llama 3        {"name": "bash", "parameters": {"command": "ls"}}, as the whole reply or behind <|python_tag|>
#
# Each begins with a mark that means nothing else (Llama: the reply begins with a brace), so a reply in any of them is
# read, whatever the template is. What stands between the marks is read as JSON from its first character: a command may
# hold any text, the mark that ends a call too. Line breaks may stand in a text of the JSON as they are; a key may not
# come twice. An argument between tags ends with the first `</parameter>` behind which the next one or the end of the
# function stands.
#
# Thoughts (`<think>...</think>` outside a call) are left out first, with the calls that are drafted in them.

_MARK_OPEN, _MARK_CLOSE = "<tool_call>", "</tool_call>"
_SPACE = re.compile(r"\s*")
_NAMED = re.compile(r"\s*(?P<name>[\w.-]+)(?:\[CALL_ID\](?P<id>[\w-]+))?\[ARGS\]\s*")
_FUNCTION = re.compile(r"\s*<function=(?P<name>[^\s<>]+)>\s*")
_PARAMETER = re.compile(r"<parameter=(?P<name>[^\s<>]+)>\n?")
_PARAMETER_END = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|</function>))\s*")
_FUNCTION_END = re.compile(r"</function>\s*</tool_call>")
_SHOWABLE = re.compile(r"[\w.-]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it was written.

    Attributes:
        name: Of the tool.
        arguments: Its arguments, by name; text where they were written as text (JSON inside JSON).
        id: What the model or its server names the call; `None` where it has no name.
    """

    name: str
    arguments: dict[str, Any] | str
    id: str | None = None


@dataclass(slots=True)
class Calls:
    """A reply, searched for calls.

    Attributes:
        said: What stands beside calls and thoughts.
        calls: In order. Nothing that follows a fault is among them.
        fault: What is wrong with the reply as a text that holds calls; `None` where nothing is.
        begin: Where the first call begins; `None` where the reply does not even try to call.
    """

    said: str = ""
    calls: list[Call] = field(default_factory=list)
    fault: Malformed | None = None
    begin: int | None = None


class _Fault(Exception):
    """A call that cannot be read. The message is the reason for the agent."""

    def __init__(self, kind: MalformedKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def read_calls(reply: str) -> Calls:
    """The calls of a reply, in time linear in its length. Never raises for a `str`."""
    out = Calls()
    said: list[str] = []
    blank, at, drafts = True, 0, 0
    while mark := (_BARE.match(reply, at) if blank else None) or _MARKS.search(reply, at):
        said.append(reply[at : mark.start()])
        blank = blank and not said[-1].strip()
        if mark[0] == THINK_OPEN:
            closed = reply.find(THINK_CLOSE, mark.end())
            if closed < 0:
                out.fault = malformed(MalformedKind.UNCLOSED_THINK)
                return out
            at = closed + len(THINK_CLOSE)
            continue
        if mark[0] == THINK_CLOSE:  # its opening stood in the prompt: what was read so far is thought
            out, said, blank, at = Calls(), [], True, mark.end()
            continue
        out.begin, blank = (mark.start() if out.begin is None else out.begin), False
        try:
            calls, at = FORMS.get(mark[0], _bare)(reply, mark.end())
            out.calls += calls
        except _Fault as fault:
            drafts += 1
            if drafts > MAX_LOOKS or (end := _end_of_thought(reply, mark.end())) is None:
                out.fault = Malformed(str(fault), fault.kind)
                return out
            out, said, blank, at = Calls(), [], True, end  # a draft in a thought that the prompt opened
    out.said = "".join([*said, reply[at:]]).strip()
    return out


def _end_of_thought(reply: str, at: int) -> int | None:
    """Where a thought ends that began before `at`; `None` where none does."""
    closed = reply.find(THINK_CLOSE, at)
    return closed + len(THINK_CLOSE) if closed >= 0 and reply.find(THINK_OPEN, at, closed) < 0 else None


def _hermes(text: str, at: int) -> tuple[list[Call], int]:
    if function := _FUNCTION.match(text, at):
        return _tagged(text, function)
    value, end = _json(text, at)
    behind = _SPACE.match(text, end)
    assert behind is not None
    if not text.startswith(_MARK_CLOSE, behind.end()):
        raise _fault(MalformedKind.UNCLOSED_CALL)
    return [_call(value)], behind.end() + len(_MARK_CLOSE)


def _tagged(text: str, function: re.Match[str]) -> tuple[list[Call], int]:
    arguments: dict[str, Any] = {}
    at = function.end()
    while parameter := _PARAMETER.match(text, at):
        end = _PARAMETER_END.search(text, parameter.end())
        if end is None:
            raise _fault(MalformedKind.UNCLOSED_CALL)
        if parameter["name"] in arguments:
            raise _Fault(MalformedKind.BAD_CALL, "the tool call has a key twice")
        arguments[parameter["name"]] = text[parameter.end() : end.start()]
        at = end.end()
    closed = _FUNCTION_END.match(text, at)
    if closed is None:
        raise _fault(MalformedKind.UNCLOSED_CALL)
    return [Call(function["name"], arguments)], closed.end()


def _mistral(text: str, at: int) -> tuple[list[Call], int]:
    if named := _NAMED.match(text, at):
        value, end = _json(text, named.end())
        return [_call({"name": named["name"], "arguments": value, "id": named["id"]})], end
    value, end = _json(text, at)
    return [_call(one) for one in (value if isinstance(value, list) else [value])], end


def _bare(text: str, at: int) -> tuple[list[Call], int]:
    value, end = _json(text, at)
    behind = _SPACE.match(text, end)
    assert behind is not None
    if behind.end() < len(text) and not _MARKS.match(text, behind.end()):
        several = text[behind.end()] in ";{"
        raise _fault(MalformedKind.SEVERAL_CALLS if several else MalformedKind.BAD_CALL)
    return [_call(value)], end


FORMS: Mapping[str, Callable[[str, int], tuple[list[Call], int]]] = {
    _MARK_OPEN: _hermes,
    "[TOOL_CALLS]": _mistral,
    "<|python_tag|>": _bare,
}
"""What begins a call, and what reads it: from behind the mark to its end."""
_MARKS = re.compile("|".join(map(re.escape, (THINK_OPEN, THINK_CLOSE, *FORMS))))
_BARE = re.compile(r"\s*(?=\{)")
"""Where nothing was said before, a brace begins a call."""


def _call(value: Any) -> Call:
    """A call out of its JSON.

    Raises:
        _Fault: It is no call.
    """
    if not isinstance(value, dict):
        raise _Fault(MalformedKind.BAD_CALL, "a tool call is a JSON object with name and arguments")
    name, given = value.get("name"), [value[key] for key in ("arguments", "parameters") if key in value]
    if not isinstance(name, str):
        raise _Fault(MalformedKind.BAD_CALL, "the tool call names no tool: it needs name and arguments")
    if len(given) > 1:
        raise _Fault(MalformedKind.BAD_CALL, "the tool call has arguments and parameters: write arguments alone")
    arguments = {} if not given or given[0] is None else given[0]
    if not isinstance(arguments, dict | str):
        raise _Fault(MalformedKind.BAD_ARGUMENTS, "the arguments of a tool call are a JSON object")
    return Call(name, arguments, value["id"] if isinstance(value.get("id"), str) else None)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Fault(MalformedKind.BAD_CALL, "the tool call has a key twice")
    return found


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_unique)


def _json(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at a place, and where it ends.

    Raises:
        _Fault: There is none.
    """
    begin = _SPACE.match(text, at)
    assert begin is not None
    try:
        return _DECODER.raw_decode(text, begin.end())
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            raise _fault(MalformedKind.UNCLOSED_CALL) from error
        where = f"{error.msg} at character {error.pos - begin.end() + 1} of it"
        raise _Fault(MalformedKind.BAD_CALL, f"the tool call is no JSON: {where}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, objects in objects in objects
        raise _Fault(MalformedKind.BAD_CALL, "the tool call is no JSON that can be read") from error


def _fault(kind: MalformedKind) -> _Fault:
    return _Fault(kind, malformed(kind).reason)


# -- What a reply asks for: the rules of `envs.actions`, with one call in the place of one block -----------------------
# 1. Text that cannot be encoded as UTF-8, and a command with a NUL, are malformed.
# 2. A thought that is never closed is malformed.
# 3. Exactly one call: two or more are malformed and none runs, and so is a reply without one (where a user listens, it
#    is a message to them).
# 4. A call that is no JSON, is not closed, names no tool that there is, or has other arguments than the tool takes is
#    malformed.
# 5. `bash` runs its command; one of blank lines and comments only is malformed. `submit` submits: the final message is
#    what stands beside the call, and below it the argument `answer`.


def parse_call(reply: str) -> Action:
    """What a reply with a tool call asks for. Never raises for a `str`."""
    if not encodable(reply):
        return malformed(MalformedKind.NOT_TEXT)
    return _action(read_calls(reply.replace("\r\n", "\n")))


def parse_call_with_user(reply: str, *, whole: bool = True) -> Action | Message:
    """The same where a user listens: a reply that calls no tool is a message to them.

    Args:
        reply: As the agent wrote it.
        whole: False for a reply that was cut at the token limit: half a sentence is no message.
    """
    action = parse_call(reply)
    if not isinstance(action, Malformed) or action.kind is not MalformedKind.NO_CALL:
        return action
    return Message(read_calls(reply.replace("\r\n", "\n")).said) if whole else malformed(MalformedKind.CUT)


def _action(found: Calls) -> Action:
    if found.fault is not None:
        return found.fault
    if len(found.calls) != 1:
        none = MalformedKind.NO_CALL if found.said else MalformedKind.EMPTY
        return malformed(MalformedKind.SEVERAL_CALLS if found.calls else none)
    (call,) = found.calls
    tool = TOOLS.get(call.name)
    if tool is None:
        shown = f" {call.name}" if _SHOWABLE.fullmatch(call.name) else " of that name"
        return Malformed(f"there is no tool{shown}; there are {' and '.join(TOOLS)}", MalformedKind.UNKNOWN_TOOL)
    try:
        given = call.arguments if isinstance(call.arguments, dict) else _object(call.arguments)
    except _Fault as fault:
        return Malformed(str(fault), MalformedKind.BAD_ARGUMENTS)
    if wrong := next(_wrong(tool, given), None):
        return Malformed(wrong, MalformedKind.BAD_ARGUMENTS)
    if not all(map(encodable, given.values())):
        return malformed(MalformedKind.NOT_TEXT)
    if tool is SUBMIT:
        return Submit("\n".join(filter(None, (found.said, given.get("answer", "").strip()))))
    return _command(given["command"], found.said)


def _object(text: str) -> dict[str, Any]:
    value, end = _json(text, 0)
    if not isinstance(value, dict) or text[end:].strip():
        raise _Fault(MalformedKind.BAD_ARGUMENTS, "the arguments of a tool call are a JSON object")
    return value


def _wrong(tool: Tool, given: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the arguments of a call."""
    takes = [argument.name for argument in tool.arguments]
    for argument in tool.arguments:
        if argument.required and argument.name not in given:
            yield f"{tool.name} needs the argument {argument.name}"
    for name, value in given.items():
        if name not in takes:
            shown = f" named {name}" if _SHOWABLE.fullmatch(name) else ""
            yield f"{tool.name} takes no argument{shown}, only {', '.join(takes)}"
        elif not isinstance(value, str):
            yield f"the argument {name} of {tool.name} is text"


def _command(text: str, said: str) -> Action:
    code = [line.strip() for line in text.split("\n")]
    if not any(line and not line.startswith("#") for line in code):
        return Malformed("the command is empty", MalformedKind.EMPTY_BLOCK)
    return malformed(MalformedKind.NOT_TEXT) if "\0" in text else Command(text, message=said)


def arguments_of(text: str) -> dict[str, Any] | str:
    """Arguments as endpoints send them, in a text: the JSON object in it, or the text where it holds none."""
    try:
        return _object(text) if text.strip() else {}
    except _Fault:
        return text


# -- A call as a reply -------------------------------------------------------------------------------------------------


def written(calls: Sequence[Call], said: str = "") -> str:
    """A reply that says something and makes calls, in the form of Hermes."""
    parts = [said] if said else []
    for call in calls:
        named = {} if call.id is None else {"id": call.id}
        told = json.dumps({"name": call.name, "arguments": call.arguments, **named}, ensure_ascii=False)
        parts.append(f"{_MARK_OPEN}\n{told}\n{_MARK_CLOSE}")
    return "\n".join(parts)
