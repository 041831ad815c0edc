"""Who asks whether a group teaches (refill) and who trains on it (credit) agree, under every setting of credit."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from agents.trajectory import Trajectory, Turn
from envs.conversation import StopReason
from trainers.credit import (
    Credit,
    CreditSettings,
    EpisodeOperator,
    EpisodeScale,
    TurnGrouping,
    TurnRevisits,
    TurnSignal,
)
from trainers.credit.batch import batch_of
from trainers.rollouts.rules import as_completion, is_truncated, weightless, without_tokens

LONG = ["the quick brown fox jumps", "over the lazy dog and runs", "the quick brown fox jumped"]


def make_turn(rng: random.Random, number: int) -> Turn:
    return Turn(
        index=number,
        context_ids=[1],
        ids=[5, 6],
        logprobs=[-1.0, -2.0],
        entropies=[1.0, 1.0],
        forced=[False, False],
        finish=None,
        reply="x",
        action=rng.choice(["command", "malformed"]),
        observation=rng.choice(LONG),
        signal=rng.choice([0.0, 0.0, 0.0, 0.5]),
        anchor=rng.choice("sab"),
    )


def make_group(rng: random.Random) -> list[Trajectory]:
    rewards = rng.choice([[0.0] * 4, [1.0] * 4, [-0.2, -0.1, -0.2, -0.2], [0.6, -0.2, -0.2, -0.19], [1.0, 0, 0, None]])
    out = []
    for number, reward in enumerate([*rewards[:3], rng.choice([rewards[3], None])]):
        turns = [make_turn(rng, t) for t in range(rng.choice([0, 1, 2]))] if reward is not None else []
        stop = rng.choice([StopReason.MAX_TOKENS, StopReason.MAX_TURNS]).value
        episode = Trajectory(
            task_id="a", task_hash="h", attempt=number, seed=0, prompt_ids=[1], turns=turns, reward=reward, passed=False
        )
        out.append(replace(episode, stop_reason=stop))
    return out


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"invalid_action_penalty": 0.1},
        {"episode_operator": EpisodeOperator.MAXRL, "beta_turn": 0.0},
        {"episode_operator": EpisodeOperator.MAXRL},
        {"turn_grouping": TurnGrouping.SIMILARITY},
        {"turn_grouping": TurnGrouping.TURN_INDEX, "alpha_episode": 0.0},
        {"turn_revisits": TurnRevisits.PER_TRAJECTORY},
        {"scale_rewards": EpisodeScale.BATCH, "turn_std": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("cut", [False, True], ids=["all", "truncated out"])
def test_refill_and_credit_agree_on_what_teaches(changes, cut):
    settings, rng, seen = CreditSettings(**changes), random.Random(0), Counter[bool]()
    for _ in range(60):
        group = make_group(rng)
        flats = [as_completion(episode, 0) for episode in group]
        if cut:
            flats = [without_tokens(f) if is_truncated(e) else f for e, f in zip(group, flats, strict=True)]
        credit = Credit(settings)
        batch = batch_of(group, flats, TurnSignal.PROGRESS, credit, group_size=4)
        teaches = bool(credit.assign(batch).advantages.any())
        assert weightless(group, settings, TurnSignal.PROGRESS, mask_truncated=cut) is not teaches
        seen[teaches] += 1
    assert seen[True] > 3 and seen[False] > 3
