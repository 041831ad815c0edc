"""Instructions that count: words, keywords, numbers, names, pronouns, conjunctions, marks, Japanese words."""

from __future__ import annotations

import re

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import (
    IfbenchInstruction,
    bare,
    occurrences,
    without_punctuation,
    words,
)
from tasks.assertions.instructions.tokens import tokens

_CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})
_DIGITS = re.compile(r"\d+")
_FIGURES = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)*")
_WORD = re.compile(r"\w+")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_JAPANESE_TOO = re.compile(r"[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f]")

# Data: the pronouns and the names that the evaluator looks for (allenai/IFBench, Apache-2.0). Its prompts list the same
# names.
_LISTED = """
i me we us you he him she her it they them my mine our ours your yours his hers its their theirs myself ourselves
yourself yourselves himself herself itself themselves this that these those who whom whose which what whoever whomever
whatever whichever anybody anyone anything everybody everyone everything nobody nothing somebody someone something
each either neither both all some any none
"""
_PEOPLE = """
Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper Leo
Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla
Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan
"""
_PRONOUNS, _NAMES = frozenset(_LISTED.split()), frozenset(_PEOPLE.split())
_MORE_PRONOUNS = frozenset({"another", "others", "oneself", "themself", "ourself"})


class WordCountRange(IfbenchInstruction):
    """So many words: runs of letters, digits and underscores, as IFEval counts them."""

    id = "count:word_count_range"
    kind = "number of words"
    arguments = {"min_words": whole(), "max_words": whole()}

    def prepare(self) -> None:
        """Refuse a range that nothing can be in."""
        self.in_order("min_words", "max_words")

    def published(self, text: str) -> bool:
        """Count the runs."""
        found: int = sum(1 for _ in _WORD.finditer(text))
        return bool(self.args["min_words"] <= found <= self.args["max_words"])

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has {self.args['min_words']} to {self.args['max_words']} words"


class UniqueWordCount(IfbenchInstruction):
    """At least so many different words."""

    id = "count:unique_word_count"
    kind = "number of different words"
    arguments = {"N": whole()}
    fix = "marks that stand by themselves are no word, and a word in curly quotes is the word without them"

    def published(self, text: str) -> bool:
        """Split at blanks; a run of marks counts as one more word."""
        return len({bare(token) for token in text.lower().split()}) >= self.args["N"]

    def fixed(self, text: str) -> bool:
        """Count the words only."""
        return len(set(words(text.lower()))) >= self.args["N"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has at least {self.args['N']} different words"


class Conjunctions(IfbenchInstruction):
    """At least so many of the seven coordinating conjunctions."""

    id = "count:conjunctions"
    kind = "number of different conjunctions"
    arguments = {"small_n": whole()}
    fix = "`and`, `And` and `and,` are one conjunction, not three"

    def published(self, text: str) -> bool:
        """Compare the tokens as they are written."""
        found = {token for token in text.split() if bare(token).lower() in _CONJUNCTIONS}
        return len(found) >= self.args["small_n"]

    def fixed(self, text: str) -> bool:
        """Compare the words."""
        return len(_CONJUNCTIONS.intersection(words(text.lower()))) >= self.args["small_n"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"uses at least {self.args['small_n']} of the conjunctions and, but, for, nor, or, so, yet"


class PersonNames(IfbenchInstruction):
    """At least so many of the fifty names that the prompt lists."""

    id = "count:person_names"
    kind = "number of person names"
    arguments = {"N": whole()}

    def published(self, text: str) -> bool:
        """Look for the names as whole words."""
        return len(_NAMES.intersection(_WORD.findall(text))) >= self.args["N"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"mentions at least {self.args['N']} different names of the list"


class Numbers(IfbenchInstruction):
    """Exactly so many numbers, written in digits."""

    id = "count:numbers"
    kind = "number of numbers"
    arguments = {"N": whole()}
    fix = "numbers with a mark between them (`10-20`, `1/2`, `12:30`) are two, not one; `1,000.50` stays one"

    def published(self, text: str) -> bool:
        """Count runs of digits after all punctuation is gone."""
        return sum(1 for _ in _DIGITS.finditer(without_punctuation(text))) == self.args["N"]

    def fixed(self, text: str) -> bool:
        """Count numbers with their thousands separators and decimals; other commas part numbers."""
        runs = _FIGURES.findall(text)
        return sum(1 if _THOUSANDS.fullmatch(run) else 1 + run.count(",") for run in runs) == self.args["N"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"holds exactly {self.args['N']} numbers"


class Pronouns(IfbenchInstruction):
    """At least so many pronouns, from a list; determiners such as `this` count."""

    id = "count:pronouns"
    kind = "number of pronouns"
    arguments = {"N": whole()}
    fix = "`another`, `others`, `oneself`, `themself`, `ourself` count too"

    def published(self, text: str) -> bool:
        """Count the tokens that are in the list."""
        return sum(token in _PRONOUNS for token in tokens(text.replace("/", " ").lower())) >= self.args["N"]

    def fixed(self, text: str) -> bool:
        """Count by a list with a few more."""
        found = tokens(text.replace("/", " ").lower())
        return sum(token in _PRONOUNS or token in _MORE_PRONOUNS for token in found) >= self.args["N"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has at least {self.args['N']} pronouns"


class Punctuation(IfbenchInstruction):
    """Each of `. , ! ? ; :` and an interrobang beside them."""

    id = "count:punctuation"
    kind = "punctuation marks used"

    def published(self, text: str) -> bool:
        """Take one interrobang out, then look for the six."""
        if not any(mark in text for mark in ("?!", "!?", "\u203d")):
            return False
        rest = text.replace("?!" if "?!" in text else "!?", "", 1)
        return all(mark in rest for mark in ".,!?;:")

    def describe(self) -> str:
        """Return the condition in words."""
        return "uses . , ! ? ; : and an interrobang (?!), each at least once"


class WordsJapanese(IfbenchInstruction):
    """Every N-th word is Japanese."""

    id = "count:words_japanese"
    kind = "words in Japanese"
    arguments = {"N": whole(1)}
    fix = "there must be an N-th word; marks are no words; a number in digits is not Japanese"

    def published(self, text: str) -> bool:
        """Split at blanks; numbers and marks are let pass, and a short text has no N-th word to fail."""
        chosen = (bare(token) for token in text.split()[self.args["N"] - 1 :: self.args["N"]])
        return all(_JAPANESE.search(token) for token in chosen if token and not token.isdigit())

    def fixed(self, text: str) -> bool:
        """Each N-th word holds a Japanese character."""
        chosen = words(text)[self.args["N"] - 1 :: self.args["N"]]
        return bool(chosen) and all(_JAPANESE_TOO.search(word) for word in chosen)

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has each {self.args['N']}-th word in Japanese"


class KeywordsMultiple(IfbenchInstruction):
    """Five keywords, once, twice, three, five and seven times."""

    id = "count:keywords_multiple"
    kind = "how often keywords stand"
    arguments = {f"keyword{number}": TEXT for number in range(1, 6)}
    fix = "a keyword inside another word does not count (`art` in `start`)"
    _times = (1, 2, 3, 5, 7)

    def prepare(self) -> None:
        """Take the keywords without blanks around them."""
        self.keywords = tuple(str(self.args[name]).strip() for name in self.arguments)

    def published(self, text: str) -> bool:
        """Count substrings; case is ignored."""
        lower = text.lower()
        return all(lower.count(word.lower()) == times for word, times in zip(self.keywords, self._times, strict=True))

    def fixed(self, text: str) -> bool:
        """Count whole words; case is ignored."""
        return all(occurrences(word, text) == times for word, times in zip(self.keywords, self._times, strict=True))

    def describe(self) -> str:
        """Return the condition in words."""
        return "has " + ", ".join(f"'{w}' {n} times" for w, n in zip(self.keywords, self._times, strict=True))


ALL: tuple[type[IfbenchInstruction], ...] = (
    WordCountRange,
    UniqueWordCount,
    Conjunctions,
    PersonNames,
    Numbers,
    Pronouns,
    Punctuation,
    WordsJapanese,
    KeywordsMultiple,
)
"""The instructions of this module."""
