"""How far sampling and training weights may be apart: what a schedule needs, and what happens beyond it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.trainers.rollouts.planted import make_trainer
from tests.trainers.toy import make_config
from trainers.errors import ConfigError
from trainers.rollouts.rules import schedule
from trainers.rollouts.samplers import VERSION, drop_stale
from trainers.settings.checks import check_config


def brute_force(accumulation, passes):
    """Optimizer steps that the last pass of a generation is behind, at worst, by counting passes."""
    worst, version, generated = 0, 0, 0
    for micro in range(accumulation * passes * 2):
        if micro % passes == 0:
            generated = version
        worst = max(worst, version - generated)
        if (micro + 1) % accumulation == 0:
            version += 1
    return worst


def test_the_schedule_is_what_counting_gives():
    for accumulation in range(1, 7):
        for passes in range(1, 13):
            assert schedule(2 * accumulation, 2, 2 * passes).required_staleness == brute_force(accumulation, passes)


@pytest.mark.parametrize(("iterations", "needed"), [(1, 0), (3, 2)])
def test_a_bound_below_the_schedule_is_refused(tmp_path, iterations, needed):
    check_config(make_config(tmp_path, num_iterations=iterations, max_staleness=needed))
    with pytest.raises(ConfigError, match=f"up to {needed} optimizer steps old. Use {needed} or more"):
        check_config(make_config(tmp_path, num_iterations=iterations, max_staleness=needed - 1))


def test_rows_beyond_the_bound_are_masked_and_no_others():
    inputs = {VERSION: torch.tensor([5, 3, 4]), "tool_mask": torch.ones(3, 4, dtype=torch.long), "other": 1}
    fresh, dropped = drop_stale(inputs, step=5, bound=1)
    assert dropped == 1 and fresh["tool_mask"].sum(1).tolist() == [4, 0, 4] and fresh["other"] == 1
    assert inputs["tool_mask"].sum() == 12  # the buffer is not touched: it comes again
    same, dropped = drop_stale(inputs, step=5, bound=2)
    assert dropped == 0 and same["tool_mask"] is inputs["tool_mask"]


def run(tmp_path, late=0, **changes):
    trainer = make_trainer(tmp_path, lambda _, seed: float(seed % 2), num_iterations=2, max_steps=4, **changes)
    play = trainer.rollouts.play

    def older(draw, **how):
        return play(replace(draw, version=draw.version - late), **how)

    trainer.rollouts.play = older
    trainer.train()
    trainer.close()
    return trainer


def test_old_samples_do_not_reach_the_loss(tmp_path):
    """Planted: samples come from weights one step older than the schedule knows; every second step is too late."""
    plain, bounded, late = (
        run(tmp_path / name, n, **changes)
        for name, n, changes in (("a", 0, {}), ("b", 0, {"max_staleness": 1}), ("c", 1, {"max_staleness": 1}))
    )
    weights = [torch.cat([p.detach().flatten() for p in t.model.parameters()]) for t in (plain, bounded)]
    assert torch.equal(*weights)  # a bound that nothing exceeds changes nothing
    assert VERSION not in plain.batches[0]
    logs = [[log for log in t.logged if "reward" in log or "loss" in log][:4] for t in (bounded, late)]
    assert [log["rollouts/staleness"] for log in logs[0]] == [0, 1, 0, 1]
    assert [log["rollouts/stale_dropped"] for log in logs[0]] == [0, 0, 0, 0]
    assert [log["rollouts/staleness"] for log in logs[1]] == [1, 2, 1, 2]
    assert [log["rollouts/stale_dropped"] for log in logs[1]] == [0, 8, 0, 8]
    assert [int(b["tool_mask"].sum()) > 0 for b in late.batches] == [True, False, True, False]
    assert late.logged[1]["grad_norm"] == 0 and bounded.logged[1]["grad_norm"] > 0
