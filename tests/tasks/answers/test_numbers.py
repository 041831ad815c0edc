from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.numbers import CORE, numbers_in, read, value

WHOLE = st.integers(min_value=0, max_value=10**12)


def grouped(number: int, separator: str) -> str:
    return f"{number:,}".replace(",", separator)


@given(WHOLE, st.sampled_from(["", ",", "{,}", "\\,", ",\\!", " ", "\u00a0", "\u202f", "_", "'", "’"]))
def test_groups(number: int, separator: str) -> None:
    assert read(grouped(number, separator)) == number


@given(WHOLE, st.integers(0, 10**6), st.integers(7, 9))
def test_decimals_are_exact(whole: int, part: int, places: int) -> None:
    assert read(f"{whole}.{part:0{places}d}") == whole + Fraction(part, 10**places)


@given(
    WHOLE, st.sampled_from(["-{}", "−{}", "–{}", "-${}", "$-{}", "－{}", "negative {}", "minus {}", "-\\${}", "- {}"])
)
def test_signs(number: int, form: str) -> None:
    assert read(form.format(number)) == -number


@given(WHOLE, st.sampled_from(["${}", "€{}", "{}€", "£ {}", "USD {}", "{}%", "{}\\%", "{}.0", "{}.00", "+{}", "{}."]))
def test_dress(number: int, form: str) -> None:
    assert read(form.format(number)) == number


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_fractions(top: int, bottom: int) -> None:
    value = Fraction(top, bottom)
    for text in (
        f"{top}/{bottom}",
        f"{top} / {bottom}",
        f"\\frac{{{top}}}{{{bottom}}}",
        f"\\dfrac{{{top}}}{{{bottom}}}",
    ):
        assert read(text) == value, text
        assert read(f"-{text}") == -value, text


@given(st.integers(1, 999), st.integers(2, 99), st.data())
def test_mixed_numbers(whole: int, bottom: int, data: st.DataObject) -> None:
    top = data.draw(st.integers(1, bottom - 1))
    value = whole + Fraction(top, bottom)
    for text in (f"{whole} {top}/{bottom}", f"{whole} and {top}/{bottom}", f"{whole}\\frac{{{top}}}{{{bottom}}}"):
        assert read(text) == value, text
        assert read(f"−{text}") == -value, text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (".5", Fraction(1, 2)),
        ("½", Fraction(1, 2)),
        ("2¾", Fraction(11, 4)),
        ("\\frac12", Fraction(1, 2)),
        ("1.5e3", 1500),
        ("1.5 \\times 10^{3}", 1500),
        ("2 × 10^-2", Fraction(1, 50)),
        ("2 million", 2_000_000),
        ("$5k", 5000),
        ("1,00,000", 100_000),
        ("４２", 42),
        ("٤٢", 42),
        ("007", 7),
    ],
)
def test_other_forms(text: str, value: Fraction | int) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1,23",
        "1,2345",
        "0,123",
        "1.2.3",
        "10-5",
        "5/0",
        "1/2/3",
        "2 7/4",
        "--5",
        "5 6",
        "9" * 200,
        "1e99",
        "²",
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert read(text) is None


def test_plain_numbers_are_found_as_by_the_whole_grammar() -> None:
    pieces = [
        "12", "7", "1,234", ".5", "1.2.3", ",", ",,", "{,}", " ", "  ", "/", " / 4", "-", "x", " x 10^3", "×10^2", "e",
        "e5", "%", " %", "\\%", ":", ":00 pm", "'", "’000", "_", "½", " ½", " and 1/2", " and ", "k", " kids", " K",
        "mn", " million", " Thousand", " hundreds", "\\frac{1}{2}", "\\,", ",\\!000", " 000", ".", ".\n", ")", "=",
        ">>", "*", " * 3", "b", " bn", " apples",
    ]  # fmt: skip
    draw = random.Random(0)
    for _ in range(3000):
        text = "".join(draw.choice(pieces) for _ in range(draw.randint(2, 8)))
        for found in numbers_in(text, 0, len(text)):
            core = CORE.match(text, found.start())
            assert core is not None and core.span() == found.span() and value(core) == value(found), text
