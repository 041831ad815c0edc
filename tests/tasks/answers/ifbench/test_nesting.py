from __future__ import annotations

import pytest

from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings


@pytest.mark.parametrize(
    ("id", "text", "expected"),
    [
        ("format:parentheses", "(a [b {c (d [e])}])", BOTH),
        ("format:parentheses", "((((x))))", NEITHER),
        ("format:parentheses", "(((((x)", ONLY_PUBLISHED),
        ("format:parentheses", "(((((x]]]]]", NEITHER),
        ("format:parentheses", "a) b) (a [b {c (d [e])}])", BOTH),
        ("format:parentheses", "[0, 1) (((((x)))))", BOTH),
        ("format:parentheses", "()()()()()", NEITHER),
        ("format:quotes", '"a \'b "c" d\' e"', BOTH),
        ("format:quotes", "'a \"b 'c' d\" e'", BOTH),
        ("format:quotes", "\"a 'b' c\"", NEITHER),
        ("format:quotes", '"a" "b" "c"', NEITHER),
        ("format:quotes", '"don\'t "x" won\'t"', ONLY_PUBLISHED),
        ("format:quotes", "\u201ca \u2018b \u201cc\u201d d\u2019 e\u201d", ONLY_FIXED),
        ("format:quotes", '"a \'b don\'t "c" d\' e"', ONLY_FIXED),
        ("format:quotes", '"Well, \'tis \'a "b" c\' d"', ONLY_FIXED),
        ("format:quote_unquote", '"Tea" is a drink. "Rye" is a bread.', BOTH),
        ("format:quote_unquote", "\u201cTea\u201d is a drink.", BOTH),
        ("format:quote_unquote", "No quotes here.", ONLY_PUBLISHED),
        ("format:quote_unquote", '"Tea" "Rye" are food.', NEITHER),
        ("format:quote_unquote", 'He likes "tea".', NEITHER),
        ("format:quote_unquote", '"Tea" - "rye" are food.', ONLY_PUBLISHED),
        ("format:quote_unquote", 'The sign \'"\' opens. "Tea" is a drink.', BOTH),
    ],
)
def test_readings(id: str, text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text) == expected
