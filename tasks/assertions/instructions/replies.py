"""Instructions on a reply as a whole: what it starts and ends with, two replies in one, no comma."""

from __future__ import annotations

from tasks.assertions.instructions.base import TEXT, Instruction, Semantics

_SEPARATOR = "******"


class TwoResponses(Instruction):
    """Two different responses with six stars between them; stars at the very start or end separate nothing."""

    id = "combination:two_responses"
    kind = "two responses"

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether there are exactly two."""
        parts = [part.strip() for part in text.split(_SEPARATOR)]
        if not all(parts[1:-1]):
            return False
        given = [part for part in parts if part]
        return len(given) == 2 and given[0] != given[1]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"gives two different responses with {_SEPARATOR} between them"


class RepeatPrompt(Instruction):
    """The request is repeated before anything else, in any case."""

    id = "combination:repeat_prompt"
    kind = "repeating the request first"
    arguments = {"prompt_to_repeat": TEXT}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the text starts with it."""
        return text.strip().lower().startswith(self.args["prompt_to_repeat"].strip().lower())

    def describe(self) -> str:
        """Return the condition in words."""
        return "repeats the request first"


class EndChecker(Instruction):
    """The text ends with a phrase, in any case; quotation marks after it do not count."""

    id = "startend:end_checker"
    kind = "the last words"
    arguments = {"end_phrase": TEXT}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether it ends so."""
        return text.strip().strip('"').lower().endswith(self.args["end_phrase"].strip().lower())

    def describe(self) -> str:
        """Return the condition in words."""
        return f"ends with '{self.args['end_phrase']}'"


class Quotation(Instruction):
    """The whole stands in double quotation marks. The reference does not mind if nothing stands between them."""

    id = "startend:quotation"
    kind = "quotation marks around the whole"

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether it does."""
        text = text.strip()
        if len(text) < 2 or text[0] != '"' or text[-1] != '"':
            return False
        return semantics is Semantics.REFERENCE or bool(text.strip('"').strip())

    def describe(self) -> str:
        """Return the condition in words."""
        return "stands in double quotation marks as a whole"


class NoComma(Instruction):
    """No comma: the ASCII one, as in the reference."""

    id = "punctuation:no_comma"
    kind = "commas"

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether there is none."""
        return "," not in text

    def describe(self) -> str:
        """Return the condition in words."""
        return "uses no comma"


ALL = (TwoResponses, RepeatPrompt, EndChecker, Quotation, NoComma)
