from __future__ import annotations

import base64
import json
import math

import numpy as np
import pytest

from agents.view.pack import MARKS, TOP, Pieces, Tokenizers, eight_bits, pack, row, safe
from tests.agents.view.made import BYTES, command, episode, failed, turn


def nats(text: str) -> list[float]:
    """As the page reads them."""
    return [TOP * (byte / 255) ** 2 for byte in base64.b64decode(text)]


@pytest.mark.parametrize(
    ("low", "high", "error"), [(0.0, 0.1, 0.0051), (0.1, 1.0, 0.0158), (1.0, 4.0, 0.032), (4.0, 16.0, 0.063)]
)
def test_eight_bits_keep_entropies(low: float, high: float, error: float) -> None:
    values = np.linspace(low, high, 997)
    assert np.abs(np.array(nats(eight_bits(values))) - values).max() <= error


def test_eight_bits_take_every_number() -> None:
    assert nats(eight_bits([-1.0, math.nan, math.inf, 99.0])) == [0.0, 0.0, TOP, TOP]


@pytest.mark.parametrize("reply", ["ls -l", "héllo 日本 🙂 end", "🙂", ""])
def test_spans_are_counted_as_a_page_counts(reply: str) -> None:
    one = turn(0, reply)
    spans = Pieces(BYTES).spans(one)
    assert spans is not None and len(spans) == len(one.ids) and spans[-1] == 0
    assert sum(spans) == len(reply.encode("utf-16-le")) // 2


@pytest.mark.parametrize("ids", [[ord("x"), ord("y"), 257], [70_000, 80_000, 257]])
def test_another_tokenizer_gives_no_spans(ids: list[int]) -> None:
    one = turn(0, "ls")
    one.ids = ids
    assert Pieces(BYTES, BYTES.vocab_size).spans(one) is None
    strange = episode(turns=[one])
    assert Tokenizers().of(strange) is None
    assert "spans" not in pack(strange, None)["turns"][0]


def test_the_tokenizer_is_found_among_those_at_hand() -> None:
    found = Tokenizers().of(failed())
    assert found is not None
    packed = pack(failed(), found)
    assert packed["turns"][1]["candidates"] == [{"text": "rm -rf", "tokens": 6, "signal": 0.25}]
    assert packed["prompt_tokens"] == 3 and "tokenizer" not in packed


def test_an_odd_episode_does_not_hide_the_tokenizer_of_the_others() -> None:
    odd, found = episode(turns=[turn(0, "half \ud800")]), Tokenizers()
    assert found.of(odd) is None
    assert found.of(episode()) is not None


def test_zero_is_a_value() -> None:
    packed = pack(episode(), None)["turns"][0]
    assert packed["exit"] == 0 and packed["signal"] == 0.0 and "timed_out" not in packed


def test_bounds_where_entropies_are_not_known() -> None:
    one = turn(0, "ab")
    one.entropies, one.entropy_bounds = None, [(0.5, 1.0)] * 3
    packed = pack(episode(turns=[one]), None)["turns"][0]
    assert nats(packed["lower"])[0] < nats(packed["upper"])[0] and "entropy" not in packed


def test_the_row_tells_what_the_list_filters_by() -> None:
    cells = row(failed())
    assert cells[:8] == ["merge", "files", 1, False, 0.5, 0.25, "max_turns", 3]
    assert cells[9] == [["file_equals:out.csv", "file_equals"]]
    marked = {name for place, name in enumerate(MARKS) if cells[10] >> place & 1}
    assert marked == set(MARKS) - {"lost sandbox"}
    assert row(episode())[10] == 0


def test_what_json_cannot_hold_becomes_text() -> None:
    value = safe({"a": [math.nan, 2**62, 5, True], "b": -math.inf})
    assert value == {"a": ["nan", str(2**62), 5, True], "b": "-inf"}
    one = command(0, "ls", uncertainty=math.nan)
    json.dumps(pack(episode(turns=[one], notes={"x": math.inf}), None), allow_nan=False)


def test_a_token_longer_than_a_byte_counts_is_kept() -> None:
    class Long:
        def decode(self, ids: object, skip_special_tokens: bool = True) -> str:
            return "x" * 300

    one = turn(0, "x" * 300)
    one.ids, one.entropies, one.forced, one.logprobs = [1], [0.5], [False], [-0.5]
    assert pack(episode(turns=[one]), Pieces(Long()))["turns"][0]["spans"] == [300]
