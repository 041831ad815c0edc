from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.ifeval import text as words
from tasks.answers.ifeval.text import count_capital_words, count_words, sentences
from tests.tasks.answers.ifeval.hard_texts import TEXTS

_PIECES = ["A", "b", "I'M", "IT'S", "'TIS", "CANNOT", "U.S.", "X,Y", "A--B", ".", "?", "!", "'", '"', "(", "''", "``"]
_JOINTS = ["", " ", "\n", "\u2003"]


@pytest.mark.parametrize(("text", "_sentences", "capitals"), TEXTS)
def test_counts_capitals_as_the_published_tokenizer_does(text: str, _sentences: int, capitals: int) -> None:
    assert count_capital_words(text) == capitals


@given(st.lists(st.tuples(st.sampled_from(_PIECES), st.sampled_from(_JOINTS)), max_size=12))
def test_the_short_cut_counts_what_the_whole_procedure_counts(pieces: list[tuple[str, str]]) -> None:
    text = "".join(piece + joint for piece, joint in pieces)
    assert count_capital_words(text) == sum(words._capitals(sentence) for sentence in sentences(text))


@pytest.mark.parametrize(
    ("text", "count"),
    [("one two", 2), ("don't", 2), ("", 0), ("a_b c-d", 3), ("3.5 %", 2), ("\u00e9t\u00e9 \u4f60", 2)],
)
def test_counts_runs_of_word_characters(text: str, count: int) -> None:
    assert count_words(text) == count
