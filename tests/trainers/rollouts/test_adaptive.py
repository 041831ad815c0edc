"""Attempts until both outcomes were seen: which are made, which are trained on, and what is not biased by it."""

from __future__ import annotations

import itertools

import pytest

from tests.trainers.rollouts.planted import make_rollouts
from trainers.rollouts.rules import Adaptive, Draw, Rules

K = 4
DRAW = Draw([f"toy-{i}" for i in range(3) for _ in range(K)], offset=0, micro_step=7)


def after(n: int):
    """Every task fails at its first `n` attempts and passes from then on (attempts begin in their order)."""
    counts: dict[str, itertools.count] = {}

    def plan(task_id, _):
        return float(next(counts.setdefault(task_id, itertools.count())) >= n)

    return plan


def test_both_outcomes_are_trained_on_where_both_were_seen():
    for outcomes in itertools.product([True, False, None], repeat=6):
        chosen = Adaptive(1, 1, 6, 2).choose(outcomes, 3)
        assert len(chosen) == 3 and chosen == sorted(set(chosen))
        kept = [outcomes[i] for i in chosen]
        if {True, False} <= set(outcomes):
            assert {True, False} <= set(kept), outcomes
        assert kept.count(None) == max(0, 3 - sum(o is not None for o in outcomes))  # only where nothing else is left
        if {True, False} == set(outcomes[:3]):
            assert chosen == [0, 1, 2], outcomes


def test_attempts_go_on_in_chunks_until_enough_and_figures_are_of_the_first_k():
    rollouts = make_rollouts(after(5), rules=Rules(adaptive=Adaptive(1, 1, 12, 3)))
    played = rollouts.play(DRAW, end_id=0)
    rollouts.close()
    assert len(played.result.trajectories) == 3 * 7  # 4, then a chunk of 3 brings the sixth
    assert [e.task_id for e in played.episodes] == list(DRAW.task_ids)
    for row in range(0, 12, K):
        group = played.episodes[row : row + K]
        assert [e.attempt for e in group] == [0, 1, 2, 5] and [e.passed for e in group] == [False] * 3 + [True]
    assert [e.attempt for e in played.measured.trajectories] == [0, 1, 2, 3] * 3
    assert not any(e.passed for e in played.measured.trajectories)
    assert played.metrics["rollouts/attempts_per_task"] == 7 and played.metrics["rollouts/both_kinds_frac"] == 1
    assert len({e.seed for e in played.result.trajectories}) == 21
    assert [e for e in played.result.trajectories if e.notes["trained"]] == played.episodes
    assert [e for e in played.result.trajectories if e.notes["first_draw"]] == played.measured.trajectories


@pytest.mark.parametrize("reward", [1.0, 0.0, None], ids=["always", "never", "broken"])
def test_the_maximum_ends_it(reward):
    rollouts = make_rollouts(lambda *_: reward, rules=Rules(adaptive=Adaptive(1, 1, 9, 4)))
    played = rollouts.play(DRAW, end_id=0)
    rollouts.close()
    assert len(played.result.trajectories) == 3 * 9 and len(played.episodes) == 12
    assert played.metrics["rollouts/both_kinds_frac"] == 0
    assert played.metrics["rollouts/fate/failed"] == (27 if reward is None else 0)


def test_a_rule_that_never_acts_changes_nothing():
    """Both outcomes stand in the first K of every task: the same episodes, id for id, as without any rule."""

    def plan(task_id, _, seen=itertools.count()):  # noqa: B008
        return float(next(seen) % 2)

    plain, ruled = (make_rollouts(plan, rules=rules) for rules in (None, Rules(adaptive=Adaptive(1, 1, 12, 4))))
    first, second = plain.play(DRAW, end_id=0), ruled.play(DRAW, end_id=0)
    plain.close()
    ruled.close()
    assert [f.ids for f in first.flats] == [f.ids for f in second.flats]
    assert [f.logprobs for f in first.flats] == [f.logprobs for f in second.flats]
    assert first.measured is first.result and not first.metrics
    assert all("trained" not in e.notes for e in first.episodes)
