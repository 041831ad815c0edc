"""Instructions on language and case."""

from __future__ import annotations

from typing import Any

from tasks.assertions.instructions.base import RELATION, Argument, Instruction, Semantics, compare, whole
from tasks.assertions.instructions.english import is_english
from tasks.assertions.instructions.language import LANGUAGES, LanguageUnknown, detect
from tasks.assertions.instructions.words import count_capital_words


def _language(value: Any) -> str:
    if value not in LANGUAGES:
        raise ValueError(f"a code of a language that can be told ({' '.join(LANGUAGES)})")
    return str(value)


class ResponseLanguage(Instruction):
    """The text is in a language.

    The reference takes a text whose language cannot be told, such as one of digits only, for the right one, and does
    not see words in capitals. Fixed: it is not; capitals are read as small letters; short English is known as such.
    """

    id = "language:response_language"
    kind = "language"
    arguments = {"language": Argument(_language)}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether it is."""
        wanted = self.args["language"]
        if semantics is Semantics.REFERENCE:
            return _reference_language(text, wanted)
        if wanted == "en":
            return is_english(text)
        try:
            return detect(text.lower() if text.isupper() else text) == wanted
        except LanguageUnknown:
            return False

    def describe(self) -> str:
        """Return the condition in words."""
        return f"is in the language '{self.args['language']}'"


class EnglishCapital(Instruction):
    """English, in capital letters only. The reference is at a loss with short texts, and lets those of no letter pass.

    Fixed: short English is known as such.
    """

    id = "change_case:english_capital"
    kind = "capital letters only"

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether it is."""
        return text.isupper() and _in_english(text, semantics)

    def describe(self) -> str:
        """Return the condition in words."""
        return "is in English and in capital letters only"


class EnglishLowercase(Instruction):
    """English, in small letters only; as with `EnglishCapital`."""

    id = "change_case:english_lowercase"
    kind = "small letters only"

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether it is."""
        return text.islower() and _in_english(text, semantics)

    def describe(self) -> str:
        """Return the condition in words."""
        return "is in English and in small letters only"


class CapitalWordFrequency(Instruction):
    """So many words in capital letters only; "I" and "A" are such words."""

    id = "change_case:capital_word_frequency"
    kind = "number of words in capitals"
    arguments = {"capital_frequency": whole(), "capital_relation": RELATION}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the number stands in the relation."""
        return compare(count_capital_words(text), self.args["capital_relation"], self.args["capital_frequency"])

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has {self.args['capital_relation']} {self.args['capital_frequency']} words in capital letters"


def _in_english(text: str, semantics: Semantics) -> bool:
    return _reference_language(text, "en") if semantics is Semantics.REFERENCE else is_english(text)


def _reference_language(text: str, language: str) -> bool:
    try:
        return detect(text) == language
    except LanguageUnknown:
        return True


ALL = (ResponseLanguage, EnglishCapital, EnglishLowercase, CapitalWordFrequency)
