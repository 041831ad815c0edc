"""How the closing sentence of a reply without a marker names its answer: what follows the answer there is left out.

The last number of a reply need not be its answer: `366 downloads over the 3 months`, `20 laps (40 lengths)`, `63 m^2`,
`so 3 are left. Check: 9 + 3 = 12`. Each rule cuts words that only explain the number before them. Where none applies
with certainty nothing is cut, and the last number stands.
"""

from __future__ import annotations

import re as fast_re
from fractions import Fraction

import regex as re  # possessive quantifiers of `re` match wrongly before Python 3.11.5 (gh-106052)

from tasks.assertions.numbers import CURRENCY, Number, before, numbers_in, value

WINDOW = 400
"""Characters at the end of a reply that are looked at."""
MOST_CUTS = 8

_SENTENCE = re.compile(r"(?<=[.!?:])[\s*_]+(?=[A-Z*_\"“(])|\n")
_AFTERTHOUGHT = re.compile(
    r"""[\s*_>-]*(?:so\ )?(?:hmm\b|(?:(?:double|quick|sanity)[- ])?check(?:ing)?\b|verif(?:y|ying|ication)\b|proof:
          |(?:let\ me|let['’]s|we\ can|i\ can|to|as\ a)\ (?:(?:just|also|double|quickly)[\ -])?
              (?:check|verify|confirm)\b
          |(?:this|that|it|which)\ is\ (?:also\ )?(?:the\ same\ as|equivalent\ to)\b)""",
    re.VERBOSE | re.IGNORECASE,
)
_CONFIRMED = re.compile(
    r"\bso (?:it['’]s|it is|that['’]s|that is|this is|the answer is) (?:correct|right)\b", re.IGNORECASE
)
_REVISED = re.compile(
    r"n['’]t\b|\b(?:not|no|wrong|actually|instead|should|must|mistake|incorrect|answer|so|therefore|thus|hence|but)\b",
    re.IGNORECASE,
)
_FINITE = r"""(?:is|are|was|were|be|been|has|have|had|do|does|did|will|would|can|could|gives?|gave|makes?|made|leaves?
    |leaving|equals?|gets?|got|costs?|earns?|needs?|takes?|sells?|pays?|spends?|buys?|eats?|holds?|contains?|weighs?
    |becomes?|remains?|totals?|receives?|uses?|wants?|goes|went|who|which|so|then|thus|hence|therefore|but|or|nor|not
    |minus|plus|times|divided|multiplied|increased|decreased|reduced|squared|cubed|only|maybe|perhaps|otherwise|least
    |most|about|above|below|under)"""
_WORD = rf"(?!{_FINITE}\b)[A-Za-z][A-Za-z'’./-]*"
_CONCLUDED = (
    r"(?:so|then|thus|hence|therefore|which|who|that|but|or|and|nor|not|n['’]t|minus|plus|times|divided|multiplied)"
)
_LOOSE = rf"(?!{_CONCLUDED}\b)[A-Za-z][A-Za-z'’./-]*"
"""A word after a number that stands right behind a sign of equality: what follows it is a sentence around a result."""
_ARTICLE = r"""(?:the|a|an|all|each|every|his|her|their|its|our|my|your|these|those|this|last|next|first|past|other
    |another|of|both|one|original|initial|starting|total|whole|entire|full|[A-Za-z]+ing|[A-Za-z]+(?:'s|’s))"""
_ADJUNCT = rf"""(?: (?<!\ )\ (?:(?:in|after|for|within|during|from|on|among|amongst|out\ of|with|throughout|across|of|at
              |by|until|upon|between|against|before)(?:\ {_ARTICLE}){{0,4}}
              |(?:every|each|per)|to\ (?!the\b|a\b|about\b)(?:[A-Za-z]+)(?:\ {_WORD}){{0,4}})
          | (?<=[A-Za-z*_])\ over(?:\ {_ARTICLE}){{0,4}} | ,\ of\ which
          | ,?\ (?:compared|in\ comparison|as\ opposed|relative)\ (?:to|with)(?:\ {_ARTICLE}){{0,4}}
          | ,\ (?:up\ |down\ )?from(?:\ {_ARTICLE}){{0,4}} )
        [ *_]+(?:{CURRENCY})?"""
_AFTER_ANSWER = re.compile(rf"""(?:[*_"”’)\]]*\ {_WORD})*?[*_"”’)\]]*{_ADJUNCT}""", re.VERBOSE | re.IGNORECASE)
_AFTER_RESULT = re.compile(
    rf"""(?:[*_"”’)\]]*\ {_LOOSE})*?[*_"”’)\]]*(?:{_ADJUNCT}|\ (?:more|less|fewer)\ than\ )""",
    re.VERBOSE | re.IGNORECASE,
)
_CLAUSE = re.compile(
    rf""",?\ (?:(?:because|since)\ (?!then\b)(?:(?!\ (?:so|then|thus|hence|therefore)\ )[^=\n])+
          |(?:if|when|while|after)(?:\ {_LOOSE})+\ (?:{CURRENCY})?[0-9][0-9.,/]*(?:\ {_LOOSE})*)[\s.!*)]*""",
    re.VERBOSE | re.IGNORECASE,
)
_FROM_TO = re.compile(
    rf",?\ (?:up\ |down\ )?from\ {CURRENCY}?\ ?[0-9][0-9.,]*(?:\ {_WORD}){{0,2}}\ to\ {CURRENCY}?\ ?", re.VERBOSE
)
_SIDE_REMARK = re.compile(
    r"""[;,]\ (?:that|this|which)(?:['’]s|\ is)\ [^=\n;]*\b(?:more|less|fewer)\ than\ [^=\n0-9;]*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""A comparison behind the answer: `; that is 180 more than before`."""
_GOES_ON = re.compile(
    r"[=?]|n['’]t\b|\b(?:so|then|thus|hence|therefore|which|but|or|and|answer|leav\w+|giv\w+|mak\w+|total\w*|equal\w*"
    r"|needs?|must|should|would|actually|instead|not|has|have|had|(?:is|are) (?!needed|required|spent))\b",
    re.IGNORECASE,
)
"""Words between two numbers with which the second may be what is concluded."""
_WORDS = re.compile(rf"(?:\ {_WORD})+\ ", re.VERBOSE)
_ASIDE = re.compile(r" \([A-Za-z -]{1,40}\)")
_LATER = re.compile(r"\ (?:years?|months?|weeks?|days?|hours?|minutes?)\ (?:ago|from\ now|later|earlier)\b")
_AND = re.compile(rf"(?:\ {_WORD}){{1,6}},?\ and\ (?:{CURRENCY})?", re.VERBOSE | re.IGNORECASE)
_GIVEN = re.compile(
    r"\b(?:the|(?<!\bin\ )all|his|her|their|its|these|those|each of|every|per)\ (?:[a-z]+\ )?\Z", re.IGNORECASE
)
_RESULT = re.compile(rf"=\s?(?:{CURRENCY}\ ?)?(?=[0-9])", re.VERBOSE)
_UNIT_POWER = re.compile(
    r"(?:(?<=[0-9]\ )|(?<=[0-9]))(?:k?m|cm|mm|ft|in|yd|mi|inches|feet|yards|met(?:er|re)s|units)\^\{?\Z"
)
_OTHER_UNIT = re.compile(
    rf"\ (?P<one>[A-Za-z]+),?\ (?:or|which\ is|i\.e\.,?|that\ is)\ (?P<money>{CURRENCY})?\ ?", re.VERBOSE
)
_CONVERSIONS = frozenset(map(Fraction, (3, 7, 10, 12, 16, 24, 60, 100, 365, 1000, 3600)))
_NUMBER_WORD = re.compile(r"(?:[0-9]|teen|ty|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)) \Z")


_LAST = fast_re.compile(r"= ?\$?[0-9][0-9,]*(?:\.[0-9]+)?(?:[ *.]|[a-z]{1,20}(?=[ *.])|[a-z]{1,20}\Z)*\Z")
_LAST_LENGTH = 80
_HINT = fast_re.compile(r"[Hh]eck|[Cc]onfirm|[Vv]erif|[Pp]roof|[Hh]mm|[Ss]ame as|[Ee]quivalent|[Bb]ecause|[Ss]ince")
"""Without any of these, what stands behind the last sign of equality is the answer: the most usual ending."""


def answer_end(text: str) -> int:
    """Return where the answer of a reply ends at the latest: the length of the text where nothing is to be left out."""
    end = len(text)
    last = _LAST.search(text, max(0, end - _LAST_LENGTH))
    if last is not None and not _HINT.search(text, max(0, end - WINDOW)):
        return end
    for _ in range(MOST_CUTS):
        cut = _cut(text, end)
        if cut is None:
            break
        end = cut
    return end


def _cut(text: str, end: int) -> int | None:
    """One cut: a place after an earlier number and before the last one; None where the last one may be the answer."""
    start = _sentence_start(text, end)
    if start is None:
        return None
    if _AFTERTHOUGHT.match(text, start, end):
        said = _CONFIRMED.sub("", _AFTERTHOUGHT.sub("", text[start:], count=1))
        return start if start and not _REVISED.search(said) else None
    found = [core for core in numbers_in(text, start, end) if not before(text, core.start()).glued]
    if len(found) < 2:
        return None
    for clause in _CLAUSE.finditer(text, found[0].end(), end):
        if clause.end() == end or text[clause.end() - 1] == "\n":
            return clause.start()
    last, previous = found[-1], found[-2]
    if power := _UNIT_POWER.search(text, max(start, last.start() - 12), last.start()):
        return power.start()
    opened = text.rfind("(", found[0].end(), last.start())
    if opened > 0 and text[opened - 1] == " " and ")" not in text[opened : last.start()]:
        outside = [core for core in found if core.end() <= opened][-1]
        alone = text[opened + 1 : last.start()].strip(" $") == "" and text[last.end() : last.end() + 1] == ")"
        beside = text[outside.end() : opened].strip(" *_.") == "" or _NUMBER_WORD.search(text, start, opened)
        return None if ")" not in text[last.end() : end] or (alone and beside) else opened
    gap = text[previous.end() : last.start()]
    span = _FROM_TO.search(text, found[0].end(), last.start())
    if span and len(found) > 2 and span.end() == last.start() and previous.start() >= span.start():
        return span.start()  # it rose by 300, from 1,500 to 1,800
    if aside := _SIDE_REMARK.search(text, found[0].end(), end):
        named = [core for core in found if core.end() <= aside.start()][-1]
        if _last_result(text, named.end()) == value(named) is not None:
            return aside.start()
    if (stated := _given_after_result(text, found)) is not None:
        return stated
    if (other := _OTHER_UNIT.fullmatch(gap)) and _converted(text, previous, last, other):
        return previous.end()
    at = len(found) - 1
    while at > 1 and _AND.fullmatch(text, found[at - 1].end(), found[at].start()):
        at -= 1  # to make 8 batches of one and 1 batch of the other
    return _without_adjunct(text, start, found[at - 1], found[at])


def _given_after_result(text: str, found: list[re.Match[str]]) -> int | None:
    """Where the answer ends in a sentence that states the last result, and behind it only numbers that went into it."""
    sign = _last_sign(text, found[-1].start())
    result = None if sign is None else _behind(text, sign, found[-1].start())
    if sign is None or result is None:
        return None
    known = {value(core) for core in numbers_in(text, max(0, sign.start() - WINDOW), sign.start())}
    for at, core in enumerate(found[:-1]):
        if value(core) == result and core.start() >= sign.start():
            rest = text[core.end() : found[-1].start()]
            given = all(value(other) in known - {result} for other in found[at + 1 :])
            return core.end() if given and not _GOES_ON.search(rest) else None
    return None


def _without_adjunct(text: str, start: int, answer: re.Match[str], last: re.Match[str]) -> int | None:
    gap = _ASIDE.sub("", text[answer.end() : last.start()])
    place = before(text, answer.start())
    stated = _RESULT.search(text, max(start, place.start - 6), answer.start() + 1) is not None
    after = _AFTER_RESULT if stated else _AFTER_ANSWER
    if not (after.fullmatch(gap) or (_LATER.match(text, last.end()) and _WORDS.fullmatch(gap))):
        return None
    if place.problem or _GIVEN.search(text, max(start, place.start - 20), place.start):
        return None
    result = None if stated else _last_result(text, answer.start())
    if result is not None and result == value(last) != value(answer):
        return None  # what was computed last is the answer, wherever it stands
    return answer.end()


def _last_result(text: str, end: int) -> Number | None:
    """What stands behind the last sign of equality."""
    sign = _last_sign(text, end)
    return None if sign is None else _behind(text, sign, end)


def _last_sign(text: str, end: int) -> re.Match[str] | None:
    """The last sign of equality with a number behind it."""
    signs = list(_RESULT.finditer(text, max(0, end - WINDOW), end))
    return signs[-1] if signs else None


def _behind(text: str, sign: re.Match[str], end: int) -> Number | None:
    """The number behind a sign of equality."""
    return next((value(core) for core in numbers_in(text, sign.end(), min(end, sign.end() + 40))), None)


def _converted(text: str, one: re.Match[str], other: re.Match[str], between: re.Match[str]) -> bool:
    """Whether two numbers are the same amount in two units, by their ratio and the units' names."""
    values = value(one), value(other)
    if None in values or 0 in values:
        return False
    unit = re.match(r" ?([A-Za-z]+)", text[other.end() : other.end() + 30])
    if not between["money"] and (unit is None or unit[1].lower() == between["one"].lower()):
        return False
    ratio = Fraction(values[0]) / Fraction(values[1])  # type: ignore[arg-type]
    return ratio in _CONVERSIONS or 1 / ratio in _CONVERSIONS


def _sentence_start(text: str, end: int) -> int | None:
    """Where the last sentence with a digit begins; None where that is too far away."""
    edge = max(0, end - WINDOW)
    digit = next((at for at in range(end - 1, edge - 1, -1) if text[at].isdigit()), None)
    if digit is None:
        return None
    starts = [found.end() for found in _SENTENCE.finditer(text, edge, digit + 1) if found.end() <= digit]
    return starts[-1] if starts else (0 if edge == 0 else None)
