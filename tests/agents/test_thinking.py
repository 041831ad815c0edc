from __future__ import annotations

import json
import math
from typing import Any

import pytest

from agents.thinking import Cause, OfficialStop, PaperStop, ThinkControl, starts_inside, tag_id
from agents.uncertainty import confidence
from tests.agents.toys import tokenizer
from tests.shared_data import shared

OPEN, CLOSE, EOS = 5, 6, 7


def fixture(key: str) -> Any:
    return json.loads(shared("fixtures/t2po_gigpo.json").read_text())[key]


def control(**changes: Any) -> ThinkControl:
    return ThinkControl(**{"open_id": OPEN, "close_id": CLOSE, "inside": False, "cap": 1000, **changes})


def knowledge(logits: list[float]) -> tuple[float, float]:
    top = max(logits)
    total = math.fsum(math.exp(x - top) for x in logits)
    logprobs = [x - top - math.log(total) for x in logits]
    return -math.fsum(math.exp(x) * x for x in logprobs), max(logprobs)


# Case 4 forces the end of the turn outside of thinking, which the authors never switch on and which is not offered.
@pytest.mark.parametrize("at", [0, 1, 2, 3, 5, 6, 7])
def test_official_form_step_by_step(at: int) -> None:
    data = fixture("off_token_processor")
    case = data["cases"][at]
    params = case["params"]
    assert "eos" not in params
    stop = OfficialStop(data["vocab"], params["patience"], data["eps"], data["alpha"])
    rule = control(budget=params.get("budget"), stop=stop)
    ids = list(case["start_ids"])
    for logits, expected in zip(case["logits"], case["steps"], strict=True):
        entropy, top = knowledge(logits)
        assert confidence(entropy, top, data["vocab"]) == pytest.approx(expected["score"], abs=2e-6)
        forced = rule.force(ids, entropy, top)
        assert forced == expected["forced"]
        assert stop._count == expected["stagnation"]
        ids.append(forced if forced is not None else expected["next"])


def test_interleaved_rows_do_not_share_a_counter() -> None:
    # The authors' code keeps one counter for the batch: two stagnant rows with different scores never fire there.
    assert fixture("off_shared_state_bug")["any_forced"] is False
    rows = [control(inside=True, stop=OfficialStop(8, patience=3)) for _ in range(2)]
    facts = [(1.2, -0.5), (0.6, -0.2)]
    ids: list[list[int]] = [[], []]
    fired = [[], []]  # type: list[list[int]]
    for step in range(6):
        for row in (0, 1):
            forced = rows[row].force(ids[row], *facts[row])
            if forced is not None:
                fired[row].append(step)
            ids[row].append(0 if forced is None else forced)
    assert fired == [[3], [3]]
    assert rows[0].causes == [Cause.STOP]


def test_budget_counts_the_whole_reply() -> None:
    rule = control(budget=3)
    ids: list[int] = []
    script = iter([OPEN, 1, 2, CLOSE, 3, OPEN, 4])
    forced_at = []
    for position in range(10):
        forced = rule.force(ids, 1.0, -1.0)
        if forced is not None:
            forced_at.append(position)
        ids.append(next(script, 0) if forced is None else forced)
    # Two ids in the first block, one in the second: then the tag, and never again.
    assert forced_at == [7]
    assert rule.causes == [Cause.BUDGET] and rule.thought == 3


def test_the_answer_keeps_its_reserve() -> None:
    rule = control(inside=True, budget=100, cap=10, reserve=4)
    ids: list[int] = []
    while True:
        forced = rule.force(ids, 1.0, -1.0)
        if forced is not None:
            break
        ids.append(0)
    assert 10 - len(ids) - 1 == 4
    assert rule.causes == [Cause.RESERVE]


def test_another_control_goes_first() -> None:
    class Always:
        def force(self, ids: object, entropy: float, max_logprob: float) -> int | None:
            return 3

    assert control(inside=True, budget=0, before=Always()).force([], 1.0, -1.0) == 3


def paper(values: list[float], **changes: Any) -> int | None:
    """Position at which the paper's form fires, for uncertainties given as entropies of a two-way choice."""
    stop = PaperStop(vocabulary=2, weight=0.0, **{"window": 4, "eps": 0.02, "min_tokens": 6, **changes})
    for at, value in enumerate(values):
        if stop.fires(value * math.log(2), 0.0, True):
            return at
    return None


def test_paper_form_fires_behind_the_hump_once_it_is_flat() -> None:
    hump = [0.2, 0.5, 0.9, 0.6, 0.4, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]
    assert paper(hump) == 9
    assert paper(hump, min_tokens=11) == 10
    assert paper(hump, min_tokens=20) is None


def test_paper_form_waits_for_a_peak_and_for_stillness() -> None:
    assert paper([0.5] * 40) is None
    assert paper([0.1 + 0.01 * i for i in range(40)]) is None
    assert paper([0.9] + [0.2, 0.4] * 20) is None


def test_paper_form_fires_once() -> None:
    stop = PaperStop(vocabulary=2, weight=0.0, window=2, eps=0.1, min_tokens=3)
    fired = [stop.fires(value, 0.0, True) for value in [0.6, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]]
    assert sum(fired) == 1
    assert not PaperStop(vocabulary=2, window=1, min_tokens=1, eps=9).fires(0.1, -0.1, False)


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [
        ([1, OPEN, 2], True),
        ([1, OPEN, 2, CLOSE], False),
        ([OPEN, 2, EOS, 3], False),
        ([OPEN, CLOSE, EOS, 3, OPEN], True),
        ([], False),
    ],
)
def test_starts_inside(prompt: list[int], inside: bool) -> None:
    assert starts_inside(prompt, OPEN, CLOSE, frozenset([EOS])) is inside


def test_tag_id() -> None:
    assert tag_id(tokenizer(), "<think>") == tokenizer().convert_tokens_to_ids("<think>")
    assert tag_id(tokenizer(think=False), "<think>") is None
