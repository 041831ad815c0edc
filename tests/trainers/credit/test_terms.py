"""Terms before tokens are weighed: lone episodes, negative rewards under MaxRL, values that are not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trainers.credit import Credit, CreditBatch, CreditSettings, EpisodeOperator, TurnRecord, episode_advantages


def batch(rewards, turns) -> CreditBatch:
    width = max(len(t) for t in turns)
    ids = np.array([[*range(len(t)), *[-1] * (width - len(t))] for t in turns])
    return CreditBatch(rewards, turns, ids, len(rewards))


def test_an_episode_alone_with_its_reward_gets_nothing_even_where_it_loops():
    loop = [TurnRecord(signal, "s") for signal in (0.0, 0.5, 0.0)]
    result = Credit(CreditSettings()).assign(batch([1.0, None, None, None], [loop, [], [], []]))
    assert not result.advantages.any()
    assert result.metrics["gigpo/singleton_group_frac"] == result.metrics["gigpo/dead_group_frac"] == 1
    assert result.metrics["gigpo/grouped_turn_frac"] == 0
    two = Credit(CreditSettings()).assign(batch([1.0, 1.0, None, None], [loop, [TurnRecord(0.0, "s")], [], []]))
    assert two.advantages.any() and two.metrics["gigpo/dead_group_frac"] == 0


def test_maxrl_leaves_groups_with_a_negative_reward_out_and_counts_them():
    """Their mean can lie anywhere near 0: the first of these would get +239."""
    for rewards in ([0.6, -0.2, -0.2, -0.19], [1.0, 0.0, 0.5, -0.1]):
        assert not episode_advantages(rewards, 4, operator=EpisodeOperator.MAXRL).any()
    mixed = [0.6, -0.2, 1.0, 0.0]
    credit = Credit(CreditSettings(episode_operator=EpisodeOperator.MAXRL))
    pairs = CreditBatch(mixed, [[TurnRecord(0.0, "s")]] * 4, np.zeros((4, 1), dtype=int), 2)
    result = credit.assign(pairs)
    assert result.metrics["credit/maxrl_negative_frac"] == 0.5
    assert result.episode == pytest.approx([0, 0, 1, -1], abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"alpha_episode": math.nan}, "episode term .alpha_episode=nan x grpo"),
        ({"beta_turn": math.inf}, "turn term .beta_turn=inf x anchor"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_not_finite_is_named(changes, says):
    turns = [[TurnRecord(0.5, "s")], [TurnRecord(0.0, "s")]]
    with pytest.raises(ValueError, match=says):
        Credit(CreditSettings(**changes)).assign(batch([1.0, 0.0], turns))
