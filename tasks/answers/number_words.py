"""Numbers in English words: `fifteen`, `one hundred and five`, `two thirds`, `two and a half`, `negative three`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from tasks.answers.numbers import ATTRIBUTE, CLOCK, CURRENCY, SENTENCE, numbers_in, read, value

_UNITS = dict(
    zero=0, one=1, two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, eleven=11, twelve=12,
    thirteen=13, fourteen=14, fifteen=15, sixteen=16, seventeen=17, eighteen=18, nineteen=19,
)  # fmt: skip
_TENS = dict(twenty=20, thirty=30, forty=40, fifty=50, sixty=60, seventy=70, eighty=80, ninety=90)
_SIZES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = dict(half=2, third=3, quarter=4, fourth=4, fifth=5, sixth=6, seventh=7, eighth=8, ninth=9, tenth=10)
_PLURALS = {"halves": 2} | {f"{word}s": number for word, number in _PARTS.items() if word != "half"}
_MOST_WORDS = 20

WORD = "|".join(("a", "hundred", *_UNITS, *_TENS, *_SIZES, *_PARTS, *_PLURALS))
"""The words that a number is made of, for a pattern."""


def number_in_words(text: str) -> Fraction | None:
    """Return the value of a text that is one number in words and nothing else; None for any other text.

    Ordinals (`third`, `twenty-third`) and digits said one by one (`one two`) are no numbers.
    """
    words = re.split(r"[\s-]+", text.strip().lower())
    sign = -1 if words[0] in ("negative", "minus") else 1
    words = words[1:] if sign < 0 else words
    if not words or len(words) > _MOST_WORDS:
        return None
    if (part := _part(words)) is not None:
        return sign * part
    if "and" in words:
        at = len(words) - 1 - words[::-1].index("and")
        whole, part = _cardinal(words[:at]), _part(words[at + 1 :])
        if whole is not None and part is not None:
            return sign * (whole + part)
    whole = _cardinal(words)
    return None if whole is None else sign * Fraction(whole)


def _part(words: list[str]) -> Fraction | None:
    """`one third`, `a half`, `two thirds`, `half`."""
    if words == ["half"]:
        return Fraction(1, 2)
    if len(words) != 2:
        return None
    count = 1 if words[0] in ("a", "one") else _UNITS.get(words[0], 0)
    below = _PARTS.get(words[1]) if count == 1 else _PLURALS.get(words[1]) if count else None
    return None if below is None else Fraction(count, below)


def _cardinal(words: list[str]) -> int | None:
    if words == ["zero"]:
        return 0
    total = current = 0
    smallest = 10**15
    for at, word in enumerate(words):
        if word == "a" and at == 0 and words[1:2] != [] and (words[1] == "hundred" or words[1] in _SIZES):
            current = 1
        elif (unit := _UNITS.get(word)) and (current % 100 == 0 or (unit < 10 and current % 100 >= 20)):
            if current % 10:
                return None
            current += unit
        elif word in _TENS and current % 100 == 0:
            current += _TENS[word]
        elif word == "hundred" and 0 < current < 10:
            current *= 100
        elif word in _SIZES and 0 < current < 1000 and _SIZES[word] < smallest:
            smallest = _SIZES[word]
            total, current = total + current * smallest, 0
        elif not (word == "and" and 0 < at < len(words) - 1 and words[at - 1] in ("hundred", *_SIZES)):
            return None
    return total + current or None


TAIL = 700
"""Characters at the end of a reply in which numbers in words are looked for."""
DIGIT = re.compile("[0-9]")
ANY_NUMBER = re.compile(rf"[0-9][0-9.,]*|\b(?:{WORD.removeprefix('a|')})\b", re.IGNORECASE)
FINITE = r"""(?:is|are|was|were|be|been|has|have|had|do|does|did|will|would|can|could|gives?|gave|makes?|made|leaves?
    |leaving|equals?|gets?|got|costs?|earns?|needs?|takes?|sells?|pays?|spends?|buys?|eats?|holds?|contains?|weighs?
    |becomes?|remains?|totals?|receives?|uses?|wants?|goes|went|who|which|so|then|thus|hence|therefore|but|or|nor|not
    |minus|plus|times|divided|multiplied|increased|decreased|reduced|squared|cubed|only|maybe|perhaps|otherwise|least
    |most|about|above|below|under)"""
"""Verbs, and other words that are in no name of a unit or thing."""
_SPELLED = re.compile(
    rf"(?<![\w-])(?P<words>(?:(?:negative|minus)\ )?(?:{WORD})\b(?:[\ -](?:and\ )?(?:{WORD})\b)*)(?![\w-])",
    re.VERBOSE | re.IGNORECASE,
)
_NO_COUNT = re.compile(
    rf"""(?:\b(?:the|these|those|all|both|each|every|per|any|other|last|first|next|past|no|some|this|that|which|than|his
      |her|their|its|my|our|your|(?<!\btotal\ )of|step|part|into)(?:\ (?!{FINITE}\b)[a-z]+)?\ |[-/0-9]\ ?)\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""Before a number in words that counts what is known already."""
_ONE = re.compile(
    r"\b(?:is|are|was|has|have|had|be|leaves?|needs?|gets?|takes?|only|just|exactly|with|gives?|makes?)"
    r"\ (?:only\ |just\ )?\Z",
    re.IGNORECASE,
)
_NO_ONE = re.compile(r"\ (?:of|more|another|who|that|which|way|by|to|and|or)\b", re.IGNORECASE)
_NOT_COUNTED = re.compile(
    r"\ (?:times|more\ than|fewer\ than|less\ than|thirds?|quarters?|halves|fifths?|tenths?|or)\b", re.IGNORECASE
)
_SIDE = re.compile(
    r"\b(?:of|out\ of|in|after|for|with|from|per|each|every|the|these|those|all|both|his|her|their|its)"
    r"\ (?:the\ |all\ |these\ )?\$?\Z",
    re.IGNORECASE,
)


ENDING = re.compile(
    rf"""(?:,\ |\b(?:is|gets?|pays?|costs?|needs?|has|have|takes?|makes?|earns?|leaves?|so|each|=)\ |=\ )
        (?:so\ |it['’]s\ |that['’]s\ )?
        (?P<words>(?!one\b)(?:{WORD})\b(?:[\ -](?:and\ )?(?:{WORD})\b)*)
        (?:\ (?!of\b|(?:more|less|fewer)\ than\b|times\b|or\b|who\b)[a-z]+){{0,3}}[\s.!*]*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""The last words of a reply, behind all digits: `..., split 3 ways, twelve dollars each`."""
_PROOF = re.compile(
    rf"""(?:because|since)\ (?:{CURRENCY})?\.?[0-9][^=\nA-WYZa-wyz]{{1,80}}=\ ?(?:{CURRENCY})?
         (?:<<[^<>\n]{{3,80}}>>)?(?P<result>-?[0-9][0-9.,]*)%?(?:\ (?!so\b)[a-z]+){{0,3}}[\s.!*)]*\Z""",
    re.VERBOSE,
)
"""An equation as the reason for what the last sentence states: `thirteen weeks, since 14 x 13 = 182`."""


_BECAUSE = re.compile(r"(?:because|since) (?![^\n]*[=→⇒])(?![^\n]*\bso\b)[^\n]*\Z")
"""A reason without an equation: `two bags, since one holds just 10 cups`."""


def proof(text: str, start: int, end: int) -> re.Match[str] | None:
    """Find the equation that is the reason for what the last sentence states, behind its last `because` or `since`."""
    at = max(text.rfind("because ", start, end), text.rfind("since ", start, end))
    return None if at < 0 else _PROOF.match(text, at, end)


def proves_another(text: str, start: int, end: int) -> bool:
    """Whether the reason for what a sentence states ends with another number: `thirteen weeks, since 14 x 13 = 182`."""
    reason = proof(text, start, end)
    if reason is None:
        return False
    named, result = text[start : reason.start()], reason["result"].strip(".,")
    if stands_in(named, result) or any(value(core) == read(result) for core in numbers_in(named, 0, len(named))):
        return False
    return not any(str(number_in_words(word)) == result for word in named.split())


def stands_in(head: str, number: str) -> bool:
    """Whether a number stands in a text as it is written, and not as a part of a longer one."""
    at = head.find(number)
    while at >= 0:
        left, right = head[:at].rstrip(".,"), head[at + len(number) :].lstrip(".,")
        if not (left[-1:].isdigit() or right[:1].isdigit()):
            return True
        at = head.find(number, at + 1)
    return False


def sentence_starts(text: str, edge: int, end: int) -> Iterator[int]:
    """Go through the sentences of a part of a text, from the last one on: where each begins."""
    while end > edge:
        line = max(edge, text.rfind("\n", edge, end - 1) + 1)
        yield from reversed([found.end() for found in SENTENCE.finditer(text, line, end)])
        yield line
        end = line


def spelled(text: str) -> tuple[str, list[int]] | None:
    """Write the number words of the last sentence in digits, where they are what it states.

    Returns:
        The text, and the place of each of its characters in the old one; None where nothing is to be written so.
    """
    end = len(text)
    edge = max(0, end - TAIL)
    ending = ENDING.search(text, max(edge, end - 80))
    if ending is not None and _counts(text, ending):
        said = f" {number_in_words(ending['words'])}"  # is 16, sixteen students
        return None if text[: ending.start("words")].rstrip(", ").endswith(said) else _in_digits(text, [ending])
    why = max(text.rfind("because ", edge), text.rfind("since ", edge))
    reason = None if why < 0 else _PROOF.match(text, why) or _BECAUSE.match(text, why)
    if reason is not None:
        start = max((found.end() for found in SENTENCE.finditer(text, edge, reason.start())), default=edge)
        stated = [found for found in _SPELLED.finditer(text, start, reason.start()) if _counts(text, found)]
        return _in_digits(text, stated) if stated and not DIGIT.search(text, start, reason.start()) else None
    start = end
    for start in sentence_starts(text, edge, end):
        if text.find("=", start, end) >= 0 and DIGIT.search(text, start, end):
            return None
        if any(_counts(text, found) for found in _SPELLED.finditer(text, start, end)):
            break
        if DIGIT.search(text, start, end):
            return None
        end = start
    else:
        return None
    if "=" in text[start:end]:
        return None
    stated = [found for found in _SPELLED.finditer(text, start, end) if _counts(text, found)]
    known = [number_in_words(found["words"]) for found in stated]
    clocks = [found.span() for found in CLOCK.finditer(text, start, end)]
    for core in numbers_in(text, start, end):
        if any(first <= core.start() < last for first, last in clocks):
            continue
        if value(core) in known and text[core.end() : core.end() + 1] == ")":
            continue  # forty-two dollars ($42)
        if not (ATTRIBUTE.match(text, core.end()) or _SIDE.search(text, max(0, core.start() - 20), core.start())):
            return None
    return _in_digits(text, stated)


def _in_digits(text: str, stated: list[re.Match[str]]) -> tuple[str, list[int]]:
    """Write numbers in words in digits, and say where each character of the new text stood."""
    parts: list[str] = []
    places: list[int] = []
    at = 0
    for found in stated:
        digits = str(number_in_words(found["words"]))
        parts += text[at : found.start("words")], digits
        places += range(at, found.start("words"))
        places += [found.start("words")] * (len(digits) - 1) + [found.end("words") - 1]
        at = found.end("words")
    return "".join((*parts, text[at:])), [*places, *range(at, len(text))]


def _counts(text: str, words: re.Match[str]) -> bool:
    """Whether number words state a number, and are no pronoun, ordinal, share or what is counted already."""
    number = number_in_words(words["words"])
    start, end = words.span("words")
    if number is None or 0 < number < 1 or _NOT_COUNTED.match(text, end):
        return False
    head = max(0, start - 30)
    if words["words"].lower() == "one" and (not _ONE.search(text, head, start) or _NO_ONE.match(text, end)):
        return False
    return not _NO_COUNT.search(text, head, start)
