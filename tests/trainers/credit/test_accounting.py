"""Every group of recorded cases is read by a test."""

from __future__ import annotations

import json

import pytest

from tests.shared_data import REPOSITORY, shared

HERE = "tests/trainers/credit"
EPISODE, TOKEN, DELIGHT, TURN = (f"{HERE}/test_{name}_fixtures.py" for name in ("episode", "token", "delight", "turn"))
LOSSES = "tests/trainers/loss/test_losses.py"
ROLLOUTS = "tests/trainers/rollouts/test_reference_cases.py"
EMERGENCE, STATS = "tests/trainers/test_emergence.py", "tests/trainers/test_stats.py"
T2PO = "tests/agents/t2po/test_fixtures.py"
MATH = "tests/tasks/answers/math/test_reference_cases.py"
ANSWERS = "tests/tasks/answers/test_answers.py"
IFEVAL = "tests/tasks/answers/ifeval/test_golden.py"

READ_BY = {
    "adv_cap": EPISODE,
    "article_numbers": "tests/trainers/test_verdicts.py",
    "clawgym.parse": "tests/envs/test_actions.py",
    "clawgym.reward": "tests/envs/test_rewards.py",
    "delight.annealed": DELIGHT,
    "delight.eta": DELIGHT,
    "delight.hard": DELIGHT,
    "delight.scale": DELIGHT,
    "delight.soft": DELIGHT,
    "entropy_mask": TOKEN,
    "episode.discover_entropic": EPISODE,
    "episode.drgrpo": EPISODE,
    "episode.grpo_centered": EPISODE,
    "episode.grpo_std": EPISODE,
    "episode.maxrl": EPISODE,
    "episode.reinforce_pp": EPISODE,
    "eval.pass_at_k": STATS,
    "gigpo.joint": TURN,
    "gigpo.turn": TURN,
    "gradient_cosine": "tests/trainers/test_gradients.py",
    "gtpo": TOKEN,
    "hicra": TOKEN,
    "kl": LOSSES,
    "logging": EMERGENCE,
    "loss.retrain": LOSSES,
    "loss.rlvr": LOSSES,
    "optimizer": LOSSES,
    "pipeline": f"{HERE}/test_pipeline_fixtures.py",
    "planning": f"{HERE}/test_planning.py",
    "reward_ties": EPISODE,
    "rollout.adaptive": ROLLOUTS,
    "rollout.schedule": ROLLOUTS,
    "rollout.staleness": ROLLOUTS,
    "sepa.amp": TOKEN,
    "sepa.amp_clamped": TOKEN,
    "sepa.pool": TOKEN,
    "sepa.schedule": TOKEN,
    "squeeze": "tests/trainers/test_rank.py",
    "stats.auc": STATS,
    "stats.bootstrap": STATS,
    "stats.effect": STATS,
    "stats.fisher": STATS,
    "stats.permutation": STATS,
    "stats.power": STATS,
    "stats.rate_ci": STATS,
    "stats.report": EMERGENCE,
    "stats.welch": STATS,
    "t2po.tti": T2PO,
    "tds.decision": T2PO,
    "tds.entropy": T2PO,
    "temperature": LOSSES,
    "uncertainty": TOKEN,
    "verifier.boxed": MATH,
    "verifier.gsm8k": ANSWERS,
    "verifier.ifeval": IFEVAL,
    "verifier.if_multi": IFEVAL,
    "verifier.math_flex": MATH,
    "verifier.math_qwen": MATH,
    "verifier.math_verify": MATH,
    # t2po_gigpo.json
    "gigpo_step_returns": f"{HERE}/test_turn.py",
    "gigpo_grouping": TURN,
    "gigpo_grouping_ratios": TURN,
    "gigpo_episode_adv": f"{HERE}/test_episode.py",
    "gigpo_fp32_pitfall": f"{HERE}/test_episode.py",
    "gigpo_step_adv": f"{HERE}/test_turn.py",
    "gigpo_joint": TURN,
    "fn_group_advantages": f"{HERE}/test_field_notes.py",
    "fn_compute_reward": "tests/envs/test_rewards.py",
    "fn_turn_step_reward": TURN,
    "fn_step_advantages": f"{HERE}/test_field_notes.py",
    "fn_group_skip_bug": f"{HERE}/test_turn.py",
    "fn_topk_entropy": T2PO,
    "fn_topk_entropy_upper_bound": T2PO,
    "fn_tds_decision": T2PO,
    "fn_parse_action": "tests/envs/test_actions.py",
    "fn_loss": LOSSES,
    "off_token_processor": T2PO,
    "off_shared_state_bug": T2PO,
    "off_score": T2PO,
    "off_recorder_bug": T2PO,
    "off_tds_mask": T2PO,
    "paper_signal": T2PO,
    "verl_policy_loss": LOSSES,
    "verl_low_var_kl": LOSSES,
    "verl_grpo_adv": EPISODE,
}
"""The test that reads a group, by the group's name."""

NEEDLES = {"clawgym.grader": ("tests/tasks/test_reference_cases.py", "grader_five_kinds")}
"""Groups that a test reads by the id of a case."""


def names() -> list[str]:
    groups = json.loads(shared("fixtures/credit.json").read_text())["meta"]["groups"]
    blocks = json.loads(shared("fixtures/t2po_gigpo.json").read_text())
    return [*groups, *(name for name in blocks if name != "meta")]


def test_every_group_is_accounted_for_once():
    accounted = [*READ_BY, *NEEDLES]
    assert sorted(accounted) == sorted(names())


@pytest.mark.parametrize("group", [*READ_BY, *NEEDLES])
def test_the_test_named_for_a_group_reads_it(group):
    path, needle = NEEDLES.get(group) or (READ_BY[group], group)
    source = (REPOSITORY / path).read_text(encoding="utf-8")
    assert f'"{needle}"' in source, f"{path} does not name {needle}"
    assert "credit.json" in source or "t2po_gigpo.json" in source or "credit.fixtures" in source
