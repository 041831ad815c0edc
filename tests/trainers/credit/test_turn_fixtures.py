"""Turn grouping, exit-code signals and whole GiGPO steps against the reference implementations."""

from __future__ import annotations

from collections import defaultdict
from difflib import SequenceMatcher

import numpy as np
import pytest

from agents.trajectory import Trajectory, Turn
from tests.trainers.credit.fixtures import block, cases
from trainers.credit import (
    Credit,
    CreditBatch,
    CreditSettings,
    EpisodeScale,
    TurnGrouping,
    TurnRecord,
    TurnRevisits,
    TurnSignal,
    discounted_returns,
    episode_advantages,
    gigpo_advantages,
    turn_advantages,
)
from trainers.credit.batch import turn_signals
from trainers.credit.grouping import similar_groups
from trainers.credit.turn import turn_values


def test_grouping():
    for case in block("gigpo_grouping"):
        if case["name"].startswith("ndarray"):
            continue  # our anchors are text: an array has no anchor here
        out: list[int] = []
        for uid in dict.fromkeys(case["uid"]):
            texts = [a for a, u in zip(case["anchor"], case["uid"], strict=True) if u == uid]
            labels = similar_groups(texts, case["similarity"] or 1.0)
            out += [len(set(out)) + label for label in labels]
        assert out == case["out_group"], case["name"]


def test_grouping_ratios():
    for case in block("gigpo_grouping_ratios"):
        assert SequenceMatcher(None, case["a"], case["b"]).ratio() == pytest.approx(case["ratio"], abs=5e-6)
        above, below = similar_groups([case["a"], case["b"]], case["ratio"] - 1e-5), [0, 1]
        assert above == [0, 0] and similar_groups([case["a"], case["b"]], case["ratio"] + 1e-5) == below


def test_similar_observations_are_compared():
    first = [TurnRecord(1.0, "a", state="you see a red mug 1"), TurnRecord(0.0, "b", state="something else")]
    second = [TurnRecord(0.0, "c", state="you see a red mug 2")]
    got = turn_advantages([first, second], 2, TurnGrouping.SIMILARITY, gamma=0.0)
    assert got.advantages == [[0.5, 0.0], [-0.5]]
    assert got.grouped_share == pytest.approx(2 / 3)
    strict = turn_advantages([first, second], 2, TurnGrouping.SIMILARITY, gamma=0.0, similarity=0.99)
    assert strict.advantages == [[0.0, 0.0], [0.0]]


def played(**more):
    return Turn(0, [], [1], [0.0], None, [False], None, "", **more)


def exit_code_signal(turn):
    (signal,) = turn_signals(Trajectory("t", "", 0, 0, [], turns=[turn]), TurnSignal.EXIT_CODE)
    return signal


def test_exit_code_signal():
    """As recorded, but for the turn that submits: 1 there, none here (a signal there pays for stopping)."""
    for case in cases("gigpo.turn"):
        i = case["inputs"]
        if "turn" not in i:
            continue
        seen = i["turn"].get("observation") or {}
        kind = (i["turn"]["action"] or {}).get("kind")
        action = {"shell": "command", "done": "submit", None: "malformed"}[kind]
        got = exit_code_signal(played(action=action, exit_code=seen.get("exit_code"), timed_out=seen.get("timed_out")))
        if case["id"] in ("turn_step_reward_done", "turn_step_reward_missing_obs"):
            assert got is None  # a command without an answer cannot happen here: it is an infrastructure failure
        else:
            assert got == case["expected"], case["id"]
    codes = {row["name"]: row["out"] for row in block("fn_turn_step_reward")}
    for name, turn in {
        "exit0": played(action="command", exit_code=0, timed_out=False),
        "exit1_nomatch_grep": played(action="command", exit_code=1, timed_out=False),
        "timeout_124": played(action="command", exit_code=124, timed_out=True),
        "timed_out_flag_with_exit0": played(action="command", exit_code=0, timed_out=True),
        "parse_error": played(action="malformed"),
    }.items():
        assert exit_code_signal(turn) == codes[name]


def test_turn_index_and_discount():
    by_id = {case["id"]: case for case in cases("gigpo.turn")}
    case = by_id["gigpo_upstream_discounted_return"]
    got = discounted_returns(case["inputs"]["turn_rewards"], case["inputs"]["gamma"])
    assert got == pytest.approx(case["expected"], abs=case["abs_tol"])
    case = by_id["gigpo_step_advantages"]
    rewards = case["inputs"]["turn_rewards"]
    ours = turn_advantages(
        [[TurnRecord(r, "") for r in row] for row in rewards], len(rewards), TurnGrouping.TURN_INDEX, gamma=0.0
    ).advantages
    for row, wanted in zip(ours, case["expected"], strict=True):
        spreads = [np.std([r[t] for r in rewards if t < len(r)]) for t in range(len(row))]
        scaled = [value / (spread + 1e-8) if value else 0.0 for value, spread in zip(row, spreads, strict=True)]
        assert scaled == pytest.approx(wanted, abs=case["abs_tol"])


def test_joint_of_episode_and_turn():
    by_id = {case["id"]: case for case in cases("gigpo.joint")}
    case = by_id["gigpo_joint_token_weight"]
    i = case["inputs"]
    width = max(map(len, i["A_step"]))
    ids = np.array([[t if t < len(row) else -1 for t in range(width)] for row in i["A_step"]])
    got = gigpo_advantages(np.array(i["A_traj"]), i["A_step"], ids, alpha=i["alpha"], beta=i["beta"])
    for row, wanted in zip(got, case["expected"], strict=True):
        assert row[: len(wanted)] == pytest.approx(wanted, abs=case["abs_tol"])

    muted = by_id["gigpo_muted_by_group_skip"]["inputs"]
    rescued = gigpo_advantages(np.array(muted["A_traj"]), muted["A_step"], ids, alpha=1.0, beta=1.0)
    assert rescued.any(), "turn signal of a group whose rewards tie is trained on; the reference skips it"

    case = by_id["gigpo_upstream_std_vs_field_notes"]
    rewards, wanted = case["inputs"]["rewards"], case["expected"]
    n = len(rewards)
    assert episode_advantages(rewards, n) == pytest.approx(np.array(wanted["mean_norm"]))
    sample = episode_advantages(rewards, n, EpisodeScale.GROUP, eps=1e-6)
    assert sample == pytest.approx(np.array(wanted["upstream_mean_std_norm"]), abs=case["abs_tol"])
    for name in ("field_notes", "rlvr"):  # population deviations
        assert sample * np.sqrt(n / (n - 1)) == pytest.approx(np.array(wanted[name]), abs=1e-5)


def test_whole_gigpo_steps():
    """The reference: a row per turn, episode means over rows, the penalty off the row's score and its return."""
    for case in block("gigpo_joint"):
        divide = case["mode"] == "mean_std_norm"
        rows_of: dict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(case["traj"]):
            rows_of[name].append(row)
        records = {
            name: [TurnRecord(case["rewards"][r], case["anchor"][r], invalid=not case["action_valid"][r]) for r in rows]
            for name, rows in rows_of.items()
        }
        step = np.zeros(len(case["traj"]))
        for name, rows in rows_of.items():
            values = turn_values(records[name], case["gamma"], case["coef"])
            assert values == pytest.approx([case["step_rewards_after_penalty"][r] for r in rows], abs=5e-6)
            assert turn_values(records[name], case["gamma"]) == pytest.approx([case["step_returns"][r] for r in rows])
        episode = np.zeros(len(case["traj"]))
        for uid in dict.fromkeys(case["uid"]):
            rows = [r for r, u in enumerate(case["uid"]) if u == uid]
            names = list(dict.fromkeys(case["traj"][r] for r in rows))
            scale = EpisodeScale.GROUP if divide else EpisodeScale.NONE
            scores = [case["row_scores_after_penalty"][r] for r in rows]
            episode[rows] = episode_advantages(scores, len(rows), scale, eps=1e-6)
            got = turn_advantages(
                [records[name] for name in names],
                len(names),
                gamma=case["gamma"],
                divide_by_std=divide,
                invalid_penalty=case["coef"],
            )
            for name, values in zip(names, got.advantages, strict=True):
                step[rows_of[name]] = values
        wanted = np.array(case["advantage_tokens"])
        mask = np.arange(case["response_len"]) < np.array(case["valid_len"])[:, None]
        assert (episode + case["step_w"] * step)[:, None] * mask == pytest.approx(wanted, abs=5e-6), case["name"]


def test_penalty_does_not_reach_earlier_turns():
    turns = [TurnRecord(0.0, "a"), TurnRecord(0.0, "b", invalid=True), TurnRecord(1.0, "c"), TurnRecord(None, "d")]
    assert turn_values(turns, 0.5, 0.1) == pytest.approx([0.25, 0.4, 1.0, None])


def test_one_looping_trajectory_does_not_own_the_mean():
    looping = [TurnRecord(0.0, "s"), TurnRecord(0.0, "s"), TurnRecord(1.0, "s")]
    group = [looping, [TurnRecord(0.0, "s")]]
    every = turn_advantages(group, 2, gamma=1.0).advantages
    once = turn_advantages(group, 2, gamma=1.0, revisits=TurnRevisits.PER_TRAJECTORY)
    assert every[1] == [-0.75] and once.advantages == [[0.5, 0.5, 0.5], [-0.5]]
    assert once.grouped_share == 1.0
    alone = turn_advantages([looping, []], 2, gamma=0.5, revisits=TurnRevisits.PER_TRAJECTORY)
    assert alone.advantages == [[0.0] * 3, []] and alone.grouped_share == 0.0
    scaled = turn_advantages(group, 2, gamma=1.0, revisits=TurnRevisits.PER_TRAJECTORY, divide_by_std=True, eps=0.0)
    assert scaled.advantages[1] == pytest.approx([-0.5 / np.sqrt(0.5)])


def test_groups_that_tie_or_have_one_reward_are_counted_and_keep_their_turns():
    flat = [[TurnRecord(1.0, "s")], [TurnRecord(0.0, "s")]]
    single = [[TurnRecord(1.0, "s")], []]
    ids = np.array([[0], [0], [0], [-1]])
    result = Credit(CreditSettings(beta_turn=0.3)).assign(CreditBatch([0.5, 0.5, 1.0, None], [*flat, *single], ids, 2))
    assert result.advantages.tolist() == [[0.15], [-0.15], [0.0], [0.0]]
    assert result.metrics["gigpo/singleton_group_frac"] == 0.5
    assert (result.metrics["gigpo/flat_group_frac"], result.metrics["gigpo/dead_group_frac"]) == (1.0, 0.5)
