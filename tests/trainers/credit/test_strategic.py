"""A planning detector made of embeddings, and phrases that are mined: both with a toy that embeds words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.credit.fixtures import text_of
from trainers.credit.planning import Planning
from trainers.credit.strategic import AnchorDetector, Gram, mine, unit_rows

WORDS = ("check", "again", "copy", "file", "wait", "think")
PLAN, REST = ("check again", "wait think"), ("copy file", "copy")


def embed(texts: list[str]) -> np.ndarray:
    """How often each word occurs."""
    return np.array([[text.lower().split().count(word) for word in WORDS] for text in texts], dtype=float)


def detector(**changes: object) -> AnchorDetector:
    settings: dict[str, object] = {"planning": PLAN, "carrying_out": REST, "words": 2, "stride": 2, **changes}
    return AnchorDetector(embed, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tokens",
    [
        ["copy", " file", " check", " again", " copy", " file"],
        ["copy", "\u0120file", "\u0120check", "\u0120again", "\u0120copy", "\u0120file"],
        ["copy", "file", "check", "again", "copy", "file"],  # a tokenizer that drops spaces
    ],
)
def test_windows_near_planning_are_marked(tokens: list[str]) -> None:
    assert detector()(tokens) == [0, 0, 1, 1, 0, 0]


def test_parts_of_words_are_marked_with_them_and_margins_count() -> None:
    assert detector()(["co", "py", " file", " ch", "eck", " again", "\n"]) == [0, 0, 0, 1, 1, 1, 0]
    assert detector()(["hello", " there"]) == [0, 0], "near nothing"
    assert detector(margin=1.0)(["check", " again"]) == [0, 0]
    assert detector(least=1.5)(["check", " again"]) == [0, 0]
    assert detector()([]) == [] and detector()([" ", "\n"]) == [0, 0]
    assert detector(words=12, stride=6)(["wait", " think"]) == [1, 1], "shorter than a window"
    assert detector(stride=1)(["file", " check", " again"]) == [0, 1, 1]


HERE = detector()
"""What `--planning tests...:HERE` names."""


def test_it_goes_where_a_planning_function_goes() -> None:
    rows = [["copy", " file", " check", " again"], ["wait", " think", " copy", " file"]]
    mask = Planning(f"{__name__}:HERE").mask(text_of(rows), np.array([[0, 0, 0, 0], [0, 0, 1, 1]]))
    assert mask.tolist() == [[False, False, True, True], [True, True, False, False]]


@pytest.mark.parametrize("changes", [{"planning": ()}, {"words": 0}, {"stride": 0}, {"stride": 3}])
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="AnchorDetector"):
        detector(**changes)
    with pytest.raises(ValueError, match="the embedding of 2 texts"):
        unit_rows(lambda texts: np.zeros((1, 3)), ["a", "b"])


TEXTS = [
    "Let me check that. ```bash\nlet me check this fence\n```",
    "First: let me check it again, 12 times.",
    "let me check",
    "I copy the file now. let me see",
    "I copy the file; done",
    "I copy the file",
    "I copy the file",
]


def test_phrases_that_many_texts_share_come_first() -> None:
    found = mine(TEXTS, share=1.0, sizes=(3, 4))
    assert found[0] == Gram("copy the file", ("i copy the file",), 4)
    phrases = {phrase for gram in found for phrase in (gram.phrase, *gram.others)}
    assert "let me check" in phrases and "check this fence" not in phrases and "me see" not in phrases
    (best,) = mine(TEXTS, share=0.2, sizes=(3, 4))
    assert best == found[0]
    assert mine(TEXTS, least=9) == [] and mine([]) == []


def test_embeddings_say_what_means_alike() -> None:
    def one_group(texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 2))

    (gram,) = mine(TEXTS, embed=one_group, share=1.0, sizes=(3,))
    assert gram.texts == len(TEXTS) and len(gram.others) >= 2
    assert mine(TEXTS, embed=one_group, least=9) == []
    with pytest.raises(ValueError, match="mine: share"):
        mine(TEXTS, share=0.0)
