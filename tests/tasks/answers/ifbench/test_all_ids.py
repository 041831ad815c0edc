"""What holds for each of the 58 ids: a sample shows both verdicts, loose is no stricter, and no junk takes long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks
from tasks.answers.ifbench import ALL
from tasks.answers.instructions import INSTRUCTIONS, InstructionError, Semantics, follows, make
from tests.shared_data import REPOSITORY

SAMPLES = Path(tasks.__file__).parent / "samples" / "ifbench.jsonl"
ROWS = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
PROMPTS = [
    (id, kwargs, row["reply"])
    for row in ROWS
    for id, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True)
] + [("words:start_verb", {}, "Bake a cake."), ("words:odd_even_syllables", {}, "Cats open doors over there.")]
EXAMPLES: dict[str, dict[str, Any]] = {id: kwargs for id, kwargs, _ in PROMPTS}
JUNK = (
    *("[", '"', "'", "\n", " \n", "<", "*", "-", ". ", "A. ", "?!", "a", "a ", "1,000,", "/", "<i>a", "<b>", "# \n"),
    *("\U0001f600. ", "! \U0001f600", "Question 1\n", "\u201c", "\u2018a ", "``", "e\u0301", "...\n", '"a",'),
)


def judged(id: str, text: str, semantics: Semantics, *, loose: bool = False) -> bool | None:
    """None where a package is missing."""
    try:
        return follows(make(id, EXAMPLES[id]), text, semantics, loose=loose)
    except InstructionError as error:
        assert id in ("words:start_verb", "words:odd_even_syllables") and (
            "ifbench]" in str(error) or "nltk" in str(error)
        )
        return None


def test_there_are_58_and_they_are_known() -> None:
    assert len({known.id for known in ALL}) == 58 == len(ALL)
    assert all(INSTRUCTIONS[known.id] is known for known in ALL)
    assert set(EXAMPLES) == {known.id for known in ALL}


def test_each_has_a_kind_that_tells_neither_number_nor_keyword() -> None:
    for id, kwargs in EXAMPLES.items():
        instruction = make(id, kwargs)
        assert instruction.kind and not any(character.isdigit() for character in instruction.kind)
        assert instruction.describe()


@pytest.mark.parametrize("id", EXAMPLES)
def test_a_blank_text_follows_none(id: str) -> None:
    for semantics in Semantics:
        assert judged(id, " \n\t", semantics) is False
        assert judged(id, "", semantics, loose=True) is False


@pytest.mark.parametrize("id", EXAMPLES)
def test_an_unknown_or_missing_argument_is_an_error(id: str) -> None:
    with pytest.raises(InstructionError, match="unknown argument 'nothing'"):
        make(id, {**EXAMPLES[id], "nothing": 1})
    for name in EXAMPLES[id]:
        with pytest.raises(InstructionError, match=f"the argument '{name}' is missing"):
            make(id, {**EXAMPLES[id], name: None})


@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_loose_is_no_stricter_than_strict(id: str, data: st.DataObject) -> None:
    replies = [reply for known, _, reply in PROMPTS if known == id]
    pieces = st.sampled_from([*replies, *JUNK, "one two", "Is it?", "\n", "* x\n", "- y\n"])
    text = "".join(data.draw(st.lists(pieces, max_size=8)))
    for semantics in Semantics:
        strict = judged(id, text, semantics)
        if strict is not None:
            assert strict in (True, False)
            assert judged(id, text, semantics, loose=True) or not strict


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.timeout(60)  # all of it takes seconds; the quadratic patterns of the published code, a minute and more
@pytest.mark.parametrize("unit", JUNK)
def test_junk_takes_time_linear_in_its_length(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    for id in EXAMPLES:
        for semantics in Semantics:
            assert judged(id, f"x{text}", semantics) in (True, False, None)


def test_what_is_fixed_is_documented() -> None:
    documents = "\n".join(file.read_text(encoding="utf-8") for file in (REPOSITORY / "docs").glob("verifiers*.md"))
    for known in ALL:
        assert f"`{known.id}`" in documents, known.id
        assert known.fix in documents, known.id
        assert known.needs in documents, known.id
