"""What several instructions share: finding a word or phrase as a reader would, and patterns of the reference."""

from __future__ import annotations

import re
from functools import lru_cache

from tasks.assertions.instructions.base import InstructionError

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"
)
"""Letters of scripts that put no blanks between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""

NOT_AFTER_LETTER, NOT_BEFORE_LETTER = r"(?<![^\W_])", r"(?![^\W_])"
"""Where a word may start and end: no letter or digit beside it. An underscore is neither."""


@lru_cache(maxsize=1024)
def whole_word(phrase: str) -> re.Pattern[str]:
    """Return a pattern that finds the phrase, in any case, where it is no part of a longer word.

    Nothing in the phrase has a special meaning, and a line break counts as a blank. An underscore, as Markdown puts it
    around words, is no part of a word: "cat" is in "_cat_".
    """
    parts = phrase.split()
    start = NOT_AFTER_LETTER if bounded(parts[0][0]) else ""
    end = NOT_BEFORE_LETTER if bounded(parts[-1][-1]) else ""
    return re.compile(start + r"\s+".join(re.escape(part) for part in parts) + end, re.IGNORECASE)


def bounded(character: str) -> bool:
    """Return whether words end at the character: a letter, digit or underscore of a script with blanks."""
    return re.match(r"\w", character) is not None and not _UNSPACED.match(character)


@lru_cache(maxsize=1024)
def reference_pattern(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Compile what the reference takes as a pattern although it is a plain word.

    Raises:
        InstructionError: the word is no valid pattern: the reference itself cannot judge it.
    """
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise InstructionError(
            f"the reference reads {pattern!r} as a regular expression, which it is not ({error}); "
            f"semantics: fixed takes it literally"
        ) from None
