"""Where a last sentence says its answer again: in another unit, by its parts, for one and for all, or compared.

Rules as in `clauses`, but that the values of the numbers decide: parts must add up, amounts be the same.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from regex import Match

from tasks.answers.amounts import amounts
from tasks.answers.clauses import DEFINITE, LOOSE, THING, Closing
from tasks.answers.numbers import CORE, CURRENCY, Number, after, before, numbers_in, value
from tasks.answers.remarks import CONCLUDES, LEADS_ON, SO, WINDOW, last_result

_LINKED = re.compile(r"[,%:]| [-–—] | or | i\.?e| made | consisting | split ")
_UNIT_WORDS = re.compile(
    r"[%*_)]*(?:[ -][A-Za-z][A-Za-z-]*){0,6}?[*_]*(?=,|:| [-–—] | or | i\.?e| made| consisting| split)"
)
_AGAIN = re.compile(
    rf""",?\ (?:or|which\ (?:is|(?:comes|works\ out|amounts)\ to)|that\ is|that['’]s|i\.?e\.?,?|in\ other\ words,?
             |equivalent\ to)
         (?P<about>\ (?:about|exactly|roughly|around|approximately|nearly|almost
             |(?:just|slightly|a\ (?:little|bit))\ (?:over|under|more\ than|less\ than)))?
         \ (?:{CURRENCY})?\ ?""",
    re.VERBOSE | re.IGNORECASE,
)
_SAME_THING = re.compile(r",? (?:i\.?e\.?,?|in other words,?) ", re.IGNORECASE)
_MADE_UP = re.compile(
    r",? (?:or|i\.?e\.?,?|that is,?|namely|made up of|consisting of|comprising|split into) |: |, (?=\$?[0-9])| [-–—] ",
    re.IGNORECASE,
)


def again(closing: Closing) -> int | None:
    """The same amount in other words: its parts, a rough value, another unit."""
    text, found = closing.text, closing.found
    for at in range(len(found) - 1 if _LINKED.search(closing.gap(0, -1)) else 0):
        gap = closing.gap(at, at + 1)
        if gap.strip(" $") == "-":
            continue  # a difference
        words = _UNIT_WORDS.match(gap)
        tail = gap if words is None else gap[words.end() :]
        if not _says_again(closing, at, tail):
            continue
        place = before(text, found[at].start())
        if not place.problem and not DEFINITE.search(text, max(closing.start, place.start - 40), place.start):
            return found[at].end()
    return None


def _says_again(closing: Closing, at: int, tail: str) -> bool:
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
    if made_up and not computed and len(numbers) > 1 and _adds_up(one, numbers, tail + closing.gap(at + 1, -1)):
        return not CONCLUDES.search(tail)
    if len(numbers) > 1:
        return False
    if again and again["about"] and not -1 < one - numbers[0] < 1:
        return True
    return bool(same) and not computed and one.denominator == 1 and (at == 0 or closing.result(at))


def _same_amount(closing: Closing, at: int) -> bool:
    """Whether all numbers behind one make the same amount in other units: `3.5 hours, or 3 hours and 30 minutes`."""
    one, *others = [one for one in amounts(closing.text, closing.found) if one.end >= closing.found[at].end()]
    if one.end != closing.found[at].end() or not others:
        return False
    return all((one.kind, one.size) == (other.kind, other.size) for other in others)


def _adds_up(total: Number, parts: list[Number], tail: str) -> bool:
    """Whether a number is the sum of its parts, their product or, with a dash, a difference."""
    if total == sum(parts) or (len(parts) == 2 and total == parts[0] * parts[1]):
        return True
    signs = product((1, -1), repeat=len(parts) - 1) if (" - " in tail or tail[:3] == " — ") and len(parts) < 6 else ()
    return any(total == parts[0] + sum(s * part for s, part in zip(sign, parts[1:], strict=True)) for sign in signs)


_WORKED_OUT = re.compile(r"(?:\ [a-z]+){0,3}\ ?=\ ?(?=[^=\n]*[-+×*/÷x][^=\n]*\Z)", re.IGNORECASE)


def worked_out(closing: Closing) -> int | None:
    """What the answer was computed from, behind its sign of equality: `720 = 180 × 4`."""
    for core in closing.found[:-2]:
        sign = _WORKED_OUT.match(closing.text, core.end(), closing.end)
        if sign is not None and before(closing.text, closing.found[-1].start()).problem:
            return None if before(closing.text, core.start()).problem else core.end()
    return None


_OR_ELSE = re.compile(
    rf"(?P<one>%?(?:[ /]{LOOSE}){{0,4}}?)(?P<comma>,?)\ or\ (?:[0-9$.,×x*\ ]+=\ ?)?(?:{CURRENCY})?",
    re.VERBOSE | re.IGNORECASE,
)
_PER = re.compile(r"\b(?:each|apiece|per|every|an?)\b|^/", re.IGNORECASE)
_HEDGED_TAIL = re.compile(r"\b(?:if|unless|when|maybe|perhaps|possibly|more|less|fewer|so)\b", re.IGNORECASE)


def other_terms(closing: Closing) -> int | None:
    """The answer for one, for all or in other things: `$14.50 each, or 27 * 14.50 = $391.50 for all`."""
    text, found = closing.text, closing.found
    tail = text[found[-1].end() : closing.end].strip(" .*\n")
    last = value(found[-1])
    for core in found[:-1] if tail and " or " in closing.gap(0, -1) else ():
        one, said = value(core), _OR_ELSE.fullmatch(text, core.end(), found[-1].start())
        if said is None or not one or not last or last_result(text, core.start()) == last:
            continue
        label = "%" if "%" in core[0] else said["one"].strip()
        one_each, last_each = _PER.search(label) is not None, _PER.search(tail) is not None
        if one_each is not last_each:
            again = last_each or 1 in (Fraction(last, one).denominator, Fraction(one, last).denominator)
        else:
            again = (
                bool(said["comma"] and label)
                and label.split()[:1] != tail.split()[:1]
                and not _comparable(closing, core)
            )
        if again and not _HEDGED_TAIL.search(tail):
            return core.end()
    return None


def _comparable(closing: Closing, core: Match[str]) -> bool:
    """Whether a number and the last one have units of one kind, so that they are alternatives if they differ."""
    kinds = [one.kind for one in amounts(closing.text, [core, closing.found[-1]])]
    return len(kinds) == 2 and kinds[0] == kinds[1] != "count"


_COMPARED = re.compile(
    rf"""(?:,|:|\ [-–—])\ (?:which\ (?:is|was)\ |that\ (?:is|was)\ |with\ |for\ )?
        (?:(?:also|just|only|exactly|about|roughly|around|approximately)\ )?(?:
            (?:{CURRENCY})?(?P<number>[0-9][0-9,.]*)(?:\ [a-z]+){{0,2}}?\ (?:
                (?:more|less|fewer|[a-z]+er)\ than\b | short\ of\b | before\b | of\ (?:which|whom|it|them|these|those)\b
              | (?:over|under|above|below|beyond|times)\ (?:the|his|her|their|its|as|what)\b
              | (?:(?:in|on|for|from|per)\ (?:each|every)\b|per\ [a-z]+|an?\ (?:day|week|month|year|hour)\b)
                  [^=0-9;]*\Z )
          | (?:half|twice|double|triple)\ (?:as|that|his|her|of\ the)\b(?![^;]*:)
          | (?:(?<=\ which\ is\ )|(?<=\ that\ is\ ))(?:half|an?|one)\b | enough\ (?:to|for)\b
          | (?:an\ average\ of|averaging)\b )""",
    re.VERBOSE | re.IGNORECASE,
)
"""A comparison or a rate: `80, 40 more than Anna`, `24 pages, 8 a day`, `50, which is half of the original 100`."""


def compared(closing: Closing) -> int | None:
    """How the answer compares with something, or its rate, unless that was computed last or leads to another number."""
    for clause in _COMPARED.finditer(closing.text, closing.found[0].end(), closing.end):
        behind = closing.text[clause.end() : closing.end]
        if LEADS_ON.search(behind if clause["number"] is None else behind.replace("=", "")):
            continue
        if clause["number"] is None:
            last = clause.end() > closing.found[-1].start()
        else:
            named, number = closing.last_before(clause.start()), clause.start("number")
            other = next((value(core) for core in closing.found if core.start() >= number), None)
            last = other is None or last_result(closing.text, number) == other != value(named)
        if not last:
            return clause.start()
    return None


_SUPPLEMENT = re.compile(r",\ (?:making|giving|bringing|worth|for\ a\ total|totall?ing)\b", re.IGNORECASE)


def supplement(closing: Closing) -> int | None:
    """What a result brings about, `21 each, making 63 altogether`; the result is said, or computed behind `so`."""
    text, found = closing.text, closing.found
    aside = _SUPPLEMENT.search(text, found[0].end(), found[-1].start())
    if aside is None or "=" in text[aside.start() : closing.end]:
        return None
    named = closing.last_before(aside.start())
    if text.startswith(" more ", named.end()):
        return aside.start()
    if "=" not in text[closing.start : named.start()]:
        said = named is found[0] and last_result(text, named.start()) == value(named) is not None
    else:
        said = SO.match(text, closing.start) is not None and closing.result(found.index(named))
    return aside.start() if said else None


_LEFT_OVER = re.compile(
    r"(?:\ [a-z]+)?\ (?:(?:is|are|will\ be)\ )?(?:left(?:\ over)?|leftover|remaining|to\ spare|unused|extra|wasted)\b",
    re.IGNORECASE,
)
_BOUGHT = re.compile(
    r"\b(?:(?:can|must|should|ha(?:s|ve)\ to|needs?\ to)\ (?:buy|make|fill|get|afford|bake|pack|order)"
    r"|needs?|each\b[^.;,=]*\b(?:gets?|receives?|has))\b",
    re.IGNORECASE,
)
_WITH = re.compile(rf"(?:\ {THING}){{0,3}},?\ (?:and|with)\ (?:{CURRENCY})?", re.VERBOSE)
_AND_HAS = re.compile(r"[^=.;]*\b(?:and|with|leaving)\b[^=.;]*")


def left_over(closing: Closing) -> int | None:
    """Two statements, of which the first is the answer: `33 pens and has $1 left over`."""
    text, found = closing.text, closing.found
    bought = (
        _LEFT_OVER.match(text, found[-1].end())
        and (
            _WITH.fullmatch(closing.gap(-2, -1))
            or (_BOUGHT.search(text, closing.start, found[-2].start()) and _AND_HAS.fullmatch(closing.gap(-2, -1)))
        )
        and last_result(text, found[-2].start()) != value(found[-1])
    )
    return found[-2].end() if bought else None


_NUMBER_WORD = re.compile(r"(?:[0-9]|teen|ty|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)) \Z")
_REALLY = re.compile(r"\b(?:so|but|actually|really|make that)\b[^=)]*[0-9]", re.IGNORECASE)


def in_brackets(closing: Closing) -> int | None:
    """`20 laps (40 lengths)`; `18 (20)` are two answers, `forty-two ($42)` is one."""
    text, last = closing.text, closing.found[-1]
    opened = text.rfind("(", closing.found[0].end(), last.start())
    if opened <= 0 or text[opened - 1] != " " or ")" in text[opened : last.start()]:
        return None
    if _REALLY.search(text, opened, closing.end):
        return None
    outside = closing.last_before(opened)
    alone = text[opened + 1 : last.start()].strip(" $") == "" and text[last.end() : last.end() + 1] == ")"
    beside = text[outside.end() : opened].strip(" *_.") == "" or _NUMBER_WORD.search(text, closing.start, opened)
    part = "%" in last[0] and not text.endswith((" in ", " of "), closing.start, outside.start())
    two = alone and beside and not part and value(outside) != value(last)
    closes = text.find(")", last.end(), last.end() + WINDOW)
    return closing.end if two or closes < 0 or "\n" in text[last.end() : closes] else opened


_FROM_TO = re.compile(
    rf",?\ (?:up\ |down\ )?from\ {CURRENCY}?\ ?[0-9][0-9.,]*(?:\ {THING}){{0,2}}\ to\ {CURRENCY}?\ ?", re.VERBOSE
)


def from_to(closing: Closing) -> int | None:
    """`by $300, from $1,500 to $1,800`: the difference is the answer where it stands right before."""
    found = closing.found
    span = _FROM_TO.search(closing.text, found[0].end(), found[-1].start())
    if span and len(found) > 2 and span.end() == found[-1].start() and found[-2].start() >= span.start():
        risen = closing.text[found[-3].end() : span.start()]
        return span.start() if risen.count(" ") < 3 else None
    return None


# An answer line that says its number again

_UNIT = rf"""(?!(?:for|when|if|unless|where|while|with|after|at|because|since|as|per|an?|each|every|more|less|fewer|than
    |too|over|under|above|below|round\w*)\b){LOOSE}(?<!\.)"""
_LINK = re.compile(
    rf"""[*_]*(?P<unit>(?:\ {_UNIT}){{0,8}}?)(?:\ of(?:\ the)?\ (?P<whole>[0-9]{{1,9}})(?:\ {_UNIT}){{0,4}}?)?[*_]*
        (?P<link>,?\ (?:which\ (?:is|equals)|that\ is|that['’]s|i\.?e\.?|in\ other\ words|or|equals),?\ |\ =\ |\ \()
        [*_]*(?:{CURRENCY})?""",
    re.VERBOSE | re.IGNORECASE,
)
_REST = re.compile(rf"(?P<unit>(?:\ {_UNIT}){{0,8}})[).!*_]*(?=\s|\Z)(?:\Z|\s+(?=[A-Z])|\s*\n)", re.VERBOSE)


class SaidAgain(NamedTuple):
    """The number in which an answer line says its own one again: `5/12 of the pizza, i.e. 5 slices`.

    Attributes:
        start: Where it begins.
        result: Whether it is the answer. Which of two is cannot always be known: the right side of an equation is (in
            all of the public solutions that have two), and a whole number behind a fraction, for the answers of the
            public set are whole; else the first is.
        same: The amount in the units of both, where they are the same: `1.5 hours, or 90 minutes`.
    """

    start: int
    result: bool
    same: list[Number]


def said_again(text: str, start: int, end: int) -> SaidAgain | None:
    """Find what says the number again that stands from `start` to `end` of a line; None where nothing does."""
    link = _LINK.match(text, end)
    core = CORE.match(text, link.end()) if link is not None else None
    rest = _REST.match(text, core.end()) if core is not None else None
    if link is None or core is None or rest is None or after(text, core.end()):
        return None
    found = amounts(text, [*numbers_in(text, start, end), core])
    if len(found) < 2:
        return None
    one, other = found[-2:]
    kind, units = link["link"].strip(" ,"), (link["unit"].lower().split(), rest["unit"].lower().split())
    same = (one.kind, one.size) == (other.kind, other.size)
    if link["whole"]:
        result = other.number == one.number * int(link["whole"])
    elif one.kind == other.kind != "count" or same or kind == "(":
        result = False
    elif kind in ("=", "equals"):
        result = all(units)
    else:
        share = "%" not in text[start:end] and one.number.denominator != 1 == other.number.denominator
        result = share and (kind != "or" or (all(units) and set(units[0]).isdisjoint(units[1])))
    golds: list[Number] = [Fraction(one.size) / unit for unit in one.units + other.units] if same else []
    return SaidAgain(core.start(), result, golds)
