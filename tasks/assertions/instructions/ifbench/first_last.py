"""Instructions on words at certain places: first, last, second, m-th."""

from __future__ import annotations

from itertools import pairwise
from string import punctuation

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import bare, ifbench, nth_sentence, words
from tasks.assertions.instructions.ifbench.language_data import starts_with_verb, tagged_as_verb
from tasks.assertions.instructions.sentences import sentences
from tasks.assertions.instructions.tokens import tokens, word_tokens


@ifbench.add(
    "words:start_verb",
    kind="the first word",
    says="starts with a verb",
    fix="another tagger; Markdown marks before the word are passed over; `Can` and `Should` are verbs too",
    needs="textblob (a tagger with its lexicon); reference: nltk and its data averaged_perceptron_tagger_eng",
)
def words_start_verb(text: str) -> bool:
    """The text starts with a verb.

    Ask TextBlob's tagger about the first words.
    """
    return starts_with_verb(words(text[:1000])[:12])


@words_start_verb.published
def _(text: str) -> bool:
    """Ask NLTK's tagger, whose tag of the first token depends on the next two."""
    return tagged_as_verb(tokens(text)[:8])


@ifbench.add(
    "words:last_first",
    kind="last and first words of sentences",
    says="begins each sentence with the last word of the one before",
    fix="one sentence alone has no next one; marks other than ASCII ones around the words are passed over",
)
def words_last_first(text: str) -> bool:
    """Each sentence begins with the word that the one before ends with.

    Compare words of at least two sentences.
    """
    found = [item for item in (words(sentence.casefold()) for sentence in sentences(text)) if item]
    return len(found) > 1 and all(before[-1] == after[0] for before, after in pairwise(found))


@words_last_first.published
def _(text: str) -> bool:
    """Compare tokens; one sentence passes."""
    found = sentences(text)
    ends = [sentence.rstrip(punctuation + " ").split()[-1:] for sentence in found]
    starts = [sentence.lstrip(punctuation + " ").split()[:1] for sentence in found]
    pairs = list(zip(ends[:-1], starts[1:], strict=True))
    return all(end and start and end[0].lower() == start[0].lower() for end, start in pairs)


@ifbench.add(
    "words:paragraph_last_first",
    kind="first and last words of paragraphs",
    says="ends each paragraph with the word it starts with",
    fix="a paragraph of one word does not end with the word it started with; marks around the words are passed over",
)
def words_paragraph_last_first(text: str) -> bool:
    """Each paragraph ends with the word it starts with; each line is one.

    Compare words; each paragraph has at least two.
    """
    found = [item for item in (words(line.casefold()) for line in text.split("\n")) if item]
    return bool(found) and all(len(item) > 1 and item[0] == item[-1] for item in found)


@words_paragraph_last_first.published
def _(text: str) -> bool:
    """Compare tokens; one word passes."""
    found = (bare(line.strip().lower()).split() for line in text.split("\n"))
    return all(tokens[0] == tokens[-1] for tokens in found if tokens)


def _stands(keyword: str, m: int, found: list[str]) -> bool:
    return m <= len(found) and found[m - 1].lower() == keyword.strip().lower()


@ifbench.add(
    "words:keywords_specific_position",
    kind="a keyword at a certain place",
    says="has '{keyword}' as word {m} of sentence {n}",
    arguments={"keyword": TEXT, "n": whole(1), "m": whole(1)},
    fix="`don't` is one word, not two",
)
def words_keywords_specific_position(text: str, keyword: str, n: int, m: int) -> bool:
    """A keyword is the m-th word of the n-th sentence.

    Count words.
    """
    return _stands(keyword, m, words(nth_sentence(text, n)))


@words_keywords_specific_position.published
def _(text: str, keyword: str, n: int, m: int) -> bool:
    """Count tokens that hold a letter or digit."""
    return _stands(keyword, m, word_tokens(nth_sentence(text, n)))


@ifbench.add(
    "words:words_position",
    kind="a keyword at certain places",
    says="has '{keyword}' as second and as second-to-last word",
    arguments={"keyword": TEXT},
    fix="marks are no words, wherever they stand; two words alone have no second-to-last beside the second",
)
def words_words_position(text: str, keyword: str) -> bool:
    """The second word and the last but one are a keyword.

    Take words, at least three.
    """
    found = words(text.lower())
    return len(found) > 2 and found[1] == found[-2] == keyword.strip().lower()


@words_words_position.published
def _(text: str, keyword: str) -> bool:
    """Take tokens; one mark at the end is passed over."""
    found = tokens(text)
    end = -3 if found and found[-1] in punctuation else -2
    if len(found) < -end:
        return False
    return found[1].lower() == found[end].lower() == keyword.strip().lower()
