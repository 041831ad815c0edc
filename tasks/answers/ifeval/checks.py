"""The 25 instructions of IFEval."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tasks.answers.ifeval import (
    NOT_AFTER_LETTER,
    RELATION,
    TEXT,
    TEXTS,
    Argument,
    bounded,
    compare,
    ifeval,
    reference_pattern,
    whole,
    whole_word,
)
from tasks.answers.ifeval.language import LANGUAGES, LanguageUnknown, detect, is_english
from tasks.answers.ifeval.text import count_capital_words, count_sentences, count_words, sentences

# -- Instructions on words and letters that must be there, or must not ------------------------------------------------


@ifeval.add(
    "keywords:existence",
    kind="words to include",
    says="includes {keywords}",
    arguments={"keywords": TEXTS},
)
def keywords_existence(text: str, keywords: tuple[str, ...]) -> bool:
    """Each keyword occurs. The reference searches for it as a pattern, and within longer words too."""
    return all(whole_word(word).search(text) for word in keywords)


@keywords_existence.published
def _(text: str, keywords: tuple[str, ...]) -> bool:
    return all(reference_pattern(word).search(text) for word in keywords)


@ifeval.add(
    "keywords:frequency",
    kind="how often a word occurs",
    says="has '{keyword}' {relation} {frequency} times",
    arguments={"keyword": TEXT, "frequency": whole(), "relation": RELATION},
)
def keywords_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    """A keyword occurs so often. The reference counts it as a pattern, and within longer words too."""
    return compare(sum(1 for _ in whole_word(keyword.strip()).finditer(text)), relation, frequency)


@keywords_frequency.published
def _(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return compare(sum(1 for _ in reference_pattern(keyword.strip()).finditer(text)), relation, frequency)


@ifeval.add(
    "keywords:forbidden_words",
    kind="words to avoid",
    says="does not use {forbidden_words}",
    arguments={"forbidden_words": TEXTS},
)
def keywords_forbidden_words(text: str, forbidden_words: tuple[str, ...]) -> bool:
    """No forbidden word occurs as a word of its own. The reference takes it as a pattern."""
    return not any(whole_word(word).search(text) for word in forbidden_words)


@keywords_forbidden_words.published
def _(text: str, forbidden_words: tuple[str, ...]) -> bool:
    return not any(reference_pattern(rf"\b{word}\b").search(text) for word in forbidden_words)


def _character(value: Any) -> str:
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("one character")
    return value.strip()


@ifeval.add(
    "keywords:letter_frequency",
    kind="how often a letter occurs",
    says="has the letter '{letter}' {let_relation} {let_frequency} times",
    arguments={"letter": Argument(_character), "let_frequency": whole(), "let_relation": RELATION},
)
def keywords_letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A character occurs so often, in either case.

    The reference replaces a character that is no Latin letter by one drawn at random, so it has no verdict of its own
    then: the given one is counted in both readings.
    """
    count = text.lower().count(letter.lower())
    return compare(count, let_relation, let_frequency)


# -- Instructions on how long a text is: words, sentences, paragraphs -------------------------------------------------

_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


@ifeval.add(
    "length_constraints:number_words",
    kind="number of words",
    says="has {relation} {num_words} words",
    arguments={"num_words": whole(), "relation": RELATION},
)
def length_constraints_number_words(text: str, num_words: int, relation: str) -> bool:
    """So many runs of word characters: "don't" is two, as in the reference."""
    return compare(count_words(text), relation, num_words)


@ifeval.add(
    "length_constraints:number_sentences",
    kind="number of sentences",
    says="has {relation} {num_sentences} sentences",
    arguments={"num_sentences": whole(), "relation": RELATION},
)
def length_constraints_number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    """So many sentences, as the Punkt splitter for English finds them.

    The reference counts lone marks as sentences too ("? ? ?"). Fixed: a sentence has a letter or digit.
    """
    count = sum(1 for sentence in sentences(text) if any(map(str.isalnum, sentence)))
    return compare(count, relation, num_sentences)


@length_constraints_number_sentences.published
def _(text: str, num_sentences: int, relation: str) -> bool:
    return compare(count_sentences(text), relation, num_sentences)


@ifeval.add(
    "length_constraints:number_paragraphs",
    kind="number of paragraphs",
    says="has exactly {num_paragraphs} paragraphs divided by ***",
    arguments={"num_paragraphs": whole()},
)
def length_constraints_number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs, divided by `***`; a divider at the very start or end divides nothing."""
    parts = [bool(part.strip()) for part in _DIVIDER.split(text)]
    if not all(parts[1:-1]):
        return False
    return sum(parts) == num_paragraphs


@ifeval.add(
    "length_constraints:nth_paragraph_first_word",
    kind="first word of a paragraph",
    says="has exactly {num_paragraphs} paragraphs divided by blank lines, and paragraph "
    "{nth_paragraph} starts with '{first_word}'",
    arguments={"num_paragraphs": whole(1), "nth_paragraph": whole(1), "first_word": TEXT},
    at_most=("nth_paragraph", "num_paragraphs"),
)
def length_constraints_nth_paragraph_first_word(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Exactly so many paragraphs between blank lines, one of which starts with a given word.

    The reference counts the paragraphs that are not blank, but looks the paragraph up among all, blank ones included;
    it does not see through markup before the word. Fixed: both by the paragraphs that are there.
    """
    parts = [part for part in _BLANK_LINES.split(text) if part.strip()]
    if len(parts) != num_paragraphs:
        return False
    first = next((word.lower() for word in map(_bare, parts[nth_paragraph - 1].split()) if word), "")
    return bool(first) and _bare(first_word.lower()) in (first, _bare(_reference_word(first)))


@length_constraints_nth_paragraph_first_word.published
def _(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    parts = text.split("\n\n")
    count = sum(1 for part in parts if part.strip())
    words = parts[nth_paragraph - 1].split() if nth_paragraph <= count else []
    return bool(words) and count == num_paragraphs and _reference_word(words[0]) == first_word.lower()


def _reference_word(word: str) -> str:
    return re.split("[.,?!'\"]", word.lstrip("'").lstrip('"'), maxsplit=1)[0].lower()


def _bare(word: str) -> str:
    """Return the word without marks around it."""
    start, end = 0, len(word)
    while start < end and not word[start].isalnum():
        start += 1
    while end > start and not word[end - 1].isalnum():
        end -= 1
    return word[start:end]


# -- Instructions on pieces that a text must hold: placeholders and a postscript --------------------------------------

_MARKERS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
"""Patterns of the usual markers: blanks between their letters do not matter."""
_DECORATION = " \t*_>#~\"'(["


@ifeval.add(
    "detectable_content:number_placeholders",
    kind="placeholders in square brackets",
    says="has at least {num_placeholders} placeholders such as [name]",
    arguments={"num_placeholders": whole()},
)
def detectable_content_number_placeholders(text: str, num_placeholders: int) -> bool:
    """At least so many placeholders in square brackets, each on one line. The reference counts empty ones too."""
    return sum(1 for inside in _bracketed(text) if inside.strip("[ \t")) >= num_placeholders


@detectable_content_number_placeholders.published
def _(text: str, num_placeholders: int) -> bool:
    return sum(1 for _ in _bracketed(text)) >= num_placeholders


def _bracketed(text: str) -> Iterator[str]:
    """Yield what stands in brackets, each from its first opening one, line by line."""
    for line in text.split("\n"):
        start = line.find("[")
        while start >= 0:
            end = line.find("]", start)
            if end < 0:
                break
            yield line[start:end]
            start = line.find("[", end)


@ifeval.add(
    "detectable_content:postscript",
    kind="postscript",
    says="has a postscript that starts with {postscript_marker}",
    arguments={"postscript_marker": TEXT},
)
def detectable_content_postscript(text: str, postscript_marker: str) -> bool:
    """A postscript that starts with the marker.

    The reference is content with the marker anywhere, alone, or as a part of another ("P.P.S." holds "P.S."). Fixed: a
    line starts with it, after markup at most, and something follows.
    """
    marker = postscript_marker.strip()
    pattern = re.compile(_MARKERS.get(marker, re.escape(marker)), re.IGNORECASE)
    lines = text.split("\n")
    for number, line in enumerate(lines):
        found = pattern.match(line.lstrip(_DECORATION))
        if found:
            rest = line.lstrip(_DECORATION)[found.end() :]
            return _says_something(rest) or any(map(_says_something, lines[number + 1 :]))
    return False


@detectable_content_postscript.published
def _(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    return reference_pattern(_MARKERS.get(marker, marker.lower()), 0).search(text.lower()) is not None


def _says_something(text: str) -> bool:
    return any(character.isalnum() for character in text)


# ---------------------------------------------------------------------------------------------------------------------
# Instructions on how a text is laid out: bullets, highlights, sections, a title, JSON, a fixed choice of answers.

# Markdown wants a blank behind the mark: `-5` and `*bold*` are none.
_BULLET = re.compile(r"[*+-][ \t]+\S")
_SINGLE, _DOUBLE = re.compile(r"\*([^\n*]*)\*"), re.compile(r"\*\*([^\n*]*)\*\*")
# One to three stars, the same on both sides; no blank inside at either end, no letter or digit outside.
_HIGHLIGHT = re.compile(r"(?<![a-zA-Z0-9*])(\*{1,3})(?![\s*])[^\n*]*(?<!\s)\1(?![a-zA-Z0-9*])", re.ASCII)
_ANGLES = re.compile("<<+|>>+")
_SHIFTED, _SHIFTING = re.compile(r"[\w)\]] << "), re.compile(r" >> [\w(]")
"""Operators with an operand on either side: `1 << 2 and 3 >> 1`."""
_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@ifeval.add(
    "detectable_format:number_bullet_lists",
    kind="number of bullet points",
    says="has exactly {num_bullets} bullet points",
    arguments={"num_bullets": whole()},
)
def detectable_format_number_bullet_lists(text: str, num_bullets: int) -> bool:
    """Exactly so many bullet points.

    The reference counts every line that starts with a dash or with one star, so rules (`---`), negative numbers and
    lines in italics too. Fixed: a mark, a blank and a text, as in Markdown.
    """
    lines = [line.lstrip() for line in text.split("\n")]
    count = sum(1 for line in lines if _BULLET.match(line) and not _is_rule(line))
    return count == num_bullets


@detectable_format_number_bullet_lists.published
def _(text: str, num_bullets: int) -> bool:
    lines = [line.lstrip() for line in text.split("\n")]
    return _starred(lines) + sum(line.startswith("-") for line in lines) == num_bullets


def _starred(lines: list[str]) -> int:
    """Count lines with one star before another character; a star that ends a line takes the next line with it."""
    count, taken = 0, False
    for number, line in enumerate(lines):
        if taken:
            taken = False
        elif line.startswith("*") and (line[1:2] not in ("", "*") or (line == "*" and number + 1 < len(lines))):
            count += 1
            taken = line == "*"
    return count


def _is_rule(line: str) -> bool:
    marks = line.replace(" ", "").replace("\t", "").rstrip()
    return len(marks) > 2 and marks in ("*" * len(marks), "-" * len(marks))


@ifeval.add(
    "detectable_format:constrained_response",
    kind="one of the given answers",
    says="gives one of these answers: " + " ".join(f"'{option}'" for option in _OPTIONS),
)
def detectable_format_constrained_response(text: str) -> bool:
    """One of the three given answers. The reference is content if the text holds any, or all, of them."""
    return sum(option in text for option in _OPTIONS) == 1


@detectable_format_constrained_response.published
def _(text: str) -> bool:
    return any(option in text for option in _OPTIONS)


@ifeval.add(
    "detectable_format:number_highlighted_sections",
    kind="highlighted parts",
    says="highlights at least {num_highlights} parts with *stars*",
    arguments={"num_highlights": whole()},
)
def detectable_format_number_highlighted_sections(text: str, num_highlights: int) -> bool:
    """At least so many parts in stars, each on one line.

    The reference takes anything between two stars, as in a product or from one bullet to the next star. Fixed: no blank
    inside the stars at either end, no letter or digit right outside them.
    """
    return sum(1 for _ in _HIGHLIGHT.finditer(text)) >= num_highlights


@detectable_format_number_highlighted_sections.published
def _(text: str, num_highlights: int) -> bool:
    found = [*_SINGLE.findall(text), *_DOUBLE.findall(text)]
    return sum(1 for inside in found if inside.strip()) >= num_highlights


@ifeval.add(
    "detectable_format:multiple_sections",
    kind="number of sections",
    says="has at least {num_sections} sections marked '{section_spliter} 1' and so on",
    arguments={"section_spliter": TEXT, "num_sections": whole()},
)
def detectable_format_multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections, each marked with a word and a number.

    The reference counts every place where the word stands before a number, as a pattern. Fixed: different numbers, and
    the word as a word of its own.
    """
    word = section_spliter.strip()
    before = NOT_AFTER_LETTER if re.match(r"\w", word) else ""
    numbers = re.findall(rf"{before}{re.escape(word)}\s?(\d+)", text)
    return len({number.lstrip("0") for number in numbers}) >= num_sections


@detectable_format_multiple_sections.published
def _(text: str, section_spliter: str, num_sections: int) -> bool:
    mark = reference_pattern(rf"\s?{section_spliter.strip()}\s?\d+\s?", 0)
    return len(mark.split(text)) - 1 >= num_sections


@ifeval.add(
    "detectable_format:json_format",
    kind="JSON",
    says="is JSON as a whole",
)
def detectable_format_json_format(text: str) -> bool:
    """All of it is JSON, in a fence or not. The reference takes `NaN` and `Infinity` too, which no JSON has."""
    # Numbers are not computed, so that long ones cost nothing.
    return _is_json(text, parse_constant=_refuse, parse_int=str, parse_float=str)


@detectable_format_json_format.published
def _is_json(text: str, **options: Any) -> bool:
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    text = text.removesuffix("```").strip()
    try:
        json.loads(text, **options)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not in JSON")


@ifeval.add(
    "detectable_format:title",
    kind="title",
    says="has a title such as <<title>>",
)
def detectable_format_title(text: str) -> bool:
    """A title in double angular brackets, on one line.

    The reference goes from the first pair to the last of a line. Fixed: each pair by itself, with no letter or digit
    right outside it, so that shifts in code (`a<<b; c>>d`) are no title.
    """
    return any(_title(line) for line in text.split("\n"))


@detectable_format_title.published
def _(text: str) -> bool:
    return any(_reference_title(line) for line in text.split("\n"))


def _reference_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return start >= 0 and end >= start + 3 and bool(line[start : end + 2].lstrip("<").rstrip(">").strip())


def _title(line: str) -> bool:
    start = -1
    for found in _ANGLES.finditer(line):
        if found.group()[0] == "<":
            if start < 0 and not _in_word(line[max(found.start() - 1, 0) : found.start()]):
                start = found.end()
        elif start >= 0 and not _in_word(line[found.end() : found.end() + 1]):
            shifts = _SHIFTED.match(line, max(start - 4, 0)) and _SHIFTING.match(line, found.start() - 1)
            if line[start : found.start()].strip("<> \t") and not shifts:
                return True
            start = -1
    return False


def _in_word(beside: str) -> bool:
    return beside.isalnum() and bounded(beside)


# -- Instructions on a reply as a whole: what it starts and ends with, two replies in one, no comma -------------------

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


# -- Instructions on language and case --------------------------------------------------------------------------------


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
