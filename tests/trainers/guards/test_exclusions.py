"""Guard 13: exclusions that follow the policy, and those that do not."""

from __future__ import annotations

import json
import random

import pytest

from agents.trajectory import Trajectory
from tests.trainers.fake_run import task
from tests.trainers.guards.planted import POOL, attempts, on, only, result
from trainers.guards import GuardName, Severity

pytestmark = pytest.mark.filterwarnings("ignore")


def odd(episode: Trajectory, how: str) -> None:
    """Make an episode excluded, lost, or failed by a check that broke."""
    if how == "excluded":
        episode.stop_reason, episode.reward, episode.passed, episode.error = "infrastructure", None, None, "E: gone"
        return
    episode.passed, episode.rate, episode.reward = False, 0.0, -0.1
    episode.stop_reason = "lost" if how == "lost" else "submitted"
    episode.assertions = [{**a, "verdict": "fail", "score": 0.0, "broke": True} for a in episode.assertions]


@pytest.mark.parametrize("how", ["excluded", "lost", "broke"])
def test_exclusions_that_grow_with_training_fire(how):
    watch, rng = on(GuardName.EXCLUSIONS_FOLLOW_POLICY), random.Random(0)
    for step in range(1, 31):
        episodes = attempts(0.9, seed=step)
        for episode in episodes:
            if rng.random() < (0.2 if step > 10 else 0.01):
                odd(episode, how)
        watch.episodes(step, result(episodes))
        if step == 15:  # the guard's memory is part of a checkpoint
            state = json.loads(json.dumps(watch.state_dict()))
            watch = on(GuardName.EXCLUSIONS_FOLLOW_POLICY)
            watch.load_state_dict(state)
    found = only(watch)
    assert (found.step, found.severity, found.kind) == (20, Severity.WARN, "rise")
    assert "of steps 11 to 20 " in found.message and "of steps 1 to 10 " in found.message and "p=" in found.message
    count = {"excluded": "excluded (", "lost": "lost (", "broke": "a check that broke ("}[how]
    assert f"{count}0)" not in found.message and "env/pass_min" in found.message
    assert POOL[0].id.rsplit("-", 1)[0].split("-")[1] in found.message


@pytest.mark.parametrize("how", ["excluded", "lost", "broke"])
def test_exclusions_that_gather_on_failed_tasks_fire(how):
    watch, rng = on(GuardName.EXCLUSIONS_FOLLOW_POLICY), random.Random(1)
    tasks = [task(i, "pool") for i in range(40)]
    for step in range(1, 15):
        drawn = rng.sample(range(40), 8)
        episodes = [e for i in drawn for e in attempts(0.05 if i < 20 else 0.95, seed=step, tasks=[tasks[i]])]
        for episode in episodes:
            if episode.task_id in {t.id for t in tasks[:20]} and rng.random() < 0.25:
                odd(episode, how)
        watch.episodes(step, result(episodes))
    found = only(watch)
    assert (found.severity, found.kind) == (Severity.WARN, "gathered") and found.step >= 10
    assert "otherwise fails" in found.message and "(p=" in found.message and "pool-00" in found.message


def test_a_machine_that_fails_at_random_is_no_policy():
    """Runs of 30 steps in which every twelfth episode is lost, whatever its task: none of 30 fires; nor do few."""
    for run in range(30):
        watch, rng = on(GuardName.EXCLUSIONS_FOLLOW_POLICY), random.Random(run)
        tasks = [task(i, "pool") for i in range(60)]
        for step in range(1, 31):
            drawn = rng.sample(range(60), 8)
            episodes = [e for i in drawn for e in attempts(i / 60, seed=1000 * run + step, tasks=[tasks[i]])]
            for episode in episodes:
                if rng.random() < 1 / 12:
                    odd(episode, "excluded")
            watch.episodes(step, result(episodes))
        assert watch.findings == []
    few = on(GuardName.EXCLUSIONS_FOLLOW_POLICY)
    for step in range(1, 25):
        episodes = attempts(0.5, seed=step, tasks=POOL[:2], k=1)
        if step > 15:
            odd(episodes[0], "excluded")
        few.episodes(step, result(episodes))
    assert few.findings == []


def test_an_hour_in_which_the_machine_is_down_and_a_task_that_breaks_are_no_policy():
    watch = on(GuardName.EXCLUSIONS_FOLLOW_POLICY)
    tasks = [task(i, "pool") for i in range(200)]
    for step in range(1, 21):
        episodes = attempts(0.7, seed=step, tasks=tasks[8 * step : 8 * step + 8])
        for episode in episodes[: 32 if step in (17, 18) else 4 if step == 14 else 0]:
            odd(episode, "excluded")
        watch.episodes(step, result(episodes))
    assert watch.findings == []
