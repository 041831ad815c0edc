from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from itertools import islice
from random import Random

import pytest

from benchmarks.warm_start.emulator import State, run, snapshot
from tasks.assertions.base import AssertionKind, Outcome
from tasks.assertions.files import FileUnchanged
from tasks.assertions.grade import grade
from tasks.families import FAMILIES, MAX_TURNS, MIX, generate, stream
from tasks.families.quickstart import FILE_NAMES, FOLDERS, NUMBERS, WORDS
from tasks.model import TaskError
from tasks.task import Task

MANY = 60


@pytest.fixture(scope="module")
def by_family() -> dict[str, list[Task]]:
    return {name: generate(name, MANY, seed=0) for name in FAMILIES}


def _texts(task: Task) -> State:
    return {path: (entry.content or b"").decode() for path, entry in task.files().items()}


def _after(task: Task, commands: tuple[str, ...]) -> Outcome:
    files = _texts(task)
    for command in commands:
        files, exit_code, _, stderr = run(files, command)
        assert exit_code == 0, (command, stderr)
    return Outcome(snapshot(files), task.files(), "TASK_COMPLETE")


def _oracle(task: Task) -> tuple[str, ...]:
    assert task.oracle is not None
    return task.oracle.commands


def test_there_are_enough_families_and_some_need_two_turns(by_family: dict[str, list[Task]]) -> None:
    assert len(FAMILIES) >= 12
    steps = {name: {len(_oracle(task)) for task in tasks} for name, tasks in by_family.items()}
    assert all(len(counts) == 1 for counts in steps.values())
    assert sorted(name for name, counts in steps.items() if counts == {2}) == [
        "backup_append",
        "find_count",
        "rename_append",
        "sort_remove",
        "stow",
    ]


def test_families_differ_in_what_is_done_not_in_words(by_family: dict[str, list[Task]]) -> None:
    words = re.compile("|".join(sorted((*FILE_NAMES, *FOLDERS, *WORDS, *NUMBERS), key=len, reverse=True)))
    forms = {name: {words.sub("_", " ; ".join(_oracle(task))) for task in tasks} for name, tasks in by_family.items()}
    several = {name: found for name, found in forms.items() if len(found) > 1}
    assert set(several) <= {"stow"}
    assert len({min(found) for found in forms.values()}) == len(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_scores_one_and_doing_nothing_less(family: str, by_family: dict[str, list[Task]]) -> None:
    for task in by_family[family]:
        assert 2 <= len(task.assertions) <= 4
        done = grade(task, _after(task, _oracle(task)))
        assert done.passed and done.rate == 1.0, (task.id, done)
        idle = grade(task, _after(task, ()))
        assert not idle.passed and idle.rate is not None and idle.rate < 1.0, task.id


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("sort_remove",)])
def test_half_an_oracle_is_not_enough(family: str, by_family: dict[str, list[Task]]) -> None:
    for task in by_family[family]:
        first, *rest = _oracle(task)
        assert not rest or not grade(task, _after(task, (first,))).passed


def test_every_assertion_can_fail_and_every_kind_is_used(by_family: dict[str, list[Task]]) -> None:
    kinds: Counter[AssertionKind] = Counter()
    for tasks in by_family.values():
        for task in tasks:
            kinds.update(assertion.kind for assertion in task.assertions)
            wiped = Outcome({}, task.files(), "TASK_COMPLETE")
            trashed = Outcome(snapshot(dict.fromkeys((*FILE_NAMES,), "other\n")), task.files(), "TASK_COMPLETE")
            for assertion in task.assertions:
                verdicts = {assertion.check(wiped).verdict, assertion.check(trashed).verdict}
                assert any(verdict == "fail" for verdict in verdicts), (task.id, assertion)
    assert set(kinds) == {
        AssertionKind.FILE_EXISTS,
        AssertionKind.FILE_NOT_EXISTS,
        AssertionKind.FILE_CONTAINS,
        AssertionKind.FILE_MATCHES,
        AssertionKind.FILE_UNCHANGED,
    }


def test_intents_are_short_and_name_every_file_and_word_of_the_oracle(by_family: dict[str, list[Task]]) -> None:
    vocabulary = {*FILE_NAMES, *FOLDERS, *WORDS}
    for tasks in by_family.values():
        for task in tasks:
            said = task.intent.split()
            assert len(said) <= 25 and task.intent == task.intent.lower()
            used = set(re.findall(r"[a-z]+(?:\.[a-z]+)?", " ".join(_oracle(task)))) & vocabulary
            assert used <= set(said), task.intent


def test_intents_have_two_or_three_phrasings() -> None:
    words = {*FILE_NAMES, *FOLDERS, *WORDS, *NUMBERS}
    for name in FAMILIES:
        forms = {
            " ".join("_" if word in words else word for word in parts.intent.split())
            for _, parts in islice(stream(name, Random(1)), 200)
        }
        assert 2 <= len(forms) <= 3, (name, forms)


def test_files_are_few_and_short(by_family: dict[str, list[Task]]) -> None:
    for tasks in by_family.values():
        for task in tasks:
            assert 1 <= len(task.files()) <= 3
            assert all(entry.content and len(entry.content) <= 120 for entry in task.files().values())


def test_assertions_compare_only_with_files_of_the_workspace(by_family: dict[str, list[Task]]) -> None:
    for tasks in by_family.values():
        for task in tasks:
            assert all(a.path in task.files() for a in task.assertions if isinstance(a, FileUnchanged))


def test_tasks_say_where_they_come_from_and_what_they_may_spend() -> None:
    for task in generate(MIX, 40, seed=0):
        assert task.family in FAMILIES
        assert task.id == f"{task.family}-{task.content_hash[:8]}"
        assert task.budget.max_turns == MAX_TURNS
        assert task.difficulty == ("easy" if len(_oracle(task)) == 1 else "medium")


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    program = (
        "import hashlib\nfrom tasks.families import generate\n"
        "text = ''.join(t.model_dump_json() for t in generate('quickstart', 100, 0))\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
        for env in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    }
    assert len(outputs) == 1 and len(outputs.pop().strip()) == 64


def test_fewer_tasks_are_the_beginning_of_more() -> None:
    assert generate(MIX, 30, seed=3) == generate(MIX, 50, seed=3)[:30]


@pytest.mark.parametrize("family", [MIX, "copy"])
def test_other_seeds_give_other_tasks_and_zero_is_a_seed(family: str) -> None:
    drawn = [{task.problem_hash for task in generate(family, 100, seed=seed)} for seed in (0, 1, -1)]
    assert all(len(problems) == 100 for problems in drawn)
    assert len(set.union(*drawn)) == 300


def test_the_mix_is_balanced() -> None:
    counts = Counter(task.family for task in generate(MIX, 5 * len(FAMILIES), seed=0))
    assert set(counts) == set(FAMILIES)
    assert set(counts.values()) == {5}


def test_the_space_is_large() -> None:
    drawn = islice(stream(MIX, Random(0)), 20_000)
    seen = {json.dumps([parts.intent, parts.files], sort_keys=True) for _, parts in drawn}
    assert len(seen) > 19_900
    assert len({json.loads(one)[0] for one in seen}) > 15_000


def test_unknown_family_names_the_nearest() -> None:
    with pytest.raises(TaskError, match="did you mean 'append'"):
        generate("apend", 1)


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(TaskError, match="cannot be negative"):
        generate("copy", -1)


def test_an_exhausted_family_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = next(islice(stream("copy", Random(0)), 1))[1]
    family = FAMILIES["copy"]
    monkeypatch.setitem(FAMILIES, "copy", type(family)("copy", family.summary, lambda rng: fixed))
    with pytest.raises(TaskError, match="made 1 of 2 tasks"):
        generate("copy", 2)
