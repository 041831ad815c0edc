from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.model import TaskError
from tasks.sources import load_tasks
from tasks.splits import (
    Split,
    apply_lock,
    locked_sides,
    parted_twins,
    split_by_outcome,
    split_tasks,
    take_confirm,
    verify_lock,
    write_lock,
)

TASKS = load_tasks("generated:quickstart?n=40")
SPLIT = split_tasks(TASKS, held_out_fraction=0.25, seed=0, unseen_families=2)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "split.lock"
    write_lock(SPLIT, path)
    return path


def test_the_same_tasks_give_the_same_split(lock: Path) -> None:
    again = apply_lock(TASKS[::-1], lock)
    assert again.hash == SPLIT.hash
    verify_lock(SPLIT, lock)
    before = lock.read_bytes()
    write_lock(SPLIT, lock)
    assert lock.read_bytes() == before


def test_tasks_that_are_not_locked_are_left_out(lock: Path) -> None:
    more = load_tasks("generated:quickstart?n=60")
    assert apply_lock(more, lock).hash == SPLIT.hash


def test_drift_is_refused(lock: Path) -> None:
    changed = [task.model_copy(update={"intent": "other"}) if task is TASKS[0] else task for task in TASKS]
    with pytest.raises(TaskError, match=f"{TASKS[0].id} has changed: {TASKS[0].content_hash[:12]} is locked"):
        apply_lock(changed, lock)
    with pytest.raises(TaskError, match=f"{TASKS[3].id} is locked, but not among the tasks"):
        apply_lock([*TASKS[:3], *TASKS[4:]], lock)
    other = split_tasks(TASKS, held_out_fraction=0.25, seed=1)
    for check in (verify_lock, write_lock):
        with pytest.raises(TaskError, match="is locked here, but stands in held_out now"):
            check(other, lock)


def test_long_lists_of_differences_are_cut(lock: Path) -> None:
    with pytest.raises(TaskError) as caught:
        apply_lock([], lock)
    assert len(caught.value.problems) == 21
    assert "and 20 more differences" in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda record: record["pool"].update({TASKS[0].id: "0" * 64}), "hash: does not fit the rest"),
        (lambda record: record.update(choice="luck"), "choice: must be one of seed, outcome"),
        (lambda record: record.update(choice="outcome"), "hash: does not fit the rest"),
        (lambda record: record.pop("held_out"), "held_out: must map ids to content hashes"),
        (lambda record: record.update(schema_version=2), "schema_version: is no lock file"),
    ],
)
def test_a_file_that_was_edited_is_refused(edit: object, words: str, lock: Path) -> None:
    record = json.loads(lock.read_text())
    edit(record)  # type: ignore[operator]
    lock.write_text(json.dumps(record))
    with pytest.raises(TaskError, match=words):
        apply_lock(TASKS, lock)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff", b"[" * 100_000, b'{"schema_version": 1'],
    ids=["empty", "list", "bytes", "deep", "cut"],
)
def test_what_is_no_lock_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "split.lock"
    path.write_bytes(content)
    with pytest.raises(TaskError, match="split.lock: "):
        apply_lock(TASKS, path)
    with pytest.raises(TaskError, match="cannot be read: No such file"):
        apply_lock(TASKS, tmp_path / "none")
    with pytest.raises(TaskError, match="cannot be written: "):
        write_lock(SPLIT, path / "below-a-file.lock")


def test_a_locked_choice_by_outcome_must_be_allowed(tmp_path: Path) -> None:
    split = split_by_outcome(TASKS, lambda task: task in TASKS[:5], allow_outcome=True)
    path = tmp_path / "split.lock"
    write_lock(split, path)
    with pytest.raises(TaskError, match="chosen by outcome"):
        apply_lock(TASKS, path)
    assert apply_lock(TASKS, path, allow_outcome=True).choice is split.choice
    with pytest.raises(TaskError, match="choice: is 'outcome', but the split was chosen by seed"):
        verify_lock(Split(split.pool, split.held_out), path)


def test_a_task_that_changed_sides_is_said_so_and_files_of_others_are_kept(tmp_path: Path) -> None:
    path, other = tmp_path / "a.lock", tmp_path / "a.lock.tmp"
    other.write_text("mine")
    write_lock(SPLIT, path, {"seed": 0})
    assert other.read_text() == "mine" and sorted(p.name for p in tmp_path.iterdir()) == ["a.lock", "a.lock.tmp"]
    assert json.loads(path.read_text())["made_from"] == {"seed": 0}
    moved = Split((*SPLIT.pool, SPLIT.held_out[0]), SPLIT.held_out[1:], SPLIT.unseen)
    with pytest.raises(
        TaskError, match=f"held_out: {SPLIT.held_out[0].id} is locked here, but stands in pool now"
    ) as e:
        verify_lock(moved, path)
    assert len(e.value.problems) == 1


def test_each_disagreement_says_what_to_do(lock: Path) -> None:
    changed = TASKS[0].model_copy(update={"intent": "other"})
    with pytest.raises(TaskError) as caught:
        apply_lock([changed, *TASKS[2:]], lock)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2 and all(line.startswith(f"{lock}: ") and "--out ANOTHER.lock" in line for line in lines)
    assert any(f"{TASKS[0].id} has changed" in line and "undo the change, or" in line for line in lines)
    assert any(f"{TASKS[1].id} is locked, but not" in line and "bring it back, or" in line for line in lines)


def test_an_old_lock_with_twins_on_both_sides_loads_and_is_warned_of(tmp_path: Path) -> None:
    twins = [
        task.model_copy(update={"id": f"twin-{number}", "intent": f"{task.intent.upper()}!"})
        for number, task in enumerate(SPLIT.pool[:7])
    ]
    old = Split(SPLIT.pool, (*SPLIT.held_out, *twins), SPLIT.unseen)
    path = tmp_path / "old.lock"
    write_lock(old, path)
    again = apply_lock([*TASKS, *twins], path)
    assert again.hash == old.hash
    warnings = [str(problem) for problem in parted_twins(again, path)]
    assert len(warnings) == 6 and warnings[-1] == f"{path}: and 2 more pairs"
    assert warnings[0].startswith(f"{path}: held_out: twin-") and "is the exact twin of " in warnings[0]
    assert "in pool: " in warnings[0] and "The sides stay as they are locked" in warnings[0]
    assert parted_twins(SPLIT, path) == ()


def test_a_confirm_side_is_locked_like_the_others(tmp_path: Path) -> None:
    path, without = tmp_path / "with.lock", tmp_path / "without.lock"
    split = take_confirm(SPLIT, 5)
    write_lock(split, path)
    write_lock(SPLIT, without)
    again = apply_lock(TASKS[::-1], path)
    assert again.hash == split.hash and {t.id for t in again.confirm} == {t.id for t in split.confirm}
    assert locked_sides(path) == ("pool", "held_out", "unseen", "confirm")
    assert locked_sides(without) == ("pool", "held_out", "unseen") and "confirm" not in without.read_text()
    with pytest.raises(TaskError, match="is locked here, but stands in confirm now"):
        verify_lock(split, without)
    record = json.loads(path.read_text())
    record["confirm"] = {}
    path.write_text(json.dumps(record))
    with pytest.raises(TaskError, match="hash: does not fit the rest"):
        locked_sides(path)
