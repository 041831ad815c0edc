"""Instructions on the look of an answer: case, blanks, lines, emoji, templates, options."""

from __future__ import annotations

import re

import regex

from tasks.assertions.instructions.base import TEXT
from tasks.assertions.instructions.ifbench.base import bare, ifbench, without_punctuation, words
from tasks.assertions.instructions.ifbench.stairs import indents_after_removal
from tasks.assertions.instructions.sentences import sentences
from tasks.assertions.instructions.tokens import tokens

# Flags (two letters), keycaps, and any other emoji with its variation, joiner, skin tone and tag characters.
_EMOJI = r"(?:\p{RI}\p{RI}|[0-9#*]\uFE0F?\u20E3|[\p{Emoji}--[0-9#*\p{RI}]][\uFE0F\u200D\p{EMod}\U000E0020-\U000E007F]*)"
_ONE_EMOJI = regex.compile(r"[\p{Emoji}--[0-9#*\p{RI}]]", regex.V1)
_ENDS_IN_EMOJI = regex.compile(rf"{_EMOJI}[^\p{{L}}\p{{N}}]*$", regex.V1)
_BEHIND_MARK = regex.compile(rf"(?<![.!?\u2026])([.!?\u2026]++[\"')\]*_\u2019\u201d]*+)\s*+((?:{_EMOJI})++)", regex.V1)
"""An emoji that stands behind the mark that ends its sentence."""
_LETTERS = re.compile(r"\W*a\W*b\W*c\W*", re.IGNORECASE)
_TEMPLATE = ("My Answer:", "My Conclusion:", "Future Outlook:")
_SMALL_WORDS = """
a an the and but for nor or so yet as at by in of off on per to up via if vs with from into onto over upon than till
near past down out
"""
_MINOR = frozenset(_SMALL_WORDS.split())
"""Words that title case may leave small: articles, conjunctions, prepositions of at most four letters."""


@ifbench.add(
    "format:newline",
    kind="one word a line",
    says="has each word on a new line",
    fix="lines are looked at one by one: a line of blanks does not make up for a line of two words",
)
def format_newline(text: str) -> bool:
    """Each word stands on a line of its own.

    No line has more than one word.
    """
    counts = [len(words(line)) for line in text.split("\n")]
    return max(counts) == 1


@format_newline.published
def _(text: str) -> bool:
    """Compare the number of lines with that of words, after punctuation is gone."""
    bare_text = without_punctuation(text).strip()
    return sum(line != "" for line in bare_text.split("\n")) == len(bare_text.split())


@ifbench.add(
    "format:no_whitespace",
    kind="blanks",
    says="has no blanks and no line breaks",
)
def format_no_whitespace(text: str) -> bool:
    """No blank of any kind."""
    return re.search(r"\s", text) is None


@ifbench.add(
    "format:line_indent",
    kind="indented lines",
    says="indents each line more than the one before",
    fix="blank lines are passed over, however many; tabs indent; one line makes no stairs",
)
def format_line_indent(text: str) -> bool:
    """Each line is indented more than the one before.

    Compare at least two lines that hold something.
    """
    lines = [line.expandtabs() for line in text.split("\n") if line.strip()]
    return len(lines) > 1 and _rises([len(line) - len(line.lstrip()) for line in lines])


@format_line_indent.published
def _(text: str) -> bool:
    """Compare what is left after blank lines were removed while they were counted."""
    return _rises(indents_after_removal(text.split("\n")))


@ifbench.add(
    "format:emoji",
    kind="emoji at the ends of sentences",
    says="ends each sentence with an emoji",
    fix="flags, keycaps and joined emoji are emoji; an emoji directly behind a full stop ends its sentence",
)
def format_emoji(text: str) -> bool:
    """Each sentence ends in an emoji, before or behind its last mark.

    Move each emoji before the mark that it stands behind, then look at the ends.
    """
    found = sentences(_BEHIND_MARK.sub(r"\2\1 ", text))
    found = [sentence for sentence in found if words(sentence) or _ENDS_IN_EMOJI.search(sentence[-64:])]
    return bool(found) and all(_ENDS_IN_EMOJI.search(sentence[-64:]) for sentence in found)


@format_emoji.published
def _(text: str) -> bool:
    """Look at the last two characters, else at the first one of the next sentence."""
    found = [without_punctuation(sentence).strip() for sentence in sentences(text)]
    for index, sentence in enumerate(found):
        if not sentence:
            return False
        after = found[index + 1][:1] if index + 1 < len(found) else ""
        if not any(_ONE_EMOJI.match(character) for character in (*sentence[-2:], after)):
            return False
    return True


@ifbench.add(
    "format:title_case",
    kind="title case",
    says="is in title case",
    fix="minor words such as `of` may be small unless they come first; `Don't` is one word; a letter is needed",
)
def format_title_case(text: str) -> bool:
    """Title case: each major word begins with a capital letter.

    No major word may begin small, unless a capital letter stands within it (`iPhone`).
    """
    found = [word for word in words(text) if word[0].isalpha()]
    return bool(found) and not any(
        word[0].islower() and not any(map(str.isupper, word)) and (index == 0 or word not in _MINOR)
        for index, word in enumerate(found)
    )


@format_title_case.published
def _(text: str) -> bool:
    """No token of letters may begin small, unless capitals and small letters mix after that."""
    return not any(token[0].isalpha() and _small(token) for token in tokens(text))


@ifbench.add(
    "format:output_template",
    kind="the template of the answer",
    says="follows the template 'My Answer: ... My Conclusion: ... Future Outlook: ...'",
    fix="nothing before the first label, each label once and in order, and something of one's own after each",
)
def format_output_template(text: str) -> bool:
    """The template `My Answer: [answer] My Conclusion: [conclusion] Future Outlook: [outlook]`, filled in.

    Cut at the labels.
    """
    pieces = re.split("|".join(map(re.escape, _TEMPLATE)), text)
    labels = tuple(re.findall("|".join(map(re.escape, _TEMPLATE)), text))
    filled = all(words(piece) and piece.strip()[0] + piece.strip()[-1] != "[]" for piece in pieces[1:])
    return labels == _TEMPLATE and not pieces[0].strip() and filled


@format_output_template.published
def _(text: str) -> bool:
    """Look for the three labels anywhere."""
    return all(label in text for label in _TEMPLATE)


@ifbench.add(
    "format:options",
    kind="one of the options",
    says="is one of: {options}",
    arguments={"options": TEXT},
    fix="blanks around a lettered option are passed over, a curly apostrophe is one, `or` parts only as a word",
)
def format_options(text: str, options: str) -> bool:
    """One of the given options and nothing else.

    They are parted by slashes, else by the word `or`, else by commas. Lettered options are compared exactly, others
    without case and outer punctuation; blanks around the text do not count.
    """
    pieces = options.split("/") if "/" in options else re.split(r"\s+or\s+", options)
    given = pieces if len(pieces) > 1 else options.split(",")
    plain = text.strip().replace("\u2019", "'")
    return _is_option(plain, given, options) and (_lettered(options) or bool(bare(plain)))


@format_options.published
def _(text: str, options: str) -> bool:
    """They are parted by slashes, else by the letters `or` wherever they stand, else by commas."""
    between = "/" if "/" in options else "or" if "or" in options else ","
    return _is_option(text, options.split(between), options)


def _lettered(options: str) -> bool:
    return _LETTERS.match(options) is not None


def _is_option(text: str, given: list[str], options: str) -> bool:
    stripped = [option.strip() for option in given]
    if _lettered(options):
        return text in stripped
    return bare(text).lower() in {bare(option).lower() for option in stripped}


def _rises(indents: list[int]) -> bool:
    return all(before < after for before, after in zip(indents, indents[1:], strict=False))


def _small(token: str) -> bool:
    rest = token[1:]
    return token[0].islower() and (not rest or rest.isupper() or rest.islower())
