"""Which language a text is in, and whether it is English, short ones too."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# -- Which language a text is in: the answer of `langdetect` with a fixed seed, the same from any thread --------------
# `langdetect` draws at random unless it is seeded, and fills its tables without a lock: threads that ask it first at
# the same time get wrong answers or none. So its tables are loaded here once, under a lock, into a factory of our own,
# and the sampling is done here (faster, same numbers). No other user of the package is affected.

# numpy is imported where it is used: listing and proving tasks must not wait for it.

_CODES = """
af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt ro ru sk
sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw
"""
LANGUAGES = tuple(_CODES.split())
"""The codes that `langdetect` can answer, stated here so that nothing is loaded to know them."""
SEED = 0
UNKNOWN = "unknown"
"""No language is likely enough."""

_CONSIDERED = 100_000
"""Characters that are looked at, before addresses are taken out."""
_LENGTH = 10_000
"""Characters that are used, after that; as in `langdetect`."""
_TRIALS, _STEPS, _BATCH, _SURE, _LIKELY = 7, 1000, 5, 0.99999, 0.1
_ALPHA, _ALPHA_WIDTH, _BASE = 0.5, 0.05, 10_000
_URL = re.compile(r"https?://[-_.?&~;+=/#0-9A-Za-z]{1,2076}")
_MAIL = re.compile(r"[-_.0-9A-Za-z]{1,64}@[-_0-9A-Za-z]{1,255}[-_.0-9A-Za-z]{1,255}")
_BLANKS = re.compile("  +")
_NO_LETTERS = re.compile("[^A-Za-z]+")


class LanguageUnknown(ValueError):
    """The text has nothing that a language could be told by, such as one of digits only."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """What was trained, as `langdetect` ships it.

    Attributes:
        languages: Codes.
        known: One to three characters: number of their row.
        chances: How often each occurs in each language, shape [rows, languages].
        ngram: The class that turns a character into the one that was trained.
    """

    languages: tuple[str, ...]
    known: Mapping[str, int]
    chances: NDArray[np.float64]
    ngram: Any


_lock = threading.Lock()
_loaded: _Tables | None = None


def warm_up() -> None:
    """Load the tables now (about half a second), if they are not. Any check that needs them does this itself."""
    _tables()


def _tables() -> _Tables:
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _load() -> _Tables:
    import numpy as np
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
    from langdetect.utils.ngram import NGram

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    known = {gram: number for number, gram in enumerate(factory.word_lang_prob_map)}
    return _Tables(tuple(factory.langlist), known, np.array(list(factory.word_lang_prob_map.values())), NGram)


def detect(text: str) -> str:
    """Return the code of the most likely language, or `UNKNOWN`.

    Raises:
        LanguageUnknown: nothing in the text tells.
    """
    likelihoods = _likelihoods(text)
    best = int(likelihoods.argmax())
    return _tables().languages[best] if likelihoods[best] > _LIKELY else UNKNOWN


def lead(text: str, language: str) -> float:
    """Return how far the language is ahead of the best one, in nats over the whole text: 0 if it is the best.

    Every group of letters counts once, so nothing is drawn at random, and the value says how sure a verdict is.

    Raises:
        LanguageUnknown: nothing in the text tells.
    """
    import numpy as np

    tables = _tables()
    grams = _grams(_cleaned(text, tables))
    if not grams:
        raise LanguageUnknown("nothing in the text tells its language")
    logs = np.log(tables.chances[grams] + _ALPHA / _BASE).sum(axis=0)
    return float(logs[tables.languages.index(language)] - logs.max())


def _likelihoods(text: str) -> NDArray[np.float64]:
    import numpy as np

    tables = _tables()
    grams = _grams(_cleaned(text, tables))
    if not grams:
        raise LanguageUnknown("nothing in the text tells its language")
    rng = random.Random(SEED)
    total = np.zeros(len(tables.languages))
    rows = np.empty((_BATCH + 1, len(tables.languages)))  # what is known so far, and what is drawn next
    so_far, drawn = rows[0], rows[1:]
    for _ in range(_TRIALS):
        weight = (_ALPHA + rng.gauss(0.0, 1.0) * _ALPHA_WIDTH) / _BASE
        so_far[:] = (1.0 / len(tables.languages)) * (tables.chances[_draw(grams, rng, 1)[0]] + weight)
        best = _normalise(so_far)
        for _ in range(_STEPS // _BATCH):
            if best > _SURE:
                break
            tables.chances.take(_draw(grams, rng, _BATCH), axis=0, out=drawn, mode="clip")
            drawn += weight
            so_far[:] = np.multiply.reduce(rows, axis=0)  # row by row: the order decides the last digits
            best = _normalise(so_far)
        total += so_far / _TRIALS
    return total


def _draw(grams: list[int], rng: random.Random, count: int) -> list[int]:
    """Draw with replacement: what `rng.choice` would, one by one, in a third of its time."""
    size = len(grams)
    bits, next_bits = size.bit_length(), rng.getrandbits
    drawn: list[int] = []
    while len(drawn) < count:
        index = next_bits(bits)
        if index < size:
            drawn.append(grams[index])
    return drawn


def _normalise(chances: NDArray[np.float64]) -> float:
    """Make the chances add up to 1, in place, and return the highest."""
    values = chances.tolist()
    total = sum(values)
    chances /= total
    return float(max(values) / total)


def _cleaned(text: str, tables: _Tables) -> str:
    """Take out addresses, and Latin letters where other scripts prevail; write each character as the tables do."""
    text = text[:_CONSIDERED]
    if "http" in text:
        text = _URL.sub(" ", text)
    if "@" in text:
        text = _MAIL.sub(" ", text)
    if not text.isascii():
        text = tables.ngram.normalize_vi(text)
    text = _BLANKS.sub(" ", text[:_LENGTH])
    if text.isascii():
        return _NO_LETTERS.sub(" ", text)
    latin = sum(1 for character in text if "A" <= character <= "z")
    if latin * 2 < sum(1 for character in text if character >= "\u0300"):
        text = "".join(character for character in text if not "A" <= character <= "z")
    return "".join(map(_normal, text))


@lru_cache(maxsize=4096)
def _normal(character: str) -> str:
    return str(_tables().ngram.normalize(character))


def _grams(text: str) -> list[int]:
    """Return the rows of the one to three characters in a row that are known, in the order of the text."""
    words = text.split(" ")
    grams: list[int] = []
    for word in words[:-1]:
        if word:
            grams += _word_grams(word, " ")
    if words[-1]:
        grams += _word_grams(words[-1], "")
    return grams


def _word_grams(word: str, after: str) -> tuple[int, ...]:
    return _short_word_grams(word, after) if len(word) < 32 else _any_word_grams(word, after)


def _any_word_grams(word: str, after: str) -> tuple[int, ...]:
    known = _tables().known
    padded = f" {word}{after}"
    grams: list[int | None] = []
    for end in range(2, len(padded) + 1):
        last, before = padded[end - 1], padded[end - 2]
        if last.isupper() and before.isupper():
            continue  # within a word in capitals
        if last != " ":
            grams.append(known.get(last))
        grams.append(known.get(before + last))
        if end > 2:
            grams.append(known.get(padded[end - 3 : end]))
    return tuple(gram for gram in grams if gram is not None)


_short_word_grams = lru_cache(maxsize=16384)(_any_word_grams)


# -- Whether a text is in English, short ones too ---------------------------------------------------------------------
# `langdetect` goes by groups of letters, and takes short English for Norwegian or Catalan. For a short text its
# numbers are weighed together with the words themselves: common English ones speak for it, common ones of other
# languages against.

_SHORT = 20
"""Words up to which a text counts as short."""
_LEAD, _OURS, _THEIRS = 9.0, 5.0, 8.0
"""Nats: by how much another language may lead, what a common English word adds, what one of another language takes."""

_ENGLISH_WORDS = """
a about after again all also always am an and any are as at be because been before best but buy by can come could
day did do does done down each ends enter even every fine first for found free from get give go good great had happy
has have he help her here him his home how i if in into is it its just know last let like look made make many may me
more most much must my need never new next no not now of off ok okay on one only open or other our out over people
please really right said same see service she should so some sorry still such take than thank thanks that the their
them then there these they thing this those through time to today tomorrow too two under up us use usual very want
was we well were what when where which who why will with work world would year yes yesterday you your
"""
_OTHER_WORDS = """
aber ach alla alles auch avec beaucoup bem bien bitte bom bonjour buenas buenos buongiorno c'est ciao com como con
danke dans das dei del della den der des det dio dobre dos ein eine el ella en er es est et faire gracias grazie gut
guten habari har het hola hund ich ik il ist ja je jeg kein kom las le les lo los mais mein merci mes mi muchas
mucho muy nicht nie non nos nous nuestro och oder og oui para pas per perche pero por pour quand que qui sehr si sie
sind sont su sur tack tout tres tu tutti una und une uno van var vie voor vous wie wir zu zum
"""
_ENGLISH, _OTHER = frozenset(_ENGLISH_WORDS.split()), frozenset(_OTHER_WORDS.split())


def is_english(text: str) -> bool:
    """Return whether the text is in English. Case does not matter; a text without letters is in no language."""
    text = text.lower()
    try:
        if detect(text) == "en":
            return True
        words = re.findall(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*", text)
        if len(words) > _SHORT:
            return False
        score = lead(text, "en")
    except LanguageUnknown:
        return False
    score += sum(_OURS if word in _ENGLISH else -_THEIRS if word in _OTHER else 0.0 for word in words)
    return score >= -_LEAD
