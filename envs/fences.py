"""A reply taken apart: its fenced blocks, as Markdown has them, its thoughts, and the prose between them."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

# Beside what CommonMark has, heredocs and thoughts are looked at.
#
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
            end = _closing(lines, i, opening, ends if is_shell(info) or (loose and is_console(info)) else None)
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
    return tag(info) in ("", "bash", "sh", "shell")


def tag(info: str) -> str:
    """The first word of an info string, in lower case; empty where there is none."""
    return info.split(maxsplit=1)[0].lower() if info else ""


def is_console(info: str) -> bool:
    """Whether a block with this info string shows a session of a shell."""
    return tag(info) == "console"


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
