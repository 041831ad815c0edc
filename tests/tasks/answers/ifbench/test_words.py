from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings

PALINDROMES = "level radar civic kayak madam refer rotor tenet stats sagas"


@pytest.mark.parametrize(
    ("id", "kwargs", "text", "expected"),
    [
        ("words:alphabet", {}, "A big cat.", BOTH),
        ("words:alphabet", {}, "Yes, Zoe and Bob!", BOTH),
        ("words:alphabet", {}, "A big dog.", NEITHER),
        ("words:alphabet", {}, "1 apple", NEITHER),
        ("words:alphabet", {}, "A", ONLY_PUBLISHED),
        ("words:alphabet", {}, "A \u201cbig\u201d cat\u2014dog", ONLY_FIXED),
        ("words:vowel", {}, "A cat and a hen sit.", BOTH),
        ("words:vowel", {}, "A cat, a hen, a pig, a dog.", NEITHER),
        ("words:vowel", {}, "A cat, a hen, a pig, a d\u00f6g.", ONLY_PUBLISHED),
        ("words:vowel", {}, "A cat\nand a hen.", ONLY_FIXED),
        ("words:vowel", {}, "A cat.\n\nA hen.", NEITHER),
        ("words:vowel", {}, "...", ONLY_PUBLISHED),
        ("words:consonants", {}, "Strong trees stand.", BOTH),
        ("words:consonants", {}, "Strong tea.", NEITHER),
        ("words:consonants", {}, "Strong - trees", ONLY_FIXED),
        ("words:consonants", {}, "Strong 42 trees", NEITHER),
        ("words:consonants", {}, "trees/tea", ONLY_PUBLISHED),
        ("words:palindrome", {}, PALINDROMES, BOTH),
        ("words:palindrome", {}, "Level " * 10, ONLY_PUBLISHED),
        ("words:palindrome", {}, " ".join(f"{n}{n}{n}{n}{n}" for n in range(10)), ONLY_PUBLISHED),
        ("words:palindrome", {}, PALINDROMES.replace("level", "noon"), NEITHER),
        ("words:palindrome", {}, PALINDROMES.replace(" ", "\u2014"), ONLY_FIXED),
        ("words:prime_lengths", {}, "The cat is big.", BOTH),
        ("words:prime_lengths", {}, "The cats are big.", NEITHER),
        ("words:prime_lengths", {}, "It isn\u2019t", ONLY_PUBLISHED),
        ("words:prime_lengths", {}, "The cat \u2014 big", ONLY_FIXED),
        ("words:prime_lengths", {}, "...", ONLY_PUBLISHED),
        ("words:repeats", {"small_n": 2}, "The cat, the dog", BOTH),
        ("words:repeats", {"small_n": 1}, "The cat, the dog", NEITHER),
        ("words:repeats", {"small_n": 1}, "The cat, \u201cthe\u201d dog", ONLY_PUBLISHED),
        ("words:no_consecutive", {}, "The cat has big teeth.", BOTH),
        ("words:no_consecutive", {}, "The two cats", NEITHER),
        ("words:no_consecutive", {}, "The \u201ctwo\u201d cats", ONLY_PUBLISHED),
        ("words:no_consecutive", {}, "\u201cThe\u201d \u201ccat\u201d", ONLY_FIXED),
        ("words:no_consecutive", {}, "from 10 100 cats", ONLY_FIXED),
        ("words:no_consecutive", {}, "tea/toast", ONLY_PUBLISHED),
    ],
)
def test_readings(id: str, kwargs: dict[str, Any], text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text, **kwargs) == expected
