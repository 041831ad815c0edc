"""Messages out of the ids of a `ByteTokenizer` conversation, for engines that take text.

Exact, because control ids never come from content: `agents.chat` keeps them out of messages, and a policy at text
level encodes its replies as bytes (`reply_ids`).
"""

from __future__ import annotations

from collections.abc import Sequence

from agents.policies.bytes import ByteTokenizer

Message = dict[str, str]
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


def reply_ids(text: str, *, ended: bool) -> list[int]:
    """A reply as ids: its bytes, whatever literals it holds, and the end-of-turn id if it `ended` or is empty."""
    ids = list(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())
    return [*ids, END] if ended or not ids else ids
