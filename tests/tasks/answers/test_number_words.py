from __future__ import annotations

from fractions import Fraction

import pytest

from tasks.answers.number_words import number_in_words


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("zero", 0),
        ("fifteen", 15),
        ("Twenty-Three", 23),
        ("twenty three", 23),
        ("one hundred and five", 105),
        ("a hundred", 100),
        ("two thousand three hundred forty", 2340),
        ("five hundred thousand", 500_000),
        ("one million", 1_000_000),
        ("one-third", Fraction(1, 3)),
        ("two thirds", Fraction(2, 3)),
        ("half", Fraction(1, 2)),
        ("a half", Fraction(1, 2)),
        ("three quarters", Fraction(3, 4)),
        ("two and a half", Fraction(5, 2)),
        ("negative three", -3),
        ("minus one half", Fraction(-1, 2)),
    ],
)
def test_numbers(text: str, number: int | Fraction) -> None:
    assert number_in_words(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "third", "twenty-third", "twenty third", "two third", "one two", "twenty eleven", "hundred",
        "one hundred and", "and one", "one million one million", "fifteen apples", "15", "one hundred one hundred",
        "thousand", "negative", "two and three", "one " * 50,
    ],
)  # fmt: skip
def test_no_numbers(text: str) -> None:
    assert number_in_words(text) is None
