from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.policies.scripted import ByteTokenizer


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_round_trip(text: str) -> None:
    tokens = ByteTokenizer()
    assert tokens.decode(tokens.encode(text)) == text


def test_controls() -> None:
    tokens = ByteTokenizer()
    assert tokens.encode("a<|im_end|>b<|im_start|>") == [97, 257, 98, 256]
    assert tokens.decode([97, 257, 98], skip_special_tokens=True) == "ab"
    assert tokens.decode([97, 257]) == "a<|im_end|>"
    assert len(tokens) == 258 and tokens.encode("<|im_end|>") == [tokens.eos_token_id] == [257]
    assert tokens.decode([0xFF]) == "\ufffd"
