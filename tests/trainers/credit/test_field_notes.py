"""The field-notes variant as a named baseline: population spread, the stop turn counted as a success."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

from tests.shared_data import shared
from trainers.credit import TurnGrouping, TurnRecord, turn_advantages
from trainers.credit.episode import episode_advantages


def block(name: str):
    return json.loads(shared("fixtures/t2po_gigpo.json").read_text())[name]


def test_group_advantages_are_ours_over_the_population_spread():
    for case in block("fn_group_advantages"):
        rewards = case["rewards"]
        if not rewards:
            continue  # no group, no advantages
        ours = episode_advantages(rewards, len(rewards))
        if case["name"] == "tiny_std_above_eps":
            continue  # rewards that differ by 1e-7 are one reward here: exactly 0, where the reference gives 0.83
        spread = np.std(rewards)
        assert ours / (spread + 1e-8 if ours.any() else 1) == pytest.approx(case["out"], abs=5e-6), case["name"]


def test_step_advantages_are_ours_over_the_population_spread():
    code = {
        "1": 1.0,
        "0": 0.0,
        "p": 0.0,
        "d": 1.0,
    }  # the reference counts the stop as a success; by default ours is None
    for case in block("fn_step_advantages"):
        turns = case["turn_codes"]
        if not turns:
            continue
        records = [[TurnRecord(code[c], "") for c in codes.replace(" ", "")] for codes in turns]
        ours = turn_advantages(records, len(records), TurnGrouping.TURN_INDEX, gamma=0.0).advantages
        columns = defaultdict(list)
        for row in records:
            for index, record in enumerate(row):
                columns[index].append(record.signal)
        for row, wanted in zip(ours, case["out"], strict=True):
            scaled = [value / (np.std(columns[i]) + 1e-8) if value else 0.0 for i, value in enumerate(row)]
            assert scaled == pytest.approx(wanted, abs=5e-6), case["name"]
