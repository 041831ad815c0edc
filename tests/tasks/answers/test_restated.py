from __future__ import annotations

import time

import pytest

from tasks.answers.final_number import final_number
from tests.tasks.answers.test_clauses import passes

MARKERS = ("Answer: ", "**Answer:** ", "The answer is ", "#### ")
LINKS = (
    ", i.e. ",
    ", i.e., ",
    ", that is ",
    ", that is, ",
    ", that's ",
    ", which is ",
    ", in other words, ",
    ", or ",
    " = ",
)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    ("said", "again", "gold", "other"),
    [
        ("5/12 of the pizza", "5 slices", "5", "5/12"),
        ("2/3 of the class", "16 students", "16", "2/3"),
        ("**0.25 of the budget**", "**$300 left**", "300", "0.25"),
        ("1 1/2 boxes", "18 pencils", "18", "3/2"),
    ],
)
def test_a_whole_number_is_the_answer_behind_a_fraction(
    said: str, again: str, gold: str, other: str, link: str
) -> None:
    for marker in MARKERS:
        for end in (".", "", "\nI hope this helps!", ". That is all."):
            assert passes(f"{marker}{said}{link}{again}{end}", gold)
            assert not passes(f"{marker}{said}{link}{again}{end}", other)


@pytest.mark.parametrize(
    ("said", "gold", "other"),
    [
        ("2 boxes of pencils = 24 pencils", "24", "2"),
        ("3 crates equals 36 jars", "36", "3"),
        ("5/12 of the 12 slices, i.e. 5 slices", "5", "5/12"),
        ("5 slices, i.e. 5/12 of the pizza", "5", "5/12"),
        ("36 cookies, i.e. 3 boxes", "36", "3"),
        ("3 boxes, i.e. 36 cookies", "3", "36"),
        ("18 eggs = 9 * 2", "18", "9"),
        ("37.5%, i.e. 3 students", "37.5", "3"),
        ("1.5 hours, or 80 minutes", "1.5", "80"),
        ("2 hours = 100 minutes", "2", "100"),
        ("2.5 hours, or 3 hours", "2.5", "3"),
        ("2.5 miles, which is 1 mile less than Ann walked", "2.5", "1"),
        ("4.5 miles, that is 2 miles per day", "4.5", "2"),
        ("4.5 cakes, i.e. 2 cakes each", "4.5", "2"),
        ("18 for n = 3", "18", "3"),
        ("12 apples where x = 3 bags", "12", "3"),
        ("5 because 3 + 2 = 5", "5", "3"),
        ("1/2 of the cake. There were 8 slices", "1/2", "8"),
        ("1/2 of the cake, not 8 slices", "1/2", "8"),
        ("1/2 of the cake, and 8 slices are left", "1/2", "8"),
        ("5/12 of the pizza, i.e. more than 4 slices", "5/12", "4"),
        ("5/12 of the pizza, i.e. at most 5 slices", "5/12", "5"),
        ("5/12 of the pizza, i.e. 5 or 6 slices", "5/12", "5"),
        ("5/12 of the pizza, i.e. 5 slices rounded", "5/12", "5"),
        ("5/12 of the 12 slices, i.e. 6 slices", "5/12", "6"),
    ],
)
def test_which_of_two_numbers_of_an_answer_line_counts(said: str, gold: str, other: str) -> None:
    for marker in MARKERS:
        assert passes(f"{marker}{said}.", gold)
        assert not passes(f"{marker}{said}.", other)


@pytest.mark.parametrize(
    ("said", "golds", "other"),
    [
        ("1.5 hours (90 minutes)", ("1.5", "90"), "60"),
        ("1.5 hours, or 90 minutes", ("1.5", "90"), "60"),
        ("90 minutes = 1.5 hours", ("1.5", "90"), "60"),
        ("$1.50, i.e. 150 cents", ("1.5", "150"), "100"),
        ("2.5 dozen, which is 30 eggs", ("2.5", "30"), "12"),
        ("1/4, or 25%", ("0.25", "25"), "4"),
        ("1 hour and 45 minutes, that is, 105 minutes", ("105", "1.75"), "45"),
        ("1.5 hours, or 80 minutes", ("1.5",), "90"),
        ("1.5 hours. The film takes 90 minutes", ("1.5",), "90"),
        ("2 pairs of shoes for 4 kids", ("2",), "4"),
    ],
)
def test_one_amount_in_two_units_counts_in_both(said: str, golds: tuple[str, ...], other: str) -> None:
    for marker in MARKERS:
        assert [gold for gold in golds if not passes(f"{marker}{said}.", gold)] == []
        assert not passes(f"{marker}{said}.", other)


@pytest.mark.parametrize("unit", [" slices", " of 12", ", i.e. 5", " = 5 slices", " (5 slices"])
def test_linear_in_the_line(unit: str) -> None:
    start = time.process_time()
    final_number("Answer: 5/12" + unit * 20_000)
    assert time.process_time() - start < 1.0
