"""GTPO as published: rewards of tokens by hand, their sums, both ways to normalise, and how a run reaches it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.credit.fixtures import padded
from trainers.credit import Credit, CreditBatch, CreditSettings, EpisodeScale, TurnRecord, advantage_bound
from trainers.credit.episode import GTPONorm, gtpo_advantages
from trainers.credit.token import TokenSignal
from trainers.settings.checks import credit_problems, idle_credit

REWARDS = [1.0, 1.0, 0.0, 0.0]
ENTROPIES = [[3.0, 1.0], [1.0, 3.0], [4.0, 1.0], [1.0, 4.0]]
BY_HAND = [[1.15, 1.05], [1.05, 1.15], [-1.04, -1.16], [-1.16, -1.04]]
"""`1 + 0.1 * 2 * 3/4` and so on; of the failed ones `-(1 + 0.1 * 2 * 0.25/1.25)`: the surer token is blamed more."""


def standard(values):
    return (values - values.mean()) / values.std()


@pytest.mark.parametrize("norm", list(GTPONorm))
def test_rewards_of_tokens_as_the_paper_writes_them(norm):
    signal, mask = padded(ENTROPIES)
    got = gtpo_advantages(REWARDS, signal, mask, 4, norm=norm)
    by_hand = np.array(BY_HAND)
    sides = [standard(by_hand[:2]), standard(by_hand[2:])] if norm is GTPONorm.SIDES else [standard(by_hand)]
    assert got == pytest.approx(np.concatenate(sides), abs=1e-6)


def test_each_side_averages_nothing_as_published_and_together_passing_is_better():
    rng = np.random.default_rng(1)
    signal, mask = padded([list(rng.random(n)) for n in (7, 3, 5, 9)])
    rewards = [1.0, 0.0, 1.0, 0.0]
    passed = np.array(rewards) > 0.5
    apart = gtpo_advantages(rewards, signal, mask, 4)
    for side in (passed, ~passed):
        values = apart[side][mask[side]]
        assert values.mean() == pytest.approx(0, abs=1e-9) and values.std() == pytest.approx(1, abs=1e-5)
    together = gtpo_advantages(rewards, signal, mask, 4, norm=GTPONorm.GROUP)
    assert together[passed][mask[passed]].min() > 0 > together[~passed][mask[~passed]].max()
    assert not (together[~mask].any() or apart[~mask].any())


def test_a_place_is_that_of_sampled_tokens_whatever_the_environment_wrote_between():
    signal, mask = padded(ENTROPIES)
    wide, where = np.zeros((4, 5)), np.zeros((4, 5), dtype=bool)
    for row, columns in enumerate([(0, 1), (0, 4), (2, 3), (1, 4)]):
        where[row, columns] = True
    wide[where] = signal[mask]
    assert (
        gtpo_advantages(REWARDS, wide, where, 4)[where].tolist()
        == gtpo_advantages(REWARDS, signal, mask, 4)[mask].tolist()
    )


def test_sums_at_a_place_are_those_of_the_rewards():
    """Proposition 2.2 for a1 = 1: the tokens of a side at a place share `(1 + a2) d`, however unsure each was."""
    signal, mask = padded([[0.2, 2.0, 0.7], [1.4, 0.1], [0.5, 0.5]])
    got = gtpo_advantages([1.0, 1.0, 0.0], signal, mask, 3, norm=GTPONorm.GROUP, share=0.1)
    again = gtpo_advantages([1.0, 1.0, 0.0], np.ones(signal.shape), mask, 3, norm=GTPONorm.GROUP, share=0.1)
    for place in range(2):  # up to the scale of (6), sums of two tokens at a place are equal at every place
        assert got[:2, place].sum() == pytest.approx(got[:2, 0].sum())
        assert again[0, place] == pytest.approx(again[1, place])


@pytest.mark.parametrize(
    "rewards",
    [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, None, None, None], [None, None, None, None]],
)
def test_a_group_without_both_sides_gets_exactly_nothing(rewards):
    signal, mask = padded(ENTROPIES)
    assert not gtpo_advantages(rewards, signal, mask, 4).any()


def test_tokens_of_no_entropy_and_attempts_without_tokens_stay_finite():
    signal, mask = padded([[0.0, 0.0], [0.0, 1.0], [], [0.0, 2.0]])
    got = gtpo_advantages(REWARDS, signal, mask, 4, norm=GTPONorm.GROUP)
    assert np.isfinite(got).all() and got.any() and not got[2].any()


@pytest.mark.parametrize("operators", ["none", "entropy_mask"])
def test_credit_gives_it_to_tokens_and_token_operators_weigh_it(operators):
    settings = CreditSettings(
        episode_operator="gtpo", token_operators=operators, token_signal=TokenSignal.ENTROPY, beta_turn=0.0
    )
    signal, mask = padded(ENTROPIES)
    credit = Credit(settings)
    assert credit.needs_entropies and not credit.needs_logprobs
    turns = [[TurnRecord(None, "")] for _ in REWARDS]
    batch = CreditBatch(REWARDS, turns, np.where(mask, 0, -1), 4, entropies=signal)
    got = credit.assign(batch).advantages
    wanted = gtpo_advantages(REWARDS, signal, mask, 4)
    kept = got != 0
    assert kept.sum() == (8 if operators == "none" else 1)
    assert got[kept] == pytest.approx(wanted[kept])


def test_what_goes_with_it():
    assert advantage_bound("gtpo", EpisodeScale.NONE, 8) is None
    (said,) = credit_problems(CreditSettings(episode_operator="gtpo", scale_rewards=EpisodeScale.GROUP))
    assert "GTPO divides by the deviation of its tokens' rewards" in said
    (note,) = idle_credit(CreditSettings(episode_operator="gtpo", token_signal=TokenSignal.ENTROPY))
    assert "gtpo_norm=group keeps the difference" in note
    assert list(idle_credit(CreditSettings(episode_operator="gtpo", gtpo_norm=GTPONorm.GROUP))) == []
