"""Public rules of rollouts, case by case: groups rollout.adaptive, rollout.schedule and rollout.staleness."""

from __future__ import annotations

import json

import pytest

from tests.shared_data import shared
from trainers.rollouts.rules import Adaptive, schedule
from trainers.rollouts.samplers import fresh


def cases(group: str):
    found = [case for case in json.loads(shared("fixtures/credit.json").read_text())["cases"] if case["group"] == group]
    assert found
    return [pytest.param(case["inputs"], case["expected"], id=case["id"]) for case in found]


@pytest.mark.parametrize(("given", "expected"), cases("rollout.adaptive"))
def test_adaptive(given, expected):
    rule = Adaptive(given["ks"], given["kf"], given["maxc"], given["chunk"])
    outcomes = []
    while count := rule.more(outcomes):
        outcomes += [reward > 0 for reward in given["rewards"][len(outcomes) :][:count]]
    assert len(outcomes) == expected["n"]
    assert (outcomes.count(True), outcomes.count(False)) == (expected["successes"], expected["failures"])


@pytest.mark.parametrize(("given", "expected"), cases("rollout.schedule"))
def test_schedule(given, expected):
    """`sync_ref_every` is TRL's own setting and no part of ours; a schedule that does not divide raises."""
    per_step, per_pass = given["prompts_per_optim_step"], given["prompts_per_forward_backward"]
    try:
        made = schedule(per_step, per_pass, given["prompts_per_rollout_sync"])
    except ValueError:
        assert expected["error"] and per_step % per_pass
        return
    names = ("accumulation_steps", "sync_model_every", "required_staleness")
    assert [getattr(made, name) for name in names] == [expected[name] for name in names]
    assert (given["max_staleness"] < made.required_staleness) == expected["error"]


@pytest.mark.parametrize(("given", "expected"), cases("rollout.staleness"))
def test_staleness(given, expected):
    bound, step = given["max_staleness"], given["trainer_version"]
    assert [fresh(version, step, bound) for version in given["sample_versions"]] == expected
