from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.math import MAX_NESTING, depths, refusal
from tasks.answers.math.exact import MAX_DEPTH, exact_value
from tasks.answers.math.normalise import normalise


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\tfrac{a}b", r"\frac{a}{b}"),
        (r"\frac\sqrt22", r"\frac{\sqrt{2}}{2}"),
        (r"\sqrt[3]5", r"\sqrt[3]{5}"),
        (r"\left( 3 \right)", "( 3 )"),
        (r"8{,}000", "8000"),
        (r"8,\!000", "8000"),
        ("\u22125", "-5"),
        (r"5\%.", "5%"),
        ("$5$", "5"),
        ("{5}", "5"),
        ("2 1/2", r"\frac{5}{2}"),
        (r"-2\frac12", r"-\frac{5}{2}"),
        ("x^12", "x^{12}"),
        ("50^{\\circ}", r"50^\circ"),
    ],
)
def test_one_spelling(text: str, spelling: str) -> None:
    assert normalise(text) == spelling


@given(st.text(alphabet="0123456789+-*/^(){}[]\\frac sqrtpi.,$%xye_", max_size=60))
def test_normalising_never_fails(text: str) -> None:
    assert isinstance(normalise(text), str)


@given(st.fractions(max_denominator=10**9))
def test_fractions_are_exact_in_each_spelling(value: Fraction) -> None:
    sign, top, bottom = ("-" if value < 0 else ""), abs(value.numerator), value.denominator
    for text in (rf"{sign}\frac{{{top}}}{{{bottom}}}", f"{sign}{top}/{bottom}", rf"\dfrac{{{sign}{top}}}{{{bottom}}}"):
        assert exact_value(normalise(text)) == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
def test_decimals_are_exact(value: object) -> None:
    assert exact_value(normalise(f"{value:f}")) == Fraction(str(value))


def test_nested_fractions_are_exact() -> None:
    assert exact_value(r"\frac{1}{1+" * 40 + "1" + "}" * 40) == Fraction(165580141, 267914296)


@pytest.mark.parametrize(
    "text",
    ["9^{9^{9^{9}}}", "2^{99999999}", "x", "", "1/0", "0^0", "(", "1+", "2^{1/2}", "5!", "(" * 500 + "1" + ")" * 500],
)
def test_what_is_no_small_arithmetic_has_no_exact_value(text: str) -> None:
    assert exact_value(text) is None


def test_the_depth_of_brackets_and_exponents() -> None:
    assert depths(r"9^{9^{9^{9}}}") == (3, 3)
    assert depths(r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}")[1] == 4
    assert depths("x^2+y^2") == (0, 1)
    assert depths("[" * 20) == (20, 0)
    assert MAX_DEPTH == MAX_NESTING


def test_absurd_answers_are_refused_unless_the_gold_one_is_like_it() -> None:
    tower = "2^{2^{2^{2^{2}}}}"
    assert refusal("5", tower) == "the answer has exponents 4 deep; at most 3 are computed"
    assert refusal(tower, tower) is None
    assert "1001 characters" in (refusal("5", "1" * 1001) or "")
    assert refusal("1" * 600, "1" * 1001) is None
    assert "brackets 65 deep" in (refusal("5", "(" * 65) or "")
    assert refusal("5", "(" * 64) is None
