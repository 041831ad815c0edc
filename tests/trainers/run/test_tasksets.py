from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.model import TaskError
from tasks.sources import held_out_sources, load_tasks
from tasks.splits import problem, split_by_outcome, split_tasks, verify_lock, write_lock
from trainers.errors import ConfigError
from trainers.run.setup import check_metric
from trainers.run.tasks import TaskSets, load_task_sets
from trainers.settings import EnvArguments, GiGPOConfig

SPEC = "generated:quickstart?n=60"
SPLIT = split_tasks(load_tasks(SPEC), held_out_fraction=0.5, seed=3, unseen_families=2)


def ids(tasks: object) -> set[str]:
    return {task.id for task in tasks}  # type: ignore[attr-defined]


def test_a_lock_file_gives_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "my.lock"
    write_lock(SPLIT, path)
    sets = load_task_sets(EnvArguments(tasks=SPEC, held_out=str(path)), seed=0)
    assert ids(sets.pool) == ids(SPLIT.pool) and ids(sets.held_out) == ids(SPLIT.held_out)
    assert sets.split.hash == SPLIT.hash
    assert ids(sets.unseen) == ids(SPLIT.unseen) != set() and sets.notes == ()
    assert ids(sets.measured) == ids(SPLIT.held_out) | ids(SPLIT.unseen)


def test_families_can_stay_unseen_without_a_lock() -> None:
    sets = load_task_sets(EnvArguments(tasks=SPEC, unseen_families="2"), seed=0)
    families = {task.family for task in sets.unseen}
    assert len(families) == 2 and not families & {task.family for task in (*sets.pool, *sets.held_out)}
    named = load_task_sets(EnvArguments(tasks=SPEC, unseen_families=",".join(sorted(families))), seed=0)
    assert ids(named.unseen) == ids(sets.unseen)
    limited = load_task_sets(EnvArguments(tasks=SPEC, unseen_families="2", held_out_limit=2), seed=0)
    assert len(limited.unseen) == len(limited.held_out) == 2
    with pytest.raises(ConfigError, match="only held_out=split draws families"):
        load_task_sets(EnvArguments(tasks=SPEC, held_out="none", unseen_families="2"), seed=0)
    with pytest.raises(TaskError, match="family"):
        load_task_sets(EnvArguments(tasks=SPEC, unseen_families="no_such"), seed=0)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_deciding_figure_must_be_of_tasks_that_are_there(tmp_path: Path) -> None:
    both = load_task_sets(EnvArguments(tasks=SPEC, unseen_families="2"), seed=0)
    without = load_task_sets(EnvArguments(tasks=SPEC), seed=0)
    unseen = GiGPOConfig(output_dir=str(tmp_path), best_metric="unseen_sampled_reward", use_cpu=True)
    check_metric(unseen, both)
    with pytest.raises(ConfigError, match="no family is unseen here"):
        check_metric(unseen, without)
    usual = GiGPOConfig(output_dir=str(tmp_path), use_cpu=True)
    check_metric(usual, without)
    with pytest.raises(ConfigError, match="Use unseen_sampled_pass_rate"):
        check_metric(usual, TaskSets(replace(both.split, held_out=())))
    sets = load_task_sets(EnvArguments(tasks=SPEC, held_out=f"far={OTHERS}"), seed=0)
    check_metric(GiGPOConfig(output_dir=str(tmp_path), best_metric="far_greedy_reward", use_cpu=True), sets)
    with pytest.raises(ConfigError, match="only named sets are held out. Use far_sampled_pass_rate"):
        check_metric(usual, sets)
    typo = GiGPOConfig(output_dir=str(tmp_path), best_metric="unsen_sampled_reward", use_cpu=True)
    with pytest.raises(ConfigError, match="did you mean 'unseen_sampled_reward'"):
        check_metric(typo, both)


OTHERS = "generated:quickstart?n=25&seed=9"


def test_named_sets_are_measured_beside_the_split_and_change_nothing_of_it(tmp_path: Path) -> None:
    alone = load_task_sets(EnvArguments(tasks=SPEC), seed=0)
    spec = f"split, far={OTHERS} ,same={OTHERS},{SPEC}"
    with pytest.raises(ConfigError, match="same=.*: no task to measure on: every task of it is in the pool"):
        load_task_sets(EnvArguments(tasks=SPEC, held_out=spec), seed=0)
    env = EnvArguments(tasks=SPEC, held_out=f"split, far={OTHERS},new=library:turns")
    sets = load_task_sets(env, seed=0)
    assert (sets.pool, sets.held_out, sets.confirm) == (alone.pool, alone.held_out, alone.confirm)
    assert list(sets.sets) == ["far", "new"] and len(sets.sets["new"]) == 30
    assert len(sets.measured) == len(sets.held_out) + len(sets.sets["far"]) + 30
    if dropped := 25 - len(sets.sets["far"]):
        assert any(note.startswith(f"{dropped} tasks of far are also in the pool") for note in sets.notes)
    path = tmp_path / "run.lock"
    write_lock(sets.split, path)
    assert load_task_sets(env, seed=0, resumed=path).split.hash == sets.split.hash
    by_lock = EnvArguments(tasks=f"{SPEC},{OTHERS},library:turns", held_out=str(path))
    assert load_task_sets(by_lock, seed=0).split.hash == sets.split.hash
    with pytest.raises(TaskError, match=r"held_out:far"):
        verify_lock(alone.split, path)


@pytest.mark.parametrize(
    ("held_out", "message"),
    [
        ("split,unseen=library", "figures begin with this word already"),
        ("a=library,a=library:turns", "a= is given twice"),
        ("split,a=", "name a source of tasks"),
        ("a=none", "name a source of tasks"),
    ],
)
def test_a_set_has_a_name_and_a_source(held_out: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        held_out_sources(held_out)


def test_names_are_taken_from_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert held_out_sources("generated:office?n=4&seed=1,library") == ("generated:office?n=4&seed=1,library", {})
    assert held_out_sources("clawgym:P?ids=A,B,x=math:Q?split=test&limit=9") == (
        "clawgym:P?ids=A,B",
        {"x": "math:Q?split=test&limit=9"},
    )
    assert held_out_sources("none,x=library") == ("", {"x": "library"})
    many = held_out_sources(",".join(f"set_{n}=generated:office?n=4&seed={n}" for n in range(20)))
    assert len(many.sets) == 20 and len(load_tasks(",".join(many.sets.values()))) == 80
    monkeypatch.chdir(tmp_path)
    Path("a=b.yaml").touch()
    assert held_out_sources("a=b.yaml") == ("a=b.yaml", {})


def test_tasks_that_changed_since_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.lock"
    write_lock(SPLIT, path)
    with pytest.raises(TaskError, match="is locked, but not among the tasks"):
        load_task_sets(EnvArguments(tasks="generated:quickstart?n=20", held_out=str(path)), seed=0)
    more = load_task_sets(EnvArguments(tasks="generated:quickstart?n=70", held_out=str(path)), seed=0)
    assert any(note.startswith("10 tasks are not in the lock file") for note in more.notes)


def test_a_split_chosen_by_outcome_says_so(tmp_path: Path) -> None:
    path = tmp_path / "hard.lock"
    tasks = load_tasks(SPEC)
    hard = ids(tasks[:30])
    write_lock(split_by_outcome(tasks, lambda task: task.id in hard, allow_outcome=True), path)
    sets = load_task_sets(EnvArguments(tasks=SPEC, held_out=str(path)), seed=0)
    assert ids(sets.held_out) == hard
    assert any("chosen by outcome" in note for note in sets.notes)


def test_another_source_is_held_out_without_what_is_trained_on() -> None:
    sets = load_task_sets(EnvArguments(tasks="generated:copy?n=10", held_out="generated:copy?n=30"), seed=0)
    assert len(sets.pool) == 10 and len(sets.held_out) == 20
    assert any(note.startswith("10 held-out tasks are also in the pool") for note in sets.notes)
    with pytest.raises(ConfigError, match="every task of it is in the pool"):
        load_task_sets(EnvArguments(tasks="generated:copy?n=10", held_out="generated:copy?n=5"), seed=0)


def test_a_limit_and_nothing_held_out() -> None:
    sets = load_task_sets(EnvArguments(tasks=SPEC, held_out="split", held_out_limit=4), seed=0)
    assert len(sets.held_out) == 4 and len(sets.pool) == 45
    assert any("too few to choose a checkpoint" in note for note in sets.notes)
    none = load_task_sets(EnvArguments(tasks=SPEC, held_out="none"), seed=0)
    assert none.held_out == () and len(none.pool) == 60


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    """A folder of eight tasks; the judges of two of them load what the agent wrote."""
    for number in range(8):
        command = "python3 -I prices.py" if number < 6 else ". ./prices.sh"
        (tmp_path / f"t{number}.yaml").write_text(
            f"id: t{number}\nintent: do {number}\nassertions:\n  - {{kind: command, command: {command}}}\n"
        )
    return str(tmp_path)


def test_tasks_whose_judge_can_be_forged_are_left_out_and_named(mixed: str) -> None:
    sets = load_task_sets(EnvArguments(tasks=mixed), seed=0)
    assert ids(sets.pool) | ids(sets.measured) == {f"t{number}" for number in range(6)}
    assert sets.notes[0] == (
        "left out: 2 tasks with a judge that runs the agent's code in its own process (t6, t7). "
        "`python -m tasks check` says where; --allow_in_process_judges takes them."
    )
    allowed = load_task_sets(EnvArguments(tasks=mixed, allow_in_process_judges=True), seed=0)
    assert ids(allowed.pool) | ids(allowed.measured) == {f"t{number}" for number in range(8)}
    assert allowed.notes[0].startswith("allow_in_process_judges: 2 tasks")
    idle = load_task_sets(EnvArguments(tasks=SPEC, allow_in_process_judges=True), seed=0)
    assert "allow_in_process_judges does nothing: no task has such a judge." in idle.notes


def test_tasks_with_a_shared_judge_or_without_a_network_are_left_out_and_named(tmp_path: Path) -> None:
    kinds = ("{sandbox: shared}", "{sandbox: fresh, network: '`uv` in test.sh:2'}", "{sandbox: fresh}", "{}")
    for number, judged_in in enumerate(kinds):
        (tmp_path / f"t{number}.yaml").write_text(
            f"schema_version: 2\nid: t{number}\nintent: do {number}\nassertions:\n"
            f"  - {{kind: script, command: python3 -I a.py, judged_in: {judged_in}}}\n"
        )
    sets = load_task_sets(EnvArguments(tasks=str(tmp_path), held_out="none"), seed=0)
    assert ids(sets.pool) == {"t2", "t3"}
    assert sets.notes[:2] == (
        "left out: 1 task judged beside processes of the agent (judge_isolation: shared) (t0). "
        "--allow_shared_judges takes them.",
        "left out: 1 task with a verifier that needs a network (t1: `uv` in test.sh:2). "
        "--verifier_network NAME gives them one (docker), such as bridge.",
    )
    both = EnvArguments(tasks=str(tmp_path), held_out="none", allow_shared_judges=True, verifier_network="bridge")
    sets = load_task_sets(both, seed=0)
    assert ids(sets.pool) == {"t0", "t1", "t2", "t3"}
    assert [note.partition(":")[0] for note in sets.notes[:2]] == ["allow_shared_judges", "verifier_network"]
    with pytest.raises(ConfigError, match="no task to train on: left out: 1 task judged beside processes"):
        load_task_sets(EnvArguments(tasks=f"{tmp_path}/t0.yaml", held_out="none"), seed=0)


def test_a_lock_finds_its_tasks_before_they_are_left_out(mixed: str, tmp_path: Path) -> None:
    split = split_tasks(load_tasks(mixed), held_out_fraction=0.5, seed=1)
    write_lock(split, tmp_path / "my.lock")
    sets = load_task_sets(EnvArguments(tasks=mixed, held_out=str(tmp_path / "my.lock")), seed=0)
    assert ids(sets.pool) == ids(split.pool) - {"t6", "t7"}
    assert ids(sets.held_out) == ids(split.held_out) - {"t6", "t7"}
    assert any(note.startswith("left out: 2 tasks") for note in sets.notes)


@pytest.mark.parametrize("held_out", ["split", "none"])
def test_a_run_of_nothing_else_is_refused_with_the_flag(mixed: str, held_out: str) -> None:
    wanted = r"no task to train on: left out: 1 task .*t7.*--allow_in_process_judges"
    with pytest.raises(ConfigError, match=wanted):
        load_task_sets(EnvArguments(tasks=f"{mixed}/t7.yaml", held_out=held_out), seed=0)


def test_held_out_tasks_of_a_source_of_their_own_are_left_out_too(mixed: str) -> None:
    sets = load_task_sets(EnvArguments(tasks=SPEC, held_out=mixed), seed=0)
    assert ids(sets.held_out) == {f"t{number}" for number in range(6)}
    with pytest.raises(ConfigError, match=r"no task to measure on: left out: 1 task"):
        load_task_sets(EnvArguments(tasks=SPEC, held_out=f"{mixed}/t7.yaml"), seed=0)


@pytest.fixture
def twins(tmp_path: Path) -> str:
    """A folder of twelve tasks: six requests, each by two people."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    for number in range(12):
        (folder / f"t{number}.yaml").write_text(
            f"id: t{number}\nintent: do {number // 2}\npersona: {{role: person {number}}}\n"
            "assertions:\n  - {kind: file_exists, path: b}\n"
        )
    return str(folder)


def test_twins_stay_on_one_side_however_it_is_held_out(twins: str) -> None:
    for seed in range(4):
        drawn = load_task_sets(EnvArguments(tasks=twins, held_out_fraction=0.5), seed=seed).split
        assert drawn.twins_across() == [] and len(drawn.held_out) == 6
    named = load_task_sets(EnvArguments(tasks=f"{twins}/t0.yaml", held_out=twins), seed=0)
    assert ids(named.held_out) == {f"t{number}" for number in range(2, 12)}
    assert "2 held-out tasks are also in the pool, or twins of tasks there, and were left out." in named.notes


def test_an_old_lock_and_an_old_run_keep_their_sides(twins: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.lock"
    old = split_tasks(load_tasks(twins), held_out_fraction=0.5, seed=0, same=problem)
    assert old.twins_across()
    write_lock(old, path)
    warning = f"{path}: held_out: "
    locked = load_task_sets(EnvArguments(tasks=twins, held_out=str(path)), seed=0)
    assert locked.split.hash == old.hash and any(note.startswith(warning) for note in locked.notes)
    env = EnvArguments(tasks=twins, held_out_fraction=0.5)
    resumed = load_task_sets(env, seed=0, resumed=path)
    assert resumed.split.hash == old.hash and any(note.startswith(warning) for note in resumed.notes)
    other = load_task_sets(env, seed=1, resumed=path)  # not that run's: the record refuses it
    assert other.split.hash == load_task_sets(env, seed=1).split.hash != old.hash
    assert load_task_sets(env, seed=0, resumed=tmp_path / "none.lock").split.twins_across() == []
