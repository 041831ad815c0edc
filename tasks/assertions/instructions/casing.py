"""Instructions on language and case."""

from __future__ import annotations

from typing import Any

from tasks.assertions.instructions.base import RELATION, Argument, compare, ifeval, whole
from tasks.assertions.instructions.english import is_english
from tasks.assertions.instructions.language import LANGUAGES, LanguageUnknown, detect
from tasks.assertions.instructions.words import count_capital_words


def _language(value: Any) -> str:
    if value not in LANGUAGES:
        raise ValueError(f"a code of a language that can be told ({' '.join(LANGUAGES)})")
    return str(value)


@ifeval.add(
    "language:response_language",
    kind="language",
    says="is in the language '{language}'",
    arguments={"language": Argument(_language)},
)
def language_response_language(text: str, language: str) -> bool:
    """The text is in a language.

    The reference takes a text whose language cannot be told, such as one of digits only, for the right one, and does
    not see words in capitals. Fixed: it is not; capitals are read as small letters; short English is known as such.
    """
    if language == "en":
        return is_english(text)
    try:
        return detect(text.lower() if text.isupper() else text) == language
    except LanguageUnknown:
        return False


@language_response_language.published
def _reference_language(text: str, language: str = "en") -> bool:
    try:
        return detect(text) == language
    except LanguageUnknown:
        return True


@ifeval.add(
    "change_case:english_capital",
    kind="capital letters only",
    says="is in English and in capital letters only",
)
def change_case_english_capital(text: str) -> bool:
    """English, in capital letters only. The reference is at a loss with short texts, and lets those of no letter pass.

    Fixed: short English is known as such.
    """
    return text.isupper() and is_english(text)


@change_case_english_capital.published
def _(text: str) -> bool:
    return text.isupper() and _reference_language(text)


@ifeval.add(
    "change_case:english_lowercase",
    kind="small letters only",
    says="is in English and in small letters only",
)
def change_case_english_lowercase(text: str) -> bool:
    """English, in small letters only; as with capital letters."""
    return text.islower() and is_english(text)


@change_case_english_lowercase.published
def _(text: str) -> bool:
    return text.islower() and _reference_language(text)


@ifeval.add(
    "change_case:capital_word_frequency",
    kind="number of words in capitals",
    says="has {capital_relation} {capital_frequency} words in capital letters",
    arguments={"capital_frequency": whole(), "capital_relation": RELATION},
)
def change_case_capital_word_frequency(text: str, capital_frequency: int, capital_relation: str) -> bool:
    """So many words in capital letters only; "I" and "A" are such words."""
    return compare(count_capital_words(text), capital_relation, capital_frequency)
