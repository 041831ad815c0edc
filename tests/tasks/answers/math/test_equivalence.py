from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.answers.math.equivalence import Unreadable, equivalent, minerva_equivalent
from tasks.answers.math.extraction import minerva_answer, minerva_form
from tasks.answers.math.shapes import quick_verdict
from tests.shared_data import shared
from tests.tasks.answers.math.pairs import DIFFERENT, SAME, SAME_ONE_WAY


def verdict(gold: str, answer: str) -> bool | None:
    """None: the answer cannot be read, which is wrong too."""
    try:
        return equivalent(gold, answer)
    except Unreadable:
        return None


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_in_both_directions(one: str, other: str) -> None:
    assert verdict(one, other) is True
    assert verdict(other, one) is True
    assert quick_verdict(one, other) in (True, None)
    assert verdict(one, one) is True


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_in_both_directions(one: str, other: str) -> None:
    assert not verdict(one, other)
    assert not verdict(other, one)
    assert quick_verdict(one, other) in (False, None)
    assert quick_verdict(other, one) in (False, None)


@pytest.mark.parametrize(("gold", "answer"), SAME_ONE_WAY)
def test_the_same_in_one_direction(gold: str, answer: str) -> None:
    assert verdict(gold, answer) is True
    assert not verdict(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("|x|", "\\sqrt x\\sqrt x"), ("\\sqrt{x^2}", "\\sqrt{x}^2"), ("2\\ln|x|", "2\\ln x")],
)
def test_half_of_the_domain_will_not_do(gold: str, answer: str) -> None:
    assert not verdict(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), [("10", "10_2"), ("5", "5_0"), ("2x+3", "2x+3=y")])
def test_different_whichever_way_it_was_meant(gold: str, answer: str) -> None:
    assert not verdict(gold, answer)


def test_who_cannot_be_read_is_told() -> None:
    with pytest.raises(Unreadable) as error:
        equivalent("5", r"\frac{4}{2")
    assert not error.value.gold
    with pytest.raises(Unreadable) as error:
        equivalent(r"\frac{4}{2", "5")
    assert error.value.gold


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_whole_numbers(one: int, other: int) -> None:
    assert quick_verdict(f"{one:,}", str(one)) is True
    assert quick_verdict(str(one), str(other)) is (one == other)
    # "2,100" may also be a list, which the worker rules out
    assert quick_verdict(f"{one:,}", f"{other:,}") in ((True,) if one == other else (False, None))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=4))
def test_expanded_and_factored_polynomials(roots: list[int]) -> None:
    factored = "".join(f"(x{-root:+d})" for root in roots)
    shifted = "".join(f"(x{-root:+d})" for root in [*roots[:-1], roots[-1] + 1])
    backwards = "".join(f"(x{-root:+d})" for root in reversed(roots))
    assert equivalent(factored, backwards)
    assert not equivalent(factored, shifted)


def test_golden_pairs_without_a_wrong_verdict() -> None:
    pairs = json.loads(shared("fixtures/math_golden.json").read_text())["pairs"]
    assert len(pairs) == 300
    wrong = [pair["id"] for pair in pairs if bool(verdict(pair["gold"], pair["candidate"])) != pair["expected"]]
    assert wrong == []
    one_way = [
        pair["id"]
        for pair in pairs
        if bool(verdict(pair["gold"], pair["candidate"])) != bool(verdict(pair["candidate"], pair["gold"]))
    ]
    assert one_way == []


def test_each_golden_answer_is_itself() -> None:
    golds = {pair["gold"] for pair in json.loads(shared("fixtures/math_golden.json").read_text())["pairs"]}
    assert [gold for gold in golds if verdict(gold, gold) is not True] == []


def test_minerva_agrees_with_the_reference_except_on_lists_cut_short() -> None:
    """The reference's parser reads the first element of a list alone, which makes seven wrong answers right."""
    pairs = json.loads(shared("fixtures/math_golden.json").read_text())["pairs"]
    other = [p for p in pairs if minerva_equivalent(p["gold"], p["candidate"]) != p["lm_minerva"]]
    assert {(pair["kind"], pair["perturbation"], pair["expected"]) for pair in other} == {
        ("list", "extra", False),
        ("list", "subset", False),
    }
    assert all(pair["lm_minerva"] for pair in other)


def test_minerva_spelling() -> None:
    assert minerva_form(r"x = 5\text{ cm}") == "5"
    assert minerva_form(r"\frac12") == r"\frac{1}{2}"
    assert minerva_form(r"12{,}000") == "12000"
    assert minerva_form("12,000") == "12000"
    assert minerva_answer("Final Answer: The final answer is $5$. I hope it is correct.") == "$5$"
    assert minerva_answer(r"so \boxed{5}") == "5"
    assert minerva_answer("5") is None
