from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.agents.fakes import task
from trainers.run.setup import most_turns, reply_cap


def run(*, max_turn_tokens: int = 0, env: str = "ClawGym-v0", max_turns: int = 0, tools: bool = True) -> Any:
    pool = [task(budget={"max_turns": turns, "turn_tokens": tokens}) for turns, tokens in ((3, 100), (6, 200))]
    return SimpleNamespace(
        settings=SimpleNamespace(
            t2po=SimpleNamespace(max_turn_tokens=max_turn_tokens),
            env=SimpleNamespace(env=env, max_turns=max_turns, tools=tools, revise=0),
        ),
        tasks=SimpleNamespace(pool=pool, measured=[task(budget={"turn_tokens": 300})]),
    )


@pytest.mark.parametrize(("flag", "cap"), [(0, 300), (40, 40), (300, 300), (5000, 300)])
def test_a_reply_has_at_most_what_the_flag_and_some_task_allow(flag: int, cap: int) -> None:
    assert reply_cap(run(max_turn_tokens=flag)) == cap


def test_turns_of_an_episode() -> None:
    assert most_turns(run()) == 6
    assert most_turns(run(max_turns=2)) == 2
    assert most_turns(run(env="GSM8K-v0")) == 6
    assert most_turns(run(env="GSM8K-v0", tools=False)) == 1
