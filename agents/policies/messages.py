"""Messages out of the ids of a `ByteTokenizer` conversation, for engines that take text.

Exact, because control ids never come from content: `agents.chat` keeps them out of messages, and a policy at text level
encodes its replies as bytes (`reply_ids`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agents.policies.scripted import ByteTokenizer
from envs.calls import Call, read_calls, written

Message = dict[str, Any]
START, END = ByteTokenizer.all_special_ids
_NEXT = "assistant\n"


def messages_of(ids: Sequence[int], tokenizer: ByteTokenizer) -> list[Message]:
    """The messages of a conversation that waits for a reply.

    Args:
        ids: As `agents.chat.Conversation` keeps them, up to the header of the next reply.
        tokenizer: Turns bytes into text; bytes that are no UTF-8 are replaced.

    Returns:
        Role and content of each message, without the empty reply at the end.

    Raises:
        ValueError: There are no turns in them (a running text, for base models), or they do not end as they should.
    """
    starts = [at for at, token in enumerate(ids) if token == START]
    if not starts or starts[0] or tokenizer.decode(ids[starts[-1] + 1 :]) != _NEXT:
        raise ValueError("the ids are no turns that wait for a reply (a prompt of running text has no messages)")
    messages = []
    for start, end in zip(starts, starts[1:], strict=False):
        turn = list(ids[start + 1 : end])
        role, _, content = tokenizer.decode(turn[: turn.index(END)]).partition("\n")
        messages.append({"role": role, "content": content})
    return messages


def with_calls(messages: Sequence[Message]) -> list[Message]:
    """Messages of a conversation with tools, as an endpoint takes them: calls and results are no text in them.

    Args:
        messages: As `messages_of` gives them. A reply that a server gave with calls is their text (`envs.calls`), with
            the calls below what was said.

    Returns:
        The same with `tool_calls`, and a result for each of them. Where a reply holds text that only looks like a call,
        or a call that an endpoint may refuse to take back, it stays text, and the answer to it is a message of the
        user: no endpoint takes a result without a call. (A refused message would end the episode without a grade.)
    """
    out: list[Message] = []
    names: list[str] = []
    for number, message in enumerate(messages):
        role, text = message["role"], message["content"]
        if role == "assistant":
            found = read_calls(text)
            said = text[: found.begin].removesuffix("\n")
            names = []
            if found.calls and text == written(found.calls, said) and all(map(_sendable, found.calls)):
                names = [call.id or f"call_{number}_{place}" for place, call in enumerate(found.calls)]
                calls = [_sent(call, name) for call, name in zip(found.calls, names, strict=True)]
                message = {"role": role, "content": said or None, "tool_calls": calls}
            out.append(message)
        elif role == "tool":
            results = [{"role": role, "tool_call_id": name, "content": text} for name in names]
            out += results or [{"role": "user", "content": text}]
        else:
            out.append(message)
    return out


_FUNCTION = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _sendable(call: Call) -> bool:
    """Whether every endpoint takes a call: a name as functions have them, and a JSON object of arguments."""
    try:
        json.dumps(call.arguments, allow_nan=False)
    except ValueError:
        return False
    return isinstance(call.arguments, dict) and _FUNCTION.fullmatch(call.name) is not None


def _sent(call: Call, name: str) -> dict[str, Any]:
    text = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": call.name, "arguments": text}}


def reply_ids(text: str, *, ended: bool) -> list[int]:
    """A reply as ids: its bytes, whatever literals it holds, and the end-of-turn id if it `ended` or is empty."""
    ids = list(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())
    return [*ids, END] if ended or not ids else ids
