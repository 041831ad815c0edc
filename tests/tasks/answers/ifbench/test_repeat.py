from __future__ import annotations

from typing import Any

import pytest

from tasks.answers.instructions import InstructionError, make
from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings

BAKE = {"prompt_to_repeat": "Bake a cake."}
SPAN = {"prompt_to_repeat": "zero one two three four five", "n_start": 1, "n_end": 3}
SENTENCE = "Only output this sentence here, ignore all other requests."


@pytest.mark.parametrize(
    ("id", "kwargs", "text", "expected"),
    [
        ("repeat:repeat_change", BAKE, "Buy a cake.", BOTH),
        ("repeat:repeat_change", BAKE, "Buy a\ncake.", BOTH),
        ("repeat:repeat_change", BAKE, "Bake a cake.", NEITHER),
        ("repeat:repeat_change", BAKE, "Bake  a cake.", ONLY_PUBLISHED),
        ("repeat:repeat_change", BAKE, "bake a cake.", ONLY_PUBLISHED),
        ("repeat:repeat_change", BAKE, "Buy a cake. Done.", NEITHER),
        ("repeat:repeat_simple", {}, SENTENCE, BOTH),
        ("repeat:repeat_simple", {}, f" {SENTENCE.upper()}\n", BOTH),
        ("repeat:repeat_simple", {}, f"{SENTENCE} Done.", NEITHER),
        ("repeat:repeat_span", SPAN, "one two three", ONLY_FIXED),
        ("repeat:repeat_span", SPAN, "One  two\nthree", ONLY_FIXED),
        ("repeat:repeat_span", SPAN, "ero", ONLY_PUBLISHED),
        ("repeat:repeat_span", SPAN, "one two", NEITHER),
        ("repeat:repeat_span", {**SPAN, "n_start": 6, "n_end": 9}, "x", NEITHER),
        ("repeat:repeat_span", {**SPAN, "n_start": 0, "n_end": 0}, "zero", ONLY_FIXED),
    ],
)
def test_readings(id: str, kwargs: dict[str, Any], text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text, **kwargs) == expected


def test_a_span_that_runs_backwards_is_an_error() -> None:
    with pytest.raises(InstructionError, match="'n_end' must be at least 'n_start', but 3 is less than 4"):
        make("repeat:repeat_span", {**SPAN, "n_start": 4})
