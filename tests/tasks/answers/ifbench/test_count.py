from __future__ import annotations

from typing import Any

import pytest

from tasks.answers.instructions import InstructionError, make
from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings

KEYWORDS = {"keyword1": "art", "keyword2": "sun", "keyword3": "elm", "keyword4": "oak", "keyword5": "fig"}
COUNTED = "sun sun " + "elm " * 3 + "oak " * 5 + "fig " * 7


@pytest.mark.parametrize(
    ("id", "kwargs", "text", "expected"),
    [
        ("count:word_count_range", {"min_words": 2, "max_words": 3}, "one two three", BOTH),
        ("count:word_count_range", {"min_words": 2, "max_words": 3}, "one", NEITHER),
        ("count:word_count_range", {"min_words": 2, "max_words": 3}, "don't stop now", NEITHER),
        ("count:word_count_range", {"min_words": 2, "max_words": 2}, "one-two", BOTH),
        ("count:unique_word_count", {"N": 2}, "The the, THE cat", BOTH),
        ("count:unique_word_count", {"N": 2}, "the - the", ONLY_PUBLISHED),
        ("count:unique_word_count", {"N": 2}, "\u201cthe\u201d the", ONLY_PUBLISHED),
        ("count:unique_word_count", {"N": 3}, "day\u2014night day", NEITHER),
        ("count:conjunctions", {"small_n": 2}, "You and me, but not him.", BOTH),
        ("count:conjunctions", {"small_n": 2}, "And you and me, and him.", ONLY_PUBLISHED),
        ("count:conjunctions", {"small_n": 2}, "sand, butter, fort", NEITHER),
        ("count:conjunctions", {"small_n": 2}, "now and\u2014or never", ONLY_FIXED),
        ("count:person_names", {"N": 2}, "Emma and Liam", BOTH),
        ("count:person_names", {"N": 2}, "Emma, Emma and emma", NEITHER),
        ("count:person_names", {"N": 1}, "Avalon", NEITHER),
        ("count:numbers", {"N": 2}, "3 cats and 1,000.50 dogs", BOTH),
        ("count:numbers", {"N": 1}, "10-20", ONLY_PUBLISHED),
        ("count:numbers", {"N": 2}, "10-20", ONLY_FIXED),
        ("count:numbers", {"N": 2}, "from 1/2", ONLY_FIXED),
        ("count:numbers", {"N": 3}, "1,2,3", ONLY_FIXED),
        ("count:numbers", {"N": 2}, "1,0000", ONLY_FIXED),
        ("count:numbers", {"N": 0}, "none", BOTH),
        ("count:pronouns", {"N": 2}, "I know it.", BOTH),
        ("count:pronouns", {"N": 3}, "she/her/hers", BOTH),
        ("count:pronouns", {"N": 2}, "it's theirs", BOTH),
        ("count:pronouns", {"N": 1}, "items, mire, theme", NEITHER),
        ("count:pronouns", {"N": 1}, "one after another", ONLY_FIXED),
        ("count:punctuation", {}, "A, b; c: d. e? f! g?!", BOTH),
        ("count:punctuation", {}, "A, b; c: d. e? f! g!?", BOTH),
        ("count:punctuation", {}, "A, b; c: d. e? f! g\u203d", BOTH),
        ("count:punctuation", {}, "A, b; c: d. e?!", NEITHER),
        ("count:punctuation", {}, "A, b; c: d. e? f!", NEITHER),
        ("count:words_japanese", {"N": 2}, "one \u4e8c three \u56db", BOTH),
        ("count:words_japanese", {"N": 2}, "one two three \u56db", NEITHER),
        ("count:words_japanese", {"N": 2}, "one", ONLY_PUBLISHED),
        ("count:words_japanese", {"N": 2}, "one 2 three 4", ONLY_PUBLISHED),
        ("count:words_japanese", {"N": 2}, "one - two \u4e8c", ONLY_PUBLISHED),
        ("count:keywords_multiple", KEYWORDS, f"art {COUNTED}", BOTH),
        ("count:keywords_multiple", KEYWORDS, f"Art. {COUNTED.upper()}", BOTH),
        ("count:keywords_multiple", KEYWORDS, f"start {COUNTED}", ONLY_PUBLISHED),
        ("count:keywords_multiple", KEYWORDS, f"art start {COUNTED}", ONLY_FIXED),
        ("count:keywords_multiple", KEYWORDS, f"art art {COUNTED}", NEITHER),
    ],
)
def test_readings(id: str, kwargs: dict[str, Any], text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text, **kwargs) == expected


def test_arguments_that_cannot_be_met_are_errors() -> None:
    with pytest.raises(InstructionError, match="'max_words' must be at least 'min_words', but 3 is less than 4"):
        make("count:word_count_range", {"min_words": 4, "max_words": 3})
    with pytest.raises(InstructionError, match="'N' must be a whole number of 1 or more, not 0"):
        make("count:words_japanese", {"N": 0})
    with pytest.raises(InstructionError, match="the argument 'keyword5' is missing"):
        make("count:keywords_multiple", {**KEYWORDS, "keyword5": None})
