"""Which tasks a run ends with: none that was trained on, none that chose, no twin of either; or why there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.families import generate
from tasks.model import TaskError
from tasks.sources import load_tasks
from tasks.splits import meaning, split_tasks, take_confirm, write_lock
from trainers.run import tasks as confirm_tasks
from trainers.run.tasks import TaskSets, load_task_sets
from trainers.settings import EnvArguments

POOL, HELD = "generated:quickstart?n=180&seed=1", "generated:quickstart?n=60&seed=2"


def load(seed: int = 0, resumed: Path | None = None, **settings: object) -> TaskSets:
    return load_task_sets(EnvArguments(**{"tasks": POOL, "held_out": HELD, **settings}), seed, resumed)


def ids(tasks: object) -> list[str]:
    return [task.id for task in tasks]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two hundred and forty hand-written tasks: one hundred and twenty requests, each by two people."""
    out = tmp_path_factory.mktemp("tasks")
    for number in range(240):
        (out / f"t{number}.yaml").write_text(
            f"id: t{number}\nintent: do {number // 2}\npersona: {{role: person {number}}}\n"
            "assertions:\n  - {kind: file_exists, path: b}\n"
        )
    return str(out)


def test_generated_families_give_fresh_tasks_and_the_sides_stay() -> None:
    sets, without = load(), load(confirm=0.0)
    assert len(sets.confirm) == 24 and sets.confirm_text == "24 fresh tasks of the pool's families"
    assert ids(sets.pool) == ids(without.pool) and ids(sets.held_out) == ids(without.held_out)
    assert without.confirm == () and without.confirm_text == "none: confirm=0"
    known = {meaning(task) for task in (*sets.pool, *sets.measured)}
    assert not known & {meaning(task) for task in sets.confirm}
    assert {task.family for task in sets.confirm} <= {task.family for task in sets.pool}
    assert ids(load().confirm) == ids(sets.confirm) != ids(load(seed=1).confirm)
    assert list(sets.split.sides) == ["pool", "held_out", "confirm"]
    assert set(ids(sets.everything)) == set(ids((*sets.pool, *sets.held_out, *sets.confirm)))


def test_twins_among_fresh_tasks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the first half of what is made stands in the pool, or differs from a held-out task in persona alone."""
    pool, held = load_tasks(POOL), load_tasks(HELD)
    twins = [task.model_copy(update={"id": f"twin-{i}", "persona": None}) for i, task in enumerate(held[:8])]
    asked, before = [], load(confirm=0.0).split

    def planted(family: str, n: int, seed: int) -> list:
        asked.append((family, n))
        return [*pool[:8], *twins, *generate(family, n, seed)][:n]

    monkeypatch.setattr("tasks.families.generate", planted)
    split, _ = confirm_tasks.with_confirm(EnvArguments(tasks=POOL, held_out=HELD), before, 0)
    assert len(split.confirm) == 24 and asked == [("quickstart", 24), ("quickstart", 48)]
    assert not {meaning(t) for t in split.confirm} & {meaning(t) for t in (*pool, *held)}


def test_each_part_of_the_pool_gives_its_share_and_no_family_that_is_not_trained_on() -> None:
    sets = load(tasks="generated:copy?n=120,generated:rename?n=40", held_out="split", confirm=0.25)
    counts = {name: sum(task.family == name for task in sets.confirm) for name in ("copy", "rename")}
    assert counts == {"copy": 30, "rename": 10}
    unseen = load(tasks=POOL, held_out="split", unseen_families="3", confirm=0.3)
    assert len(unseen.confirm) == 54
    assert not {task.family for task in unseen.confirm} & {task.family for task in unseen.unseen}


def test_files_give_a_third_side_out_of_the_pool(folder: str) -> None:
    sets, without = load(tasks=folder, held_out="split"), load(tasks=folder, held_out="split", confirm=0.0)
    assert len(sets.confirm) == 24 and sets.confirm_text == "24 tasks taken out of the pool"
    assert ids(sets.held_out) == ids(without.held_out) and len(sets.pool) == len(without.pool) - 24
    assert set(ids(sets.pool)) | set(ids(sets.confirm)) == set(ids(without.pool))
    sides = [{meaning(task) for task in tasks} for tasks in sets.split.sides.values()]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 120, "twins stand on different sides"
    mixed = load(tasks=f"{folder},generated:copy?n=20", held_out="split")
    assert mixed.confirm_text == "26 tasks taken out of the pool"


def test_what_is_taken_has_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm_tasks, "MOST", 40)
    assert len(load(confirm=0.5).confirm) == 40
    limited = load(confirm=0.5, held_out_limit=25)
    assert len(limited.confirm) == len(limited.held_out) == 25


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"held_out": "none"}, "none: nothing is held out, so nothing is chosen"),
        ({"confirm": 0.0}, "none: confirm=0"),
        (
            {"tasks": "library", "held_out": "split"},
            "none: confirm=0.1 of 43 tasks is 4, and fewer than 20 say too little (confirm=0.47 would do)",
        ),
        (
            {"tasks": "generated:copy?n=20", "held_out": "split"},
            "none: confirm=0.1 of 20 tasks is 2, and fewer than 20 say too little (more tasks would do)",
        ),
        ({"held_out_limit": 5}, "none: held_out_limit=5 is 5, and fewer than 20 say too little (more tasks would do)"),
        ({"tasks": "library", "held_out": HELD, "confirm": 0.5}, "none: confirm=0.5 of 103 tasks is 52, and the pool"),
    ],
)
def test_why_there_are_none(settings: dict, why: str) -> None:
    sets = load(**settings)
    assert sets.confirm == () and sets.confirm_text.startswith(why)
    assert sets.notes == load(**{**settings, "confirm": 0.0}).notes, "no warning: it is said with the start of the run"


def test_families_that_have_no_more_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before, fresh = load(confirm=0.0).split, load().confirm

    def few(family: str, n: int, seed: int) -> list:
        if n > 24:
            raise TaskError("only repeats")
        return [*before.pool[:17], *fresh[:7]]

    monkeypatch.setattr("tasks.families.generate", few)
    split, text = confirm_tasks.with_confirm(EnvArguments(tasks=POOL, held_out=HELD), before, 0)
    assert split.confirm == () and f"none: {POOL} has no 24 tasks more" in text
    assert "(7 were found, and fewer than 20 say too little)" in text


def test_files_that_all_name_their_side_leave_none(tmp_path: Path) -> None:
    for number in range(80):
        side = "pool" if number else "held_out"
        (tmp_path / f"t{number}.yaml").write_text(
            f"id: t{number}\nintent: do {number}\nsplit: {side}\nassertions:\n  - {{kind: file_exists, path: b}}\n"
        )
    sets = load(tasks=str(tmp_path), held_out="split", confirm=0.4)
    assert sets.confirm == () and "only 0 tasks of the pool may move (`split:` in their files" in sets.confirm_text


def test_a_lock_is_taken_at_its_word(folder: str, tmp_path: Path) -> None:
    drawn = split_tasks(load_tasks(folder), held_out_fraction=0.25, seed=0)
    write_lock(drawn, tmp_path / "two.lock")
    write_lock(take_confirm(drawn, 30), tmp_path / "three.lock")
    two = load(tasks=folder, held_out=str(tmp_path / "two.lock"))
    assert two.confirm == () and len(two.pool) == len(drawn.pool)
    assert f"none: {tmp_path / 'two.lock'} has no confirm side" in two.confirm_text and "--confirm" in two.confirm_text
    three = load(tasks=folder, held_out=str(tmp_path / "three.lock"))
    assert len(three.confirm) == 30 and three.confirm_text == "30 tasks of the lock's confirm side"
    assert len(three.pool) == len(drawn.pool) - 30
    off = load(tasks=folder, held_out=str(tmp_path / "three.lock"), confirm=0.0)
    assert off.confirm == () and len(off.pool) == len(three.pool)
    tasks = load_tasks(POOL)
    write_lock(split_tasks(tasks, held_out_fraction=0.25, seed=0), tmp_path / "families.lock")
    fresh = load(held_out=str(tmp_path / "families.lock"), confirm=0.2)
    assert fresh.confirm_text == "36 fresh tasks of the pool's families"


@pytest.mark.parametrize("kind", ["files", "families"])
def test_a_run_goes_on_with_the_side_that_it_began_with(kind: str, folder: str, tmp_path: Path) -> None:
    settings = {"tasks": folder, "held_out": "split"} if kind == "files" else {}
    lock = tmp_path / "tasks.lock"
    first = load(**settings)
    write_lock(first.split, lock)
    again = load(resumed=lock, **settings)
    assert again.split.hash == first.split.hash and again.confirm_text == first.confirm_text
    lock.unlink()
    before = load(confirm=0.0, **settings)  # as version 0.6 wrote it
    write_lock(before.split, lock)
    old = load(resumed=lock, **settings)
    assert old.split.hash == before.split.hash and old.confirm == ()
    assert old.confirm_text == f"none: the run began without ({lock} has no confirm side)"
    assert load(resumed=lock, confirm=0.0, **settings).confirm_text == "none: confirm=0"
    assert "confirm" not in json.loads(lock.read_text())


def test_a_run_too_small_says_the_same_when_it_goes_on(tmp_path: Path) -> None:
    lock = tmp_path / "tasks.lock"
    small = {"tasks": "generated:copy?n=20", "held_out": "split"}
    first = load(**small)
    write_lock(first.split, lock)
    assert load(resumed=lock, **small).confirm_text == first.confirm_text
    assert replace(first.split, confirm=()) == first.split
