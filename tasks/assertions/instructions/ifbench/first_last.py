"""Instructions on words at certain places: first, last, second, m-th."""

from __future__ import annotations

from itertools import pairwise
from string import punctuation

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import IfbenchInstruction, bare, nth_sentence, words
from tasks.assertions.instructions.ifbench.language_data import starts_with_verb, tagged_as_verb
from tasks.assertions.instructions.sentences import sentences
from tasks.assertions.instructions.tokens import tokens, word_tokens


class StartVerb(IfbenchInstruction):
    """The text starts with a verb."""

    id = "words:start_verb"
    kind = "the first word"
    needs = "textblob (a tagger with its lexicon); reference: nltk and its data averaged_perceptron_tagger_eng"
    fix = "another tagger; Markdown marks before the word are passed over; `Can` and `Should` are verbs too"

    def published(self, text: str) -> bool:
        """Ask NLTK's tagger, whose tag of the first token depends on the next two."""
        return tagged_as_verb(tokens(text)[:8])

    def fixed(self, text: str) -> bool:
        """Ask TextBlob's tagger about the first words."""
        return starts_with_verb(words(text[:1000])[:12])

    def describe(self) -> str:
        """Return the condition in words."""
        return "starts with a verb"


class LastFirst(IfbenchInstruction):
    """Each sentence begins with the word that the one before ends with."""

    id = "words:last_first"
    kind = "last and first words of sentences"
    fix = "one sentence alone has no next one; marks other than ASCII ones around the words are passed over"

    def published(self, text: str) -> bool:
        """Compare tokens; one sentence passes."""
        found = sentences(text)
        ends = [sentence.rstrip(punctuation + " ").split()[-1:] for sentence in found]
        starts = [sentence.lstrip(punctuation + " ").split()[:1] for sentence in found]
        pairs = list(zip(ends[:-1], starts[1:], strict=True))
        return all(end and start and end[0].lower() == start[0].lower() for end, start in pairs)

    def fixed(self, text: str) -> bool:
        """Compare words of at least two sentences."""
        found = [item for item in (words(sentence.casefold()) for sentence in sentences(text)) if item]
        return len(found) > 1 and all(before[-1] == after[0] for before, after in pairwise(found))

    def describe(self) -> str:
        """Return the condition in words."""
        return "begins each sentence with the last word of the one before"


class ParagraphLastFirst(IfbenchInstruction):
    """Each paragraph ends with the word it starts with; each line is one."""

    id = "words:paragraph_last_first"
    kind = "first and last words of paragraphs"
    fix = "a paragraph of one word does not end with the word it started with; marks around the words are passed over"

    def published(self, text: str) -> bool:
        """Compare tokens; one word passes."""
        found = (bare(line.strip().lower()).split() for line in text.split("\n"))
        return all(tokens[0] == tokens[-1] for tokens in found if tokens)

    def fixed(self, text: str) -> bool:
        """Compare words; each paragraph has at least two."""
        found = [item for item in (words(line.casefold()) for line in text.split("\n")) if item]
        return bool(found) and all(len(item) > 1 and item[0] == item[-1] for item in found)

    def describe(self) -> str:
        """Return the condition in words."""
        return "ends each paragraph with the word it starts with"


class KeywordsSpecificPosition(IfbenchInstruction):
    """A keyword is the m-th word of the n-th sentence."""

    id = "words:keywords_specific_position"
    kind = "a keyword at a certain place"
    arguments = {"keyword": TEXT, "n": whole(1), "m": whole(1)}
    fix = "`don't` is one word, not two"

    def published(self, text: str) -> bool:
        """Count tokens that hold a letter or digit."""
        return self._stands(word_tokens(nth_sentence(text, self.args["n"])))

    def fixed(self, text: str) -> bool:
        """Count words."""
        return self._stands(words(nth_sentence(text, self.args["n"])))

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has '{self.args['keyword']}' as word {self.args['m']} of sentence {self.args['n']}"

    def _stands(self, found: list[str]) -> bool:
        at = self.args["m"] - 1
        return bool(at < len(found) and found[at].lower() == self.args["keyword"].strip().lower())


class WordsPosition(IfbenchInstruction):
    """The second word and the last but one are a keyword."""

    id = "words:words_position"
    kind = "a keyword at certain places"
    arguments = {"keyword": TEXT}
    fix = "marks are no words, wherever they stand; two words alone have no second-to-last beside the second"

    def published(self, text: str) -> bool:
        """Take tokens; one mark at the end is passed over."""
        found = tokens(text)
        end = -3 if found and found[-1] in punctuation else -2
        if len(found) < -end:
            return False
        return bool(found[1].lower() == found[end].lower() == self.args["keyword"].strip().lower())

    def fixed(self, text: str) -> bool:
        """Take words, at least three."""
        found = words(text.lower())
        return bool(len(found) > 2 and found[1] == found[-2] == self.args["keyword"].strip().lower())

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has '{self.args['keyword']}' as second and as second-to-last word"


ALL: tuple[type[IfbenchInstruction], ...] = (
    StartVerb,
    LastFirst,
    ParagraphLastFirst,
    KeywordsSpecificPosition,
    WordsPosition,
)
"""The instructions of this module."""
