from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tasks.answers.closings import CLAUSES
from tasks.answers.final_number import _closing_number, _marker, final_number
from tasks.answers.numbers import TELLING, plain, visible
from tasks.answers.remarks import SENTENCES, own_turn
from tasks.answers.usual_endings import usual_end
from tasks.sources import gsm8k
from tests.tasks.answers import test_clauses, test_closings, test_final_number
from tests.tasks.assertions.hostile import texts

EXAMPLES = [rule.example.replace("|", "") for rule in (*SENTENCES, *CLAUSES)]
"""One for each rule: a rule that is added to the tables is tried here, too."""
REPLIES = [
    reply
    for table in (test_clauses, test_closings, test_final_number)
    for reply, *_ in (*table.RIGHT, *table.WRONG)
]  # fmt: skip
STARTS = (
    "So she has", "In total he pays", "Then it is", "There are", "Her speed is", "That leaves", "The rest costs",
    "If he sells all, he gets", "It would be", "Since there are 7 days in a week, it takes", "Each gets",
    "They need at least", "The answer may be", "He does not have", "Check:", "Of these, 5 are red, so the others are",
    "He digs for 240 minutes so that's", "So that each gets 2, it will be", "If you have 96 potatoes, you can make",
    "He has 3 cats, and since the rest is 65, it is", "There are 70, 3 times the other, meaning there are", "9.\nIt is",
    "It costs 4 dollars although it was", "He needs 6 because",
)  # fmt: skip
UNITS = (
    "",
    " eggs",
    " dollars",
    " percent",
    " km/h",
    " more eggs than Ann",
    " a day",
    " of the eggs",
    " years old",
    " kids",
)
ENDS = (
    "", " left", " in 3 days", " for the 5 kids", " per week", " or so", " in all", " if all come", " (about 5 each)",
    ", which is 3 more than Ann", " because 3 * 16 = 48", ", or 2 dozen", " and 5 cents", " and has 2 left over", "!",
    " each, making 63 altogether", ", not 4", " with $5 for each", " over the 3 months", " since he had 20", " maybe",
    " plus two", " as required", ", so 5 remain", " after 2 years", " to 7", " squared", " so for 3 kids",
    " and pays for 5", " which leaves him with 2", " times that of 4", " million", ": 3 boys, 4 more",
    " must be added to make 50", " were left after 10 died", " is the price of 8 pens", " in the first two weeks",
    " so each gets three", " is not for 8 kids", ", 3 times as many as Ann has", " to give away", " divided by 2 kids",
)  # fmt: skip
AFTER_JUNK = (
    "x is 18", "it = 5 apples.", "a not is 7", "> = 5", "at most is 5", "half is $5 or.", "b is 1,000.", "2, 5 = 6",
    ". So it is 2 - 7 = -5 eggs.",
)  # fmt: skip


def replies(count: int) -> Iterator[str]:
    """Yield replies whose last sentences hold the words that the rules go by, with results of either sign."""
    draw = random.Random(0)
    words = sorted(TELLING)
    for _ in range(count):
        left, right = draw.randint(1, 40), draw.randint(1, 40)
        result = draw.choice((left - right, left + right, f"{left * 100:,}", left + 0.5))
        equation = draw.choice((f"{left} - {right} = ", f"{left} * {right} = <<{left}*{right}={result}>>", "", "", "$"))
        word = draw.choice(("", "", "", f" {draw.choice(words)}"))
        said = f"{draw.choice(STARTS)}{word} {equation}{result}{draw.choice(UNITS)}"
        before = draw.choice((draw.choice(EXAMPLES), "We cannot know.", f"First, {left} + {right} = {result}."))
        end = draw.choice((*ENDS, f" {draw.choice(words)}"))
        between = draw.choice(("\n", " "))
        behind = draw.choice(("", "", f" {draw.choice(EXAMPLES)}", "\nHope this helps!"))
        yield f"{before}{between}{said}{draw.choice((end, ''))}.{behind}"


def differs(reply: str) -> bool | None:
    """Whether a reply that is read at once is read otherwise at length; None for one that is not."""
    text = own_turn(visible(plain(reply))[0])
    place = None if _marker(text) is not None else usual_end(text)
    if place is None:
        return None
    quick, full = final_number(reply), _closing_number(text)
    assert quick is not None and quick.value == text[slice(*place)]
    return full is None or full.problem != "" or full.number != quick.number


def test_what_is_read_at_once_would_be_read_the_same_at_length() -> None:
    found = {reply: differs(reply) for reply in replies(8000)}
    assert [reply for reply, other in found.items() if other] == []
    assert sum(other is False for reply, other in found.items() if " -" in reply[-20:]) > 50
    assert sum(other is False for other in found.values()) > 800


def test_the_replies_of_the_sample_without_their_marker_are_all_read_at_once() -> None:
    """They are timed beside the regular expression of lm-eval (`benchmarks.answers_numbers`)."""
    for task in gsm8k.load("sample"):
        assert task.oracle is not None and task.oracle.answer is not None
        for reply in (task.oracle.answer.replace("#### ", "The total is "), task.oracle.answer.partition("\n####")[0]):
            assert differs(reply) is False, reply


def test_the_examples_and_tables_of_all_rules_are_read_as_at_length() -> None:
    assert [reply for reply in (*EXAMPLES, *REPLIES) if differs(reply)] == []
    found = [differs(f"{junk} {end}") for junk in texts(300) for end in AFTER_JUNK]
    assert True not in found and found.count(False) > 500


@pytest.mark.parametrize(
    "reply",
    [
        "He lost $9 that day because 11 - 20 = -9.",
        "2.\nIt is 15 - 20 = -5.",
        "18.\nShe has 16 - 7 = 9 eggs for sale at $2 each.",
        "She has 5 - 8 = <<5-8=-3>>3.",
        "She earns $484, although after taxes it is 484 - 73 = $411.",
        "He has 10 - 4 = 6 dollars so each gets three.",
        "5 + 6 = 11 is not for 8 kids.",
        "1 * 6 = 6. Therefore, it needs 18 minutes. One copy takes 6 minutes.",
    ],
)
def test_what_may_not_be_the_answer_is_read_at_length(reply: str) -> None:
    assert differs(reply) is None


@pytest.mark.parametrize(
    "reply",
    [
        "There are 60 minutes in 1 hour and he digs for 240 minutes so that's 240 / 60 = -4 hours.",
        "**5** is the answer.\nIt is 15 - 20 = -5.",
        "He has 7 - 9 = -2 left after 3 days.",
        "So he has 312 + 450 = 762 M&M's.",
        "Jack now has 100 + 20 = 120$",
        "Thus, the comforter is 68 square feet.",
        "Given 5 plants did not grow, he has 30-5=25 flowers in the first two weeks.",
    ],
)
def test_a_usual_result_is_read_at_once_as_at_length(reply: str) -> None:
    assert differs(reply) is False
