"""What a reply asks for: `parse(reply)` gives a `Command`, a `Submit` or a `Malformed`, and never guesses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from envs.fences import THINK_CLOSE, THINK_OPEN, Fence, is_console, is_shell, tag, take_apart

# The rules, in the order in which they are applied:
#
# 1. Line ends are normalised (CRLF to LF). Text that cannot be encoded as UTF-8, or a command with a NUL, is
#    malformed.
# 2. `<think>...</think>` is left out; a thought that is never closed is malformed.
# 3. A fenced block that is never closed is malformed, whatever else the reply holds.
# 4. Blocks tagged `bash`, `sh` or `shell` (any case) or not tagged are for the shell; a fence is ``` or ~~~, or
#    longer. Blocks in other languages are prose. Two or more shell blocks are malformed: neither runs.
# 5. A block on one line, or with words behind its tag, is malformed: the command belongs on lines of its own.
# 6. A block without a command (blank lines and comments only) is malformed, and so is one that holds only the stop
#    word.
# 7. The block is the command, whole: many lines, heredocs (with fences in them, see `envs.fences`), chains.
# 8. A block that only says that the task is complete (`echo "Task complete."`; any case, with or without quotes and
#    full stop, `completed` and `TASK_COMPLETE` too) is a submission. With a redirect, a pipe or anything more it is a
#    command.
# 9. The stop word `TASK_COMPLETE`, alone on a line outside all blocks, submits. With a command: the command runs
#    first.
# 10. Neither block nor stop word is malformed.
#
# A malformed reply costs a turn, changes nothing, and is answered with its reason; each kind is counted.
#
# A `loose` reading (`ClawGym-v1`) takes these forms beside, which mean nothing else:
#
# - rule 4: a block indented as far as the list item that it stands in, and a block tagged `console` without a prompt on
#   any line of it (with prompts it shows what was typed and printed: no command)
# - rule 5: attributes behind the tag (`title="a.sh"`, `{.numberLines}`) or a comment; a command there stays malformed
# - rule 9: `TASK_COMPLETE.`, `**TASK_COMPLETE**`, `**TASK_COMPLETE.**`, `**TASK_COMPLETE**.`

STOP_WORD = "TASK_COMPLETE"
"""Alone on a line outside all blocks, it submits."""

_STOPS = frozenset([f"{STOP_WORD}.", f"**{STOP_WORD}**", f"**{STOP_WORD}.**", f"**{STOP_WORD}**."])
_ATTRIBUTES = re.compile(r"(?:\s+(?:\{[^{}]*\}|[a-z][\w.-]*=(?:\"[^\"]*\"|'[^']*'|[^\s\"'=]+)))*(?:\s+#.*)?", re.ASCII)
_PROMPT = re.compile(r"^\s*(?:[$%#>]|>>>|(?:\([\w.-]+\)\s*)?[\w.-]+@[\w.-]+[^$#%]*[$#%]|\([\w.-]+\)\s*[$#%])(?:\s|$)")
_PROSE_STOP = re.compile(r"echo\s+(?P<quote>[\"']?)task[ _]+completed?\.?(?P=quote)\s*(?:\s#.*)?", re.IGNORECASE)


class ActionKind(StrEnum):
    """What a turn did."""

    COMMAND = "command"
    """A command ran (and the episode may end with it)."""
    SUBMIT = "submit"
    """The agent submitted (where it answers: gave the answer that counts) and ran nothing."""
    ANSWER = "answer"
    """The agent answered, and may revise the answer."""
    MESSAGE = "message"
    """The agent spoke to the user (or submitted, and the user had more to say)."""
    MALFORMED = "malformed"
    """The reply asked for nothing that could be done."""


class MalformedKind(StrEnum):
    """Why a reply asks for nothing."""

    EMPTY = "empty"
    """No text, or nothing but thought."""
    NOT_TEXT = "not_text"
    """Lone surrogates, or a NUL in the command: no shell could be given it."""
    UNCLOSED_THINK = "unclosed_think"
    """A thought that never ends, or whose end stands inside a command."""
    UNCLOSED_FENCE = "unclosed_fence"
    """A block that is never closed."""
    SEVERAL_BLOCKS = "several_blocks"
    """Two or more shell blocks."""
    ONE_LINE_FENCE = "one_line_fence"
    """The command stands on the line of the fence."""
    EMPTY_BLOCK = "empty_block"
    """Blank lines and comments only."""
    STOP_WORD_IN_BLOCK = "stop_word_in_block"
    """The stop word as a command."""
    OTHER_LANGUAGE = "other_language"
    """Blocks, but none for the shell."""
    NO_ACTION = "no_action"
    """Neither block nor stop word."""
    TOO_LONG = "too_long"
    """The command is longer than the sandbox takes (decided by the environment)."""
    CUT = "cut"
    """An answer that the sampler cut at its token limit: it is not whole."""
    NO_CALL = "no_call"
    """No tool call, where the agent acts by them (this one and the next five: see `envs.calls`)."""
    SEVERAL_CALLS = "several_calls"
    """Two or more tool calls."""
    UNCLOSED_CALL = "unclosed_call"
    """A tool call that does not end."""
    BAD_CALL = "bad_call"
    """A tool call that is no JSON, or no call."""
    UNKNOWN_TOOL = "unknown_tool"
    """A call of a tool that there is not."""
    BAD_ARGUMENTS = "bad_arguments"
    """A call with other arguments than the tool takes."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run.

    Attributes:
        text: What bash is given.
        then_submit: The stop word stood beside it: run, then submit.
        message: The reply without its thoughts (the final message where it submits).
    """

    text: str
    then_submit: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class Submit:
    """The agent is done. `text` is the reply without its thoughts."""

    text: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """Nothing can be done. `reason` is one short line for the agent."""

    reason: str
    kind: MalformedKind


@dataclass(frozen=True, slots=True)
class Message:
    """Words to the user. `text` is the reply without its thoughts."""

    text: str


Action = Command | Submit | Malformed

REASONS = {
    MalformedKind.EMPTY: "empty reply",
    MalformedKind.NOT_TEXT: "the reply holds characters that no command can hold",
    MalformedKind.UNCLOSED_THINK: "the thought is never closed with </think>",
    MalformedKind.UNCLOSED_FENCE: "the code block is never closed",
    MalformedKind.SEVERAL_BLOCKS: "more than one bash block; nothing was run",
    MalformedKind.ONE_LINE_FENCE: "put the command on lines of its own between the fences",
    MalformedKind.EMPTY_BLOCK: "the bash block holds no command",
    MalformedKind.STOP_WORD_IN_BLOCK: f"write {STOP_WORD} outside the code block",
    MalformedKind.OTHER_LANGUAGE: "no bash block",
    MalformedKind.NO_ACTION: f"no bash block and no {STOP_WORD}",
    MalformedKind.TOO_LONG: "the command is too long",
    MalformedKind.CUT: "the reply was cut at its token limit before it was whole; be briefer",
    MalformedKind.NO_CALL: "no tool call",
    MalformedKind.SEVERAL_CALLS: "more than one tool call; nothing was run",
    MalformedKind.UNCLOSED_CALL: "the tool call does not end",
    MalformedKind.BAD_CALL: "the tool call cannot be read",
    MalformedKind.UNKNOWN_TOOL: "there is no such tool",
    MalformedKind.BAD_ARGUMENTS: "the tool takes other arguments",
}
"""One short line for each kind."""


def malformed(kind: MalformedKind) -> Malformed:
    """A malformed action with its usual reason."""
    return Malformed(REASONS[kind], kind)


def parse(reply: str, *, loose: bool = False) -> Action:
    """Read a reply by the rules at the top of this module. Never raises for a `str`.

    Args:
        reply: As the agent wrote it.
        loose: Take further forms of a block and of the stop word.
    """
    if not encodable(reply):
        return malformed(MalformedKind.NOT_TEXT)
    scan = take_apart(reply.replace("\r\n", "\n"), loose=loose)
    if scan.open_thought:
        return malformed(MalformedKind.UNCLOSED_THINK)
    if scan.open_fence:
        return malformed(MalformedKind.UNCLOSED_FENCE)
    if not scan.visible:
        return malformed(MalformedKind.EMPTY)
    blocks = [fence for fence in scan.fences if is_shell(fence.info) or (loose and _is_typed(fence))]
    if len(blocks) > 1:
        return malformed(MalformedKind.SEVERAL_BLOCKS)
    stop = any(_stops(line, loose=loose) for line in scan.prose)
    if blocks:
        return command_of(blocks[0], stop, scan.visible, loose=loose)
    if stop:
        return Submit(scan.visible)
    return malformed(MalformedKind.OTHER_LANGUAGE if scan.fences else MalformedKind.NO_ACTION)


def parse_with_user(reply: str, *, whole: bool = True) -> Action | Message:
    """Read a reply where a user listens: a loose `parse`, but what asks for nothing is a message to the user.

    A reply that names the stop word and does not stand it alone on a line means to submit, so it stays malformed.

    Args:
        reply: As the agent wrote it.
        whole: False for a reply that was cut at the token limit: half a sentence is no message.
    """
    action = parse(reply, loose=True)
    if not isinstance(action, Malformed) or action.kind not in (MalformedKind.NO_ACTION, MalformedKind.OTHER_LANGUAGE):
        return action
    if not whole:
        return malformed(MalformedKind.CUT)
    text = take_apart(reply.replace("\r\n", "\n"), loose=True).visible
    if STOP_WORD in text:
        return Malformed(f"to submit, write {STOP_WORD} alone on a line", MalformedKind.NO_ACTION)
    return Message(text)


def without_stop_word(text: str) -> str:
    """What a submitting reply says beside the stop word, in any of its forms."""
    return "\n".join(line for line in text.split("\n") if not _stops(line, loose=True)).strip()


def _stops(line: str, *, loose: bool) -> bool:
    """Whether a line outside all blocks is the stop word."""
    word = line.strip()
    return word == STOP_WORD or (loose and word in _STOPS)


def _is_typed(block: Fence) -> bool:
    """Whether a block tagged `console` holds commands alone."""
    return is_console(block.info) and not any(map(_PROMPT.match, block.body.split("\n")))


def command_of(block: Fence, stop: bool, message: str, *, loose: bool = False) -> Action:
    """What one shell block asks for, by rules 5 to 8; `stop` says that the stop word stood beside it."""
    behind = block.info[len(tag(block.info)) :]
    if block.one_line or (behind and not (loose and _ATTRIBUTES.fullmatch(behind))):
        return malformed(MalformedKind.ONE_LINE_FENCE)
    code = [line.strip() for line in block.body.split("\n")]
    code = [line for line in code if line and not line.startswith("#")]
    if not code:
        return malformed(MalformedKind.EMPTY_BLOCK)
    if code == [STOP_WORD]:
        return malformed(MalformedKind.STOP_WORD_IN_BLOCK)
    if len(code) == 1 and _PROSE_STOP.fullmatch(code[0]):
        return Submit(message)
    if "\0" in block.body:
        return malformed(MalformedKind.NOT_TEXT)
    if THINK_CLOSE in block.body and THINK_OPEN not in block.body:
        # A draft block in a thought that the prompt opened: what follows the thought is not what this block says.
        return malformed(MalformedKind.UNCLOSED_THINK)
    return Command(block.body, stop, message)


def fenced(command: str) -> str:
    """A command as a reply: in a bash fence that is longer than any fence inside it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", command)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}bash\n{command}\n{fence}"


def encodable(text: str) -> bool:
    """Whether the text has a form in UTF-8 (lone surrogates have none)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
