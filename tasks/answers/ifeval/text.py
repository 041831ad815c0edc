"""Sentences, tokens and words of an English text, as the published evaluators cut them, in linear time."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

# -- Where sentences end: the Punkt method (Kiss and Strunk 2006) with its trained English tables, in linear time -----
# Gives the same sentences as NLTK 3.10 with its English model, which the official IFEval check counts.

_TABLES = Path(__file__).resolve().parent / "data" / "punkt_english.txt.gz"

# Bits of an orthographic context: how a word was seen in the training text.
_MIDDLE_UPPER, _START_LOWER = 4, 16
_UPPER, _LOWER = 2 | _MIDDLE_UPPER | 8, _START_LOWER | 32 | 64

_QUOTES = "\u2018\u2019\u201c\u201d\xab\xbb"
_NON_WORD = rf"[)\";}}\]*:@'({{\[{_QUOTES}?!]"
_MANY = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
_CANDIDATE = re.compile(rf"[.?!](?=(?P<after>{_NON_WORD}|\s+(?P<next>\S+)))")
"""A mark that may end a sentence, and what stands after it."""
_TOKEN = re.compile(
    rf"{_MANY}|(?=[^(\"`{{\[:;&#*@)}}\]\-,])\S+?(?=\s|$|{_NON_WORD}|{_MANY}|,(?=$|\s|{_NON_WORD}|{_MANY}))|\S"
)
_CLOSERS = re.compile(rf"[\"')\]}}{_QUOTES}]+?(?:\s+|(?=--)|$)", re.MULTILINE)
"""Closing marks that belong to the sentence before them."""
_NUMBER = re.compile(r"-?[.,]?\d[\d,.\-]*\.?$")
_INITIAL = re.compile(r"[^\W\d]\.$")
_DOTS = re.compile(r"\.\.+$")
_BLANKS = " \t\n\r\x0b\f"
"""The ASCII ones only: the published splitter looks back to these."""


@dataclass(frozen=True, slots=True)
class _Tables:
    abbreviations: frozenset[str]
    collocations: frozenset[tuple[str, ...]]
    starters: frozenset[str]
    contexts: dict[str, int]


@cache
def _tables() -> _Tables:
    sections: dict[str, list[str]] = {}
    rows: list[str] = []
    for line in gzip.decompress(_TABLES.read_bytes()).decode("utf-8").split("\n"):
        if line.startswith("[") and line.endswith("]"):
            rows = sections[line[1:-1]] = []
        elif line:
            rows.append(line)
    pairs = (row.split("\t") for row in sections["contexts"])
    return _Tables(
        frozenset(sections["abbreviations"]),
        frozenset(tuple(row.split("\t")) for row in sections["collocations"]),
        frozenset(sections["starters"]),
        {word: int(bits) for word, bits in pairs},
    )


def sentences(text: str) -> list[str]:
    """Return the sentences of an English text, in order; none for a blank text."""
    return [text[start:end] for start, end in _with_closers(text)]


def count_sentences(text: str) -> int:
    """Return the number of sentences of an English text."""
    return sum(1 for _ in _with_closers(text))


def _with_closers(text: str) -> Iterator[tuple[int, int]]:
    """Move closing marks that begin a span to the end of the one before; leave out empty spans."""
    shift, before = 0, None
    for span in _spans(text):
        if before is not None:
            start, end = before[0] + shift, before[1]
            closers = _CLOSERS.match(text, *span)
            if closers:
                yield start, span[0] + len(closers.group().rstrip())
                shift = closers.end() - span[0]
            else:
                shift = 0
                if start < end:
                    yield start, end
        before = span
    if before is not None and before[0] + shift < before[1]:
        yield before[0] + shift, before[1]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match, context in _contexts(text):
        if _breaks(context):
            yield start, match.end()
            start = match.start("next") if match.group("next") else match.end()
    yield start, len(text.rstrip())


def _contexts(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each candidate with the word before it and what follows; of those within one word, the last."""
    word = 0  # where the word that ends at `last` begins
    last: re.Match[str] | None = None
    for match in _CANDIDATE.finditer(text):
        blank = _last_blank(text, last.start() if last else 0, match.start())
        if last and (blank is not None or last.start() == word):  # a mark with no word before it is one by itself
            yield last, f"{text[word : last.end()]}{last.group('after')}"
        word, last = word if blank is None else blank + 1, match
    if last:
        yield last, f"{text[word : last.end()]}{last.group('after')}"


def _last_blank(text: str, start: int, end: int) -> int | None:
    """Return where the last blank after `start` stands; the published splitter does not see one at `start` itself."""
    for index in range(end - 1, start, -1):
        if text[index] in _BLANKS:
            return index
    return None


def _breaks(context: str) -> bool:
    return _breaks_short(context) if len(context) < 64 else _breaks_any(context)  # no long junk is kept in memory


def _breaks_any(context: str) -> bool:
    """Whether a sentence ends within the context, before its last token."""
    tokens = [token for line in context.split("\n") if line.strip() for token in _TOKEN.findall(line)]
    return any(_ends(token, tokens[index + 1]) for index, token in enumerate(tokens[:-1]))


_breaks_short = lru_cache(maxsize=8192)(_breaks_any)


def _ends(token: str, after: str) -> bool:
    """Whether a sentence ends between two tokens: by the type of the first, then by what follows it."""
    if not token.endswith("."):
        return token in ("?", "!")
    tables = _tables()
    ends, dots = False, False
    if token == ".":
        ends = True
    elif _DOTS.match(token):
        dots = True
    elif not token.endswith(".."):
        ends = not _abbreviation(token)
    shortened = not ends and not dots and not token.endswith("..")
    kind = _kind(token)
    kind = kind[:-1] if len(kind) > 1 and kind.endswith(".") else kind
    following = _following(after)
    if (kind, following) in tables.collocations:
        return False
    initial = _INITIAL.match(token) is not None
    if (shortened or dots) and not initial:
        if _starts(after, following) is True:
            return True
        if after[0].isupper() and following in tables.starters:
            return True
    if initial or kind == "##number##":
        starts = _starts(after, following)
        if starts is False:
            return False
        seen = tables.contexts.get(following, 0)
        if starts is None and initial and after[0].isupper() and not seen & _LOWER:
            return False
    return ends


def _abbreviation(token: str) -> bool:
    word = token[:-1].lower()
    known = _tables().abbreviations
    return word in known or word.rpartition("-")[2] in known


def _kind(token: str) -> str:
    return _NUMBER.sub("##number##", token.lower(), count=1) if _NUMBER.match(token.lower()) else token.lower()


def _following(token: str) -> str:
    """The kind of the next token; without its period, unless that makes an abbreviation or dots."""
    kind = _kind(token)
    ends = token in (".", "?", "!") or (token.endswith(".") and not token.endswith("..") and not _abbreviation(token))
    return kind[:-1] if ends and len(kind) > 1 and kind.endswith(".") else kind


def _starts(token: str, kind: str) -> bool | None:
    """Whether a token starts a sentence, by how its word was seen written; None where that does not tell."""
    if token in (";", ":", ",", ".", "!", "?"):
        return False
    seen = _tables().contexts.get(kind, 0)
    if token[0].isupper() and seen & _LOWER and not seen & _MIDDLE_UPPER:
        return True
    if token[0].islower() and (seen & _UPPER or not seen & _START_LOWER):
        return False
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Tokens of a text as NLTK's `word_tokenize` gives them: Treebank conventions, sentence by sentence, in linear time.
#
# The published readings use them, and the counts of words in capitals; else, fixed readings count what people call
# words.

_PADDED = r" \g<0> "

# Data: the conventions, in the order in which they must run. Each puts blanks where tokens end. A rule that takes the
# character beside a mark consumes it, so the rules cannot be merged into one pass. All are linear on any text.
_MARKS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[«“‘„]|`+", _PADDED),
        (r'^"', "``"),
        (r"``", _PADDED),
        (r"([ (\[{<])(?:\"|'{2})", r"\1 `` "),
        (r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", "' "),
        (r"([^.])\.([\])}>\"'»”’ ]*+)\s*$", r"\1 . \2 "),
        (r"([:,])(\D)", r" \1 \2"),
        (r"[:,]$", _PADDED),
        (r"\.{2,}|[;@#$%&]|[\u2012-\u2015]", _PADDED),
        (r"([^.])\.([\])}>\"']*)\s*$", r"\1 .\2 "),
        (r"[?!]", _PADDED),
        (r"([^'])' ", r"\1 ' "),
        (r"[*\]\[(){}<>]|--", _PADDED),
    )
)
_ENDS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[»”’]", _PADDED),
        (r"''|\"", " '' "),
        (r"\s+", " "),
        (r"([^' ])('[sSmMdD]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        (r"(?i)\b(can)(not)\b|\b(d)('ye)\b|\b(gim|lem)(me)\b|\b(gon)(na)\b|\b(got)(ta)\b|\b(more)('n)\b", None),
        (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r"(?i) ('t)(is|was)\b", r" \1 \2 "),
    )
)


def tokens(text: str) -> list[str]:
    """Return the tokens of an English text, marks among them; a double quote comes out as two single ones."""
    return [
        token
        for sentence in sentences(text)
        for token in (_short(sentence) if len(sentence) < 64 else split(sentence))  # no long junk is kept in memory
    ]


def word_tokens(sentence: str) -> list[str]:
    """Return the tokens that hold a letter or a digit."""
    return [token for token in tokens(sentence) if any(character.isalnum() for character in token)]


def split(sentence: str) -> list[str]:
    """Return the tokens of one sentence."""
    for pattern, replacement in _MARKS:
        sentence = pattern.sub(replacement, sentence)
    sentence = f" {sentence} "
    for pattern, rule in _ENDS:
        sentence = pattern.sub(_halves if rule is None else rule, sentence)
    return sentence.split()


@lru_cache(maxsize=4096)
def _short(sentence: str) -> tuple[str, ...]:
    return tuple(split(sentence))


def _halves(match: re.Match[str]) -> str:
    return " " + " ".join(part for part in match.groups() if part is not None) + " "


# -- Words: runs of word characters, and tokens in capitals as the Penn Treebank conventions split them ---------------
# The official check counts capital tokens of NLTK 3.10's `word_tokenize`; `count_capital_words` gives the same number.
# For most words no rule can change how many capital tokens they are, so the rules run on the few that they could
# change.

_WORD = re.compile(r"\w+")

_TWO_TOKENS = frozenset({"CANNOT", "GIMME", "LEMME", "GONNA", "GOTTA", "WANNA"})
"""Words of letters only that are split."""
_AROUND = ".,;:!?()[]{}*#"
"""Marks around a word that are never more than tokens of their own, or part of the word's."""


def count_words(text: str) -> int:
    """Return the number of runs of letters, digits and underscores."""
    return sum(1 for _ in _WORD.finditer(text))


def count_capital_words(text: str) -> int:
    """Return the number of tokens with letters in upper case only; a hyphenated word is one token."""
    count = 0
    hard: list[str] = []
    for chunk in text.split():
        if chunk == chunk.lower():
            continue
        core = chunk.strip(_AROUND)
        if core.isascii() and core.isalpha():
            if core.isupper():
                count += 2 if core in _TWO_TOKENS else 1
        elif "'" in chunk and ("." in chunk or chunk.count("'") > 1 or not chunk.isascii()):
            # What stands around the chunk and whether it ends a sentence may matter: the whole procedure decides.
            return sum(_capitals(sentence) for sentence in sentences(text))
        else:
            hard.append(chunk)
    return count + (_capitals(f"x {' '.join(hard)} x") if hard else 0)


def _capitals(sentence: str) -> int:
    return sum(1 for token in split(sentence) if token.isupper())
