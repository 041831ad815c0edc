from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.instructions import Semantics, follows, make, variants
from tests.tasks.answers.ifeval.examples import EXAMPLES

_PIECES = ["sea", "SEA", "Sea ", " ", "\n", "\n\n", "***", "******", "*", "**b**", "- ", "* ", "[a]", "<<t>>", '"', ","]
_PIECES += ["P.S. x", "Section 1", "{}", "[1]", "My answer is no.", "der Hund", ".", "!", "#", "\u2003"]


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join), st.sampled_from(Semantics))
def test_loose_is_never_less_than_strict(text: str, semantics: Semantics) -> None:
    for found in EXAMPLES:
        if follows(found, text, semantics):
            assert follows(found, text, semantics, loose=True), found.id


def test_the_variants_of_a_text() -> None:
    assert list(variants("a\n*b*\nc")) == ["a\n*b*\nc", "a\nb\nc", "*b*\nc", "b\nc", "a\n*b*", "a\nb", "*b*", "b"]
    assert list(variants("one line")) == ["one line", ""]


@pytest.mark.parametrize(
    ("text", "strict", "loose"),
    [
        ("Sure, here it is:\nred blue", False, True),
        ("red blue\nI hope, that helps", False, True),
        ("red, blue", False, False),
        ("red blue", True, True),
    ],
)
def test_a_first_or_last_line_may_be_left_out(text: str, strict: bool, loose: bool) -> None:
    no_comma = make("punctuation:no_comma", {})
    assert follows(no_comma, text) is strict
    assert follows(no_comma, text, loose=True) is loose
