"""What trackio is sent of a step: a trace for each episode, whose turns are messages of their own."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from agents.rollout import RolloutResult, Timing
from tests.agents.view.made import BYTES, episode, failed
from trainers.run.traces import KEY, Traces


class Fake:
    """Stands for trackio: keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], int]] = []

    def log(self, values: dict[str, Any], step: int) -> None:
        self.sent.append((values, step))

    def Trace(self, messages: list[dict[str, Any]], metadata: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(messages=messages, metadata=metadata)


def test_environment_turns_are_messages_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    monkeypatch.setitem(sys.modules, "trackio", fake)
    lost = episode("lost", stop_reason="infrastructure", passed=None, rate=None, reward=None, error="gone")
    Traces(BYTES).on_episodes(2, RolloutResult([failed(), lost], Timing()))
    Traces(BYTES).write(4, [])
    ((values, step),) = fake.sent
    assert step == 2 and list(values) == [KEY], "figures of step 3, sent next without a number, then stand at 3"
    first, second = values[KEY]
    assert [one["role"] for one in first.messages] == ["user", *["assistant", "user"] * 3]
    assert first.messages[0]["content"] == "\x01\x02\x03"
    assert first.messages[3]["content"].endswith("cat a.txt\n```")
    assert first.messages[4] == {"role": "user", "content": "cat: a.txt: no such file"}
    assert first.metadata["step"] == 3 and first.metadata["status"] == "ok" and first.metadata["passed"] is False
    assert [turn.get("exit_code") for turn in first.metadata["turns"]] == [0, 1, 0]
    assert first.metadata["seed"] == str(2**62 + 1)
    assert second.metadata["status"] == "error" and not {"passed", "rate", "reward"} & set(second.metadata)
    json.dumps([one.metadata for one in values[KEY]], allow_nan=False)
