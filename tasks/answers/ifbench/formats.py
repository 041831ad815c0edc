"""IFBench instructions on the look of an answer: case, lines, emoji, templates, options, nested marks."""

from __future__ import annotations

import re
import string
from collections import Counter
from dataclasses import dataclass

import regex

from tasks.answers.ifbench.base import bare, ifbench, without_punctuation, words
from tasks.answers.ifeval import TEXT
from tasks.answers.ifeval.text import sentences, tokens

# -- What the published check of indented lines is left with, in linear time ------------------------------------------


def indents_after_removal(lines: list[str]) -> list[int]:
    """Return the indents, in spaces, of the lines that are left after the published removal of blank ones.

    The evaluator walks over a list while it removes from it. So the line after each removal is never looked at; and
    what is removed is the first line equal to the blank one at hand, which may be one that was passed over before.
    """
    kept: list[str] = []
    removed: Counter[str] = Counter()  # how many of the first equal lines are to be dropped in the end
    passed: Counter[str] = Counter()  # equal blank lines that are kept so far and not marked for removal
    skip = False
    for line in lines:
        if skip or line.strip():
            skip = False
            kept.append(line)
            if not line.strip():
                passed[line] += 1
            continue
        if passed[line]:  # an earlier one goes, this one stays
            removed[line] += 1
            kept.append(line)
        skip = True
    left: list[int] = []
    for line in kept:
        if removed[line]:
            removed[line] -= 1
        else:
            left.append(len(line) - len(line.lstrip(" ")))
    return left


# -- Instructions on the look of an answer: case, blanks, lines, emoji, templates, options ----------------------------

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


# -- Instructions on brackets and quotation marks ---------------------------------------------------------------------

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_STRAIGHT = str.maketrans("\u201c\u201d\u201e\xab\xbb", '"' * 5)
_OPEN, _CLOSE = {"\u201c": '"', "\u2018": "'"}, {"\u201d": '"', "\u2019": "'"}
_OUTER = string.digits + string.punctuation.replace('"', "")


@dataclass(slots=True)
class _Group:
    """What is open: the mark that closes it, and the depth of what was closed inside."""

    closing: str
    inside: int = 0


@ifbench.add(
    "format:parentheses",
    kind="nested brackets",
    says="nests brackets at least five deep",
    fix="all five levels must be closed; a closing bracket without an opening one is passed over",
)
def format_parentheses(text: str) -> bool:
    """Brackets of any kind, nested at least five deep.

    Measure each group that is closed: one more than the deepest within it.
    """
    opened: list[_Group] = []
    for character in text:
        if character in _PAIRS:
            opened.append(_Group(_PAIRS[character]))
        elif character in ")]}" and opened:
            if opened[-1].closing != character:
                opened = []
            elif _close(opened, len(opened) - 1) >= 5:
                return True
    return False


@format_parentheses.published
def _(text: str) -> bool:
    """After five were open at once, one that closes is enough."""
    opened: list[str] = []
    deepest = 0
    for character in text:
        if character in _PAIRS:
            opened.append(_PAIRS[character])
            deepest = max(deepest, len(opened))
        elif character in ")]}":
            if not opened or opened[-1] != character:
                opened, deepest = [], 0
                continue
            opened.pop()
            if deepest >= 5:
                return True
    return False


@ifbench.add(
    "format:quotes",
    kind="nested quotes",
    says="nests quotes at least three deep, double and single in turn",
    fix="an apostrophe is no quotation mark; curly marks are; all three levels must be one inside the other",
)
def format_quotes(text: str) -> bool:
    """Quotation marks, double and single in turn, nested at least three deep.

    Measure each quote that is closed: one more than the deepest within it.
    """
    opened: list[_Group] = []  # double and single in turn
    for index, character in enumerate(text):
        mark = _OPEN.get(character) or _CLOSE.get(character) or character
        if mark not in "\"'":
            continue
        before, after = text[index - 1 : index], text[index + 1 : index + 2]
        if mark == "'" and before.isalnum() and after.isalnum():
            continue  # an apostrophe
        same = bool(opened) and opened[-1].closing == mark
        if same and character == "'" and not before.strip() and after.isalnum():
            opened[-1] = _Group(mark)  # this one opens, so the last one was an apostrophe, such as in 'tis
            continue
        begins = character not in _CLOSE and not before.isalnum() and bool(after.strip())
        if character in _OPEN or (begins and not same):
            if not same:
                opened.append(_Group(mark))
            continue
        # If it is not the last one that it closes, that one was no quotation mark.
        level = len(opened) - (1 if same else 2)
        if level >= 0 and _close(opened, level) >= 3:
            return True
    return False


@format_quotes.published
def _(text: str) -> bool:
    """After some depth was reached, three levels less is enough, wherever they were."""
    opened: list[str] = []
    deepest = 0
    for character in text:
        if opened and character == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif character in "\"'":
            opened.append(character)
            deepest = max(deepest, len(opened))
    return False


@ifbench.add(
    "format:quote_unquote",
    kind="explanations after quotes",
    says="explains each quoted phrase, behind it and without quotes",
    fix="there must be a quoted phrase; curly quotes are quotes; marks alone are no explanation",
)
def format_quote_unquote(text: str) -> bool:
    """Behind each quoted phrase stands an explanation without quotes.

    Take every second piece between the marks; each needs a word.
    """
    pieces = text.replace("'\"'", "").translate(_STRAIGHT).split('"')
    return len(pieces) > 2 and len(pieces) % 2 == 1 and all(words(piece) for piece in pieces[2::2])


@format_quote_unquote.published
def _(text: str) -> bool:
    """No two marks in a row, and none at the end; a text without quotes passes."""
    plain = "".join(text.replace("'\"'", "").split())
    return '""' not in plain and not plain.strip(_OUTER).endswith('"')


def _close(opened: list[_Group], level: int) -> int:
    """Close the group at `level`, with what is open inside it, and return how deep it was."""
    depth = opened[level].inside + 1
    del opened[level:]
    if opened:
        opened[-1].inside = max(opened[-1].inside, depth)
    return depth


# -- The instruction to begin each section with a thesis, and where sections begin ------------------------------------

# Markdown and HTML headings, and a line that is bold from end to end.
_HEADING = re.compile(r"#{1,6}\s|<h[1-6]\b|(?:\*\*|__)[^*_]+(?:\*\*|__):?$|<(b|strong)>[^<]*</\1>:?$", re.IGNORECASE)
# Italics that are closed before others open; `.*?` would run on to a later closing tag.
_THESIS = re.compile(r"(?:<p>\s*)?<(i|em)>((?:(?!</?(?:i|em)>).)*)</\1>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_THESIS_START = re.compile(r"(?:<p>\s*)?<(?:i|em)>", re.IGNORECASE)


@ifbench.add(
    "format:thesis",
    kind="a thesis in italics",
    says="begins each section with a thesis statement in HTML italics",
    fix="every section, not one, begins with closed italics, with text after them; headings part sections",
)
def format_thesis(text: str) -> bool:
    """Each section begins with a thesis in HTML italics.

    Look at the beginning of each section that has a body.
    """
    found = [section.strip() for section in _sections(text) if section.strip()]
    return bool(found) and all(map(_begins_with_thesis, found))


@format_thesis.published
def _(text: str) -> bool:
    """Look for one pair of tags with something between and behind them."""
    start = text.find("<i>") if "<i>" in text else text.find("<em>")
    rest = text[start:] if start >= 0 else ""
    end = rest.find("</i>") if "</i>" in rest else rest.find("</em>")
    return end >= 0 and bool(rest[3:end].strip()) and bool(rest[end + 4 :].strip())


def _sections(text: str) -> list[str]:
    """Return the bodies under the headings, and what stands before the first one."""
    sections: list[list[str]] = [[]]
    lines = [line.strip() for line in text.split("\n")]
    following = ""  # the next line that holds something
    headings = [False] * len(lines)
    for index in range(len(lines) - 1, -1, -1):
        plain = lines[index][:1] not in ("", "<") and lines[index][-1:] not in ".!?;,"
        title = plain and len(lines[index]) <= 100 and _THESIS_START.match(following) is not None
        headings[index] = title or _HEADING.match(lines[index][:300]) is not None
        following = lines[index] or following
    for line, heading in zip(lines, headings, strict=True):
        if heading:
            sections.append([])
        else:
            sections[-1].append(line)
    return ["\n".join(section) for section in sections]


def _begins_with_thesis(section: str) -> bool:
    match = _THESIS.match(section)
    return match is not None and bool(words(match[2])) and bool(words(_TAG.sub(" ", section[match.end() :])))
