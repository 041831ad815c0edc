"""How a reply without a marker closes: which of its last numbers is the answer, and where that answer ends.

The last number of a reply need not be its answer: `366 downloads over the 3 months`, `20 laps (40 lengths)`, `63 m^2`,
`so it is $16. If she sold all, it would be $18`. It is found in this order:

1. to 4. `remarks`: what stands behind it in sentences of its own is left out.
5. `number_words.spelled`: a last sentence with its number in words is read with digits.
6. `CLAUSES`: inside the last sentence, what only explains an earlier number is cut. The first rule that applies cuts;
   then all are tried again.

Where no rule applies with certainty nothing is cut, and the last number stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from regex import Match

from tasks.answers.number_words import FINITE, number_in_words, proof
from tasks.answers.numbers import (
    ATTRIBUTE,
    CLOCK,
    CURRENCY,
    SENTENCE,
    Number,
    after,
    amount,
    before,
    numbers_in,
    value,
)
from tasks.answers.remarks import (
    CHECKED,
    CONCLUDES,
    LEADS_ON,
    MOST_CUTS,
    RESULT,
    SO,
    TESTS,
    WINDOW,
    WOULD,
    behind,
    explains,
    last_result,
    last_sign,
    refused,
)

_WORD = rf"(?!{FINITE}\b)[A-Za-z][A-Za-z'’./-]*"
_CONCLUDED = (
    r"(?:so|then|thus|hence|therefore|which|who|that|but|or|and|nor|not|n['’]t|minus|plus|times|divided|multiplied)"
)
_LOOSE = rf"(?!{_CONCLUDED}\b)[A-Za-z][A-Za-z'’./-]*"
"""A word after a number that stands right behind a sign of equality: what follows it is a sentence around a result."""


_LAST = re.compile(
    r"= ?\$?[0-9](?:,?[0-9])*(?:\.[0-9]+)?(?:>>\$?[0-9](?:,?[0-9])*(?:\.[0-9]+)?)?"
    r"(?:[ *.]|[a-z]{1,20}(?=[ *.])|[a-z]{1,20}\Z)*\Z"
)
"""What stands behind the last sign of equality is the answer, but in a reason: the most usual ending."""
_LAST_LENGTH = 80


def answer_end(text: str) -> int:
    """Return where the answer of a reply ends at the latest: the length of the text where nothing is to be left out."""
    end = len(text)
    for _ in range(MOST_CUTS):
        if _LAST.search(text, max(0, end - _LAST_LENGTH), end) and proof(text, max(0, end - WINDOW), end) is None:
            break
        cut = _cut(text, end)
        if cut is None:
            break
        end = cut
    return end


@dataclass(frozen=True, slots=True)
class _Closing:
    """The last sentence, from `start` to `end` of a text, and its numbers: at least two."""

    text: str
    start: int
    end: int
    found: list[Match[str]]

    def gap(self, one: int, other: int) -> str:
        """What stands between two of the numbers."""
        return self.text[self.found[one].end() : self.found[other].start()]

    def result(self, at: int) -> bool:
        """Whether a number stands right behind a sign of equality."""
        begin = self.found[at].start()
        if "=" not in self.text[max(self.start, begin - 12) : begin]:
            return False
        place = before(self.text, begin).start
        return RESULT.search(self.text, max(self.start, place - 6), self.found[at].start() + 1) is not None

    def last_before(self, place: int) -> Match[str]:
        """The last number that ends before a place."""
        return [core for core in self.found if core.end() <= place][-1]


def _cut(text: str, end: int) -> int | None:
    """One cut: a place after an earlier number and before the last one; None where the last one may be the answer."""
    start = _sentence_start(text, end)
    if start is None:
        return None
    found = [core for core in numbers_in(text, start, end) if not _is_glued(text, core.start())]
    if len(found) < 2:
        return None
    closing = _Closing(text, start, end, found)
    for rule in CLAUSES:
        at = rule.cut(closing)
        if at is not None:
            return at if at < end else None
    return None


def _tested(closing: _Closing) -> int | None:
    """What puts the answer to the test, behind a colon, a semicolon or in brackets."""
    found, text = closing.found, closing.text
    if not CHECKED.search(text, found[-1].end(), closing.end):
        return None
    at = max(text.rfind(mark, found[0].end(), found[-1].start()) for mark in (": ", "; ", " ("))
    return at if at > 0 else None


_EXCEPT = re.compile(
    r"""(?:\s*(?:\.{1,3}|…|[,;]|[-–—]+|\()\s*|\ )(?:but\ |and\ )?
        (?:although|(?:even\ )?though|unless|assuming|provided|supposing|not\ (?:counting|including)|excluding|ignoring
          |leaving\ out|possibly|strictly\ speaking|technically|rather\ than|instead\ of)\b
      | (?:,|\ and)\ not\ (?=\$?[0-9])
      | ,\ or\ (?:about\ )?(?:one|1)\ in\ (?=[0-9])
      | [;,]\ (?:while\ )?(?:he|she|it|they|there)\ (?:had|was|were)\b
          [^.;]*\b(?:before|originally|initially|at\ first)\b
      | ,?\ (?:which\ )?(?:is|was)\ (?:less|more|fewer|higher|lower)\ than\ the\ (?=\$?[0-9][0-9.,]*[^0-9]*\Z)
      | \ [-–—]\ (?:that|this)(?:['’]s|\ is)\ (?:with|for|because|including|after|if|when)\b
      | ,\ as\ (?!required|given|expected|stated|needed|the\ problem)
      | (?<=\*\*),?\ (?:because|since|as)\b""",
    re.VERBOSE | re.IGNORECASE,
)


def _excepted(closing: _Closing) -> int | None:
    """A clause that begins with a word of exception, unless it concludes a number of its own."""
    for clause in _EXCEPT.finditer(closing.text, closing.found[0].end(), closing.end):
        left = _LEAVING.search(closing.text, clause.end(), closing.end)
        if (
            clause.start() < closing.found[-1].start()
            and left is None
            and not LEADS_ON.search(closing.text[clause.end() : closing.end].replace("=", ""))
        ):
            return clause.start()
    return None


_LEAVING = re.compile(r"\b(?:leav|mak|giv|sav|bring)(?:ing|es?|s)\b[^=\n]*[0-9]", re.IGNORECASE)
_ALSO = re.compile(
    rf"""(?:[,;]|\ [-–—])(?:
        (?!\ ?(?:and\ |but\ )?(?:so|then|each)\b)[^=,;\n]*{WOULD}[^=\n]*
      | \ each\ (?!gets|gives|costs|pays|receives|has)[^=\n]*
      | \ (?:that|this|which)(?:['’]s|\ is)\ [^=\n;]*\b(?:more|less|fewer)\ than\ [^=\n0-9;]* )\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""What may be said behind a result: what would be, what each is, how much more it is than something."""


def _said_of_result(closing: _Closing) -> int | None:
    """What is said of a number that was computed, or that stands in a sentence with `so`."""
    clause = _ALSO.search(closing.text, closing.found[0].end(), closing.end)
    if clause is None or clause.start() > closing.found[-1].start():
        return None
    named = closing.last_before(clause.start())
    same = last_result(closing.text, named.start() if named is not closing.found[0] else named.end()) == value(named)
    same = same or SO.match(closing.text, closing.start) is not None
    return clause.start() if same and not LEADS_ON.search(clause[0]) else None


_AT = re.compile(r"\b(?:at|to|from|until|till|by|after|before|around)\ (?:about\ )?\Z", re.IGNORECASE)


def _clock(closing: _Closing) -> int | None:
    """An answer before a time of day, `140 minutes after 18:30, that's at 20:50`."""
    text, found = closing.text, closing.found
    clocks = [clock.span() for clock in CLOCK.finditer(text, closing.start, closing.end)]
    if not clocks:
        return None
    timeless = [core for core in found if not any(first <= core.start() < last for first, last in clocks)]
    if timeless and timeless[-1] is not found[-1] and _AT.search(text, timeless[-1].end(), clocks[-1][0]):
        return timeless[-1].end()
    return None


_CLAUSE = re.compile(
    rf""",?\ (?:(?:because|since|becos|becuz|cuz)\ (?!then\b)
              (?:(?!\ (?:so|then|thus|hence|therefore|must|[→⇒])\ )[^=\n])+
          |(?:if|when|while|after)(?:\ {_LOOSE})+\ (?:{CURRENCY})?[0-9][0-9.,/]*(?:\ {_LOOSE})*)[\s.!*)]*""",
    re.VERBOSE | re.IGNORECASE,
)


def _reason(closing: _Closing) -> int | None:
    """Why it is so, or when: at the end of the sentence. An equation is a reason if it holds what it is to show."""
    text = closing.text
    shown = proof(text, closing.found[0].end(), closing.end)
    if shown is not None:
        named = value(closing.last_before(shown.start()))
        used = [value(core) for core in closing.found if core.start() > shown.start()]
        return shown.start() if named in used else None
    for clause in _CLAUSE.finditer(text, closing.found[0].end(), closing.end):
        if clause.end() == closing.end or text[clause.end() - 1] == "\n":
            return clause.start()
    return None


def _attribute(closing: _Closing) -> int | None:
    """A number that is a part of an adjective or an ordinal is no amount."""
    text, last, previous = closing.text, closing.found[-1], closing.found[-2]
    if not ATTRIBUTE.match(text, last.end()) or text.endswith("by the ", 0, last.start()):
        return None
    return last.start() if closing.gap(-2, -1) == " " or not after(text, previous.end()) else None


_LINKED = re.compile(r"[,%:]| [-–—] | or | i\.?e| made | consisting | split ")
_UNIT_WORDS = re.compile(
    r"[%*_)]*(?:[ -][A-Za-z][A-Za-z-]*){0,6}?[*_]*(?=,|:| [-–—] | or | i\.?e| made| consisting| split)"
)
_AGAIN = re.compile(
    rf""",?\ (?:or|which\ is|that\ is|that['’]s|i\.?e\.?,?|in\ other\ words,?|equivalent\ to)
         (?P<about>\ (?:about|roughly|around|approximately|nearly|almost|just\ (?:over|under)))?
         \ (?:{CURRENCY})?\ ?""",
    re.VERBOSE | re.IGNORECASE,
)
_SAME_THING = re.compile(r",? (?:i\.?e\.?,?|in other words,?) ", re.IGNORECASE)
_MADE_UP = re.compile(
    r",? (?:or|i\.?e\.?,?|that is,?|namely|made up of|consisting of|comprising|split into) |: | [-–—] ", re.IGNORECASE
)


def _again(closing: _Closing) -> int | None:
    """The same amount in other words: its parts, a rough value, another unit."""
    text, found = closing.text, closing.found
    for at in range(len(found) - 1 if _LINKED.search(closing.gap(0, -1)) else 0):
        gap = closing.gap(at, at + 1)
        words = _UNIT_WORDS.match(gap)
        tail = gap if words is None else gap[words.end() :]
        if _says_again(closing, at, tail) and not before(text, found[at].start()).problem:
            return found[at].end()
    return None


def _says_again(closing: _Closing, at: int, tail: str) -> bool:
    again, made_up, same = _AGAIN.fullmatch(tail), _MADE_UP.match(tail), _SAME_THING.match(tail)
    if not (again or made_up or same):
        return False
    one, *rest = [value(core) for core in closing.found[at:]]
    numbers = [number for number in rest if number is not None]
    if one is None or len(numbers) < len(rest):
        return False
    if again and _same_amount(closing, at):
        return True
    computed = "=" in closing.gap(at, -1)
    if made_up and not computed and len(numbers) > 1 and _adds_up(one, numbers, tail):
        return not CONCLUDES.search(closing.gap(at, -1))
    if len(numbers) > 1:
        return False
    if again and again["about"] and not -1 < one - numbers[0] < 1:
        return True
    return bool(same) and not computed and one.denominator == 1 and (at == 0 or closing.result(at))


def _same_amount(closing: _Closing, at: int) -> bool:
    """Whether all numbers behind one make the same amount in other units: `3.5 hours, or 3 hours and 30 minutes`."""
    one, *rest = [amount(closing.text, core) for core in closing.found[at:]]
    others = [other for other in rest if other is not None and one is not None and other[0] == one[0]]
    return one is not None and len(others) == len(rest) and one[1] == sum(other[1] for other in others)


def _adds_up(total: Number, parts: list[Number], tail: str) -> bool:
    """Whether a number is the sum of its parts, their product or, behind a dash, a difference."""
    if total == sum(parts) or (len(parts) == 2 and total == parts[0] * parts[1]):
        return True
    signs = product((1, -1), repeat=len(parts) - 1) if tail[:1] == " " and len(parts) < 6 else ()
    return any(total == parts[0] + sum(s * part for s, part in zip(sign, parts[1:], strict=True)) for sign in signs)


_SHARE = re.compile(r"(?:\ [a-z]+)*,\ (?:[a-z]+ing)\ ", re.IGNORECASE)
_OUT_OF = re.compile(r"\ (?:[a-z]+\ )?(?:out\ )?of\ (?:the\ )?|/", re.IGNORECASE)


def _share(closing: _Closing) -> int | None:
    """`75% on the quiz, getting 18 of 24 right`."""
    found = closing.found
    if len(found) < 3 or "%" not in found[-3][0] or not _SHARE.fullmatch(closing.gap(-3, -2).lstrip("%")):
        return None
    one, part, whole = map(value, found[-3:])
    right = None not in (one, part, whole) and part * 100 == one * whole  # type: ignore[operator]
    return found[-3].end() if right and _OUT_OF.fullmatch(closing.gap(-2, -1)) else None


_COMPARED = re.compile(
    r",\ (?:(?:which|that)\ (?:is|was)\ (?:also\ |exactly\ |about\ |only\ )?(?:half|twice|double|triple"
    r"|an?\ |one[\ -])[a-z]*\b"
    r"|(?:which\ is\ )?enough\ (?:to|for)\b|(?:(?:for|with)\ )?(?:an\ average\ of|averaging)\b)",
    re.IGNORECASE,
)
"""A comparison with another number behind the answer: `, which is half of the original price of 100`."""


def _compared(closing: _Closing) -> int | None:
    """A comparison, unless a conclusion follows."""
    for aside in _COMPARED.finditer(closing.text, closing.found[0].end(), closing.found[-1].start()):
        if not CONCLUDES.search(closing.text, aside.end()):
            return aside.start()
    return None


_SUPPLEMENT = re.compile(r",\ (?:making|giving|bringing|worth|for\ a\ total|totall?ing)\b", re.IGNORECASE)


def _supplement(closing: _Closing) -> int | None:
    """What a result brings about, `21 each, making 63 altogether`; the result is said, or computed behind `so`."""
    text, found = closing.text, closing.found
    aside = _SUPPLEMENT.search(text, found[0].end(), found[-1].start())
    if aside is None or "=" in text[aside.start() : closing.end]:
        return None
    named = closing.last_before(aside.start())
    if "=" not in text[closing.start : named.start()]:
        said = named is found[0] and last_result(text, named.start()) == value(named) is not None
    else:
        said = SO.match(text, closing.start) is not None and closing.result(found.index(named))
    return aside.start() if said else None


_LEFT_OVER = re.compile(r"\ (?:[a-z]+\ )?(?:left\ over|leftover|to\ spare)\b", re.IGNORECASE)
_BOUGHT = re.compile(r"\b(?:can\ (?:buy|make|fill|get|afford|bake|pack)|each\ (?:gets?|receives?))\b", re.IGNORECASE)
_LESSER = re.compile(r", \Z")
_RATE = re.compile(
    r"(?:\ [a-z]+)?\ (?:(?:in|on|for|from|per)\ (?:each|every)\b|an?\ (?:day|week|month|year|hour)\b)[^=0-9;]*\Z",
    re.IGNORECASE,
)
_THAN = re.compile(
    r"\ (?:[a-z]+\ )?(?:more|less|fewer|older|younger|longer|taller|higher|lower)\ than\ [^=0-9;]*\Z", re.IGNORECASE
)


def _left_over(closing: _Closing) -> int | None:
    """Two statements, of which the first is the answer: `33 pens and has $1 left over`, `80, 40 more than Anna`."""
    text, found = closing.text, closing.found
    bought = _LEFT_OVER.match(text, found[-1].end()) and _BOUGHT.search(text, closing.start, found[-2].start())
    lesser = _LESSER.search(text, closing.start, found[-1].start()) and (
        _THAN.match(text, found[-1].end()) or _RATE.match(text, found[-1].end())
    )
    return found[-2].end() if bought or lesser else None


_UNIT_POWER = re.compile(
    r"(?:(?<=[0-9]\ )|(?<=[0-9]))(?:k?m|cm|mm|ft|in|yd|mi|inches|feet|yards|met(?:er|re)s|units)\^\{?\Z"
)


def _power(closing: _Closing) -> int | None:
    """The exponent of a unit."""
    at = closing.found[-1].start()
    power = _UNIT_POWER.search(closing.text, max(closing.start, at - 12), at)
    return None if power is None else power.start()


_NUMBER_WORD = re.compile(r"(?:[0-9]|teen|ty|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)) \Z")


def _in_brackets(closing: _Closing) -> int | None:
    """`20 laps (40 lengths)`; `18 (20)` are two answers, `forty-two ($42)` is one."""
    text, last = closing.text, closing.found[-1]
    opened = text.rfind("(", closing.found[0].end(), last.start())
    if opened <= 0 or text[opened - 1] != " " or ")" in text[opened : last.start()]:
        return None
    outside = closing.last_before(opened)
    alone = text[opened + 1 : last.start()].strip(" $") == "" and text[last.end() : last.end() + 1] == ")"
    beside = text[outside.end() : opened].strip(" *_.") == "" or _NUMBER_WORD.search(text, closing.start, opened)
    two = alone and beside and value(outside) != value(last)
    return closing.end if two or ")" not in text[last.end() : closing.end] else opened


_FROM_TO = re.compile(
    rf",?\ (?:up\ |down\ )?from\ {CURRENCY}?\ ?[0-9][0-9.,]*(?:\ {_WORD}){{0,2}}\ to\ {CURRENCY}?\ ?", re.VERBOSE
)


def _from_to(closing: _Closing) -> int | None:
    """`by $300, from $1,500 to $1,800`: the difference is the answer where it stands right before."""
    found = closing.found
    span = _FROM_TO.search(closing.text, found[0].end(), found[-1].start())
    if span and len(found) > 2 and span.end() == found[-1].start() and found[-2].start() >= span.start():
        risen = closing.text[found[-3].end() : span.start()]
        return span.start() if risen.count(" ") < 3 else None
    return None


def _is_glued(text: str, start: int) -> bool:
    """Whether a number is a part of a word, such as the 4 of `A4`; asks at length only where that is possible."""
    return start > 0 and text[start - 1] not in " =(>\n" and before(text, start).glued


_GOES_ON = re.compile(
    r"[=?]|n['’]t\b|\b(?:so|then|thus|hence|therefore|which|but|or|and|answer|leav\w+|giv\w+|mak\w+|total\w*|equal\w*"
    r"|needs?|must|should|would|actually|instead|not|has|have|had|(?:is|are) (?!needed|required|spent))\b",
    re.IGNORECASE,
)
"""Words between two numbers with which the second may be what is concluded."""
_IN_TOTAL = re.compile(r"\A (?:[a-z]+ ){0,2}(?:in )?total\b")
_BESIDES = re.compile(
    rf"[\s$]*(?:(?:{_LOOSE}\s)*and (?:[A-Z][a-z]+ )?[a-z]{{2,12}}(?: [a-z]{{2,12}})? |(?:{_LOOSE}\s)+and )[\s$]*\Z"
)
"""What somebody else has, what else is done, or how many others there are, behind a result."""


def _given(closing: _Closing) -> int | None:
    """Where the answer ends in a sentence that states the last result, and behind it only numbers that went into it."""
    text, found = closing.text, closing.found
    sign = last_sign(text, found[-1].start())
    result = None if sign is None else behind(text, sign, found[-1].start())
    if sign is None or result is None:
        return None
    for at, core in enumerate(found[:-1]):
        if core.start() < sign.start() or value(core) != result:
            continue
        rest = text[core.end() : found[-1].start()]
        rest = _IN_TOTAL.sub("", rest)
        if _GOES_ON.search(rest) and not _BESIDES.fullmatch(rest):
            return None
        head = text[max(0, sign.start() - WINDOW) : sign.start()]
        known = (value(other) != result and _stands_in(head, other[0]) for other in found[at + 1 :])
        return core.end() if all(known) else None
    return None


def _stands_in(head: str, number: str) -> bool:
    """Whether a number stands in a text as it is written, and not as a part of a longer one."""
    at = head.find(number)
    while at >= 0:
        left, right = head[:at].rstrip(".,"), head[at + len(number) :].lstrip(".,")
        if not (left[-1:].isdigit() or right[:1].isdigit()):
            return True
        at = head.find(number, at + 1)
    return False


_ARTICLE = r"""(?:the|a|an|all|each|every|his|her|their|its|our|my|your|these|those|this|last|next|first|past|other
    |another|of|both|one|original|initial|starting|total|whole|entire|full|[A-Za-z]+ing|[A-Za-z]+(?:'s|’s))"""
_ADJUNCT = rf"""(?: (?<!\ )\ (?:(?:in|after|for|within|during|from|on|among|amongst|out\ of|with|throughout|across|of|at
              |by|until|upon|between|against|before|off|including)(?:\ {_ARTICLE}){{0,4}}
              |(?:every|each|per)|to\ (?!the\b|a\b|about\b)(?:[A-Za-z]+)(?:\ {_WORD}){{0,4}})
          | (?<=[A-Za-z*_])\ over(?:\ {_ARTICLE}){{0,4}} | ,\ of\ which
          | ,?\ (?:compared|in\ comparison|as\ opposed|relative)\ (?:to|with)(?:\ {_ARTICLE}){{0,4}}
          | ,\ (?:after|before|out\ of|in|within|with|including
              |[a-z]+ed\ (?:in|into|among|over|across))(?:\ {_ARTICLE}){{0,4}}
          | ,\ (?:up\ |down\ )?from(?:\ {_ARTICLE}){{0,4}} )
        [ *_]+(?:{CURRENCY})?"""
_AFTER_ANSWER = re.compile(
    rf"""(?:[*_"”’)\]]*\ (?:{_WORD}|remain))*?[*_"”’)\]]*{_ADJUNCT}""", re.VERBOSE | re.IGNORECASE
)
_AFTER_RESULT = re.compile(
    rf"""(?:[*_"”’)\]]*\ {_LOOSE})*?[*_"”’)\]]*(?:{_ADJUNCT}|\ (?:more|less|fewer)\ than\ )""",
    re.VERBOSE | re.IGNORECASE,
)
_WORDS = re.compile(rf"(?:\ {_WORD})+\ ", re.VERBOSE)
_IN_BRACKETS = re.compile(r" \([A-Za-z -]{1,40}\)")
_LATER = re.compile(r"\ (?:years?|months?|weeks?|days?|hours?|minutes?)\ (?:ago|from\ now|later|earlier)\b")
_AND = re.compile(rf"(?:\ {_WORD}){{1,6}},?\ and\ (?:{CURRENCY})?", re.VERBOSE | re.IGNORECASE)
_GIVEN = re.compile(
    r"\b(?:the|(?<!\bin\ )all|his|her|their|its|these|those|each of|every|per)\ (?:[a-z]+\ )?\Z", re.IGNORECASE
)


def _adjunct(closing: _Closing) -> int | None:
    """`366 downloads over the 3 months`, `8 batches of one and 1 batch of the other`."""
    text, found = closing.text, closing.found
    at = len(found) - 1
    while at > 1 and _AND.fullmatch(text, found[at - 1].end(), found[at].start()):
        at -= 1
    answer, last = found[at - 1], found[at]
    gap = _IN_BRACKETS.sub("", text[answer.end() : last.start()])
    result = text.endswith(">>", closing.start, answer.start()) or closing.result(at - 1)
    pattern = _AFTER_RESULT if result else _AFTER_ANSWER
    if not (pattern.fullmatch(gap) or (_LATER.match(text, last.end()) and _WORDS.fullmatch(gap))):
        return None
    place = before(text, answer.start())
    if place.problem or _GIVEN.search(text, max(closing.start, place.start - 20), place.start):
        return None
    computed = None if result else last_result(text, answer.start())
    if computed is not None and computed == value(last) != value(answer):
        return None  # what was computed last is the answer, wherever it stands
    return answer.end()


class _Clause(NamedTuple):
    """A kind of words inside a sentence that are cut behind an answer."""

    name: str
    example: str
    cut: Callable[[_Closing], int | None]


CLAUSES = (
    _Clause("a test", "So it is 12| (3 + 9 = 12, as required).", _tested),
    _Clause("an exception", "She earns $484|... although after taxes it is $411.", _excepted),
    _Clause(
        "what may be said of a result", "4 + 26 = 30. She runs 30 km|, and on Saturday she'd run 9.", _said_of_result
    ),
    _Clause("a time of day", "It ends 140| minutes after 18:30, that's at 20:50.", _clock),
    _Clause("a reason", "She needs 33| because there is 1 in each of the 33 bags.", _reason),
    _Clause("an attribute", "It takes 20 minutes to fill the |300-liter tank.", _attribute),
    _Clause("the same again", "So they need 55| chairs: 5 rows of 11.", _again),
    _Clause("a share in numbers", "She scored 75%| on it, getting 18 of 24 right.", _share),
    _Clause("a comparison", "It costs 50 dollars|, which is half of the original 100.", _compared),
    _Clause("what comes of it", "9 + 12 = 21. So each pays $21|, making $63 altogether.", _supplement),
    _Clause("what is left over, or differs", "So he can buy 33| pens and has $1 left over.", _left_over),
    _Clause("a power of a unit", "The garden has 63 |m^2.", _power),
    _Clause("brackets", "The swimmer needs 20 laps |(40 lengths).", _in_brackets),
    _Clause("from and to", "So gold rose by $300|, from $1,500 to $1,800.", _from_to),
    _Clause("what went into it", "3 * 24 = 72. So Omar has 72| coins and Lily has 24 coins.", _given),
    _Clause("where, when, for whom", "So it had 366| downloads over the 3 months.", _adjunct),
)
"""What is cut behind an answer, in the order in which it is tried; a bar in an example shows where that begins."""


def _sentence_start(text: str, end: int) -> int | None:
    """Where the last sentence with a digit begins; None where that is too far away."""
    edge = max(0, end - WINDOW)
    digit = next((at for at in range(end - 1, edge - 1, -1) if text[at].isdigit()), None)
    if digit is None:
        return None
    line = text.rfind("\n", edge, digit) + 1 or edge
    starts = [found.end() for found in SENTENCE.finditer(text, line, digit + 1) if found.end() <= digit]
    return starts[-1] if starts else (line if line > edge or edge == 0 else None)


# A quick look, for most replies

_SUSPECT = frozenset((
    "can't", "cannot", "can’t", "check", "checking", "checks", "confirm", "context", "could", "data", "depends",
    "details", "difficult", "enough", "equivalent", "example", "guess", "guessed", "guesses", "guessing", "hard",
    "hmm", "idea", "if", "impossible", "info", "information", "insufficient", "know", "may", "maybe", "might", "not",
    "or", "perhaps", "possible", "proof", "same", "say", "suppose", "unable", "verification", "verify", "verifying",
    "way", "whether", "would",
))  # fmt: skip
"""Words without which no sentence puts a result to the test, refuses, or is the guess that follows a refusal."""

_BLANKS = bytes.maketrans(b",.:()-!?;", b" " * 9)
"""Marks between words; bytes are translated faster than a text."""


def unusual(text: str, start: int) -> bool:
    """Whether the result in the last sentence, which starts at a place, may not be the answer of the reply."""
    sentence = text[start:].lower()
    if "**" in sentence or (":" in text and explains(text)):
        return True
    if ("because " in sentence or "since " in sentence) and (reason := proof(text, start, len(text))) is not None:
        named, result = text[start : reason.start()], reason["result"].strip(".,")
        if result not in named and not any(str(number_in_words(word)) == result for word in named.split()):
            return True
    sentence = sentence.encode(errors="surrogatepass").translate(_BLANKS).decode(errors="surrogatepass")
    if _SUSPECT.isdisjoint(sentence.split()) and "'d" not in sentence and "’d" not in sentence:
        return False
    begin = _sentence_start(text, len(text))
    return begin is None or TESTS.match(text, begin) is not None or refused(text)
