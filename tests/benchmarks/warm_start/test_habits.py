from __future__ import annotations

from random import Random

import pytest

from benchmarks.warm_start.emulator import State, run, snapshot
from benchmarks.warm_start.habits import FAULTLESS, HABITS, Recipe, misname
from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.families import FAMILIES, generate
from tasks.families.quickstart import FILE_NAMES, FOLDERS, WORDS


@pytest.mark.parametrize("family", HABITS)
def test_the_habit_never_passes_but_the_right_form_does(family: str) -> None:
    for task in generate(family, 40, seed=0):
        assert task.oracle is not None
        wrong = tuple(HABITS[family](command) for command in task.oracle.commands)
        assert sum(a != b for a, b in zip(wrong, task.oracle.commands, strict=True)) == 1
        rates = []
        for commands in (wrong, task.oracle.commands):
            files: State = {path: (entry.content or b"").decode() for path, entry in task.files().items()}
            for command in commands:
                files = run(files, command).files
            rates.append(grade(task, Outcome(snapshot(files), task.files(), "TASK_COMPLETE")).rate)
        assert rates[0] is not None and rates[0] <= 0.75 and rates[1] == 1.0, (task.id, wrong)


def test_habits_belong_to_families_and_about_half_have_one() -> None:
    assert set(HABITS) < set(FAMILIES)
    assert 0.4 <= len(HABITS) / len(FAMILIES) <= 0.65


def test_misname_changes_one_name_into_another_of_its_kind() -> None:
    rng = Random(0)
    for command in (
        "cp notes.txt plan.md",
        "mkdir -p vault",
        "sed -i s/red/blue/ notes.txt",
        "echo red fox >> plan.md",
    ):
        for _ in range(200):
            wrong = misname(rng, command, {"notes.txt", "story.txt", "vault"})
            before, after = (text.replace("/", " ").split() for text in (command, wrong))
            changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
            assert len(changed) == 1
            assert any(set(changed[0]) <= set(pool) for pool in (FILE_NAMES, FOLDERS, WORDS))
            assert changed[0][1] not in before


def test_half_of_the_wrong_file_names_are_present_ones() -> None:
    rng = Random(0)
    wrong = [misname(rng, "rm notes.txt", ["notes.txt", "story.txt"]) for _ in range(1000)]
    assert 430 < wrong.count("rm story.txt") < 580


def test_a_recipe_refuses_what_is_no_probability() -> None:
    with pytest.raises(ValueError, match="misname is 1.5"):
        Recipe(misname=1.5)
    with pytest.raises(ValueError, match="copy is -1"):
        Recipe(habits={"copy": -1.0})


def test_a_recipe_refuses_a_family_without_a_habit() -> None:
    with pytest.raises(ValueError, match="no habit is known for write"):
        Recipe(habits={"write": 0.5})


def test_a_recipe_is_a_plain_record() -> None:
    record = Recipe().to_json()
    assert Recipe(**record) == Recipe()
    assert FAULTLESS.to_json()["habit"] == 0.0


def test_a_share_can_be_set_for_one_family_and_is_zero_without_a_habit() -> None:
    recipe = Recipe(habit=0.5, habits={"copy": 0.4})
    assert (recipe.share("copy"), recipe.share("rename"), recipe.share("write")) == (0.4, 0.5, 0.0)
