"""Headers of a conversation that are ordinary text, kept out of its messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Where nothing but text says who speaks ("### Assistant", `<|assistant|>` without a token of its own, "Answer:"), a
# task or a command's output that holds such a header would speak in another's name: a forged turn. So a backslash is
# put into every header of a message (`### User` becomes `#\## User`), and into every header that already holds
# backslashes one more. Taking one out of each gives the message back, character for character.

_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""What ends a line, as a model may read it."""
_START, _END = rf"(?<![^{_BREAKS}])[^\S{_BREAKS}]*", rf"(?=[^\S{_BREAKS}]*(?![^{_BREAKS}]))"

_NUMBER = r"\d+"


class HeaderError(ValueError):
    """A header that no text could be told from, or not undone."""


@dataclass(frozen=True, slots=True)
class Header:
    """The text of one header, and where it is one.

    Attributes:
        text: Without white space around it.
        starts_line: Only at the start of a line.
        ends_line: Only at the end of a line.
        numbered: A number in it may be any.
    """

    text: str
    starts_line: bool = False
    ends_line: bool = False
    numbered: bool = False


class Headers:
    """The headers of a conversation. An object without any is false, and leaves every text as it is.

    Args:
        headers: Each once.

    Raises:
        HeaderError: One is punctuation or a number alone, or overlaps itself so that no backslash in it could be taken
            out again.
    """

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        self.headers = tuple(dict.fromkeys(headers))
        self._rules = [_rule(header) for header in self.headers]

    def __bool__(self) -> bool:
        return bool(self.headers)

    def neutral(self, text: str) -> str:
        """A message as it may stand in the conversation."""
        for rule in self._rules:
            text = rule.found.sub(r"\g<0>\\", text)
        return text

    def forged(self, text: str) -> int:
        """How many headers `neutral` found to make this text: those that now hold one backslash."""
        return sum(len(rule.once.findall(text)) for rule in self._rules)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Patterns of one header: `found` up to where the backslash goes, `once` the same with one backslash behind it."""

    found: re.Pattern[str]
    once: re.Pattern[str]


def _rule(header: Header) -> _Rule:
    text = header.text
    if not any(map(str.isalnum, text)) or (header.numbered and text.isdigit()):
        raise HeaderError(f"{text!r} is a header, and any text may hold that")
    # The longest part that a header both begins and ends with: two that overlap there share it, so the backslash goes
    # behind it.
    border = max((n for n in range(len(text)) if text[:n] == text[len(text) - n :]), default=0)
    bound = header.starts_line or header.ends_line
    if 2 * border > len(text) and not bound:
        raise HeaderError(f"{text!r} is a header that overlaps itself")
    cut = 1 if bound else max(1, border)
    if header.numbered and (digits := re.match(_NUMBER, text)):
        cut = digits.end()
    head, tail = _literal(text[:cut], header.numbered), _literal(text[cut:], header.numbered)
    before = _START if header.starts_line else r"(?<!\w)" if text[0].isalnum() else ""
    after = _END if header.ends_line else r"(?!\w)" if text[-1].isalnum() else ""
    return _Rule(
        re.compile(rf"{before}{head}(?=\\*{tail}{after})"),
        re.compile(rf"{before}{head}\\(?={tail}{after})"),
    )


def _literal(text: str, numbered: bool) -> str:
    """A pattern of a text; with `numbered`, of the text with any numbers."""
    if not numbered:
        return re.escape(text)
    return _NUMBER.join(re.escape(part) for part in re.split(_NUMBER, text))
