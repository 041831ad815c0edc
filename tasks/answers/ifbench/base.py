"""What IFBench instructions share: words and sentences, syllables and verbs, names of places, stop words."""

from __future__ import annotations

import importlib
import re
import string
import threading
import unicodedata
from functools import cache
from types import ModuleType

from tasks.answers.ifeval import InstructionError, InstructionSet, whole_word
from tasks.answers.ifeval.text import sentences

# -- The stop words that `ratio:stop_words` counts. Data, not code; no package on PyPI ships this list ----------------
# The first 127 are the English stop words of the Snowball project as PostgreSQL ships them
# (tsearch_data/english.stop), from where NLTK took them; its licence:
#
#     Portions Copyright (c) 1996-2024, PostgreSQL Global Development Group
#     Portions Copyright (c) 1994, The Regents of the University of California
#
#     Permission to use, copy, modify, and distribute this software and its documentation for any purpose, without
# fee,
#     and without a written agreement is hereby granted, provided that the above copyright notice and this paragraph
# and
#     the following two paragraphs appear in all copies.
#
#     IN NO EVENT SHALL THE UNIVERSITY OF CALIFORNIA BE LIABLE TO ANY PARTY FOR DIRECT, INDIRECT, SPECIAL, INCIDENTAL,
# OR
#     CONSEQUENTIAL DAMAGES, INCLUDING LOST PROFITS, ARISING OUT OF THE USE OF THIS SOFTWARE AND ITS DOCUMENTATION,
# EVEN
#     IF THE UNIVERSITY OF CALIFORNIA HAS BEEN ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
#
#     THE UNIVERSITY OF CALIFORNIA SPECIFICALLY DISCLAIMS ANY WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED
#     WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE. THE SOFTWARE PROVIDED HEREUNDER IS ON AN "AS
# IS"
#     BASIS, AND THE UNIVERSITY OF CALIFORNIA HAS NO OBLIGATIONS TO PROVIDE MAINTENANCE, SUPPORT, UPDATES,
# ENHANCEMENTS,
#     OR MODIFICATIONS.

_SNOWBALL = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being have
has had having do does did doing a an the and but if or because as until while of at by for with about against between
into through during before after above below to from up down in out on off over under again further then once here there
when where why how all any both each few more most other some such no nor not only own same so than too very s t can
will just don should now
"""

# What NLTK added since: pieces of contractions, as they remain when a text is cut at apostrophes. Its additions that
# have an apostrophe are left out, for no token that is compared holds one.
_PIECES = """
d ll m o re ve y ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
"""

STOP_WORDS = frozenset((_SNOWBALL + _PIECES).split())
"""English stop words, lower case, without apostrophes."""


# -- Names of countries and capitals, and comparing them without accents. Facts, as of 2025 ---------------------------

_NORTHERN = """
Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw London
Brussels Kyiv Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb
"""
CAPITALS = _NORTHERN.split()
"""European capitals north of 45 degrees, from north to south."""

CAPITAL_NAMES = {"Kiev": "Kyiv", "Luxembourg City": "Luxembourg", "Berne": "Bern", "Kishinev": "Chisinau"}
"""Other spellings."""

_AFRICA = """
Algeria|Angola|Benin|Botswana|Burkina Faso|Burundi|Cabo Verde=Cape Verde|Cameroon|
Central African Republic=Central African Republic (CAR)|Chad|Comoros|Djibouti|Egypt|Equatorial Guinea|Eritrea|
Democratic Republic of the Congo=Democratic Republic of Congo=DR Congo=DRC=Congo, Democratic Republic of the=
Congo, Democratic Republic of=Congo (Kinshasa)=Congo (Democratic Republic)=Congo (DRC)=Congo, DR=Congo (DR)=
Democratic Republic of the Congo (DRC)=Congo (Democratic Republic of the)|
Republic of the Congo=Republic of Congo=Congo=Congo, Republic of the=Congo, Republic of=Congo (Brazzaville)=
Congo (Republic)=Republic of the Congo (Congo-Brazzaville)=Congo (Republic of the)|
Côte d'Ivoire=Ivory Coast=Côte d'Ivoire (Ivory Coast)=Ivory Coast (Côte d'Ivoire)|
Eswatini=Swaziland=Eswatini (formerly Swaziland)=Eswatini (Swaziland)|Ethiopia|Gabon|Gambia|Ghana|Guinea|Guinea-Bissau|
Kenya|Lesotho|Liberia|Libya|Madagascar|Malawi|Mali|Mauritania|Mauritius|Morocco|Mozambique|Namibia|Niger|Nigeria|
Rwanda|São Tomé and Príncipe=São Tomé & Príncipe|Senegal|Seychelles|Sierra Leone|Somalia|South Africa|South Sudan|
Sudan|Tanzania|Togo|Tunisia|Uganda|Zambia|Zimbabwe
"""

_OPTIONAL = "Western Sahara=Sahrawi Arab Democratic Republic=Sahrawi Republic"


def plain(text: str) -> str:
    """Return the text in ASCII: accents taken off, other characters dropped."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def letters(text: str) -> str:
    """Return the ASCII letters of a name, small, without a leading article: what names are compared and sorted by."""
    found = "".join(character for character in plain(text).lower() if character.isalpha() or character == " ")
    return found.strip().removeprefix("the ").replace(" ", "")


AFRICA: dict[str, str] = {
    letters(name): entry.partition("=")[0].strip()
    for entry in f"{_AFRICA}|{_OPTIONAL}".replace("\n", " ").split("|")
    for name in entry.split("=")
}
"""`letters` of each way to name a country of Africa: one name for it."""

OPTIONAL_AFRICA = frozenset({"Western Sahara"})
"""Not a member of the United Nations: may be listed or not."""


# -- What the IFBench instructions share: what they call a word and a sentence ----------------------------------------
# Their published readings decide as the evaluator at commit db69a6f of the benchmark does.

ifbench = InstructionSet()
"""The 58 ids that IFBench has beside those of IFEval, once the modules that hold their checks are imported."""

_DELETE = str.maketrans("", "", string.punctuation)
_JOINTS = re.compile(r"-{2,}|\.{2,}|[/\u2012-\u2015\u2026]")
"""Marks that stand between words with no blank beside them."""
_WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")
"""From the first to the last letter or digit of a run without blanks."""


def nth_sentence(text: str, number: int) -> str:
    """Return a sentence of the text, counted from 1; an empty text where there are fewer."""
    found = sentences(text)
    return found[number - 1] if len(found) >= number else ""


def words(text: str) -> list[str]:
    """Return the words of a text: runs without blanks, dashes or slashes, without the marks around them.

    `well-known`, `don't` and `3.5` are one word each; what has no letter and no digit is none.
    """
    return _WORD.findall(_JOINTS.sub(" ", text))


def without_punctuation(text: str) -> str:
    """Return the text without ASCII punctuation, not even blanks in its place: the evaluator's way to words."""
    return text.translate(_DELETE)


def bare(text: str) -> str:
    """Return the text without ASCII punctuation and blanks around it."""
    return text.strip(string.punctuation + " ")


def occurrences(word: str, text: str) -> int:
    """Count where `word` stands in the text by itself, not as a part of another word; case is ignored."""
    return sum(1 for _ in whole_word(word).finditer(text))


# ---------------------------------------------------------------------------------------------------------------------
# What needs data of the extra `turngym[ifbench]`: syllables and verbs. Without it there is no verdict, only an error.
#
# Nothing is downloaded. Each package is imported at first use, under a lock: some fill tables while they are
# imported.

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
