from __future__ import annotations

import pytest

from agents.policies.scripted import ByteTokenizer
from agents.policies.slots import StopTexts
from agents.policies.transformers import TransformersPolicy
from agents.policy import FinishReason, Request, Sampling
from tests.agents.toys import model, tokenizer


def end_of(text: str, stops: list[str]) -> int | None:
    """After how many bytes of `text` a reply ends."""
    ids, watch = ByteTokenizer().encode(text), StopTexts(ByteTokenizer(), stops)
    return next((n for n in range(1, len(ids) + 1) if watch.found(ids[:n])), None)


@pytest.mark.parametrize(
    ("text", "stops", "end"),
    [
        ("42\nQuestion: next", ["\nQuestion:"], 12),
        ("42\nQuestion", ["\nQuestion:"], None),
        ("a\n\n\nb", ["\n\n\n", "\nProblem:"], 4),
        ("xé\u2028y", ["\u2028"], 6),
        ("stop", ["p", "sto"], 3),
        ("a\ufffdb", ["\ufffd"], 5),  # real: the id behind it shows that
        ("a🙂b", ["\ufffd"], None),  # its first bytes alone are half a character
        ("ab", ["\ud83d", "b"], 2),  # a lone surrogate is in no text
    ],
)
def test_a_reply_ends_where_a_stop_text_is_complete(text: str, stops: list[str], end: int | None) -> None:
    assert end_of(text, stops) == end


def test_an_empty_stop_text_is_refused() -> None:
    with pytest.raises(ValueError, match="empty stop text"):
        StopTexts(ByteTokenizer(), [""])


def test_the_policy_stops_sampling_there() -> None:
    policy = TransformersPolicy(model("gqa"), tokenizer(), eos_ids=[319])
    sampling = Sampling(1.0, 40)
    whole = policy.complete([Request("a", [11, 12], seed=3)], sampling)[0]
    text = tokenizer().decode(whole.ids)
    stop = text[len(text) // 2 : len(text) // 2 + 4]
    cut, other = policy.complete(
        [Request("b", [11, 12], seed=3, stops=("never there", stop)), Request("c", [11, 12], seed=3)], sampling
    )
    assert cut.finish is FinishReason.STOP_TEXT
    assert cut.ids == whole.ids[: len(cut.ids)]
    assert stop in tokenizer().decode(cut.ids)
    assert stop not in tokenizer().decode(cut.ids[:-1])
    assert other.ids == whole.ids
