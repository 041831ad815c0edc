from __future__ import annotations

import random

from tasks.splits import Split
from tests.trainers.fake_run import episode, task
from trainers.measure import measure, side_rates


def test_each_side_has_its_own_rate_and_a_gap_is_said() -> None:
    split = Split(tuple(task(i, "pool") for i in range(10)), tuple(task(100 + i, "held") for i in range(10)))
    rng = random.Random(0)
    episodes = [episode(item, rng, chance) for item in split.pool for chance in (1.0, 1.0)]
    episodes += [episode(item, rng, 0.0) for item in split.held_out[:9]]
    rates = side_rates(split, measure(episodes, "T=1"))
    pool, held_out = rates.sides
    assert (pool.rate, pool.tasks, pool.undecided) == (1.0, 10, 0)
    assert (held_out.rate, held_out.tasks, held_out.undecided) == (0.0, 9, 1)
    (warning,) = rates.warnings
    assert "pool and held_out differ by 100 points before any training" in warning
