"""Every test of this folder plays in both modes, unless it names one itself or is about rounds (`rounds` below)."""

from __future__ import annotations

import pytest

from agents.rollout import RolloutMode

ROUNDS = {
    "test_batches_stay_full",
    "test_rounds_are_told",
    "test_one_part_steps_while_the_policy_decodes_for_another",
}
"""What they say is about rounds of all episodes together."""


@pytest.fixture(autouse=True, params=[RolloutMode.LOCKSTEP, RolloutMode.ASYNCHRONOUS])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RolloutMode:
    chosen = RolloutMode(request.param)
    if chosen is not RolloutMode.LOCKSTEP and request.node.originalname in ROUNDS:
        pytest.skip("about rounds")
    monkeypatch.setattr(RolloutMode, "chosen", lambda self, policy: chosen)
    return chosen
