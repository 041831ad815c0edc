"""What the words of a last sentence say about its numbers: which are asides, reasons, times, known or given.

Each rule looks at the last sentence of a reply without a marker and says where what stands behind the answer begins, or
None. `restated` has the rules on numbers that say the answer again; `closings` lists all, each with an example.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from regex import Match

from tasks.answers.number_words import FINITE, proof, stands_in
from tasks.answers.numbers import ATTRIBUTE, CLOCK, CURRENCY, after, before, value
from tasks.answers.remarks import CHECKED, LEADS_ON, RESULT, SO, WINDOW, WOULD, behind, is_aside, last_result, last_sign

THING = rf"(?!{FINITE}\b)[A-Za-z][A-Za-z'’./-]*"
_CONCLUDED = (
    r"(?:so|then|thus|hence|therefore|which|who|that|but|or|and|nor|not|n['’]t|minus|plus|times|divided|multiplied)"
)
LOOSE = rf"(?!{_CONCLUDED}\b)[A-Za-z][A-Za-z'’./-]*"
"""A word after a number that stands right behind a sign of equality: what follows it is a sentence around a result."""


@dataclass(frozen=True, slots=True)
class Closing:
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


def tested(closing: Closing) -> int | None:
    """What puts the answer to the test, behind a colon, a semicolon or in brackets."""
    found, text = closing.found, closing.text
    if not CHECKED.search(text, found[-1].end(), closing.end):
        return None
    at = max(text.rfind(mark, found[0].end(), found[-1].start()) for mark in (": ", "; ", " ("))
    return at if at > 0 else None


_NAMED = re.compile(
    rf"\W*(?:(?:so|thus|hence|therefore),? )?\W*(?P<number>[0-9][0-9.,]*)%?(?: {THING}){{0,2}}"
    r" is (?:the|what|how|my|our)\b",
    re.IGNORECASE,
)
_NAMED_ON = re.compile(
    r"=|\b(?:so|but|then|and|now|thus|hence|therefore|minus|plus|leav\w+|mak\w+|giv\w+)\b", re.IGNORECASE
)


def named(closing: Closing) -> int | None:
    """A sentence that says what its first number is: `22 is the largest of the three`."""
    said = _NAMED.match(closing.text, closing.start, closing.end)
    if said is None or said.start("number") != closing.found[0].start() or said.end() > closing.found[1].start():
        return None
    rest = closing.text[said.end() : closing.end]
    return None if _NAMED_ON.search(rest) else closing.found[0].end()


def aside(closing: Closing) -> int | None:
    """A clause behind a semicolon or dash that would be left out as a sentence."""
    for mark in ("; ", " - ", " — "):
        at = closing.text.rfind(mark, closing.found[0].end(), closing.found[-1].start())
        if (
            at > 0
            and not (mark != "; " and closing.text[at - 1].isdigit())
            and is_aside(closing.text, closing.start, at + len(mark), closing.end)
        ):
            return at
    return None


EXCEPT = re.compile(
    r"""(?=[\s.…,;(–—-])(?:  # all begin so: most places are passed over fast
      (?:\s*(?:\.{1,3}|…|[,;]|[-–—]+|\()\s*|\ )(?:but\ |and\ )?
        (?:although|(?:even\ )?though|unless|given\ that|considering|assuming|provided|supposing
          |not\ (?:counting|including)|excluding|ignoring|leaving\ out|(?<!or\ )possibly|strictly\ speaking|technically
          |rather\ than|instead\ of)\b
      | (?:,|\ and)\ not\ (?=\$?[0-9])
      | ,\ (?:or|which\ is|i\.?e\.?,?)\ (?:about\ )?(?:one|1)\ (?:in|out\ of)\ (?=[0-9])
      | (?<=[a-z]),\ which\ (?:costs?|is\ worth|holds?|sells?\ for|seats?|weighs?|contains?)
          \ (?=\$?[0-9][0-9.,]*[^0-9]*\Z)
      | ,\ getting\ (?=[0-9]+\ (?:[a-z]+\ )?(?:out\ )?of\b)
      | ,?\ so\ that\b(?!['’]s|\ (?:is|was|will|would|makes|gives|leaves|means)\b)
      | ,\ with\ (?:[A-Za-z'’]+\ ){1,3}[a-z]+ing\b | ;\ without\b | ,?\ but\ i(?:['’]m|\ am)\ not\b
      | ,\ (?:whose|having|of\ (?:which|whom)|(?:an?\ [a-z]+\ )?(?:[a-z]+er|less|more)\ than)\b
      | \ [-–—]\ (?=\$?[0-9][0-9,.]*(?:\ [a-z]+)?\ (?:divided|split|shared|multiplied|times|minus|plus)\b)(?![^\n]*=)
      | [;,]\ (?:while\ )?(?:he|she|it|they|there)\ (?:had|was|were)\b
          [^.;]*\b(?:before|originally|initially|at\ first)\b
      | ,?\ (?:which\ )?(?:is|was)\ (?:less|more|fewer|higher|lower)\ than\ the\ (?=\$?[0-9][0-9.,]*[^0-9]*\Z)
      | \ [-–—]\ (?:that|this)(?:['’]s|\ is)\ (?:with|for|because|including|after|if|when)\b
      | ,\ as\ (?!required|given|expected|stated|needed|the\ problem)
      | (?<=\*\*),?\ (?:because|since|as)\b )""",
    re.VERBOSE | re.IGNORECASE,
)
_GOES_BACK = re.compile(
    r"[0-9][^;=]*,\ (?:he|she|it|they|there|we|you|that|this)(?:['’]|\ )[^=\n]*[0-9]", re.IGNORECASE
)
"""A clause that stands before the one it belongs to: `since he had $100, he's got $22 left`."""
_LEAVING = re.compile(r"\b(?:leav|mak|giv|sav|bring)(?:ing|es?|s)\b[^=\n]*[0-9]", re.IGNORECASE)


def excepted(closing: Closing) -> int | None:
    """A clause that begins with a word of exception, unless it concludes a number of its own."""
    for clause in EXCEPT.finditer(closing.text, closing.found[0].end(), closing.end):
        left = _LEAVING.search(closing.text, clause.end(), closing.end)
        if (
            clause.start() < closing.found[-1].start()
            and left is None
            and not _GOES_BACK.search(closing.text, clause.end(), closing.end)
            and not LEADS_ON.search(closing.text[clause.end() : closing.end].replace("=", ""))
        ):
            return clause.start()
    return None


_ALSO = re.compile(
    rf"""(?:\ (?:and|while)\ (?:the\ other\ )?[0-9]+\ (?:[a-z]+\ )?
          (?:do|did|does|are|were|was|is|has|have|had)(?:n['’]t|\ not)\b[^=,;\n0-9]*
      | (?:[,;](?![0-9])|\ [-–—](?![0-9$]))(?:
        (?!\ ?(?:and\ |but\ )?(?:so|then|each)\b)[^=,;\n]*{WOULD}[^=\n]*
      | \ each\ (?!gets|gives|costs|pays|receives|has)[^=\n]*
      | \ which\ is\ (?:about\ |only\ )?[0-9.]+\ ?(?:%|percent)\ of\ [^=\n;]*
      | \ an?\ (?!total|sum|grand|combined|final|difference)(?:[a-z]+\ ){{1,2}}of\ [^=\n;]*
      | \ (?:and\ |while\ )?the\ (?:other|remaining)\ [^=\n;]*
      | \ (?:that|this|which)(?:['’]s|\ is)\ [^=\n;]*\b(?:more|less|fewer)\ than\ [^=\n0-9;]* ))\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""What may be said behind a result: what would be, what each is, how much more it is than something."""
_COPULA = re.compile(r"\b(?:is|was|are|were|be|pays?|costs?)\ (?:(?:about|now|only|just|then)\ )?\$?\Z")


def said_of_result(closing: Closing) -> int | None:
    """What is said of a number that was computed, or that stands in a sentence with `so`."""
    clause = _ALSO.search(closing.text, closing.found[0].end(), closing.end)
    if clause is None or clause.start() > closing.found[-1].start():
        return None
    named = closing.last_before(clause.start())
    result = last_result(closing.text, named.start() if named is not closing.found[0] else named.end())
    same = result == value(named) or closing.result(closing.found.index(named))
    if not same and clause[0].startswith((", a ", ", an ")):
        same = _COPULA.search(closing.text, closing.start, named.start()) is not None
    if not same and SO.search(closing.text, closing.start, named.start()):
        same = result is None or result != value(closing.found[-1])
    return clause.start() if same and not LEADS_ON.search(clause[0]) else None


_AT = re.compile(r"\b(?:at|to|and|from|until|till|by|after|before|around)\ (?:about\ )?\Z", re.IGNORECASE)


def clock(closing: Closing) -> int | None:
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
    rf"""(?<![;:]),?\ (?:(?:because|since|becos|becuz|cuz)\ (?!then\b)
              (?: (?!\ (?:so|then|thus|hence|therefore|must|[→⇒])\ )
                 (?!,\ (?:he|she|it|they|there|we|you)(?:['’]|\ )) [^=\n] )+
          |(?:if|when|while|after)(?:\ {LOOSE})+\ (?:{CURRENCY})?[0-9][0-9.,/]*(?:\ {LOOSE})*)[\s.!*)]*""",
    re.VERBOSE | re.IGNORECASE,
)
_MUST = re.compile(
    r"\b(?:must|needs?|should|so|therefore|thus|hence|will)\b.*[0-9][^.:\n]{0,30}\Z", re.IGNORECASE | re.DOTALL
)
"""A statement that an equation behind a colon may show: its number stands close to the colon."""
_OTHER_CLAUSE = re.compile(r": |, [A-Za-z]")
"""Behind a reason it begins what follows from it: `since there are 65, Ann has 4/13 * 65 = 20`."""


def reason(closing: Closing) -> int | None:
    """Why it is so, or when: at the end of the sentence. An equation is a reason if it holds what it is to show."""
    text = closing.text
    shown = proof(text, closing.found[0].end(), closing.end)
    if shown is not None:
        named = value(closing.last_before(shown.start()))
        used = [value(core) for core in closing.found if core.start() > shown.start()]
        return shown.start() if named in used else None
    last = closing.found[-1].start()
    at = max(text.rfind(f" {why} ", closing.found[0].end(), last) for why in ("because", "since"))
    if at < 0 and (colon := text.find(": ", closing.found[0].end(), last)) > 0:
        at = colon if _MUST.search(text, closing.start, colon) else -1
    sign = text.find("=", at, closing.end) if at > 0 else -1
    if sign > 0 and not (SO.search(text, at, closing.end) or _OTHER_CLAUSE.search(text, at + 1, sign)):
        used = [value(core) for core in closing.found if core.start() > at]
        return at if value(closing.last_before(at)) in used else None
    for clause in _CLAUSE.finditer(text, closing.found[0].end(), closing.end):
        if clause.end() == closing.end or text[clause.end() - 1] == "\n":
            return clause.start()
    return None


def attribute(closing: Closing) -> int | None:
    """A number that is a part of an adjective or an ordinal is no amount."""
    text, last, previous = closing.text, closing.found[-1], closing.found[-2]
    if not ATTRIBUTE.match(text, last.end()) or text.endswith("by the ", 0, last.start()):
        return None
    return last.start() if closing.gap(-2, -1) == " " or not after(text, previous.end()) else None


_UNIT_POWER = re.compile(
    r"(?:(?<=[0-9]\ )|(?<=[0-9]))(?:k?m|cm|mm|ft|in|yd|mi|inches|feet|yards|met(?:er|re)s|units)\^\{?\Z"
)


def power(closing: Closing) -> int | None:
    """The exponent of a unit."""
    at = closing.found[-1].start()
    power = _UNIT_POWER.search(closing.text, max(closing.start, at - 12), at)
    return None if power is None else power.start()


DEFINITE = re.compile(
    rf"""(?<!is\ )(?<!are\ )(?<!was\ )(?<!make\ )(?<!makes\ )(?<!gives\ )(?<!gets\ )(?<!up\ to\ )
        \b(?:the|his|(?:of|from|in|with|than|for|to|on|by)\ her|their|its|my|our|your|all|these|those)
        (?:\ (?!other\b|rest\b|remaining|total|final|answer|last|next|result|sum\b|number|difference|correct
               |[a-z]+est\b) {THING})?
        (?:\ of)?\ (?:{CURRENCY})?\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_EACH = re.compile(r"(?: [a-z]+)? (?:each|apiece|per|every|an?)\b|/[a-z]| (?:mph|kph|km/h)\b")
_GIVEN = re.compile(
    r"\b(?:the|(?<!\bin\ )all|his|her|their|its|these|those|each of|every|per)\ (?:[a-z]+\ )?\Z", re.IGNORECASE
)


def known(closing: Closing) -> int | None:
    """A number that the words before it call known, `the full $120`, or a price, behind one that may be the answer."""
    text, last, start = closing.text, closing.found[-1], closing.found[-2].end()
    rate = text.endswith((" at ", " at $"), start, last.start()) and _EACH.match(text, last.end())
    if (
        not (rate or DEFINITE.search(text, max(start, last.start() - 40), last.start()))
        or "=" in text[start : last.start()]
    ):
        return None
    if last_result(text, last.start()) == value(last):
        return None
    for core in closing.found[:-1]:
        place = before(text, core.start())
        if not place.problem and not _GIVEN.search(text, max(closing.start, place.start - 20), place.start):
            return last.start()
    return None


_GOES_ON = re.compile(
    r"[=?]|n['’]t\b|\b(?:so|then|thus|hence|therefore|which|but|or|and|answer|leav\w+|giv\w+|mak\w+|total\w*|equal\w*"
    r"|needs?|must|should|would|actually|instead|not|has|have|had|(?:is|are) (?!needed|required|spent))\b",
    re.IGNORECASE,
)
"""Words between two numbers with which the second may be what is concluded."""
_IN_TOTAL = re.compile(r"\A (?:[a-z]+ ){0,2}(?:in )?total\b")
_BESIDES = re.compile(
    rf"[\s$]*(?:(?:{LOOSE}\s)*and (?:[A-Z][a-z]+ )?[a-z]{{2,12}}(?: [a-z]{{2,12}}){{0,2}} |(?:{LOOSE}\s)+and )[\s$]*\Z"
)
"""What somebody else has, what else is done, or how many others there are, behind a result."""


def given(closing: Closing) -> int | None:
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
        known = (value(other) != result and stands_in(head, other[0]) for other in found[at + 1 :])
        return core.end() if all(known) else None
    return None


_CONCLUDING = re.compile(
    r"[=?;:→⇒(]|n['’]t\b.*,|\b(?:so|then|thus|hence|therefore|but|nor|answer|leav\w+|giv\w+|mak\w+|altogether"
    r"|in all|in total"
    r"|equal\w*|actually|instead|minus|plus|times (?=\$?[0-9])|divided|multiplied|increased|decreased|reduced"
    r"|rounds?|rounded|is|are|was|were|has"
    r"|have|had|now)\b",
    re.IGNORECASE,
)
_AND_OR = re.compile(r",|\b(?:and|or)\b", re.IGNORECASE)
ONE_MORE = (
    r"(?:in|for|of|after|within|during|from|on|out of|with|at|by|per|every|each|to (?!the\b|a\b|about\b)[a-z]+)"
    r"(?: (?:the|a|all|his|her|their|last|first|next|of)){0,3} \$?"
)
"""What leads to one number more behind a result, which it only places: `= 18 eggs are eaten in the first 3 days`."""
_ONE_MORE = re.compile(rf"(?:[ /]{LOOSE}){{0,9}}? {ONE_MORE}", re.IGNORECASE)
_TO_THE_END = re.compile(rf"(?:[ /]{LOOSE}){{0,6}}[.\s]*", re.IGNORECASE)


def behind_result(closing: Closing) -> int | None:
    """What is said of a result right behind it: `= 26 kids did not get 2 hotdogs`, `= 4 more $10 bills than Ann`."""
    text, found = closing.text, closing.found
    sign = text.rfind("=", max(closing.start, found[0].start() - 12), closing.end)
    at = next((at for at, core in enumerate(found) if core.start() > sign), len(found)) if sign >= 0 else len(found)
    at += at < len(found) and text.startswith(">>", found[at].end())
    if at + 1 >= len(found) or not _is_result(closing, at) or before(text, found[at].start()).problem:
        return None
    gap = closing.gap(at, at + 1)
    if at + 2 == len(found) and _ONE_MORE.fullmatch(gap) and _TO_THE_END.fullmatch(text, found[-1].end(), closing.end):
        return found[at].end()
    if _CONCLUDING.search(text, found[at].end(), closing.end) or _AND_OR.search(gap):
        return None
    alone = gap.strip(" $") == "" or gap.endswith(" than ") or not after(text, found[at].end())
    return found[at].end() if alone else None


def _is_result(closing: Closing, at: int) -> bool:
    begin = closing.found[at].start()
    return closing.text[closing.start : begin].rstrip("-$").endswith(">>") or closing.result(at)


_ARTICLE = r"""(?:the|a|an|all|each|every|his|her|their|its|our|my|your|these|those|this|last|next|first|past|other
    |another|of|both|one|original|initial|starting|total|whole|entire|full|[A-Za-z]+ing|[A-Za-z]+(?:'s|’s))"""
_ADJUNCT = rf"""(?: (?<!\ )\ (?:(?:in|after|for|within|during|from|on|among|amongst|out\ of|with|throughout|across|of|at
              |by|until|upon|between|against|before|off|including)(?:\ {_ARTICLE}){{0,4}}
              |(?:every|each|per)|to\ (?!the\b|a\b|about\b)(?:[A-Za-z]+)(?:\ {THING}){{0,4}})
          | (?<=[A-Za-z*_])\ over(?:\ {_ARTICLE}){{0,4}}
          | \ (?:more|less|fewer|[a-z]+er)\ than\ (?:the|his|her|their|its|[A-Za-z]+['’]s)(?:\ {THING}){{0,2}}
          | ,?\ (?:compared|in\ comparison|as\ opposed|relative)\ (?:to|with)(?:\ {_ARTICLE}){{0,4}}
          | ,\ (?:after|before|out\ of|in|within|with|including
              |[a-z]+ed\ (?:in|into|among|over|across))(?:\ {_ARTICLE}){{0,4}}
          | ,\ (?:up\ |down\ )?from(?:\ {_ARTICLE}){{0,4}} )
        [ *_]+(?:{CURRENCY})?"""
_AFTER_ANSWER = re.compile(
    rf"""(?:[*_"”’)\]]*\ (?:{THING}|remain))*?[*_"”’)\]]*{_ADJUNCT}""", re.VERBOSE | re.IGNORECASE
)
_WORDS = re.compile(rf"(?:\ {THING})+\ ", re.VERBOSE)
_IN_BRACKETS = re.compile(r" \([A-Za-z -]{1,40}\)")
_LATER = re.compile(r"\ (?:years?|months?|weeks?|days?|hours?|minutes?)\ (?:ago|from\ now|later|earlier)\b")
_AND = re.compile(rf"(?:\ {THING}){{1,6}},?\ and\ (?:{CURRENCY})?", re.VERBOSE | re.IGNORECASE)
_INTRODUCED = re.compile(r"\W*(?:(?:so|then|thus|and),? )?(?:at|with|for|given|of)(?: a| an| about)?\W*", re.IGNORECASE)
"""What begins a sentence about another number: `At $2 a cup this brings in $126`."""


def adjunct(closing: Closing) -> int | None:
    """`366 downloads over the 3 months`, `8 batches of one and 1 batch of the other`."""
    text, found = closing.text, closing.found
    at = len(found) - 1
    while at > 1 and _AND.fullmatch(text, found[at - 1].end(), found[at].start()):
        at -= 1
    answer, last = found[at - 1], found[at]
    gap = _IN_BRACKETS.sub("", text[answer.end() : last.start()])
    if not (_AFTER_ANSWER.fullmatch(gap) or (_LATER.match(text, last.end()) and _WORDS.fullmatch(gap))):
        return None
    place = before(text, answer.start())
    if place.problem or _GIVEN.search(text, max(closing.start, place.start - 20), place.start):
        return None
    if _INTRODUCED.fullmatch(text, closing.start, place.start):
        return None
    computed = last_result(text, answer.start())
    if computed is not None and computed == value(last) != value(answer):
        return None  # what was computed last is the answer, wherever it stands
    return answer.end()
