"""What a reply asks for where the agent answers: a command, the answer itself, or nothing that can be done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from envs.actions import STOP_WORD, Action, Command, MalformedKind, Submit, command_of, encodable, malformed
from envs.fences import THINK_CLOSE, Scan, is_shell, take_apart

# The rules, in the order in which they are applied:
#
# 1. Line ends are normalised (CRLF to LF). Text that cannot be encoded as UTF-8 is malformed.
# 2. The reply ends at the first stop sequence, as if nothing had followed; what was cut off is counted. Inside a
#    thought, and inside a block that is closed, nothing is cut: a program may well hold two blank lines.
# 3. `<think>...</think>` is left out; a thought that is never closed is malformed.
# 4. One block tagged `bash`, `sh` or `shell` is a command, by the rules of `envs.actions`: two or more, one that is
#    never closed, one on a line, and an empty one are malformed. Blocks in other languages and blocks without a tag
#    belong to the answer, for answers hold JSON and program text. (In `ClawGym-v0` a block without a tag is a command.)
# 5. The stop word alone on a line outside all blocks ends the answer: the line and what follows are cut off. With a
#    command, the command runs first and the rest of the reply is the answer. Alone, it submits nothing.
# 6. A reply that the sampler cut at its token limit is no answer, unless it was whole before a stop sequence or word.
# 7. Anything else that is not empty is the answer.
#
# Without tools rule 4 does not apply: every reply that is not empty is the answer.

STOP_LOOKS = 16
"""Blocks and thoughts with a stop sequence in them, before the next one cuts wherever it stands: bounds the work."""

_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply, read.

    Attributes:
        action: What it asks for. The text of a `Submit` is the answer, empty where only the stop word was said.
        after: Characters that were cut off at a stop sequence or behind the stop word.
    """

    action: Action
    after: int


def read_answer(reply: str, stops: Sequence[str] = (), *, tools: bool = True, whole: bool = True) -> Reading:
    """Read a reply by the rules at the top of this module. Never raises for a `str`.

    Args:
        reply: As the agent wrote it.
        stops: Stop sequences.
        tools: Whether the agent may run commands.
        whole: False for a reply that was cut at the token limit.
    """
    text = reply.replace("\r\n", "\n")
    if not encodable(text):
        return Reading(malformed(MalformedKind.NOT_TEXT), 0)
    end = stop_at(text, stops)
    after = len(text) - end
    text = text[:end]
    scan = take_apart(text)
    if scan.open_thought:
        return Reading(malformed(MalformedKind.UNCLOSED_THINK), after)
    if not scan.visible:
        return Reading(malformed(MalformedKind.EMPTY), after)
    if tools and (action := _command(scan)) is not None:
        return Reading(action, after)
    answer, rest, stopped = _until_stop_word(scan)
    if not (whole or stopped or after):
        return Reading(malformed(MalformedKind.CUT), after)
    return Reading(Submit(answer), after + rest)


def stop_at(text: str, stops: Sequence[str]) -> int:
    """Index of the first stop sequence that ends the reply; the length of the text where there is none."""
    thought = text.rfind(THINK_CLOSE)  # thoughts are left out, so nothing ends the reply inside one
    start = 0 if thought < 0 else thought + len(THINK_CLOSE)
    start += len(text[start:]) - len(text[start:].lstrip())  # nor before it has begun
    looks = 0
    while True:
        found = [at for at in (text.find(stop, start) for stop in stops) if at >= 0]
        if not found:
            return len(text)
        at = min(found)
        if looks >= STOP_LOOKS or not _inside(text, at):
            return at
        looks += 1
        start = _next_fence(text, at)


def _next_fence(text: str, at: int) -> int:
    """Index of the next line that may close a block; at least one further than `at`."""
    found = _FENCE.search(text, at + 1)
    return found.start() if found else at + 1


def _inside(text: str, at: int) -> bool:
    """Whether a place lies inside a block that is closed further down."""
    return take_apart(text[:at]).open_fence and not take_apart(text).open_fence


def _command(scan: Scan) -> Action | None:
    """The command of a reply, or what is wrong with its shell blocks; `None` where it has none."""
    if scan.open_fence and _tagged(scan.open_info):
        return malformed(MalformedKind.UNCLOSED_FENCE)
    blocks = [block for block in scan.fences if _tagged(block.body if block.one_line else block.info)]
    if not blocks:
        return None
    if len(blocks) > 1:
        return malformed(MalformedKind.SEVERAL_BLOCKS)
    stops = {at for at, line in zip(scan.prose_at, scan.prose, strict=True) if line.strip() == STOP_WORD}
    rest = "\n".join(line for at, line in enumerate(scan.lines) if at not in stops).strip()
    action = command_of(blocks[0], bool(stops), rest)
    return replace(action, message=rest) if isinstance(action, Command) else action


def _tagged(info: str) -> bool:
    return bool(info.strip()) and is_shell(info)


def _until_stop_word(scan: Scan) -> tuple[str, int, bool]:
    """The answer, how many characters stand behind the stop word, and whether it was said."""
    for at, line in zip(scan.prose_at, scan.prose, strict=True):
        if line.strip() == STOP_WORD:
            before, behind = ("\n".join(part).strip() for part in (scan.lines[:at], scan.lines[at + 1 :]))
            # A model that says it first still means the answer that follows.
            return (before, len(behind), True) if before else (behind, 0, True)
    return scan.visible, 0, False
