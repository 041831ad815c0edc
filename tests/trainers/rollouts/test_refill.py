"""Flat groups: which they are, what takes their places, and that nothing is lost count of."""

from __future__ import annotations

import pytest

from tests.trainers.rollouts.planted import make_rollouts, make_trainer
from trainers.credit import CreditSettings, TurnGrouping, TurnSignal
from trainers.rollouts.rules import Adaptive, Draw, Rules, rule_problems, weightless

K = 4
DRAW = Draw([f"toy-{i}" for i in (0, 1, 4) for _ in range(K)], offset=0, micro_step=3)


def by_task(always=(), never=(), broken=()):
    """Named tasks always or never pass, or break the machinery; the others pass every other time."""
    seen: dict[str, int] = {}

    def plan(task_id, _):
        number = int(task_id.removeprefix("toy-"))
        seen[task_id] = seen.get(task_id, 0) + 1
        if number in broken:
            return None
        return 1.0 if number in always else 0.0 if number in never else float(seen[task_id] % 2)

    return plan


def flat(episodes, **settings):
    return weightless(episodes, CreditSettings(**settings), TurnSignal.PROGRESS)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"beta_turn": 0.0}, True),
        ({"turn_grouping": TurnGrouping.NONE}, True),
        ({"alpha_episode": 0.0}, False),
    ],
    ids=["turn signal", "beta 0", "no grouping", "turns alone"],
)
def test_a_group_with_turn_signal_is_not_flat(changes, expected):
    rollouts = make_rollouts(lambda *_: 1.0, signals=True)
    episodes = rollouts.play(DRAW, end_id=0).episodes[:K]
    rollouts.close()
    assert len({turn.signal for e in episodes for turn in e.turns}) > 1
    assert flat(episodes, **changes) is expected


def test_a_group_whose_rewards_differ_is_flat_only_where_episodes_do_not_count():
    rollouts = make_rollouts(by_task())
    episodes = rollouts.play(DRAW, end_id=0).episodes[:K]
    rollouts.close()
    assert not flat(episodes) and flat(episodes, alpha_episode=0.0)


def rules(rounds, adaptive=None):
    return Rules(adaptive=adaptive, refill_rounds=rounds, weightless=lambda episodes: flat(episodes))


def test_flat_groups_give_way_to_other_tasks():
    """0 always, 1 never passes, 5 never either: with two rounds both places get a task that teaches."""
    rollouts = make_rollouts(by_task(always={0}, never={1, 5}), rules=rules(3))
    played = rollouts.play(DRAW, end_id=0)
    rollouts.close()
    first, second, third = (played.episodes[row].task_id for row in (0, K, 2 * K))
    assert third == "toy-4" and {first, second} == {"toy-2", "toy-3"}
    for row in range(0, 12, K):
        assert len({e.task_id for e in played.episodes[row : row + K]}) == 1
    assert [e.task_id for e in played.measured.trajectories] == list(DRAW.task_ids)
    metrics = played.metrics
    assert metrics["rollouts/dropped_all_pass"] == 1 and metrics["rollouts/dropped_all_fail"] >= 1
    assert metrics["rollouts/flat_groups_left"] == 0
    assert metrics["rollouts/dropped_groups"] * K == metrics["rollouts/fate/dropped"]


def test_what_stays_flat_stays_and_the_pool_is_the_limit():
    rollouts = make_rollouts(lambda *_: 0.0, rules=rules(9))
    played = rollouts.play(DRAW, end_id=0)
    rollouts.close()
    assert [e.task_id for e in played.episodes] == list(DRAW.task_ids)
    assert len(played.result.trajectories) == 6 * K  # every task of the pool once
    assert played.metrics["rollouts/flat_groups_left"] == 3 and played.metrics["rollouts/dropped_groups"] == 3


def test_the_draw_is_seeded():
    names = []
    for _ in range(2):
        rollouts = make_rollouts(by_task(always={0}), tasks=12, rules=rules(1))
        names.append([e.task_id for e in rollouts.play(DRAW, end_id=0).episodes])
        rollouts.close()
    assert names[0] == names[1] and names[0][0] != "toy-0"


@pytest.mark.parametrize("adaptive", [None, Adaptive(1, 1, 10, 3)], ids=["refill", "refill and adaptive"])
@pytest.mark.parametrize("broken", [(), (1,), (0, 1, 2, 3, 4, 5)], ids=["sound", "one breaks", "all break"])
def test_every_episode_has_one_fate(adaptive, broken):
    rollouts = make_rollouts(by_task(always={0, 2}, never={3}, broken=broken), rules=rules(2, adaptive))
    played = rollouts.play(DRAW, end_id=0)
    rollouts.close()
    fate = {name.rsplit("/", 1)[1]: n for name, n in played.metrics.items() if name.startswith("rollouts/fate/")}
    produced = fate.pop("produced")
    assert produced == len(played.result.trajectories) == sum(fate.values()) and len(fate) == 4
    assert fate["failed"] == sum(e.reward is None for e in played.result.trajectories)
    assert fate["trained"] == sum(e.reward is not None for e in played.episodes)
    assert len(played.episodes) == len(DRAW.task_ids)
    assert fate["surplus"] == 0 or adaptive


def test_the_batch_holds_the_other_prompts_and_trl_logs_them(tmp_path):
    trainer = make_trainer(tmp_path, by_task(always={0, 1, 2}), refill_rounds=2, max_steps=1, shuffle_dataset=False)
    trainer.train()
    trainer.close()
    (episodes,) = trainer.played
    names = [e.task_id for e in episodes]
    assert set(names) <= {"toy-3", "toy-4", "toy-5"}
    prompts = [row[0]["content"] for row in trainer._logs["prompt"]]
    assert prompts == [f"toy task {name.removeprefix('toy-')}" for name in names]
    batch = trainer.batches[0]
    sent = {
        tuple(ids[mask.bool()].tolist()) for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)
    }
    assert sent == {tuple(e.prompt_ids) for e in episodes}
    assert batch["advantages"].abs().sum() > 0
    (log,) = [log for log in trainer.logged if "reward" in log]
    assert log["env/pass_rate"] == 1.0  # of the first draw: tasks 0 and 1
    assert log["rollouts/fate/produced"] == log["rollouts/fate/trained"] + log["rollouts/fate/dropped"]


@pytest.mark.parametrize(
    ("processes", "rows", "pool", "problem"),
    [
        (1, 8, 6, None),
        (2, 8, 6, None),
        (2, 6, 9, "whole groups"),
        (1, 8, 2, "no other task"),
        (2, 8, 4, "no other task"),
    ],
)
def test_what_the_rules_need(processes, rows, pool, problem):
    lines = list(rule_problems(rules(1), pool=pool, processes=processes, rows=rows, group_size=K))
    assert (not lines) if problem is None else (len(lines) == 1 and problem in lines[0])
    assert not list(rule_problems(Rules(), pool=1, processes=2, rows=6, group_size=K))
