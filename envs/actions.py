"""What a reply asks for: fenced blocks and thoughts, a shell's command, an answer, the stop word."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

# -- Fenced blocks of a reply, as Markdown has them, with two additions: heredocs and thoughts ------------------------
# A command may write a file whose text itself holds fences. Two things keep such a command whole: a longer outer fence
# (as in CommonMark), and the heredoc: between `<<WORD` and the line `WORD` no line closes the block. A heredoc shields
# its lines only where that reading is sound, that is where
#
# * its end stands somewhere below,
# * its text holds no second heredoc with the same end word, and
# * the fences in its text pair up, or there is only one.
#
# Otherwise the first closing fence ends the block. (A forgotten end word must not swallow the next block.)
#
# Thoughts, `<think>...</think>` outside a block, are left out before anything else is looked at. A `</think>` without
# its opening, which the prompt may have held, ends a thought that began with the reply.

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
MAX_LOOKS = 8
"""Heredocs of one block that may turn out to shield nothing before no more are looked at: a bound on the work."""
MARGIN = 3
"""Spaces that may stand before a fence; inside an item of a list that many more than before the item's text."""

_OPENING = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)$")
_ITEM = re.compile(r"^ *(?:[-*+]|\d{1,9}[.)]) {1,4}(?=\S)")
_ONE_LINE = re.compile(r"^ {0,3}(?:(?P<ticks>`{3,})[^`]+(?P=ticks)|(?P<tildes>~{3,})[^~]+(?P=tildes))\s*$")
_HEREDOC = re.compile(
    r"(?<!<)<<(?!<)(?P<dash>-?)[ \t]*"
    r"(?:'(?P<single>[^'\n]+)'|\"(?P<double>[^\"\n]+)\"|\\?(?P<word>[^\s\d;&|<>()'\"`$\\][^\s;&|<>()'\"`$\\]*))"
)


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block.

    Attributes:
        info: What stands behind the opening fence, stripped: a language, mostly.
        body: The lines between the fences; for a fence on one line, what stands between its ends.
        one_line: Opening and closing stand on the same line.
    """

    info: str
    body: str
    one_line: bool = False


@dataclass(slots=True)
class Scan:
    """A reply taken apart.

    Attributes:
        fences: Closed blocks, in order.
        prose: Lines outside blocks and thoughts.
        visible: The reply without its thoughts.
        lines: The lines of `visible`, before blanks around them are cut; `prose_at` the place in it of each of `prose`.
        open_fence: A block is never closed.
        open_info: The info string of that block.
        open_thought: A thought is never closed.
    """

    fences: list[Fence] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)
    visible: str = ""
    lines: list[str] = field(default_factory=list)
    prose_at: list[int] = field(default_factory=list)
    open_fence: bool = False
    open_info: str = ""
    open_thought: bool = False


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A heredoc's end word, and whether tabs may stand before it."""

    word: str
    tabs: bool

    def ends(self, line: str) -> bool:
        """Whether this line ends the heredoc."""
        return (line.lstrip("\t") if self.tabs else line) == self.word


def take_apart(text: str, *, loose: bool = False) -> Scan:
    """Take a reply apart, in time linear in its length.

    Args:
        text: The reply.
        loose: Blocks may be indented as far as the item of a list that they stand in.
    """
    lines = text.split("\n")
    out = Scan()
    seen = out.lines
    ends = Ends(lines)
    i = item = 0
    while i < len(lines):
        line = lines[i]
        if THINK_OPEN in line or THINK_CLOSE in line:
            thought = _without_thoughts(lines, i)
            if thought.began_before:
                out.fences.clear()
                out.prose.clear()
                out.prose_at.clear()
                seen.clear()
            if thought.end is None:
                out.open_thought = True
                break
            i = thought.end
            lines[i] = line = thought.text
        bare = line
        if loose:
            item = _item(line, item)
            bare = _ITEM.sub(lambda marker: " " * len(marker[0]), line)
        if _on_one_line(line):
            out.fences.append(Fence("", line.strip().strip("`~").strip(), one_line=True))
        elif opening := _opens(bare, item):
            info = opening["info"].strip()
            end = _closing(lines, i, opening, ends if is_shell(info) or (loose and _is_console(info)) else None)
            if end is None:
                out.open_fence, out.open_info = True, info
                seen += lines[i:]
                break
            indent = len(opening["indent"])
            out.fences.append(Fence(info, "\n".join(_dedent(x, indent) for x in lines[i + 1 : end])))
            seen += lines[i : end + 1]
            i = end + 1
            continue
        else:
            out.prose.append(line)
            out.prose_at.append(len(seen))
        seen.append(line)
        i += 1
    out.visible = "\n".join(seen).strip()
    return out


def is_shell(info: str) -> bool:
    """Whether a block with this info string is one for the shell (the first word counts; none counts too)."""
    return _tag(info) in ("", "bash", "sh", "shell")


def _tag(info: str) -> str:
    return info.split(maxsplit=1)[0].lower() if info else ""


def _is_console(info: str) -> bool:
    return _tag(info) == "console"


def _opens(line: str, item: int) -> re.Match[str] | None:
    """The fence that opens a block on this line, inside an item of a list whose text begins at column `item`."""
    opening = _OPENING.match(line)
    return opening if opening is not None and len(opening["indent"]) <= item + MARGIN else None


def _item(line: str, before: int) -> int:
    """Column at which the text of the list item begins that a line stands in; 0 outside of lists.

    Args:
        line: One outside of blocks.
        before: That of the line before.
    """
    if not line.strip():
        return before
    if marker := _ITEM.match(line):
        return len(marker[0])
    return before if line.startswith(" ") else 0


def heredocs(line: str) -> list[Heredoc]:
    """The heredocs that a line of shell opens, in order. Quotes around the operator are not looked at."""
    if "<<" not in line:
        return []
    return [Heredoc(m["single"] or m["double"] or m["word"], bool(m["dash"])) for m in _HEREDOC.finditer(line)]


class Ends:
    """Where heredocs may end: the lines of a reply by their text, collected when first asked for."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._places: dict[str, list[int]] | None = None

    def after(self, start: int, heredoc: Heredoc, indent: int) -> int | None:
        """Index of the first line from `start` on that ends the heredoc, in a fence with this indent."""
        if self._places is None:
            self._places = {}
            for index, line in enumerate(self._lines):
                self._places.setdefault(line.lstrip(" \t"), []).append(index)
        places = self._places.get(heredoc.word.lstrip(" \t"), [])
        for index in places[bisect_left(places, start) :]:
            if heredoc.ends(_dedent(self._lines[index], indent)):
                return index
        return None


def _closing(lines: list[str], start: int, opening: re.Match[str], ends: Ends | None) -> int | None:
    """Index of the line that closes the block opened at `start`; heredocs are looked at where `ends` is given."""
    indent, fence = len(opening["indent"]), opening["fence"]
    margin = MARGIN if indent <= MARGIN else indent + MARGIN
    looks = MAX_LOOKS
    i = start + 1
    while i < len(lines):
        if _closes(lines[i], fence, margin):
            return i
        after = i + 1
        if ends is not None and looks:
            for heredoc in heredocs(lines[i]):
                end = ends.after(after, heredoc, indent)
                if end is None or not _sound(lines[after:end], heredoc, margin):
                    looks -= 1
                    break
                after = end + 1
        i = after
    return None


@dataclass(frozen=True, slots=True)
class _Thoughtless:
    """A line without its thoughts: the text left, the line on which the last thought ends (`None`: it never does)."""

    text: str
    end: int | None
    began_before: bool


def _without_thoughts(lines: list[str], start: int) -> _Thoughtless:
    """Leave out the thoughts that begin on a line; the last of them may end on a later one."""
    pieces: list[str] = []
    began_before = False
    i, at = start, 0
    opened = lines[i].find(THINK_OPEN)
    while True:
        line = lines[i]
        if -1 < opened < at:
            opened = line.find(THINK_OPEN, at)
        closed = line.find(THINK_CLOSE, at)
        if closed != -1 and not -1 < opened < closed:
            pieces.clear()
            began_before = True
            at = closed + len(THINK_CLOSE)
            continue
        if opened == -1:
            pieces.append(line[at:])
            return _Thoughtless("".join(pieces), i, began_before)
        pieces.append(line[at:opened])
        at = opened + len(THINK_OPEN)
        while (closed := lines[i].find(THINK_CLOSE, at)) == -1:
            i, at = i + 1, 0
            if i == len(lines):
                return _Thoughtless("".join(pieces), None, began_before)
        at = closed + len(THINK_CLOSE)
        opened = lines[i].find(THINK_OPEN, at)


def _closes(line: str, fence: str, margin: int = MARGIN) -> bool:
    text = line.strip()
    return len(text) >= len(fence) and not text.strip(fence[0]) and len(line) - len(line.lstrip(" ")) <= margin


def _on_one_line(line: str) -> bool:
    """Whether a block opens and closes on this line, with something between."""
    return _ONE_LINE.match(line) is not None and bool(line.strip("`~ \t"))


def _sound(body: list[str], heredoc: Heredoc, margin: int) -> bool:
    """Whether these lines can be the text of the heredoc (see the module's text), in a block of this margin."""
    fence, count = "", 0
    for line in body:
        if any(inner.word == heredoc.word for inner in heredocs(line)):
            return False
        if "```" not in line and "~~~" not in line:
            continue
        if _on_one_line(line) or not (opening := _opens(line, margin - MARGIN)):
            continue
        count += 1
        if not fence:
            fence = opening["fence"]
        elif _closes(line, fence, margin):
            fence = ""
    return not fence or count == 1


def _dedent(line: str, indent: int) -> str:
    """A line without up to `indent` of its leading spaces, as an indented fence asks for."""
    if not indent:
        return line
    return line[min(indent, len(line) - len(line.lstrip(" "))) :]


# -- What a reply asks for: `parse(reply)` gives a `Command`, a `Submit` or a `Malformed`, and never guesses ----------
# The rules, in the order in which they are applied:
#
# 1. Line ends are normalised (CRLF to LF). Text that cannot be encoded as UTF-8, or a command with a NUL, is
# malformed.
# 2. `<think>...</think>` is left out; a thought that is never closed is malformed.
# 3. A fenced block that is never closed is malformed, whatever else the reply holds.
# 4. Blocks tagged `bash`, `sh` or `shell` (any case) or not tagged are for the shell; a fence is ``` or ~~~, or
# longer.
#    Blocks in other languages are prose. Two or more shell blocks are malformed: neither runs.
# 5. A block on one line, or with words behind its tag, is malformed: the command belongs on lines of its own.
# 6. A block without a command (blank lines and comments only) is malformed, and so is one that holds only the stop
# word.
# 7. The block is the command, whole: many lines, heredocs (with fences in them, see `envs.actions`), chains.
# 8. A block that only says that the task is complete (`echo "Task complete."`; any case, with or without quotes and
# full
#    stop, `completed` and `TASK_COMPLETE` too) is a submission. With a redirect, a pipe or anything more it is a
# command.
# 9. The stop word `TASK_COMPLETE`, alone on a line outside all blocks, submits. With a command: the command runs
# first.
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
    return _is_console(block.info) and not any(map(_PROMPT.match, block.body.split("\n")))


def command_of(block: Fence, stop: bool, message: str, *, loose: bool = False) -> Action:
    """What one shell block asks for, by rules 5 to 8; `stop` says that the stop word stood beside it."""
    behind = block.info[len(_tag(block.info)) :]
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


# -- What a reply asks for where the agent answers: a command, the answer itself, or nothing that can be done ---------
# The rules, in the order in which they are applied:
#
# 1. Line ends are normalised (CRLF to LF). Text that cannot be encoded as UTF-8 is malformed.
# 2. The reply ends at the first stop sequence, as if nothing had followed; what was cut off is counted. Inside a
# thought,
#    and inside a block that is closed, nothing is cut: a program may well hold two blank lines.
# 3. `<think>...</think>` is left out; a thought that is never closed is malformed.
# 4. One block tagged `bash`, `sh` or `shell` is a command, by the rules of `envs.actions`: two or more, one that is
# never
#    closed, one on a line, and an empty one are malformed. Blocks in other languages and blocks without a tag belong
# to
#    the answer, for answers hold JSON and program text. (In `ClawGym-v0` a block without a tag is a command.)
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
