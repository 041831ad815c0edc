"""How nearly all replies without a marker end, read at once: `... = 18 eggs a day.`, `So she has 18 eggs.`.

The last sentence is looked at alone. It must end in one of three forms, and no word in it may be one that a rule of
`remarks`, `number_words`, `closings` or `numbers` goes by; any other reply is read by those rules, at length. What is
read here is what they would read: a test compares both on replies made of the examples of all rules.
"""

from __future__ import annotations

import re

from tasks.answers.clauses import EXCEPT, ONE_MORE
from tasks.answers.closings import SAYS_AGAIN, sentence_start
from tasks.answers.number_words import DIGIT, ENDING, WORD, proof, proves_another
from tasks.answers.numbers import TELLING, read
from tasks.answers.remarks import CONCLUDES, TESTS, explains, opens_with_number, refused

_LENGTH = 200
"""Characters at the end of a reply in which a usual last sentence stands."""

# The three forms

_NUMBER = (
    r"(?:\$(?!-))?((?:-\$?(?![0-9.,]+%))?(?:[1-9][0-9]{0,2}(?:,[0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,6})?)(?![0-9])"
    r"(?! (?:squared|cubed|factorial|choose|mod|modulo|pi)\b)"
)
_WORD = r"(?: (?:a|[A-Z]|[A-Za-z’'&-]{2,20})(?:(?: / |/)[a-z]{2,20})?)"
_RESULT = rf"= ?{_NUMBER}(?:>>{_NUMBER})?"
_RESULT_SAID = re.compile(_RESULT)
_RESULT_AT_END = re.compile(
    rf"{_RESULT}(?:(?:[%$]|\"(?= [a-z]))?(?:(?: / |/)[a-z]{{2,20}})?{_WORD}{{0,15}}"
    rf"|{_WORD}{{0,8}}? {ONE_MORE}[0-9]{{1,4}}{_WORD}{{0,6}})\.?\s*\Z"
)
_AGAIN_AT_END = re.compile(
    rf"[^0-9=\n]*(?<![A-Za-z])(?P<word>[A-Za-z]+) (?P<number>{_NUMBER})%?{_WORD}{{0,15}}\.?\s*\Z"
)
_SAID_AT_END = re.compile(
    rf"(?:[a-z] (?:is|are|was|were|has|have|had|makes|equals|costs|cost|left)) {_NUMBER}(?: [a-z]{{3,20}}){{0,2}}"
    r"\.?\s*\Z"
)
_OPERAND = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ)%")


def usual_end(text: str) -> tuple[int, int] | None:
    """Return where the final number of a reply without a marker stands; None for a reply that ends in no usual way."""
    edge = max(0, len(text) - _LENGTH)
    start = 1 + max(text.rfind("\n", edge, len(text) - 1), text.rfind(". ", edge), edge - 1)
    sign = text.rfind("=", start)
    place = _computed(text, sign) if sign >= 0 else _said_again(text, start) or _concluded(text, start)
    if place is None:
        return None
    tail = text[place[1] :].rstrip(" .\n")
    if (tail and _turns(tail)) or _is_telling(text, start):
        return None
    if (text[place[0]] == "-" or (tail and DIGIT.search(tail))) and opens_with_number(text):
        return None  # `9. It is 11 - 20 = -9.`, `18. She has 16 - 7 = 9 eggs at $2.`
    return place


def _computed(text: str, sign: int) -> tuple[int, int] | None:
    """`So she has 3 * 6 = <<3*6=18>>18 eggs.`, also with one number more: `... eggs in 3 days.`."""
    if sign == 0 or text[sign - 1 - (text[sign - 1] == " ")] not in _OPERAND:
        return None
    found = _RESULT_AT_END.match(text, sign)
    if found is None:
        return None
    noted, said = found[1], found[2]
    if said is not None and noted != said and read(noted) != read(said):
        return None  # a calculator's note that says something else
    return found.span(found.lastindex or 1)


def _said_again(text: str, start: int) -> tuple[int, int] | None:
    """`... = 18. So she has 18 eggs in all.`."""
    found = _AGAIN_AT_END.match(text, start)
    if found is None or found["word"].lower() in TELLING:
        return None
    sign = text.rfind("=", 0, start)
    result = _RESULT_SAID.match(text, sign) if sign > 0 else None
    if result is None or read(result[result.lastindex or 1]) != read(found["number"]):
        return None
    if DIGIT.search(text[result.end() : start].replace(found["number"], "")):
        return None  # another number between them may be the answer
    return found.span("number")


def _concluded(text: str, start: int) -> tuple[int, int] | None:
    """`In total she has 18 eggs.`."""
    found = _SAID_AT_END.search(text, start)
    if found is None or DIGIT.search(text, start, found.start()) or not CONCLUDES.search(text, start):
        return None
    return found.span(1)


# Words that may tell that the number is not the answer

_TURNING = frozenset((
    "alternatively", "billion", "either", "else", "hundred", "isn't", "isn’t", "maybe", "million", "or", "otherwise",
    "perhaps", "possibly", "potentially", "probably", "thousand", "trillion", "versus", "vs", "wasn't", "wasn’t",
))  # fmt: skip
"""Words that may change the number before them."""
_TURNING_IN_PAIRS = frozenset({"is", "was", "as", "plus", "minus", "times", "to", "over", "and"})
_TURNING_PAIR = re.compile(
    r" (?:(?:is|was) (?:not|never|wrong|incorrect)|as (?:required|given|stated|expected|needed|the problem)"
    rf"|(?:plus|minus|times|to|over|and) (?:{WORD}))\b",
    re.IGNORECASE,
)
_LINKING = frozenset({
    "so", "then", "thus", "hence", "therefore", "which", "who", "that", "but", "nor", "minus", "plus", "and", "times",
    "divided", "multiplied", "not",
})  # fmt: skip
"""Words behind which another number may be the answer."""
_COUNTING = frozenset(WORD.split("|")) - {"a", "one"}
"""Words that may be another number, and the answer."""
_CLOSER_LOOK = _TURNING | _TURNING_IN_PAIRS | _LINKING | _COUNTING


def _turns(tail: str) -> bool:
    """Whether the words behind a number may change it, or lead to another one."""
    words = _CLOSER_LOOK.intersection(tail.replace("-", " ").split())
    if not words:
        return False
    if not _COUNTING.isdisjoint(words) and ENDING.search(tail):
        return True
    if not _TURNING.isdisjoint(words) or (not _TURNING_IN_PAIRS.isdisjoint(words) and _TURNING_PAIR.search(tail)):
        return True
    return not _LINKING.isdisjoint(words) and DIGIT.search(tail) is not None


_SUSPECT = frozenset((
    "can't", "cannot", "can’t", "check", "checking", "checks", "confirm", "context", "could", "data", "depends",
    "details", "difficult", "enough", "equivalent", "example", "guess", "guessed", "guesses", "guessing", "hard",
    "hmm", "idea", "if", "impossible", "info", "information", "insufficient", "know", "may", "maybe", "might", "not",
    "or", "perhaps", "possible", "proof", "same", "say", "suppose", "unable", "verification", "verify", "verifying",
    "way", "whether", "would",
))  # fmt: skip
"""Words without which no sentence puts a result to the test, refuses, or is the guess that follows a refusal."""
_EXCEPTING = frozenset((
    "although", "assuming", "considering", "counting", "excluding", "given", "ignoring", "including", "instead",
    "leaving", "possibly", "provided", "rather", "speaking", "supposing", "technically", "though", "unless",
))  # fmt: skip
"""Words of which one is in most clauses that begin an exception behind the answer."""
_TESTING = frozenset((
    "check", "checking", "checks", "confirm", "equivalent", "hmm", "proof", "same", "verification", "verify",
    "verifying",
))  # fmt: skip
"""Those of them that put a result to the test."""
_REASONS = frozenset(("because", "since"))
_WATCHED = _SUSPECT | _EXCEPTING | _REASONS
_BLANKS = bytes.maketrans(b",.:()-!?;", b" " * 9)
"""Marks between words; bytes are translated faster than a text."""
_OR_DIGITS = re.compile(r"[0-9]%?(?: [a-z]+){0,4}, or ")


def _is_telling(text: str, start: int) -> bool:
    """Whether the last sentence, which starts at a place, has words by which its result may not be the answer."""
    sentence = text[start:].lower()
    if "**" in sentence or (":" in text and explains(text)):
        return True
    colon = ": " in sentence and any(map(sentence.__contains__, ("must", "need", "should", ", or", ", which is")))
    if (colon or ", which is " in sentence) and SAYS_AGAIN.search(sentence):
        return True
    bare = sentence.encode(errors="surrogatepass").translate(_BLANKS).decode(errors="surrogatepass")
    words = _WATCHED.intersection(bare.split())
    would = "'d" in sentence or "’d" in sentence
    if not (words or would):
        return False
    if "or" in words and _OR_DIGITS.search(sentence):
        return True
    if not _REASONS.isdisjoint(words) and _reason_says_otherwise(text, start):
        return True
    if not _EXCEPTING.isdisjoint(words) and EXCEPT.search(text, start):
        return True
    if not would and _SUSPECT.isdisjoint(words):
        return False
    if _TESTING.isdisjoint(words):
        return refused(text)
    begin = sentence_start(text, len(text))
    return begin is None or ";" in text[begin:] or TESTS.match(text, begin) is not None or refused(text)


_REASON_BEHIND = re.compile(r"[0-9][^=]* (?:because|since) (?:(?!: |, [a-z])[^=])*= ?\S+ (?:.*[0-9]|(?:\S+ ){3}\S)")
"""A reason with more behind its result: `6 because 2 * 4 = 8 in 3 days`."""


def _reason_says_otherwise(text: str, start: int) -> bool:
    """Whether a reason may end with another number than the one it is given for: `6 because 2 * 4 = 8`."""
    sentence = text[start:].lower()
    if "'s because " in sentence or "’s because " in sentence or " is because " in sentence:
        return True
    if proof(text, start, len(text)) is None:
        return _REASON_BEHIND.search(sentence) is not None
    return proves_another(text, start, len(text))
