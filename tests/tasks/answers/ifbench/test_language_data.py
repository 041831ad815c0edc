from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tasks.answers.ifbench import base as language_data
from tasks.answers.instructions import InstructionError, InstructionFollowed, Semantics, make
from tasks.assertions import Verdict
from tasks.assertions.base import Outcome
from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_PUBLISHED, readings

SYLLABLES, VERB = "words:odd_even_syllables", "words:start_verb"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    language_data._package.cache_clear()
    yield
    language_data._package.cache_clear()


@pytest.mark.parametrize(
    ("id", "package", "semantics"),
    [
        (SYLLABLES, "syllapy", "fixed"),
        (SYLLABLES, "syllapy", "reference"),
        (VERB, "textblob", "fixed"),
        (VERB, "nltk", "reference"),
    ],
)
def test_without_its_package_the_verdict_is_an_error_that_names_the_extra(
    id: str, package: str, semantics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (package, f"{package}.en"):
        monkeypatch.setitem(sys.modules, name, None)
    found = InstructionFollowed(id=id, semantics=Semantics(semantics)).check(Outcome({}, {}, "Bake a cake"))
    assert found.verdict is Verdict.ERROR and found.score is None
    assert f"'{package}'" in found.detail and "turngym[ifbench]" in found.detail


def test_without_the_taggers_data_the_published_reading_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = ModuleType("nltk")

    def pos_tag(tokens: list[str]) -> list[tuple[str, str]]:
        raise LookupError("Resource averaged_perceptron_tagger_eng not found.")

    nltk.pos_tag = pos_tag  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nltk", nltk)
    with pytest.raises(InstructionError, match="python -m nltk.downloader averaged_perceptron_tagger_eng"):
        make(VERB, {}).follows("Bake a cake", Semantics.REFERENCE)


def test_the_published_reading_takes_the_tag_of_the_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = ModuleType("nltk")
    seen: list[list[str]] = []

    def pos_tag(tokens: list[str]) -> list[tuple[str, str]]:
        seen.append(tokens)
        return [(token, "VBG" if token == "Baking" else "NN") for token in tokens]

    nltk.pos_tag = pos_tag  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nltk", nltk)
    assert make(VERB, {}).follows("Baking, again.", Semantics.REFERENCE)
    assert not make(VERB, {}).follows("Cakes, Baking", Semantics.REFERENCE)
    assert seen[0] == ["Baking", ",", "again", "."]


def fake_syllapy(monkeypatch: pytest.MonkeyPatch) -> None:
    syllapy = ModuleType("syllapy")
    syllapy.count = lambda word: sum(character in "aeiou" for character in word)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "syllapy", syllapy)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat open dog over", BOTH),
        ("open cat over", BOTH),
        ("cat dog", NEITHER),
        ("cat", ONLY_PUBLISHED),
        ("cat 12 dog", ONLY_PUBLISHED),
    ],
)
def test_syllables_take_turns(text: str, expected: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_syllapy(monkeypatch)
    assert readings(SYLLABLES, text) == expected


def test_syllables_of_the_real_package() -> None:
    pytest.importorskip("syllapy", reason="needs the extra turngym[ifbench]")
    assert [language_data.syllables(word) for word in ("cat", "garden", "potato")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Imagine a world without clocks.", True),
        ("**Write** down what you see.", True),
        ("Plan your day.", True),
        ("Picture this: a cat.", True),
        ("Running is healthy.", True),
        ("Is it late?", True),
        ("Can you hear it?", True),
        ("The cat sleeps.", False),
        ("Table of contents", False),
        ("Here is the answer.", False),
        ("To begin, breathe.", False),
        ("Galois theory is deep.", False),
        ("...", False),
    ],
)
def test_verbs_by_the_real_package(text: str, expected: bool) -> None:
    pytest.importorskip("textblob", reason="needs the extra turngym[ifbench]")
    assert make(VERB, {}).follows(text, Semantics.FIXED) is expected
