"""Planning masks: the reference's cases, and the fast search against a plain one."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.trainers.credit.fixtures import cases, text_of
from trainers.credit import Planning
from trainers.credit.planning import DEFAULT_PHRASES, PhraseDetector, stretches


def marks(detector: PhraseDetector, tokens: list[str]) -> list[int]:
    """0 or 1 for each of `tokens`, all of one turn."""
    return [int(on) for on in detector.mask(text_of([tokens]), np.zeros((1, len(tokens)), dtype=np.int64))[0]]


def test_recorded_cases():
    assert len(DEFAULT_PHRASES) == 18
    for case in cases("planning"):
        got = marks(PhraseDetector(), case["inputs"]["tokens"])
        assert got == case["expected"]["mask"] == case["expected"]["regex_detector_mask"], case["id"]


def plain(tokens, phrases, window):
    """Every window of every length, by regular expression; a blank token ends a window."""
    patterns = [re.compile(rf"\b{re.escape(phrase)}\b") for phrase in phrases]
    cleaned = [token.replace("\u0120", " ").strip().lower() for token in tokens]
    mask = [0] * len(tokens)
    for start in range(len(tokens)):
        for end in range(start + 1, min(len(tokens), start + window) + 1):
            if any(pattern.search(" ".join(cleaned[start:end])) for pattern in patterns):
                mask[start:end] = [1] * (end - start)
                break
    return mask


def test_the_fast_search_marks_what_a_plain_one_does():
    rng = np.random.default_rng(1)
    phrases = ["let me check", "check", "me think that", "that's not", "go go"]
    words = [
        "let",
        "me",
        "check",
        "check,",
        '"let',
        "think",
        "that",
        "that's",
        "not",
        "go",
        "\u0120me",
        "Let",
        "x",
        ",",
    ]
    rows = [[words[k] for k in rng.integers(len(words), size=60)] for _ in range(40)]
    assert [marks(PhraseDetector(phrases), row) for row in rows] == [plain(row, phrases, 5) for row in rows]
    text, turn_ids = text_of(rows), np.zeros((40, 60), dtype=np.int64)
    detector = PhraseDetector(phrases)
    for _ in range(2):  # what it learned of a text holds for the next step
        assert detector.mask(text, turn_ids).astype(int).tolist() == [plain(row, phrases, 5) for row in rows]


def test_no_phrase_and_no_window_crosses_turns_or_what_was_not_sampled():
    text = text_of([["so", "let", "me", "check", "x", "let", "me", "env", "check"]])
    turn_ids = np.array([[0, 0, 0, 0, 0, 1, 1, -1, 1]])
    assert PhraseDetector().mask(text, turn_ids).tolist() == [[True] * 4 + [False] * 5]
    split = np.array([[0, 1, 1, 1, 1, 1, 1, -1, 1]])
    assert PhraseDetector().mask(text, split)[0, :4].tolist() == [False, True, True, True]
    assert list(stretches(turn_ids)) == [(0, 0, 5), (0, 5, 7), (0, 8, 9)]


def shouts(tokens):
    return [int(token.isupper()) for token in tokens]


def short(tokens):
    return [0]


def graded(tokens):
    return [2 for _ in tokens]


def test_any_function_can_mark_tokens():
    text = text_of([["GO", "on", "ENV", "UP"]])
    mask = Planning(f"{__name__}:shouts").mask(text, np.array([[0, 0, -1, 1]]))
    assert mask.tolist() == [[True, False, False, True]]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"{__name__}:short", "1 values for 2 tokens"),
        (f"{__name__}:graded", "other than 0 and 1"),
        (f"{__name__}:missing", "missing"),
        ("no_such_module:f", "no_such_module"),
        (f"{__name__}:__name__", "not a function"),
        (" , ", "at least one phrase"),
    ],
)
def test_what_cannot_mark_tokens_is_named(source, message):
    with pytest.raises(ValueError, match=message):
        Planning(source).mask(text_of([["a", "b"]]), np.array([[0, 0]]))


def test_own_phrases():
    mask = Planning("step one, step two", 2).mask(text_of([["x", "step", "two"]]), np.zeros((1, 3), dtype=int))
    assert mask.tolist() == [[False, True, True]]
