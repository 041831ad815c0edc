"""Instructions on a reply as a whole: what it starts and ends with, two replies in one, no comma."""

from __future__ import annotations

from tasks.assertions.instructions.base import TEXT, ifeval

_SEPARATOR = "******"


@ifeval.add(
    "combination:two_responses",
    kind="two responses",
    says=f"gives two different responses with {_SEPARATOR} between them",
)
def combination_two_responses(text: str) -> bool:
    """Two different responses with six stars between them; stars at the very start or end separate nothing."""
    parts = [part.strip() for part in text.split(_SEPARATOR)]
    if not all(parts[1:-1]):
        return False
    given = [part for part in parts if part]
    return len(given) == 2 and given[0] != given[1]


@ifeval.add(
    "combination:repeat_prompt",
    kind="repeating the request first",
    says="repeats the request first",
    arguments={"prompt_to_repeat": TEXT},
)
def combination_repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    """The request is repeated before anything else, in any case."""
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


@ifeval.add(
    "startend:end_checker",
    kind="the last words",
    says="ends with '{end_phrase}'",
    arguments={"end_phrase": TEXT},
)
def startend_end_checker(text: str, end_phrase: str) -> bool:
    """The text ends with a phrase, in any case; quotation marks after it do not count."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@ifeval.add(
    "startend:quotation",
    kind="quotation marks around the whole",
    says="stands in double quotation marks as a whole",
)
def startend_quotation(text: str) -> bool:
    """The whole stands in double quotation marks. The reference does not mind if nothing stands between them."""
    return _quoted(text) and bool(text.strip().strip('"').strip())


@startend_quotation.published
def _quoted(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@ifeval.add(
    "punctuation:no_comma",
    kind="commas",
    says="uses no comma",
)
def punctuation_no_comma(text: str) -> bool:
    """No comma: the ASCII one, as in the reference."""
    return "," not in text
