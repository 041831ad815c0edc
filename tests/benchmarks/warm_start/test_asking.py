from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from benchmarks.warm_start import asking
from envs.actions import STOP_WORD, Command, Submit, parse
from tasks.families import SMALL_TURNS_MIX, generate


def conversations(count: int = 200, seed: int = 3) -> list[list[dict[str, str]]]:
    return list(asking.demonstrations(count, seed))


def test_the_same_seed_gives_the_same_ones_and_fewer_are_the_beginning_of_more() -> None:
    assert conversations(20) == conversations(40)[:20] != conversations(20, seed=4)


def test_replies_are_actions_and_each_task_begins_with_a_question() -> None:
    endings: Counter[str] = Counter()
    for messages in conversations():
        assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        replies = [message["content"] for message in messages[1::2]]
        assert "./ask" in replies[0] and all(isinstance(parse(reply), (Command, Submit)) for reply in replies)
        endings["stops" if replies[-1] == STOP_WORD else "goes on"] += 1
        shown = [message["content"] for message in messages[2::2]]
        endings["done"] += "ok\ndone" in shown
        assert len(replies) <= 17
    assert endings["done"] > 60 and endings["goes on"] > 20 and endings["stops"] > 100, endings


def test_faults_are_shown_and_mended() -> None:
    text = [json.dumps(messages) for messages in conversations()]
    assert sum("exit 1" in one for one in text) >= 1  # a wrong name
    repeated = [m for m in conversations() if max(Counter(x["content"] for x in m[2::2]).values()) > 1]
    assert len(repeated) > 30


def test_no_measured_task_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = generate(SMALL_TURNS_MIX, 2, 1000)
    asked = []
    monkeypatch.setattr(asking, "generate", lambda *spec: asked.append(spec) or measured)
    list(islice(asking.demonstrations(3, 0), 3))
    assert asked == [(SMALL_TURNS_MIX, 320, 1000)]
