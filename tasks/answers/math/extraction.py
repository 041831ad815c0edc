"""Which part of a reply is the answer, and the spelling of the Minerva evaluation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

# ---------------------------------------------------------------------------------------------------------------------
# Which part of a reply is the answer: the last closed box, else a sentence that says so, else the maths at the end.
#
# Everything here is linear in the length of the reply, whatever it holds.


class Rule(StrEnum):
    """What showed where the answer stands."""

    BOX = "box"
    r"""A closed `\boxed{...}` or `\fbox{...}`, or `\boxed 5`."""
    PHRASE = "phrase"
    """The rest of a sentence such as "The final answer is 5."."""
    LAST_MATHS = "last_maths"
    """Maths between delimiters, with which the reply ends."""
    BARE_LATEX = "bare_latex"
    """The reply is LaTeX and nothing else."""


@dataclass(frozen=True, slots=True)
class Found:
    """An answer in a reply.

    Attributes:
        text: The answer as it stands there, without what marks it.
        rule: What marked it.
        start: Where it starts in the reply, in characters.
        end: Where it ends, exclusive.
    """

    text: str
    rule: Rule
    start: int
    end: int


_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]*(\{)?")
# \boxed 5, \boxed\pi: TeX takes one token, people mean the number or the command with what follows on the line.
_BRACELESS = re.compile(r"[-+\u2212]?[ \t]*\$?(?:\d[\d.,/]*|\\[a-zA-Z][^$\n]*)")
# The final answer is, Answer:, the answer to the second part is, and a heading `Final answer` over its line.
_PHRASE = re.compile(
    r"\b(?:(?:final[ \t]+)?answer\b(?:[ \t]+to[ \t]+[^\n.:=]{1,80}?)?[ \t*_]*(?:\bis\b[ \t]*:?|:|=)"
    r"|final[ \t]+answer[ \t*_]*\n)[ \t*_]*",
    re.IGNORECASE,
)
# A full stop inside a number (3.5) ends nothing. The last words are those of the Minerva prompt.
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\n|I hope it is correct", re.IGNORECASE)
# What a backslash escapes comes before the dollars, so that \$5 opens no maths.
_MATHS_TOKEN = re.compile(r"\\[\[\]()]|\\.|\$\$|\$|\n", re.DOTALL)
_CLOSES = {"$$": "$$", "$": "$", r"\[": r"\]", r"\(": r"\)"}
_DELIMITERS = re.compile(r"\$+|\\[()\[\]]")
# What may stand between two pieces of maths that are one answer.
_JOINING = re.compile(r"(?:\s|,|;|\band\b|\bor\b|\*)*", re.IGNORECASE)
# Words before or behind maths that say it is not the answer: not, other than, at least.
_NEGATION = re.compile(
    r"\b(?:not|cannot|never|no|neither|nor|reject\w*|discard\w*|exclud\w*|except|without|wrong|incorrect|false|"
    r"(?:rather|other|less|more|greater|smaller|larger|fewer)[ \t]+than|instead|unlike|impossible|"
    r"at[ \t]+(?:least|most))\b|n['\u2019]t\b",
    re.IGNORECASE,
)
# The same, and words that make the maths a condition of something else: if, where, since.
_CONDITION = re.compile(
    _NEGATION.pattern + r"|\b(?:if|unless|when|whenever|where|since|because|assum\w*|suppos\w*)\b", re.IGNORECASE
)
# Between two boxes of a list: the end of one, delimiters, a comma or `and` or `or`, the start of the next.
_LISTED = re.compile(
    r"\}?[\s$*]*(?:\\[)\]])?[\s$*]*(?:[,;]|,?\s*\\?(?:text\{)?\s*(?:and|or)\s*\}?|,\s*(?:and|or)\b)[\s$*]*"
    r"(?:\\quad\s*)?(?:\\[(\[])?[\s$*]*\\(?:boxed|fbox)[ \t]*\{?"
)
_APART = 60
"""Characters between two boxes of a list, at most."""
# not \boxed{8}, rather than \boxed{8}: what stands right before the content of the box.
_DENIED = re.compile(r"\b(?:not|rather than|instead of)[\s$*(]*(?:\\[(\[]\s*)?\\(?:boxed|fbox)[ \t]*\{?\Z")
# ... 5 is not possible: a verb right behind the maths says something about it.
_TAKEN_BACK = re.compile(r"[ \t*,]*(?:is|are|was)\b", re.IGNORECASE)
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|%)")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox)\{[^{}]*\}")


def last_box(reply: str) -> Found | None:
    r"""Return the content of the last closed box that is not empty; of boxes inside each other, the outer one.

    A box that is opened after it and never closed means that the reply was cut while answering: then there is none. The
    mere word `\boxed` is no box.
    """
    boxes = _boxes(reply)
    while len(boxes) > 1 and _DENIED.search(reply, max(0, boxes[-1].start - _APART), boxes[-1].start):
        boxes.pop()  # \boxed{7}, not \boxed{8}
    return boxes[-1] if boxes else None


def _boxes(reply: str) -> list[Found]:
    """The boxes that are not empty, since the last one that was never closed; none inside another."""
    openers = list(_BOX.finditer(reply))
    if not openers:
        return []
    close = _closing(reply)
    found: list[Found] = []
    end = -1
    for match in openers:
        if match.start() < end:
            continue
        if match.group(1):
            start = match.end()
            closed = close.get(start - 1)
            if closed is None:
                found = []
                continue
            end = closed
            if reply[start:closed].strip():
                found.append(Found(reply[start:closed], Rule.BOX, start, closed))
        elif (bare := _BRACELESS.match(reply, match.end())) and match.end() > match.start():
            end = bare.end()
            text = bare.group().rstrip(".,")
            found.append(Found(text, Rule.BOX, bare.start(), bare.start() + len(text)))
    return found


def joined_boxes(reply: str) -> list[str]:
    r"""Return the contents of the boxes that list answers, one box each: "$\boxed{3}$, $\boxed{5}$ and $\boxed{7}$".

    The last box and those before it, as long as nothing but a comma, `and` or `or` stands between two of them.
    """
    boxes = _boxes(reply)
    found = boxes[-1:]
    for box in reversed(boxes[:-1]):
        if found[0].start - box.end > _APART or not _LISTED.fullmatch(reply, box.end, found[0].start):
            break
        found.insert(0, box)
    return [box.text for box in found]


def find_answer(reply: str) -> Found | None:
    """Return the answer of a reply by the first rule that finds one, in the order of `Rule`; None if none does.

    A box anywhere rules the others out, an unclosed one too. The last number of a text is never taken for its answer.
    """
    if (box := last_box(reply)) is not None:
        return box
    if any(match.group(1) for match in _BOX.finditer(reply)):
        return None  # empty, or cut while answering
    return _by_phrase(reply) or _at_the_end(reply) or _bare(reply)


def _closing(text: str) -> dict[int, int]:
    """Position of each opening brace to that of its closing one. What a backslash escapes is no brace."""
    stack: list[int] = []
    pairs: dict[int, int] = {}
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match.group() == "{":
            stack.append(match.start())
        elif match.group() == "}" and stack:
            pairs[stack.pop()] = match.start()
    return pairs


def _by_phrase(reply: str) -> Found | None:
    phrases = list(_PHRASE.finditer(reply))
    if not phrases:
        return None
    last = phrases[-1]
    start = last.end()
    # What opens with display maths may go on over several lines.
    while start < len(reply) and reply[start] in " \t\n*":
        start += 1
    spans = _maths(reply, start)
    opening = next((span.end for span in spans if span.start == start), start)
    stop = _SENTENCE_END.search(reply, opening)
    end = stop.start() if stop else len(reply)
    spans = [span for span in spans if span.end <= end]
    if spans and not _JOINING.fullmatch(_outside(reply, spans, start, end)):
        return _in_prose(reply, spans, start, end)
    text = _DELIMITERS.sub(" ", reply[start:end]).strip().strip("*_`").strip()
    return Found(text, Rule.PHRASE, start, end) if text else None


def _in_prose(reply: str, spans: list[_Span], start: int, end: int) -> Found | None:
    """The maths of a sentence with words around it: the first, since what follows explains it or rules others out."""
    before = reply[start : spans[0].start]
    if _NEGATION.search(before):
        return None
    if len(spans) > 1 and len(before.split()) > 1:
        return None
    if len(spans) == 1 and _NEGATION.search(reply[spans[0].end : end]) and _TAKEN_BACK.match(reply, spans[0].end, end):
        return None
    return spans[0].found(reply, Rule.PHRASE)


def _before_last(reply: str, spans: list[_Span]) -> str:
    """The words of the same sentence right before the last maths, or before the list that it ends."""
    at = len(spans) - 1
    while at and _JOINING.fullmatch(reply, spans[at - 1].end, spans[at].start):
        at -= 1
    start = max(spans[at - 1].end if at else 0, spans[at].start - 200)
    return _SENTENCE_END.split(reply[start : spans[at].start])[-1]


def _at_the_end(reply: str) -> Found | None:
    end = len(reply.rstrip().rstrip("*.!,; \t\n"))
    spans = _maths(reply)
    if not spans or spans[-1].end < end or _CONDITION.search(_before_last(reply, spans)):
        return None
    found = spans[-1].found(reply, Rule.LAST_MATHS)
    return found if found.text.strip() else None


def _bare(reply: str) -> Found | None:
    text = reply.strip()
    if "\n" in text or not _COMMAND.search(text) or _PROSE.search(_TEXT.sub("", text)):
        return None
    start = reply.index(text)
    return Found(text, Rule.BARE_LATEX, start, start + len(text))


@dataclass(frozen=True, slots=True)
class _Span:
    """Maths between delimiters of `width` characters, which `start` and `end` include."""

    start: int
    end: int
    width: int

    def found(self, reply: str, rule: Rule) -> Found:
        start, end = self.start + self.width, self.end - self.width
        return Found(reply[start:end], rule, start, end)


def _maths(reply: str, start: int = 0) -> list[_Span]:
    """Every stretch of maths from `start` on, in one pass; maths in single dollars stays on its line."""
    spans: list[_Span] = []
    opened: tuple[str, int] | None = None
    for match in _MATHS_TOKEN.finditer(reply, start):
        token = match.group()
        if token == "\n":
            opened = None if opened and opened[0] == "$" else opened
        elif opened and token == _CLOSES[opened[0]]:
            if match.start() > opened[1] + len(token):
                spans.append(_Span(opened[1], match.end(), len(token)))
            opened = None
        elif token in _CLOSES:
            opened = token, match.start()
    return spans


def _outside(reply: str, spans: list[_Span], start: int, end: int) -> str:
    pieces, at = [], start
    for span in spans:
        pieces.append(reply[at : span.start])
        at = span.end
    return " ".join([*pieces, reply[at:end]])


# -- Answers in the spelling of the Minerva evaluation (Lewkowycz et al. 2022, arXiv:2206.14858, appendix D.1) --------
# Kept for comparison with published numbers. It is lossy: units go, and of an equation only the right side stays.

# Data of that appendix.
_REPLACED = (
    ("an ", ""), ("a ", ""), (".$", "$"), (r"\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"),
    (r",\text{and}", ","), (r"\text{and}", ","), (r"\text{m}", r"\text{}"),
)  # fmt: skip
_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units", r"\ldots", "sue", "points",
    "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students",
    "childrentickets", "multiples", r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}",
    r"\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots",
)  # fmt: skip
_SENTENCE = re.compile(r"Final Answer:\s*The final answer is\s*(.*?)\.?\s*I hope it is correct", re.DOTALL)
_MARK = "Final Answer:"


def minerva_answer(reply: str) -> str | None:
    """Return the answer of a reply: what its last final-answer sentence says, else its last box; None otherwise."""
    at = reply.rfind(_MARK)
    if at >= 0 and (match := _SENTENCE.match(reply, at)) and match.group(1).strip():
        return match.group(1).strip()
    box = last_box(reply)
    return box.text if box else None


def minerva_form(answer: str) -> str:
    """Return an answer in Minerva's spelling."""
    text = answer.split("=")[-1]
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for gone in _REMOVED:
        text = text.replace(gone, "")
    start, end = text.find("$"), text.rfind("$")
    if 0 <= start < end:
        text = text[start + 1 : end]
    for command in ("text", "textbf", "overline"):
        text = re.sub(rf"\\{command}\{{([^{{}}]*)\}}", r"\1", text)
    box = last_box(text)
    text = box.text if box else text
    text = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", text)
    text = re.sub(r"sqrt([^{\[])", r"sqrt{\1}", text).replace("$", "")
    return text.replace(",", "") if text.replace(",", "").isdigit() else text
