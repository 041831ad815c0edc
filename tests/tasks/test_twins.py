from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasks.comparable import THRESHOLD, Known, exact_twins, near_twins, similarity, twin_notes
from tasks.sources import load_tasks
from tasks.splits import split_tasks
from tasks.task import Task

BASE: dict[str, Any] = {
    "id": "base",
    "intent": "Sort the names in names.txt and write them to sorted.txt, one on each line.",
    "workspace": {"files": {"names.txt": "b\na\n"}},
    "assertions": [
        {"kind": "file_matches", "path": "sorted.txt", "pattern": "a\nb\n?"},
        {"kind": "file_unchanged", "path": "names.txt"},
        {"kind": "any_of", "of": [{"kind": "file_exists", "path": "sorted.txt"}, {"kind": "file_exists", "path": "s"}]},
    ],
}
SORTED, KEPT, EITHER = BASE["assertions"]
FILES: dict[str, Any] = BASE["workspace"]["files"]
INTENT: str = BASE["intent"]


def make(**changes: Any) -> Task:
    return Task.model_validate({**BASE, **changes})


EXACT: dict[str, dict[str, Any]] = {
    "a persona": {"persona": {"role": "teacher"}},
    "a persona with a context": {"persona": {"role": "clerk", "context": "in a hurry"}},
    "capitals": {"intent": INTENT.upper()},
    "a small first letter": {"intent": INTENT[0].lower() + INTENT[1:]},
    "a double space": {"intent": INTENT.replace(" and ", "  and ")},
    "a line break": {"intent": INTENT.replace(" and ", "\nand ")},
    "a no-break space": {"intent": INTENT.replace(" and ", "\u00a0and ")},
    "full-width letters": {"intent": INTENT.replace("Sort", "\uff33\uff4f\uff52\uff54")},
    "no full stop": {"intent": INTENT.rstrip(".")},
    "another end": {"intent": INTENT.rstrip(".") + " !"},
    "assertions turned round": {"assertions": [EITHER, KEPT, SORTED]},
    "assertions inside one turned round": {"assertions": [SORTED, KEPT, {**EITHER, "of": EITHER["of"][::-1]}]},
    "a name": {"assertions": [{**SORTED, "name": "sorted well"}, KEPT, EITHER]},
    "a name inside": {
        "assertions": [SORTED, KEPT, {**EITHER, "of": [{**EITHER["of"][0], "name": "it is there"}, EITHER["of"][1]]}]
    },
    "a weight": {"assertions": [{**SORTED, "weight": 3}, KEPT, EITHER]},
    "a weight of nothing": {"assertions": [SORTED, {**KEPT, "weight": 0}, EITHER]},
    "an assertion twice": {"assertions": [SORTED, KEPT, EITHER, {**KEPT, "name": "again"}]},
    "a mode": {"workspace": {"files": {"names.txt": {"text": "b\na\n", "mode": "0600"}}}},
}
NEAR: dict[str, dict[str, Any]] = {
    "one more file": {"workspace": {"files": {**FILES, "notes.txt": "n\n"}}},
    "one more file in a folder": {"workspace": {"files": {**FILES, "old/names.txt": "c\n"}}},
    "one more empty folder": {"workspace": {"files": FILES, "dirs": ["out"]}},
    "one more assertion": {"assertions": [SORTED, KEPT, EITHER, {"kind": "file_not_exists", "path": "x"}]},
    "one word": {"intent": INTENT.replace("write", "put")},
    "a file and a persona": {
        "workspace": {"files": {**FILES, "notes.txt": "n\n"}},
        "persona": {"role": "teacher"},
        "intent": INTENT.lower(),
    },
}
OTHER: dict[str, dict[str, Any]] = {
    "another request": {"intent": "Count the lines of names.txt into count.txt."},
    "other files and another end": {
        "workspace": {"files": {"names.txt": "d\nc\n"}},
        "assertions": [{**SORTED, "pattern": "c\nd"}],
        "intent": INTENT.replace("names in", "words in"),
    },
}


@pytest.mark.parametrize("what", EXACT)
def test_variants_that_are_the_same_task_stay_on_one_side(what: str) -> None:
    base, variant = make(), make(id="variant", **EXACT[what])
    assert base.meaning_hash == variant.meaning_hash and exact_twins([variant, base]) == [[base, variant]]
    others = [make(id=f"t{number}", intent=f"do {number}") for number in range(6)]
    for seed in range(5):
        for fraction in (0.2, 0.5, 0.8):
            split = split_tasks([base, *others, variant], held_out_fraction=fraction, seed=seed)
            assert (base in split.pool) == (variant in split.pool) and split.twins_across() == []


@pytest.mark.parametrize("what", NEAR)
def test_variants_that_are_nearly_the_same_are_near_twins(what: str) -> None:
    base, variant = make(), make(id="variant", **NEAR[what])
    assert exact_twins([base, variant]) == []
    (pair,) = near_twins([variant, base])
    assert (pair.one, pair.other) == (base, variant) and THRESHOLD <= pair.similarity < 1
    assert pair.similarity == similarity(base, variant) == similarity(variant, base)


@pytest.mark.parametrize("what", OTHER)
def test_other_tasks_are_no_twins(what: str) -> None:
    variant = make(id="variant", **OTHER[what])
    assert exact_twins([make(), variant]) == [] and near_twins([make(), variant]) == []


def test_one_file_more_than_none_is_a_near_twin() -> None:
    bare = [{"kind": "file_exists", "path": "b"}]
    one, other = (make(id=f"t{len(files)}", workspace={"files": files}, assertions=bare) for files in ({}, FILES))
    assert similarity(one, other) == 0.75 and len(near_twins([one, other])) == 1


def test_a_new_task_is_compared_with_all_that_is_known_whatever_its_family() -> None:
    known = Known()
    assert known.twin_of(make()) is None
    for number, where in enumerate(["here", "there"]):
        intent = "Say hello." if number else f"{INTENT} Please hurry, it is late."
        known.add(make(id=f"k{number}", intent=intent, family="f"), where)
    where, pair = known.twin_of(make(family="f")) or ("", None)
    assert pair is not None and (where, pair.one.id, pair.other.id) == ("here", "base", "k0")
    assert THRESHOLD <= pair.similarity == similarity(pair.one, pair.other) < 1
    known.add(make(id="same", persona={"role": "king"}), "last")
    where, pair = known.twin_of(make()) or ("", None)
    assert pair is not None and (where, pair.other.id, pair.similarity) == ("last", "same", 1)
    assert known.twin_of(make(intent="Count it.", workspace={"files": {"n": ""}}, assertions=[EITHER])) is None


def test_an_intent_of_signs_stays_apart_from_others() -> None:
    signs = [make(id=f"t{number}", intent=text) for number, text in enumerate(("???", "!", "\u2211"))]
    assert exact_twins(signs) == [] and near_twins(signs) == []


def test_variants_within_a_family_are_meant_and_exact_twins_are_not() -> None:
    base, near = make(family="sort"), make(id="near", family="sort", **NEAR["one more file"])
    assert near_twins([base, near]) == []
    assert len(near_twins([base, near.model_copy(update={"family": "order"})])) == 1
    assert len(near_twins([base, near.model_copy(update={"family": None})])) == 1
    assert len(exact_twins([base, make(id="same", family="sort", **EXACT["capitals"])])) == 1


def test_a_copy_forgets_the_meaning() -> None:
    base = make()
    assert base.model_copy(update={"intent": "other"}).meaning_hash != base.meaning_hash


@pytest.mark.parametrize("order", [lambda tasks: tasks, lambda tasks: tasks[::-1]])
def test_the_index_finds_what_comparing_each_with_each_finds(order: Callable[[list[Task]], list[Task]]) -> None:
    made = load_tasks("generated:all?n=60")
    words = [task.model_copy(update={"id": f"w-{task.id}", "intent": f"please {task.intent} now"}) for task in made]
    tasks = [task.model_copy(update={"family": None}) for task in [*made, *words]]
    tasks.sort(key=lambda task: task.id)
    wanted = {
        (one.id, other.id)
        for number, one in enumerate(tasks)
        for other in tasks[number + 1 :]
        if similarity(one, other) >= THRESHOLD
    }
    assert len(wanted) >= 60
    found = near_twins(order(tasks))
    assert {(pair.one.id, pair.other.id) for pair in found} == wanted
    assert [pair.similarity for pair in found] == sorted((pair.similarity for pair in found), reverse=True)


def test_lines_for_people_say_how_many_and_name_the_first() -> None:
    assert twin_notes(load_tasks("library")) == []
    same = [make(id=f"s{number}", persona={"role": f"role {number}"}) for number in range(3)]
    near = [make(id=f"n{number}", workspace={"files": {**FILES, f"{number}": ""}}) for number in range(6)]
    exact, alike = twin_notes([*same, *near])
    assert exact.startswith("1 group of exact twins") and exact.endswith(": s0, s1, s2")
    assert alike.startswith(f"21 pairs of near-twins (similarity {THRESHOLD:g} or more): n0 and s0 (0.88); ")
    assert alike.endswith("; and 16 more")


def test_what_ships_and_what_is_generated_holds_no_twins() -> None:
    for spec in ("library", "generated:all?n=200"):
        assert exact_twins(load_tasks(spec)) == [] and near_twins(load_tasks(spec)) == []
