"""A policy that cannot do its tasks: no episode passes and no attempt gets further than another."""

from __future__ import annotations

import json

import pytest

from tests.trainers.guards.planted import METRICS, POOL, attempts, kinds, on, only, result
from trainers.guards import GuardName, Severity, Watch
from trainers.guards.signal import nothing_moves

pytestmark = pytest.mark.filterwarnings("ignore")


def failing(step: int, *, tasks=POOL):
    """Attempts of which none passes; all have the same grade, and rewards differ by the turns spent."""
    episodes = attempts(0.0, seed=step, tasks=tasks)
    for episode in episodes:
        episode.rate = 0.5
        episode.reward = 0.5 - 0.2 * len(episode.turns) / 8
    return episodes


def shown(played) -> Watch:
    watch = on(GuardName.SIGNAL_METER)
    for step, episodes in enumerate(played, 1):
        watch.episodes(step, result(episodes))
        watch.step(step, METRICS)
    return watch


def test_0_of_96_without_a_difference_says_that_the_policy_cannot_and_what_to_try():
    """Although the price of turns gives every group a signal: it teaches to give up early."""
    watch = shown(failing(step) for step in range(1, 7))
    found = only(watch)
    assert (found.step, found.severity, found.kind) == (3, Severity.WARN, "cannot")
    assert found.message.startswith("no signal: 0 of 96 episodes passed in 3 steps (at most 3.8% would)")
    for way in ("easier tasks", "warm start", "trainers.sft", "larger", "num_generations"):
        assert way in found.message


def test_it_takes_the_place_of_the_plain_one():
    watch = on(GuardName.SIGNAL_METER)
    for step in range(1, 6):
        watch.episodes(step, result(failing(step)))
        watch.step(step, {**METRICS, "gigpo/frac_zero_adv": 1.0, "env/pass_rate": 0.0})
    assert kinds(watch) == [(3, "warn", "cannot")]


def test_few_episodes_a_step_take_more_steps():
    assert kinds(shown(failing(step, tasks=POOL[:2]) for step in range(1, 14))) == [(12, "warn", "cannot")]


@pytest.mark.parametrize("hope", ["a pass", "a better grade", "lost episodes alone"])
def test_whatever_moves_begins_the_count_anew(hope):
    steps = [failing(step) for step in range(1, 9)]
    for step in (2, 4, 6):
        episode = steps[step][5]
        if hope == "a pass":
            episode.passed = True
        elif hope == "a better grade":
            episode.rate = 0.75
        else:  # the machinery failed under all: nothing is known of the policy
            for lost in steps[step] + steps[step - 1]:
                lost.reward, lost.passed, lost.rate, lost.stop_reason = None, None, None, "infrastructure"
    watch = shown(steps[: 6 if hope == "lost episodes alone" else None])
    assert watch.findings == []


def test_a_reward_of_ones_own_without_a_rate_may_be_learned_from():
    episodes = failing(1)
    for episode in episodes:
        episode.rate = None
    assert not nothing_moves(episodes)
    for episode in episodes:
        episode.reward = 0.0
    assert nothing_moves(episodes)


def test_the_count_goes_on_after_a_resume():
    first, second = shown([failing(1), failing(2)]), on(GuardName.SIGNAL_METER)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.episodes(3, result(failing(3)))
    assert only(second).kind == "cannot"
