"""Tasks in the order of their pass rate: what a file must hold, what comes when, and that a resume goes on there."""

from __future__ import annotations

import json

import pytest
import torch

from tests.trainers.rollouts.planted import make_rollouts, make_trainer
from tests.trainers.toy import make_config, make_task
from trainers.errors import ConfigError
from trainers.rollouts.curriculum import Curriculum, CurriculumOrder, RulesError, load_curriculum
from trainers.rollouts.rules import Draw, Rules
from trainers.run.setup import read_rules

POOL = [make_task(i) for i in range(6)]
PASSES = {"toy-0": 0, "toy-1": 4, "toy-2": 1, "toy-3": 3, "toy-4": 1, "toy-5": 4}
EASY_FIRST = ["toy-1", "toy-5", "toy-3", "toy-2", "toy-4", "toy-0"]


def order_file(folder, passes=PASSES, *, keys=("task_id", "passes", "n"), more=()):
    path = folder / "order.jsonl"
    lines = [json.dumps(dict(zip(keys, (name, count, 4), strict=True))) for name, count in passes.items()]
    path.write_text("\n".join([*lines, *more]) + "\n")
    return path


def evaluation_folder(folder, passes=PASSES, hashes=None):
    outcomes = {name: [True] * count + [False] * (4 - count) for name, count in passes.items()}
    hashes = {task.id: task.content_hash for task in POOL} if hashes is None else hashes
    record = {"arms": {"greedy": {"outcomes": {}}, "sampled": {"outcomes": outcomes}}, "tasks": hashes}
    (folder / "evaluation.json").write_text(json.dumps(record))
    return folder


def load(path, order=CurriculumOrder.EASY_FIRST, *, allow_missing=False, pool=POOL):
    return load_curriculum(path, pool, order=order, allow_missing=allow_missing, seed=0)


def test_every_form_of_the_file_gives_the_same_order(tmp_path):
    for path in (
        order_file(tmp_path),
        order_file(tmp_path, keys=("prompt_id", "num_correct", "num_completions")),
        evaluation_folder(tmp_path),
        tmp_path / "evaluation.json",
    ):
        made = load(path)
        assert made.order == EASY_FIRST and not made.notes


def test_band_leaves_out_what_is_always_or_never_solved(tmp_path):
    made = load(evaluation_folder(tmp_path), CurriculumOrder.BAND)
    assert made.order == ["toy-2", "toy-3", "toy-4"]
    assert "3 tasks in the band; left out: 2 always solved, 1 never" in made.notes[0]
    laps = [[made.task_id(3 * lap + i) for i in range(3)] for lap in range(8)]
    assert all(sorted(lap) == made.order for lap in laps) and len(set(map(tuple, laps))) > 1
    with pytest.raises(RulesError, match="nothing to train on"):
        load(order_file(tmp_path, {task.id: 4 for task in POOL}), CurriculumOrder.BAND)


def test_a_pool_that_is_not_covered_is_refused_with_counts_unless_allowed(tmp_path):
    some = {name: PASSES[name] for name in ("toy-1", "toy-2", "toy-3")} | {"other-1": 2, "other-2": 2}
    path = order_file(tmp_path, some)
    with pytest.raises(RulesError, match=r"covers 3 of 6 pool tasks \(3 are not in it, 0 were changed"):
        load(path)
    made = load(path, allow_missing=True)
    assert made.order == ["toy-1", "toy-3", "toy-2"]
    assert "3 of 6" in made.notes[0] and "2 of 5 tasks" in made.notes[1]
    with pytest.raises(RulesError, match="covers 0 of 6"):
        load(order_file(tmp_path, {"other": 1}), allow_missing=True)


def test_a_task_that_changed_since_is_not_covered(tmp_path):
    hashes = {task.id: task.content_hash for task in POOL} | {"toy-3": "another"}
    folder = evaluation_folder(tmp_path, PASSES | {"toy-4": 0}, hashes)
    with pytest.raises(RulesError, match="1 were changed since"):
        load(folder)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"task_id": "toy-1", "passes": 1, "n": 4}', ":7: task 'toy-1' stands there twice"),
        ('{"task_id": "x", "passes": 5, "n": 4}', ":7: 5 passes of 4 attempts"),
        ('{"task_id": "x", "passes": 0.5, "n": 4}', ":7: passes is 0.5"),
        ('{"passes": 1, "n": 4}', ":7: has none of the keys task_id, prompt_id"),
        ("{", "cannot be read: .*:7: "),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, complaint):
    with pytest.raises(RulesError, match=complaint):
        load(order_file(tmp_path, more=[line]))


def test_what_is_no_evaluation_is_said(tmp_path):
    (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(RulesError, match="no record of python -m trainers.evaluate"):
        load(tmp_path)


@pytest.mark.parametrize("shuffle", [False, True], ids=["easy_first", "band"])
def test_the_order_is_the_same_for_every_number_of_processes(shuffle):
    """Four groups of K = 2 per generation: as one process, and as two that each play half of the rows."""
    k, names = 2, [task.id for task in POOL]

    def played(parts):
        curricula = [Curriculum(names, shuffle=shuffle, seed=1) for _ in range(parts)]
        rollouts = [make_rollouts(lambda *_: 1.0, k=k, rules=Rules(curriculum=c, groups_per_draw=4)) for c in curricula]
        rows, out = 4 * k // parts, []
        for step in range(2):
            for part, each in enumerate(rollouts):
                draw = Draw(["ignored"] * rows, part * rows, step)
                out += [(e.task_id, e.attempt, e.seed) for e in each.play(draw, end_id=0).episodes]
        for each in rollouts:
            each.close()
        return out

    alone = played(1)
    assert alone == played(2)
    if not shuffle:
        assert [name for name, *_ in alone[::k]] == [*names, *names[:2]]  # no task is left out at the end of a lap


MORE = {"adaptive_successes": 1, "adaptive_failures": 1, "adaptive_chunk": 2, "refill_rounds": 1}


@pytest.mark.parametrize("more", [{}, MORE], ids=["curriculum", "every rule"])
def test_a_resumed_run_goes_on_in_the_order(tmp_path, more):
    path = order_file(tmp_path)
    changes = {"curriculum": str(path), "lr_scheduler_type": "constant"}
    changes |= more | {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 9}

    def run(name, steps, resume=None, **other):
        plan = lambda name, seed: float(seed % 2 and (name != "toy-1" or not more))  # noqa: E731
        trainer = make_trainer(tmp_path / name, plan, max_steps=steps, **changes | other)
        trainer.train(resume_from_checkpoint=resume)
        trainer.close()
        return trainer

    def names(trainer):
        return [episodes[row].task_id for episodes in trainer.played for row in (0, 4)]

    whole = run("whole", 5)
    assert names(whole)[1:3] == EASY_FIRST[1:3]
    assert (names(whole) == [*EASY_FIRST, *EASY_FIRST[:4]]) == (not more)  # toy-1 never passes, and gives way
    run("part", 2)
    checkpoint = str(tmp_path / "part" / "run" / "checkpoint-2")
    rest = run("part", 5, checkpoint)
    assert names(rest) == names(whole)[4:]
    flat = [torch.cat([p.detach().flatten() for p in t.model.parameters()]) for t in (whole, rest)]
    assert torch.equal(*flat)
    if more:
        return
    order_file(tmp_path, PASSES | {"toy-0": 4})
    with pytest.raises(ConfigError, match="not the one this run began with"):
        run("part", 5, checkpoint)
    with pytest.raises(ConfigError, match="began with one"):
        run("part", 5, checkpoint, curriculum="")


def test_what_the_file_lacks_ends_a_run_before_it_begins(tmp_path):
    with pytest.raises(ConfigError, match="covers 1 of 6"):
        make_trainer(tmp_path, lambda *_: 1.0, curriculum=str(order_file(tmp_path, {"toy-1": 2})))
    config = make_config(tmp_path, curriculum=str(tmp_path / "order.jsonl"))
    with pytest.raises(ConfigError, match="covers 1 of 6"):
        read_rules(config, POOL)  # what a dry run calls
    config.curriculum_allow_missing = True
    assert "covers 1 of 6" in read_rules(config, POOL)[0]


def test_a_json_list_is_no_evaluation_and_says_so(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1, 2]")
    with pytest.raises(RulesError, match="is no record of python -m trainers.evaluate.*a list or a value"):
        load_curriculum(path, POOL, order=CurriculumOrder.EASY_FIRST, allow_missing=False, seed=0)
