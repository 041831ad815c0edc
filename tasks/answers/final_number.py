r"""Where a reply says its final number: the default rules, which look for a marker first and for the last number then.

A marker is `#### N`, `\boxed{N}`, `<answer>N</answer>`, a sentence such as `The answer is N` or `Answer: N`, or a last
line `A: N`. The last marker wins, whatever its kind. Where it holds no single number (an expression, `5 or 6`, nothing
in the box) the reply has no answer: earlier markers and other numbers do not stand in for it. Without any marker the
last number of the text is the answer, unless it is a part of an expression.
"""

from __future__ import annotations

import re as fast_re
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import regex as re  # possessive quantifiers of `re` match wrongly before Python 3.11.5 (gh-106052)

from tasks.answers.amounts import Amount, compound
from tasks.answers.closings import answer_end
from tasks.answers.number_words import WORD, number_in_words, spelled
from tasks.answers.numbers import (
    CORE,
    CURRENCY,
    MARKUP,
    SIGN,
    Number,
    after,
    before,
    before_box,
    numbers_in,
    plain,
    read,
    signed,
    value,
    visible,
)
from tasks.answers.remarks import own_turn, refused, remarks_start, taken_back
from tasks.answers.restated import said_again
from tasks.answers.usual_endings import usual_end

WINDOW = 300
"""Characters after a marker, or around the last digit, that are looked at: a reply costs time linear in its size."""


MOST_PLACES = 1000
"""Places that are tried as markers, and names with digits that are passed over; a reply with more of them is junk."""


class Rule(StrEnum):
    """Which rule found the answer."""

    HASH = "hash"
    """`#### N` at the start of a line, or at the end of one."""
    BOX = "box"
    r"""`\boxed{N}` or `\fbox{N}`."""
    TAG = "tag"
    """`<answer>N</answer>`."""
    PHRASE = "phrase"
    """`The answer is N`, `Final answer: N` and the like; a last line `A: N`."""
    LAST_NUMBER = "last_number"
    """No marker: the last number of the text."""
    PUBLISHED = "published"
    """The extraction of a published evaluator."""


class Extraction(NamedTuple):
    """What was taken for the answer of a reply.

    Attributes:
        value: As written there.
        number: Its exact value; None where the rule found no single number, and in modes that compare text.
        rule: Which rule found it.
        start: Its first character in the reply, from 0.
        end: The character after its last.
        problem: Why there is no number; empty if there is one.
    """

    value: str
    number: Number | None
    rule: Rule
    start: int
    end: int
    problem: str = ""


# What may stand between a marker and its number: blanks, markup, quotes, brackets, a calculator's note, a few words.
_LEAD = r"""(?: [\s*_`"“‘':~≈(\[{=$] | \\[(\[,;!:\ ]
              | \\(?:text|math|textbf|mathbf|displaystyle|boxed|left|quad)[a-z]*\b
              | <<[^<>\n]{0,80}>>
              | (?:about|approximately|approx\.|around|roughly|exactly|equal\ to|equals|therefore|thus|simply|just
                  |indeed|that|only|still|now|then|be|also|precisely|a\ total\ of)\b
              | [A-Za-z][A-Za-z_]{0,15}\ ?=(?!=) )*+"""
_NUMBER = rf"(?P<sign>{SIGN})?(?:{CURRENCY}\ ?)?(?P<sign2>[-+])?(?=[0-9.\\¼-¾⅐-⅞])"
_MARKED = re.compile(_LEAD + _NUMBER, re.VERBOSE | re.IGNORECASE)
_USUAL = re.compile(r" ?(?P<all>(?P<sign>-)?\$?(?P<digits>[1-9][0-9]{0,2}(?:,[0-9]{3}){1,9}|[0-9]{1,30}))\.?(?:\n|\Z)")
"""The form that nearly all marked answers have, read without the machinery below."""
_PHRASE = re.compile(
    r"""answers?(?:\*\*|__|["”’)\]])?
        (?: (?: \ (?:to|for|of)\b[^\n.:=]{1,80}? )?
            \ (?:is|was|are|(?:would|will|should|must)\ be|comes\ (?:out\ )?to|equals)\b
          | \s? (?:\*\*|__)? (?: \ ?[:=→⇒] | \ ?[-=]> ) )""",
    re.VERBOSE | re.IGNORECASE,
)
_FILLED = r"""(?:\ (?:be|equal|to|simply|just|about|the|a|an|number|exactly|going|[a-z]{2,12}ly)){0,3}
               [\s*$({\\[]*-?[$]?\.?[0-9]"""
_NEGATED = re.compile(
    rf"""answers?(?:\*\*)?(?:\ (?:to|for|of)\b[^\n.:=]{{1,80}}?)?
        (?:\ (?:is|was|are|were|can|could|should|would|will|wo|must|may|might|then|also|[a-z]{{2,12}}ly)){{0,3}}?
        (?:n?['’]t|\ ?not|\ never|\ neither)\b{_FILLED}""",
    re.VERBOSE | re.IGNORECASE,
)
_DOUBTED = re.compile(
    r"(?:n['’]t|\bnot|\bnever) (?:think|believe|say|mean)(?: that)?(?: (?:the|my|our|final|right|correct)){0,2} \Z",
    re.IGNORECASE,
)
_TWISTED = re.compile(
    rf"""[\s*_`"“‘':(\[{{$]*+ (?:[a-z]{{2,12}}ly\ )?
        (?: (?:not|never|neither)\b(?={_FILLED})
          | (?:less|more|fewer|greater|smaller|larger|other|at\ most|at\ least|under|above|below
              |up\ to|half|twice|double|triple|sqrt|log|ln|square|cube)\b
          | \\(?:text|mathrm|textbf)\{{\ ?(?:not|never)\b | [-+]\ ?[(\[{{] | [<>≤≥≠±∓√] | [A-Za-z]\(
          | \\(?:pm|mp|leq?|geq?|neq?|not|lt|gt|sqrt|log|ln)(?![A-Za-z]) )
        [^\n.0-9]{{0,40}}[0-9](?![^\n]{{0,80}}=)""",
    re.VERBOSE | re.IGNORECASE,
)
"""What follows a marker and turns its number into something else: `not 18`, `at most 18`, `√18`."""
_WORDED = re.compile(
    rf"""[\s*_`"“‘$]*+(?:\\text\{{)?(?P<words>(?:(?:negative|minus)\ )?(?:{WORD})\b(?:[\ -](?:and|{WORD})\b)*+)
        [*_]*(?:\ (?!(?:of|or|more|less|fewer|to|per|percent|times|plus|minus|over|if|but|than|and|squared|cubed)\b)
                [A-Za-z]+)?
        [\s.!*_`"”’$}}]*(?:\n|\Z)""",
    re.VERBOSE | re.IGNORECASE,
)
_WHICH_IS = re.compile(
    r",? which (?:is|equals|gives|makes|comes to)\b(?: equal to)?|, so\b(?: (?:it|that)(?:['’]s| is))?"
)
_LAST_LINE = re.compile(r"[ *]*A:[ *]*")
_HEADING = re.compile(r"[0-9]{1,2}[.):] *\*{0,2} *[A-Za-z][^\n]*\n\s*\S")
_LINE_END = re.compile(r"""[ .!*_`$)\]}"%]{0,6}(?:[A-Za-z°%]+[ .!]*){0,2}(?:\n|\Z)""")
_WORD = r"(?:[^\W\d_]{2,}|[^\W\d_A-Za-z\u0370-\u03ff])"
_DRESS = rf"""[\s~$*`"'“”‘’.!:{{}}()\[\]%°] | \\[,;:!\ ()\[\]%$] | \\(?:right|degree|{MARKUP})(?![A-Za-z]) | {CURRENCY}
              | (?<=[A-Za-z])[-,](?=\ ?[A-Za-z]{{2}})"""
_HEAD = re.compile(rf"(?: {_DRESS} | (?<!\\){_WORD} | (?<![^\s{{])[aI](?=\ ) | [-+](?=[\s$\\]*\Z) )*+", re.VERBOSE)
_TAIL = re.compile(
    rf"""(?: {_DRESS} | (?<!\\){_WORD} | \^\ ?\{{?\ ?\\(?:circ|degree) | (?<![A-Za-z\\])[mghslLCF](?![A-Za-z])
           | a(?=\ [A-Za-z]{{2}}) | (?<=[A-Za-z}}])(?:\^\ ?\{{?[23]\}}?|[23²³]) | /(?=(?:\ |\\text\{{)*[A-Za-z]{{2}})
           | (?<=[A-Za-z}}])\ ?/\ ?(?:\\text\{{|\\mathrm\{{)?[mhsLl](?![A-Za-z]) )*+""",
    re.VERBOSE,
)
_NAME = re.compile(
    rf"(?: {_DRESS} | (?<!\\){_WORD} | [A-Za-z] | (?<=[A-Za-z}}])_(?:\{{\w+\}}|\w) | (?<=[A-Za-z]\()[0-9]+(?=\)) )*+",
    re.VERBOSE,
)
_SUM = re.compile(
    rf"""(?: {_DRESS} | (?<!\\){_WORD} | [0-9.,+\-*/×÷^{{}}½-¾] | (?<=[0-9\ ])[xX](?=\ ?[0-9(])
           | \\(?:times|cdot|div|[dt]?frac)(?![A-Za-z]) )*+""",
    re.VERBOSE,
)
_MEANS_HEAD = re.compile(
    r"\b(?:not|never|cannot|neither|sqrt|cbrt|log|ln|exp|sin|cos|tan|pi|twice|half|double|triple|choose|mod|times|minus|plus"
    r"|maybe|perhaps|possibly|or|root)\b|n['’]t\b",
    re.IGNORECASE,
)
_MEANS_TAIL = re.compile(
    r"\b(?:pi|squared|cubed|factorial|choose|mod|modulo|maybe|perhaps|possibly|otherwise|or)\b", re.IGNORECASE
)
"""Words that may not stand before or after the number in a box or a tag."""
_POWER = re.compile(r"\^\{? ?\Z|[A-Za-z}]\Z")


def final_number(text: str) -> Extraction | None:
    """Return the final number of a reply, or None where it has no number at all.

    Works in time linear in the text, whatever it holds.
    """
    return _in_visible(text, _marked_or_last)


def _marked_or_last(text: str) -> Extraction | None:
    found = _marker(text)
    if found is not None and len(text) - found.end > _SHORT and taken_back(text, found.end):
        return _closing_number(text)
    return found or _usual_number(text) or _closing_number(text)


_SHORT = 12
"""Nobody takes an answer back and gives another one in so few characters."""


def marked_number(text: str) -> Extraction | None:
    """Return what the last marker of a reply holds, or None where it has no marker."""
    return _in_visible(text, _marker)


def _in_visible(text: str, find: Callable[[str], Extraction | None]) -> Extraction | None:
    """Look in what can be seen of the text, with look-alikes made one; places are those of the text itself."""
    text, places = visible(plain(text))
    text = own_turn(text)
    found = find(text)
    if found is None or places is None:
        return found
    end = places[found.end - 1] + 1 if found.end else 0
    return found._replace(start=places[found.start] if found.start < len(places) else end, end=end)


def _marker(text: str) -> Extraction | None:
    """Try the markers from the last to the first; a place that turns out to be none is passed over."""
    last = _last_line(text)
    if last is not None:
        return last
    places = [(text.rfind(word), word) for word in _WORDS if word[0] in text and word in text]
    for _ in range(MOST_PLACES if places else 0):
        place = at, word = max(places)
        if at < 0:
            break
        found = _WORDS[word](text, at)
        if found is not None:
            return found
        places[places.index(place)] = (text.rfind(word, 0, at), word)
    return None


def _hash(text: str, at: int) -> Extraction | None:
    start = at + 4
    head = text[max(0, at - 8) : at].rstrip("#").rstrip(" *>_")
    starts = not head or head[-1] == "\n"
    if _HEADING.match(text, start + (text[start : start + 1] == " ")):
        return None
    found = _direct(text, start, Rule.HASH)
    if found is None or starts or found.problem:
        return found
    return found if _LINE_END.match(text, found.end) else None


def _box(text: str, at: int) -> Extraction | None:
    start = at + 4  # after `oxed`
    if text[start : start + 1] != "{":
        return _direct(text, start, Rule.BOX) if text[max(0, at - 2) : at] == "\\b" else None
    end = _closing(text, start)
    return None if end is None else _boxed(text, at - 2, start + 1, end)


def _fbox(text: str, at: int) -> Extraction | None:
    end = _closing(text, at + 5)
    return None if end is None else _boxed(text, at, at + 6, end)


def _boxed(text: str, at: int, start: int, end: int) -> Extraction:
    found = _alone(text, start, end, Rule.BOX)
    around = "" if found.problem else before_box(text, at) or after(text, end + 1)
    return found._replace(number=None, problem=around) if around not in ("", "=") else found


def _answer(text: str, at: int) -> Extraction | None:
    start = at - 1  # the words are found without their first letter, which may be of either case
    if text[max(0, start - 2) : start] == "</":
        opening = text.rfind(">", max(0, start - WINDOW), start)
        while opening >= 0 and text[max(0, opening - 7) : opening].lower() != "<answer":
            opening = text.rfind(">", max(0, start - WINDOW), opening)
        inside = text[opening + 1 : start - 2]
        if opening < 0 or "oxed" in inside or "####" in inside:
            return None  # the marker inside is found next
        return _alone(text, opening + 1, start - 2, Rule.TAG)
    negated = _NEGATED.match(text, max(0, start), start + 2 * WINDOW)
    if negated is not None:
        return Extraction(negated[0], None, Rule.PHRASE, *negated.span(), "says what the answer is not")
    found = _PHRASE.match(text, max(0, start), start + 2 * WINDOW)
    if found is not None and _DOUBTED.search(text, max(0, start - 50), max(0, start)):
        return Extraction(found[0], None, Rule.PHRASE, *found.span(), "says what the answer is not")
    return None if found is None else _direct(text, found.end(), Rule.PHRASE)


def _last_line(text: str) -> Extraction | None:
    """A last line `A: N`, the form of the solutions that came with the set."""
    at = text.rfind("A:") if ":" in text else -1  # one character is found fast
    if at < 0 or "\n" in text[at:].rstrip():
        return None
    start = text.rfind("\n", 0, at) + 1
    found = _LAST_LINE.match(text, start)
    return None if found is None else _direct(text, found.end(), Rule.PHRASE)


_WORDS: dict[str, Callable[[str, int], Extraction | None]] = {
    "####": _hash,
    "oxed": _box,
    "\\fbox{": _fbox,
    "nswer": _answer,
    "NSWER": _answer,
}
"""What a marker is searched by, and what reads it. `in` is faster than `rfind`, and fastest for one character."""


def _direct(text: str, start: int, rule: Rule) -> Extraction | None:
    """Read the number that follows a marker; None if none follows, so that this is no marker."""
    usual = _USUAL.match(text, start)
    if usual is not None:
        number = int(usual["digits"].replace(",", ""))
        number = -number if usual["sign"] else number
        return Extraction(usual["all"], number, rule, usual.start("all"), usual.end("all"))
    stop = min(len(text), start + WINDOW)
    lead = _MARKED.match(text, start, stop)
    core = CORE.match(text, lead.end(), stop) if lead is not None else None
    if lead is None or core is None:
        if (worded := _WORDED.match(text, lead.end() if lead is not None else start, stop)) is not None:
            return _in_words(worded, rule)
        twisted = _TWISTED.match(text, start, stop)
        return None if twisted is None else Extraction(twisted[0].strip(), None, rule, *twisted.span(), _NOT_ALONE)
    first = _first(text, lead)
    line = text.find("\n", core.end(), stop)
    line = stop if line < 0 else line
    trouble = after(text, core.end())
    if trouble and (result := deque(_WHICH_IS.finditer(text, core.end(), line), maxlen=1)):
        found = _direct(text[:line], result[0].end(), rule)  # 36 minus 7, which is 29
        if found is not None:
            return found
    equals = text.rfind("=", core.end(), line) if trouble else -1
    if equals >= 0 and text[equals - 1 : equals] not in ("<", ">", "!"):
        found = _direct(text[:line], equals + 1, rule)  # of `9 * 2 = 18` the right side, of `18 = 9 * 2` the left
        if found is not None and (not found.problem or trouble != "="):
            return found
    if trouble not in ("", "=") and (end := answer_end(text[:line])) < line and core.end() <= end:
        trouble = after(text[:end], core.end())  # 12 boxes and 3 pencils left over
    if not trouble and (again := said_again(text, core.start(), core.end())) is not None and again.result:
        return _direct(text[:line], again.start, rule)
    if trouble and (whole := compound(text, core.start(), core.end())) is not None and not after(text, whole.end):
        return _as_one(text, whole, rule)
    sign = f"{lead['sign'] or ''}{lead['sign2'] or ''}"
    return _made(text, first, core, sign, rule, "" if trouble == "=" else trouble)


def _in_words(found: re.Match[str], rule: Rule) -> Extraction | None:
    number = number_in_words(found["words"])
    return None if number is None else Extraction(found["words"], number, rule, *found.span("words"))


def _first(text: str, lead: re.Match[str]) -> int:
    """Where the number begins: at its sign or currency."""
    if lead["sign"] is not None:
        return lead.start("sign")
    return before(text, lead.end()).start


def _alone(text: str, start: int, end: int, rule: Rule) -> Extraction:
    """Read what must hold one number and may hold words: a box or a tag."""
    if end - start > WINDOW:
        return Extraction("", None, rule, start, end, "too long to be a number")
    inside = text[:end]
    begin = max(start, text.rfind("=", start, end) + 1)
    found = numbers_in(inside, begin, end)
    cores = [core for core in found if not _POWER.search(inside, max(begin, core.start() - 3), core.start())]
    if len(cores) != 1:
        worded = _WORDED.fullmatch(text, start, end) if not cores else None
        if worded is not None and (spelled := _in_words(worded, rule)) is not None:
            return spelled
        what = "holds no number" if not cores else "holds more than one number"
        return Extraction(text[start:end].strip(), None, rule, start, end, what)
    core = cores[0]
    lead = _MARKED.match(inside, begin)
    if lead is not None and lead.end() == core.start():
        first, sign, trouble = _first(text, lead), f"{lead['sign'] or ''}{lead['sign2'] or ''}", ""
    else:
        place = before(inside, core.start())
        first, sign, trouble = max(begin, place.start), place.sign, place.problem
    trouble = trouble or after(inside, core.end())
    trouble = trouble or ("" if _only(inside[start:first], inside[core.end() :]) else _NOT_ALONE)
    if not trouble and inside[core.end() :].strip() == "!":
        trouble = "a factorial"
    return _made(text, first, core, sign, rule, trouble)


_NOT_ALONE = "the number is only a part of what stands there"


def _only(head: str, tail: str) -> bool:
    """Whether nothing but markup, currency, units and words stands around a number; `name =` and `9*2 =` may lead."""
    *sides, head = head.split("=")
    for side in sides:
        if not (_NAME.fullmatch(side) or _SUM.fullmatch(side)) or side[-1:] in ("!", "<", ">"):
            return False
    return not (_MEANS_HEAD.search(head) or _MEANS_TAIL.search(tail)) and all(
        pattern.fullmatch(part) is not None for pattern, part in ((_HEAD, head), (_TAIL, tail))
    )


def _usual_number(text: str) -> Extraction | None:
    """Read the number of a text without markers that ends as nearly all do; None for all others."""
    place = usual_end(text)
    if place is None:
        return None
    start, end = place
    written = text[start:end]
    return Extraction(written, read(written), Rule.LAST_NUMBER, start, end)


def _closing_number(text: str) -> Extraction | None:
    """Read the last number of a text without markers, leaving out what its closing sentence only adds to the answer."""
    if refused(text):
        return Extraction("", None, Rule.LAST_NUMBER, 0, 0, "the reply says that it has no answer")
    text = text[: remarks_start(text)]
    if (written := spelled(text)) is not None:
        digits, places = written
        found = _in_last_sentence(digits)
        if found is None:
            return None
        return found._replace(start=places[found.start], end=places[found.end - 1] + 1)
    return _in_last_sentence(text)


def _in_last_sentence(text: str) -> Extraction | None:
    end = answer_end(text)
    found = _last_number(text[:end]) if end < len(text) else None
    return found if found is not None and not found.problem else _last_number(text)


def _last_number(text: str) -> Extraction | None:
    """Read the last number of a text without markers; names such as `A4` are passed over."""
    stop, passed_over = len(text), 0
    while stop > 0 and passed_over < MOST_PLACES:
        last = _last_digit(text, stop)
        if last < 0:
            return None
        start = max(0, last - WINDOW, text.rfind("\n", max(0, last - WINDOW), last) + 1)
        while start and start < last and text[start - 1] in _IN_NUMBER:
            start += 1  # not in the middle of a number
        if (words := _NO_NUMBER.match(text, start, last)) is not None:
            start = words.end()
        if start == last and start and text[start - 1] in _IN_NUMBER:
            return Extraction(text[last - 20 : last + 1], None, Rule.LAST_NUMBER, last, last + 1, "too long a number")
        for core in reversed(list(numbers_in(text, start, min(len(text), last + WINDOW)))):
            place = before(text, core.start())
            if place.glued:
                passed_over += 1
                continue
            trouble = place.problem or after(text, core.end())
            if not trouble and (whole := compound(text, core.start(), core.end())) is not None:
                return _as_one(text, whole, Rule.LAST_NUMBER)
            return _made(text, place.start, core, place.sign, Rule.LAST_NUMBER, "" if trouble == "=" else trouble)
        stop = start
    return None


_NO_NUMBER = fast_re.compile(r"[^\n]*(?<![\\A-Za-z])[A-Za-z]{4,20} ")
"""Up to the last word that is in no number: what is behind it can be read without what is before it."""
_IN_NUMBER = "0123456789.,"
_DIGITS = frozenset("0123456789¼½¾" + "".join(map(chr, range(0x2150, 0x215F))))


def _last_digit(text: str, stop: int) -> int:
    """Return where the last digit before `stop` stands, or -1."""
    return next((at for at in range(stop - 1, -1, -1) if text[at] in _DIGITS), -1)


def _closing(text: str, start: int) -> int | None:
    """Return where the brace that opens at `start` closes; None if it does not, within twice the window."""
    depth = 0
    for at in range(start, min(len(text), start + 2 * WINDOW)):
        character = text[at]
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return at
    return None


def _as_one(text: str, whole: Amount, rule: Rule) -> Extraction:
    """`1 hour and 45 minutes` is one number, of its last unit."""
    return Extraction(text[whole.start : whole.end], whole.number, rule, whole.start, whole.end)


def _made(text: str, start: int, core: re.Match[str], sign: str, rule: Rule, trouble: str) -> Extraction:
    end = core.end()
    written = text[start:end].strip()
    if trouble:
        return Extraction(written, None, rule, start, end, trouble)
    number = value(core)
    number = None if number is None else signed(number, sign)
    return Extraction(written, number, rule, start, end, "" if number is not None else "no number with a value")
