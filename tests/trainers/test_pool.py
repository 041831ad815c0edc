"""The pool as rows: an optimizer step always has the passes that were promised."""

from __future__ import annotations

import pytest

from tests.trainers.toy import make_config, make_task, make_trainer
from trainers.construction import pool_dataset

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("tasks", [4, 5, 8])
def test_a_step_has_all_its_passes_however_small_the_pool(tmp_path, tasks):
    accumulated = {"gradient_accumulation_steps": 4, "steps_per_generation": 1}
    trainer = make_trainer(tmp_path, tasks=tasks, max_steps=2, **accumulated)
    trainer.train()
    trainer.close()
    assert trainer.state.global_step == 2 and len(trainer.batches) == 8
    assert len({e.task_id for episodes in trainer.played for e in episodes}) == tasks


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({}, 5),  # as TRL has it: two tasks a step
        ({"gradient_accumulation_steps": 4}, 10),  # a generation is a step: eight tasks, so the pool twice
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 1}, 8),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 3}, 12),
        ({"num_iterations": 2}, 5),
    ],
    ids=str,
)
def test_rows_are_repeated_only_where_a_step_would_be_cut(tmp_path, change, rows):
    names = pool_dataset([make_task(i) for i in range(5)], make_config(tmp_path, **change))["task_id"]
    assert {f"toy-{i}" for i in range(5)} <= set(names)
    assert len(names) == rows
