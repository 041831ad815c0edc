from __future__ import annotations

import random
from dataclasses import asdict

import pytest

from agents.trajectory import Trajectory
from tasks.endpoints.chat import Price, read_price
from tests.trainers.fake_run import episode, task
from trainers.evaluation.tokens import Tokens, count


def played(**notes: float) -> Trajectory:
    one = episode(task(0, "pool"), random.Random(3), 1.0)
    for turn in one.turns:
        turn.notes = dict(notes)
    return one


def test_own_ids_are_counted_here_with_the_whole_prompt_of_every_turn() -> None:
    one = episode(task(0, "pool"), random.Random(3), 1.0)
    found = count([one], own_ids=True)
    prompts = [3 + 5 * turn for turn in range(len(one.turns))]  # 3 ids at first; each turn adds a reply of 3 and 2
    rejected = sum(len(candidate.ids) for turn in one.turns for candidate in turn.candidates)
    assert found == Tokens(1, len(one.turns), 0, sum(prompts), 3 * len(one.turns) + rejected)


def test_what_an_endpoint_tells_is_added_up_and_what_it_does_not_tell_is_unknown() -> None:
    told, silent = played(prompt_tokens=100.0, completion_tokens=10.0, cached_tokens=60.0), played()
    n = len(told.turns)
    found = count([told, silent], own_ids=False)
    assert found == Tokens(2, 2 * n, n, 100 * n, 10 * n, 60 * n, None)
    assert found.lines(1)[0].endswith(f"({n} of {2 * n} replies came without counts)")
    assert "cached" in found.lines(1)[0] and "reasoning" not in found.lines(1)[0]
    assert count([silent], own_ids=False) is None


def test_cost() -> None:
    tokens = Tokens(4, 8, 0, 2_000_000, 500_000, 1_000_000, 100_000)
    assert tokens.cost(Price(2.0, 8.0)) == pytest.approx(4.0 + 4.0)
    cached = Price(2.0, 8.0, 0.5)
    assert tokens.cost(cached) == pytest.approx(2.0 + 0.5 + 4.0)
    assert tokens.lines(2, cached)[1] == "cost: 6.5, 1.625 an episode, 3.25 for each pass"
    assert tokens.lines(0, cached)[1] == "cost: 6.5, 1.625 an episode"
    assert tokens.to_json(cached)["cost"] == 6.5 and "cost" not in tokens.to_json()
    assert tokens.to_json(cached)["price"] == asdict(cached)


def test_price_is_two_or_three_numbers() -> None:
    assert read_price(None) is None and read_price([1, 2]) == Price(1, 2) and read_price([1, 2, 0]) == Price(1, 2, 0)
    for wrong in ([1.0], [1.0, 2.0, 3.0, 4.0], [-1.0, 2.0], [1.0, float("inf")]):
        with pytest.raises(ValueError, match="two or three numbers"):
            read_price(wrong)
