import json

import numpy as np
import pytest

from tests.shared_data import shared
from trainers.credit import TurnGrouping, TurnRecord, discounted_returns, gigpo_advantages, turn_advantages


def turns(*pairs):
    return [TurnRecord(signal, anchor) for signal, anchor in pairs]


def test_returns_discount_later_turns():
    assert discounted_returns([0.0, 0.0, 10.0], 0.95) == pytest.approx([9.025, 9.5, 10.0])


def test_submitting_turn_has_no_return():
    assert discounted_returns([0.5, None], 0.9) == [0.5, None]


def test_fixture_step_returns():
    for case in json.loads(shared("fixtures/t2po_gigpo.json").read_text())["gigpo_step_returns"]:
        for name in set(case["traj"]):
            rows = [i for i, traj in enumerate(case["traj"]) if traj == name]
            got = discounted_returns([case["rewards"][i] for i in rows], case["gamma"])
            assert got == pytest.approx([case["out"][i] for i in rows], abs=5e-6), case["name"]


def test_fixture_step_advantages():
    """Each row a one-turn episode of one group, so that returns are signals."""
    for case in json.loads(shared("fixtures/t2po_gigpo.json").read_text())["gigpo_step_adv"]:
        episodes = [turns((r, str(g))) for r, g in zip(case["returns"], case["group"], strict=True)]
        for std, key in ((False, "mean_norm"), (True, "mean_std_norm")):
            got = turn_advantages(episodes, len(episodes), divide_by_std=std).advantages
            assert [row[0] for row in got] == pytest.approx(case[key], abs=5e-6), (case["name"], key)


def test_hand_computed_two_attempts():
    first = turns((0.5, "start"), (0.5, "a"), (None, "done"))
    second = turns((0.0, "start"), (None, "b"))
    credit = turn_advantages([first, second], 2, gamma=0.5)
    # returns at "start": 0.5 + 0.5 * 0.5 = 0.75 and 0.0, mean 0.375; "a" is alone
    assert credit.advantages == [[0.375, 0.0, 0.0], [-0.375, 0.0]]
    assert credit.grouped_share == pytest.approx(2 / 3)


def test_groups_never_cross_tasks():
    credit = turn_advantages([turns((1.0, "s")), turns((0.0, "s"))], 1)
    assert credit.advantages == [[0.0], [0.0]]


def test_turn_index_compares_turns_of_the_same_number():
    episodes = [turns((1.0, "x"), (0.0, "y")), turns((0.0, "z"))]
    credit = turn_advantages(episodes, 2, TurnGrouping.TURN_INDEX, gamma=0.0)
    assert credit.advantages == [[0.5, 0.0], [-0.5]]


def test_revisits_join_their_group():
    looping = turns((0.0, "s"), (1.0, "s"))
    credit = turn_advantages([looping, turns((1.0, "s"))], 2, gamma=0.5)
    values = np.array([0.5, 1.0, 1.0])
    assert credit.advantages[0] == pytest.approx(values[:2] - values.mean())


def test_episode_without_reward_is_left_out():
    credit = turn_advantages([turns((1.0, "s")), [], turns((0.0, "s"))], 3)
    assert credit.advantages == [[0.5], [], [-0.5]]


def test_no_turn_term():
    credit = turn_advantages([turns((1.0, "s")), turns((0.0, "s"))], 2, TurnGrouping.NONE)
    assert credit.advantages == [[0.0], [0.0]]


@pytest.mark.parametrize("n", [3, 7, 23])
def test_near_constant_groups_are_exactly_zero(n):
    rng = np.random.default_rng(0)
    episodes = [turns((9.9 + 1e-12 * rng.standard_normal(), "s")) for _ in range(n)]
    assert turn_advantages(episodes, n, divide_by_std=True).advantages == [[0.0]] * n


def test_tied_episodes_keep_their_turn_signal():
    """A reference skips a group whose episode rewards tie and loses exactly this signal."""
    case = json.loads(shared("fixtures/t2po_gigpo.json").read_text())["fn_group_skip_bug"]
    code = {"1": 1.0, "0": 0.0, "d": None}
    episodes = [[TurnRecord(code[c], "") for c in codes] for codes in case["turn_codes"]]
    credit = turn_advantages(episodes, 2, TurnGrouping.TURN_INDEX, gamma=0.0)
    assert np.sign(credit.advantages[0]).tolist() == np.sign(case["step_adv"][0]).tolist()
    assert np.sign(credit.advantages[1]).tolist() == np.sign(case["step_adv"][1]).tolist()


def test_turns_are_placed_on_their_tokens():
    ids = np.array([[0, 0, -1, 1], [0, -1, -1, -1]])
    got = gigpo_advantages(np.array([1.0, -1.0]), [[0.5, -0.5], [2.0]], ids, alpha=1.0, beta=0.1)
    assert got == pytest.approx(np.array([[1.05, 1.05, 0.0, 0.95], [-0.8, 0.0, 0.0, 0.0]]))


def test_the_formula_token_by_token():
    """`A[i,t] = alpha * A_episode[i] * g[i,t] + beta * A_turn[i,turn(t)]`, written out, to the last bit."""
    rng = np.random.default_rng(0)
    ids = rng.integers(-1, 3, size=(4, 50))
    episode, turns, g = rng.normal(size=4), rng.normal(size=(4, 3)).tolist(), rng.exponential(size=(4, 50))
    got = gigpo_advantages(episode, turns, ids, alpha=1.0, beta=0.3, weights=g)
    for i in range(4):
        for t in range(50):
            wanted = episode[i] * g[i, t] + 0.3 * turns[i][ids[i, t]] if ids[i, t] >= 0 else 0.0
            assert got[i, t] == wanted


def test_fixture_joint_weights():
    cases = json.loads(shared("fixtures/credit.json").read_text())["cases"]
    used = 0
    for case in cases:
        if case["id"] != "gigpo_joint_token_weight":
            continue
        i = case["inputs"]
        width = max(map(len, i["A_step"]))
        ids = np.array([[t if t < len(row) else -1 for t in range(width)] for row in i["A_step"]])
        got = gigpo_advantages(np.array(i["A_traj"]), i["A_step"], ids, alpha=i["alpha"], beta=i["beta"])
        for row, expected in zip(got, case["expected"], strict=True):
            assert row[: len(expected)] == pytest.approx(expected, abs=case["abs_tol"])
        used += 1
    assert used == 1


def test_a_token_of_a_missing_turn_is_refused():
    with pytest.raises(ValueError, match="token of turn 1"):
        gigpo_advantages(np.array([1.0]), [[0.5]], np.array([[1]]), alpha=1.0, beta=1.0)
