import json

import numpy as np
import pytest

from tests.shared_data import shared
from trainers.credit import CreditSettings, EpisodeScale, advantage_bound, episode_advantages
from trainers.credit.episode import OPERATORS
from trainers.settings.checks import credit_problems


def test_centred_and_scaled():
    rewards = [1.0, 0.0, 0.0, 0.0]
    assert episode_advantages(rewards, 4).tolist() == [0.75, -0.25, -0.25, -0.25]
    scaled = episode_advantages(rewards, 4, EpisodeScale.GROUP)
    assert scaled == pytest.approx(np.array([0.75, -0.25, -0.25, -0.25]) / (0.5 + 1e-4))


def test_batch_scale_divides_by_the_spread_of_all_rewards():
    rewards = [1.0, 0.0, 3.0, 1.0]
    expected = np.array([0.5, -0.5, 1.0, -1.0]) / (np.std(rewards, ddof=1) + 1e-4)
    assert episode_advantages(rewards, 2, EpisodeScale.BATCH) == pytest.approx(expected)


def test_missing_reward_enters_no_mean():
    got = episode_advantages([1.0, None, 0.0, None], 4)
    assert got.tolist() == [0.5, 0.0, -0.5, 0.0]


def test_one_known_reward_is_compared_with_nothing():
    assert episode_advantages([None, 1.0], 2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [9.9, 9.025, 0.1, 10.0, 8.57375])
@pytest.mark.parametrize("n", [3, 5, 7, 23])
@pytest.mark.parametrize("scale", list(EpisodeScale))
def test_constant_groups_are_exactly_zero(value, n, scale):
    assert not episode_advantages([value] * n, n, scale).any()


def test_fp32_pitfall_shows_the_ideal():
    for case in json.loads(shared("fixtures/t2po_gigpo.json").read_text())["gigpo_fp32_pitfall"]:
        got = episode_advantages([case["value"]] * case["n"], case["n"], EpisodeScale.GROUP)
        assert (got == case["ideal"]).all()


def test_fixture_per_trajectory_means():
    for case in json.loads(shared("fixtures/t2po_gigpo.json").read_text())["gigpo_episode_adv"]:
        first: dict[tuple[str, str], float] = {}
        for score, uid, traj in zip(case["scores"], case["uid"], case["traj"], strict=True):
            first.setdefault((uid, traj), score)
        by_uid: dict[str, list[float]] = {}
        for (uid, _), score in first.items():
            by_uid.setdefault(uid, []).append(score)
        for uid, scores in by_uid.items():
            if len(scores) < 2:
                continue  # the reference lets the raw score of a single attempt through; ours is 0
            for scale, key, eps in (("none", "mean_norm", 0), ("group", "mean_std_norm", 1e-6)):
                got = episode_advantages(scores, len(scores), EpisodeScale(scale), eps=eps)
                expected: dict[str, float] = {}
                for u, traj, out in zip(case["uid"], case["traj"], case[f"{key}_per_traj"], strict=True):
                    if u == uid:
                        expected.setdefault(traj, out)
                assert got == pytest.approx(list(expected.values()), abs=5e-6), case["name"]


@pytest.mark.parametrize("rewards", [[1.0, float("nan")], [float("inf"), 0.0]])
def test_non_finite_raises(rewards):
    with pytest.raises(ValueError, match="finite"):
        episode_advantages(rewards, 2)


def test_part_group_raises():
    with pytest.raises(ValueError, match="groups of 4"):
        episode_advantages([1.0, 0.0], 4)


def test_an_operator_of_ones_own(monkeypatch):
    monkeypatch.setitem(OPERATORS, "ranks", lambda rewards: rewards.argsort(axis=1).argsort(axis=1) - 1.5)
    fields = CreditSettings(episode_operator="ranks")
    assert list(credit_problems(fields)) == []
    rewards = [0.0, 0.1, 0.9, 0.2, 1.0, 1.0, 1.0, 1.0]
    got = episode_advantages(rewards, 4, operator="ranks")
    assert got.tolist() == [-1.5, -0.5, 1.5, 0.5, 0.0, 0.0, 0.0, 0.0]  # a constant group has 0 whatever it says
    assert advantage_bound("ranks", EpisodeScale.NONE, 4) is None
    with pytest.raises(ValueError, match="the episode operator 'x' .* is no function of rewards"):
        OPERATORS.register("x", 3)


def test_an_unknown_or_divided_operator_is_refused(monkeypatch):
    (said,) = credit_problems(CreditSettings(episode_operator="max_rl"))
    assert "unknown episode operator 'max_rl': did you mean 'maxrl'? (valid: grpo, " in said
    monkeypatch.setitem(OPERATORS, "ranks", lambda rewards: rewards)
    fields = CreditSettings(episode_operator="ranks")
    fields.scale_rewards = EpisodeScale.GROUP
    (said,) = credit_problems(fields)
    assert "one of your own divides by itself" in said
