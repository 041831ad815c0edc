"""What needs data of the extra `turngym[ifbench]`: syllables and verbs. Without it there is no verdict, only an error.

Nothing is downloaded. Each package is imported at first use, under a lock: some fill tables while they are imported.
"""

from __future__ import annotations

import importlib
import threading
from functools import cache
from types import ModuleType

from tasks.assertions.instructions.base import InstructionError

EXTRA = "pip install 'turngym[ifbench]'"
_LOCK = threading.RLock()
_DETERMINERS = ("DT", "PRP", "PRP$", "WDT", "PDT")


def syllables(word: str) -> int:
    """Return the number of syllables of an English word; 0 where it holds a digit.

    Raises:
        InstructionError: syllapy is not installed.
    """
    return int(_package("syllapy", "counting syllables").count(word))


def starts_with_verb(words: list[str]) -> bool:
    """Whether the first of the words is a verb, in any form, as TextBlob's lexicon and rules tag it.

    A capital letter makes the tagger see a name (`Plan your day`), so a word that may be both a noun and a verb is a
    verb where a determiner or pronoun follows.

    Raises:
        InstructionError: TextBlob is not installed.
    """
    if not words:
        return False
    tag = _package("textblob.en", "telling verbs").tag
    with _LOCK:  # it loads its lexicon at the first call
        as_written = tag(" ".join(words), tokenize=False)
        small = tag(" ".join([words[0].lower(), *words[1:]]), tokenize=False)
    if any(_verb(tags[0][1]) for tags in (as_written, small) if tags):
        return True
    noun = bool(small) and small[0][1] in ("NN", "NNP")
    return noun and words[0].isalpha() and len(small) > 1 and small[1][1] in _DETERMINERS


def tagged_as_verb(tokens: list[str]) -> bool:
    """Whether NLTK's perceptron tagger takes the first of the tokens for a verb; for numbers as published.

    Raises:
        InstructionError: NLTK or the data of its tagger is not there.
    """
    if not tokens:
        return False
    tagger = _package("nltk", "telling verbs as the published evaluator does")
    try:
        with _LOCK:  # it loads its data at the first call
            tags = tagger.pos_tag(tokens)
    except LookupError:
        raise InstructionError(
            "words:start_verb cannot be checked here as published: the data of NLTK's tagger is missing, which no "
            "package brings. Run `python -m nltk.downloader averaged_perceptron_tagger_eng`, or use semantics=fixed"
        ) from None
    return "VB" in tags[0][1]


def _verb(tag: str) -> bool:
    return tag.startswith("VB") or tag == "MD"


@cache
def _package(name: str, purpose: str) -> ModuleType:
    with _LOCK:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            root = name.partition(".")[0]
            raise InstructionError(f"{purpose} needs the package '{root}', which is not installed: {EXTRA}") from error


__all__ = ["EXTRA", "starts_with_verb", "syllables", "tagged_as_verb"]
