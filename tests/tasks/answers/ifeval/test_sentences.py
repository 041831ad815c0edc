from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.ifeval.text import count_sentences, sentences
from tests.tasks.answers.ifeval.hard_texts import TEXTS


@pytest.mark.parametrize(("text", "count", "_capitals"), TEXTS)
def test_counts_what_the_published_splitter_counts(text: str, count: int, _capitals: int) -> None:
    assert count_sentences(text) == count


def test_the_sentences_themselves() -> None:
    text = 'Mr. Smith went to Washington. "Why?" he asked.  (Nobody knew.) It rained at 5 p.m. on Monday.'
    assert sentences(text) == [
        "Mr. Smith went to Washington.",
        '"Why?"',
        "he asked.",
        "(Nobody knew.)",
        "It rained at 5 p.m. on Monday.",
    ]


@given(st.text(alphabet=".?!'\")\u201d \n\u2003aBT,-", max_size=60))
def test_no_text_is_lost_or_invented(text: str) -> None:
    found = sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert len(found) == count_sentences(text)
    assert all(found)
