"""Instructions on the look of an answer: case, blanks, lines, emoji, templates, options."""

from __future__ import annotations

import re

import regex

from tasks.assertions.instructions.base import TEXT
from tasks.assertions.instructions.ifbench.base import IfbenchInstruction, bare, without_punctuation, words
from tasks.assertions.instructions.ifbench.stairs import indents_after_removal
from tasks.assertions.instructions.sentences import sentences
from tasks.assertions.instructions.tokens import tokens

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


class Newline(IfbenchInstruction):
    """Each word stands on a line of its own."""

    id = "format:newline"
    kind = "one word a line"
    fix = "lines are looked at one by one: a line of blanks does not make up for a line of two words"

    def published(self, text: str) -> bool:
        """Compare the number of lines with that of words, after punctuation is gone."""
        bare_text = without_punctuation(text).strip()
        return sum(line != "" for line in bare_text.split("\n")) == len(bare_text.split())

    def fixed(self, text: str) -> bool:
        """No line has more than one word."""
        counts = [len(words(line)) for line in text.split("\n")]
        return max(counts) == 1

    def describe(self) -> str:
        """Return the condition in words."""
        return "has each word on a new line"


class NoWhitespace(IfbenchInstruction):
    """No blank of any kind."""

    id = "format:no_whitespace"
    kind = "blanks"

    def published(self, text: str) -> bool:
        """Look for one."""
        return re.search(r"\s", text) is None

    def describe(self) -> str:
        """Return the condition in words."""
        return "has no blanks and no line breaks"


class LineIndent(IfbenchInstruction):
    """Each line is indented more than the one before."""

    id = "format:line_indent"
    kind = "indented lines"
    fix = "blank lines are passed over, however many; tabs indent; one line makes no stairs"

    def published(self, text: str) -> bool:
        """Compare what is left after blank lines were removed while they were counted."""
        return _rises(indents_after_removal(text.split("\n")))

    def fixed(self, text: str) -> bool:
        """Compare at least two lines that hold something."""
        lines = [line.expandtabs() for line in text.split("\n") if line.strip()]
        return len(lines) > 1 and _rises([len(line) - len(line.lstrip()) for line in lines])

    def describe(self) -> str:
        """Return the condition in words."""
        return "indents each line more than the one before"


class Emoji(IfbenchInstruction):
    """Each sentence ends in an emoji, before or behind its last mark."""

    id = "format:emoji"
    kind = "emoji at the ends of sentences"
    fix = "flags, keycaps and joined emoji are emoji; an emoji directly behind a full stop ends its sentence"

    def published(self, text: str) -> bool:
        """Look at the last two characters, else at the first one of the next sentence."""
        found = [without_punctuation(sentence).strip() for sentence in sentences(text)]
        for index, sentence in enumerate(found):
            if not sentence:
                return False
            after = found[index + 1][:1] if index + 1 < len(found) else ""
            if not any(_ONE_EMOJI.match(character) for character in (*sentence[-2:], after)):
                return False
        return True

    def fixed(self, text: str) -> bool:
        """Move each emoji before the mark that it stands behind, then look at the ends."""
        found = sentences(_BEHIND_MARK.sub(r"\2\1 ", text))
        found = [sentence for sentence in found if words(sentence) or _ENDS_IN_EMOJI.search(sentence[-64:])]
        return bool(found) and all(_ENDS_IN_EMOJI.search(sentence[-64:]) for sentence in found)

    def describe(self) -> str:
        """Return the condition in words."""
        return "ends each sentence with an emoji"


class TitleCase(IfbenchInstruction):
    """Title case: each major word begins with a capital letter."""

    id = "format:title_case"
    kind = "title case"
    fix = "minor words such as `of` may be small unless they come first; `Don't` is one word; a letter is needed"

    def published(self, text: str) -> bool:
        """No token of letters may begin small, unless capitals and small letters mix after that."""
        return not any(token[0].isalpha() and _small(token) for token in tokens(text))

    def fixed(self, text: str) -> bool:
        """No major word may begin small, unless a capital letter stands within it (`iPhone`)."""
        found = [word for word in words(text) if word[0].isalpha()]
        return bool(found) and not any(
            word[0].islower() and not any(map(str.isupper, word)) and (index == 0 or word not in _MINOR)
            for index, word in enumerate(found)
        )

    def describe(self) -> str:
        """Return the condition in words."""
        return "is in title case"


class OutputTemplate(IfbenchInstruction):
    """The template `My Answer: [answer] My Conclusion: [conclusion] Future Outlook: [outlook]`, filled in."""

    id = "format:output_template"
    kind = "the template of the answer"
    fix = "nothing before the first label, each label once and in order, and something of one's own after each"

    def published(self, text: str) -> bool:
        """Look for the three labels anywhere."""
        return all(label in text for label in _TEMPLATE)

    def fixed(self, text: str) -> bool:
        """Cut at the labels."""
        pieces = re.split("|".join(map(re.escape, _TEMPLATE)), text)
        labels = tuple(re.findall("|".join(map(re.escape, _TEMPLATE)), text))
        filled = all(words(piece) and piece.strip()[0] + piece.strip()[-1] != "[]" for piece in pieces[1:])
        return labels == _TEMPLATE and not pieces[0].strip() and filled

    def describe(self) -> str:
        """Return the condition in words."""
        return "follows the template 'My Answer: ... My Conclusion: ... Future Outlook: ...'"


class Options(IfbenchInstruction):
    """One of the given options and nothing else."""

    id = "format:options"
    kind = "one of the options"
    arguments = {"options": TEXT}
    fix = "blanks around a lettered option are passed over, a curly apostrophe is one, `or` parts only as a word"

    def prepare(self) -> None:
        """Find the options: parted by a slash, else by `or`, else by commas."""
        text = self.args["options"]
        self.exact = _LETTERS.match(text) is not None
        between = "/" if "/" in text else "or" if "or" in text else ","
        self.options = [option.strip() for option in text.split(between)]
        fixed = text.split("/") if "/" in text else re.split(r"\s+or\s+", text)
        self.fixed_options = [option.strip() for option in (fixed if len(fixed) > 1 else text.split(","))]

    def published(self, text: str) -> bool:
        """Compare: lettered options exactly, others without case and outer punctuation."""
        if self.exact:
            return text in self.options
        return bare(text).lower() in {bare(option).lower() for option in self.options}

    def fixed(self, text: str) -> bool:
        """Compare as before, on the text without outer blanks."""
        plain = text.strip().replace("\u2019", "'")
        if self.exact:
            return plain in self.fixed_options
        return bool(bare(plain)) and bare(plain).lower() in {bare(option).lower() for option in self.fixed_options}

    def describe(self) -> str:
        """Return the condition in words."""
        return f"is one of: {self.args['options']}"


def _rises(indents: list[int]) -> bool:
    return all(before < after for before, after in zip(indents, indents[1:], strict=False))


def _small(token: str) -> bool:
    rest = token[1:]
    return token[0].islower() and (not rest or rest.isupper() or rest.islower())


ALL: tuple[type[IfbenchInstruction], ...] = (
    Newline,
    NoWhitespace,
    LineIndent,
    Emoji,
    TitleCase,
    OutputTemplate,
    Options,
)
"""The instructions of this module."""
