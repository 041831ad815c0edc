"""Guard 12, the budget of turn resampling, fires on a planted fault, once, with its figures and what to do."""

from __future__ import annotations

import pytest

from agents.policy import Candidate
from tests.trainers.guards.planted import METRICS, attempts, facts, kinds, on, only, result
from trainers.guards import GuardName

pytestmark = pytest.mark.filterwarnings("ignore")


def test_12_resample_budget_fires_with_figures_each_kind_once():
    answers = iter([None, "resampled 5 of 9 (eta 0.3)", "resampled 7 of 9 (eta 0.3)", "cannot decide 3"])
    watch = on(GuardName.RESAMPLE_BUDGET, facts(resampling=lambda: next(answers), resample_rate=0.25))
    for step in range(1, 5):
        episodes = attempts(seed=step)
        for turn in (turn for episode in episodes for turn in episode.turns):
            turn.uncertainty = 0.1 * (turn.index % 3)
            turn.candidates = [Candidate((1, 2, 3), 0.1 * (turn.index % 3))] * 2 if turn.index else []
        watch.episodes(step, result(episodes))
        watch.step(step, {**METRICS, "t2po/trigger_rate": 0.9, "t2po/exhausted_frac": 0.765})
    assert kinds(watch) == [(2, "warn", "resampled_of_eta"), (4, "warn", "cannot_decide")]
    text = watch.findings[0].message
    assert text.startswith("resampled 5 of 9 (eta 0.3)") and "fired on 90% of eligible turns" in text
    assert "85% of them used every sample" in text and "suggested eta 0.1" in text and "extra ids for each kept" in text


def test_12_resample_budget_fires_on_cost_alone():
    watch = on(GuardName.RESAMPLE_BUDGET, facts(resampling=lambda: None))
    for step in range(1, 8):
        episodes = attempts(seed=step)
        for turn in (turn for episode in episodes for turn in episode.turns):
            turn.candidates = [Candidate((1, 2, 3), 0.1)] * 3
        watch.episodes(step, result(episodes))
        watch.step(step, METRICS)
    assert kinds(watch) == [(5, "warn", "cost")] and "throws away 3.0 ids" in only(watch).message
