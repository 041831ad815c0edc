from __future__ import annotations

from typing import Any

import pytest

from tasks.answers.ifeval import compare
from tasks.answers.instructions import IFEVAL, INSTRUCTIONS, InstructionError, Semantics, follows, make
from tests.tasks.answers.ifeval.examples import EXAMPLES, example

WORDS = "length_constraints:number_words"


def test_the_official_ids_are_25() -> None:
    assert len({known.id for known in IFEVAL}) == len(IFEVAL) == 25
    assert all(INSTRUCTIONS[known.id] is known for known in IFEVAL)


@pytest.mark.parametrize(
    ("id", "kwargs", "said"),
    [
        ("length_constraint:number_words", {}, "did you mean 'length_constraints:number_words'"),
        ("", {}, "unknown instruction"),
        (WORDS, {"num_words": 3}, "'relation' is missing"),
        (WORDS, {"num_words": None, "relation": "at least"}, "'num_words' is missing"),
        (WORDS, {"num_words": 3, "relation": "at least", "n": 1}, "unknown argument 'n'"),
        (WORDS, {"num_words": 3, "relation": "at most"}, "'relation' must be one of 'at least', 'less than'"),
        (WORDS, {"num_words": "3", "relation": "at least"}, "must be a whole number"),
        (WORDS, {"num_words": 2.5, "relation": "at least"}, "must be a whole number"),
        (WORDS, {"num_words": True, "relation": "at least"}, "must be a whole number"),
        (WORDS, {"num_words": -1, "relation": "at least"}, "must be a whole number of 0 or more"),
        ("keywords:existence", {"keywords": []}, "with at least one"),
        ("keywords:existence", {"keywords": ["a", " "]}, "none is blank"),
        ("keywords:existence", {"keywords": "a"}, "a list of texts"),
        (
            "keywords:letter_frequency",
            {"letter": "ab", "let_frequency": 1, "let_relation": "at least"},
            "one character",
        ),
        ("startend:end_checker", {"end_phrase": " "}, "not blank"),
        ("language:response_language", {"language": "klingon"}, "a code of a language that can be told (af ar"),
        ("language:response_language", {"language": "xx"}, "a code of a language"),
        ("language:response_language", {"language": ["en"]}, "a code of a language"),
        (WORDS, [1], "must be a mapping"),
        (WORDS, None, "must be a mapping"),
        (WORDS, {1: 2}, "must be a mapping"),
        (WORDS, {"self": 1}, "unknown argument 'self'"),
        (
            "length_constraints:nth_paragraph_first_word",
            {"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"},
            "must be at least 'nth_paragraph'",
        ),
    ],
)
def test_what_no_check_can_be_made_of(id: str, kwargs: Any, said: str) -> None:
    with pytest.raises(InstructionError, match=said.replace("(", r"\(")):
        make(id, kwargs)


def test_arguments_that_are_null_or_whole_floats() -> None:
    found = make(WORDS, {"num_words": 2.0, "relation": "at least", "frequency": None})
    assert found.args == {"num_words": 2, "relation": "at least"}
    assert isinstance(found.args["num_words"], int)


def test_a_zero_is_a_value() -> None:
    assert not follows(make(WORDS, {"num_words": 0, "relation": "less than"}), "one word")


@pytest.mark.parametrize("known", IFEVAL, ids=lambda known: known.id)
@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("text", ["", " ", "\n\t\n"])
def test_a_blank_text_follows_nothing(known: Any, semantics: Semantics, text: str) -> None:
    for relation in ("at least", "less than"):
        for loose in (False, True):
            assert not follows(example(known, relation), text, semantics, loose=loose)


def test_every_instruction_says_what_it_asks() -> None:
    for found in EXAMPLES:
        assert found.kind.strip() and found.describe().strip()
        assert "2" not in found.kind and "sea" not in found.kind.split()


@pytest.mark.parametrize(("count", "relation", "holds"), [(2, "at least", True), (1, "at least", False)])
def test_compare_at_least(count: int, relation: str, holds: bool) -> None:
    assert compare(count, relation, 2) is holds


@pytest.mark.parametrize(("count", "holds"), [(1, True), (2, False)])
def test_compare_less_than_is_strict(count: int, holds: bool) -> None:
    assert compare(count, "less than", 2) is holds
