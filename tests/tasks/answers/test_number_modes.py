from __future__ import annotations

import pytest

from tasks.answers.number_equals import EXTRACT, same_number, same_text


def text(mode: str, message: str) -> str | None:
    span = EXTRACT[mode][0](message)
    return None if span is None else message[span[0] : span[1]]


@pytest.mark.parametrize(
    ("mode", "message", "found"),
    [
        ("strict_hash", "#### 5 first\n#### 12", "5"),
        ("strict_hash", "#### $5", None),
        ("strict_hash", "####5", None),
        ("strict_hash", "#### 10-5", "10"),
        ("strict_phrase", "The answer is 5. Wait. The answer is 7.", "5."),
        ("strict_phrase", "The answer is 18", "1"),  # the stop is any character, so it takes the last digit
        ("strict_phrase", "The answer is 18 eggs", "18"),
        ("strict_phrase", "the answer is 18.", None),
        ("flexible", "It is $29.00.", "$29.00."),
        ("flexible", "We get 18 ...", "..."),
        ("flexible", "10-5", "-5"),
        ("flexible", "8{,}000", "000"),
        ("last_number", "1,234 and 10-5", "-5"),
        ("last_number", "We get 18 ...", "18"),
        ("any", "#### 7 but The answer is 5. 9", "5"),
        ("any", "The answer is 5", "5"),
    ],
)
def test_each_mode_takes_what_its_evaluator_takes(mode: str, message: str, found: str | None) -> None:
    assert text(mode, message) == found


def test_comparison_as_text_ignores_what_the_evaluator_ignores() -> None:
    assert same_text("$1,234.", "1234") and same_text("18", "so #### 18")
    assert not same_text("18.00", "18") and not same_text("", "0")


def test_comparison_as_numbers_is_exact() -> None:
    assert same_number("18.00", "18") and same_number("$5", "5") and same_number("1,000", "1000")
    assert not same_number("abc", "5") and not same_number("...", "0") and not same_number("", "0")
    assert not same_number("9007199254740993", "9007199254740992")
    assert not same_number("9" * 5000, "5")
