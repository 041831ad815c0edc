from __future__ import annotations

import pytest

from tasks.families import FAMILIES, generate
from tasks.model import TaskError
from tasks.sources import load_generated, load_tasks, read_generated


def test_the_spec_names_family_number_and_seed() -> None:
    tasks = load_tasks("generated:copy?n=5&seed=0")
    assert len(tasks) == 5
    assert {task.family for task in tasks} == {"copy"}
    assert [task.content_hash for task in tasks] == [
        task.content_hash for task in load_tasks("generated:copy?seed=0&n=5")
    ]
    assert {task.id for task in tasks} != {task.id for task in load_tasks("generated:copy?n=5&seed=1")}


def test_a_hundred_with_seed_zero_unless_told() -> None:
    assert load_tasks("generated:copy") == load_tasks("generated:copy?n=100&seed=0")


def test_the_mix_has_all_families() -> None:
    tasks = load_tasks(f"generated:quickstart?n={len(FAMILIES)}")
    assert {task.family for task in tasks} == set(FAMILIES)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("generated:coppy", "unknown family 'coppy': did you mean 'copy'?"),
        ("generated:", "unknown family ''"),
        ("generated", "unknown family ''"),
        ("generated:copy?sed=1", "unknown parameter 'sed': did you mean 'seed'?"),
        ("generated:copy?n=many", "n='many' is no whole number"),
        ("generated:copy?n", "n='' is no whole number"),
        ("generated:copy?n=0", "asks for no tasks"),
        ("generated:copy?n=1&n=2", "'n' is given twice"),
    ],
)
def test_what_makes_no_sense_is_refused(spec: str, words: str) -> None:
    with pytest.raises(TaskError) as caught:
        load_tasks(spec)
    assert words in str(caught.value)


def test_a_spec_is_read_and_made_in_two_steps() -> None:
    assert read_generated("copy?n=3&seed=5") == ("copy", {"n": 3, "seed": 5})
    assert read_generated("copy") == ("copy", {"n": 100, "seed": 0})
    assert generate("copy", 3, 5) == load_generated("copy?n=3&seed=5")
    with pytest.raises(TaskError, match="n=0 asks for no tasks"):
        read_generated("copy?n=0")
