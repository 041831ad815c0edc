from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sandboxes import open_sandbox
from sandboxes.sandbox import Sandbox, SandboxUnavailable
from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.comparable import by_meaning
from tasks.families import ALL_FAMILIES, FAMILIES, OFFICE, SMALL_TURNS, TURNS, TURNS_MIX, generate
from tasks.families.quickstart import ALL_WORDS
from tasks.families.turns import parts, sealing
from tasks.mutants import cheats, damaged
from tasks.oracle import command_of, read, replies, resolve
from tasks.proof import grade_end, play
from tasks.sources import load_tasks
from tasks.splits import split_tasks
from tasks.task import Task
from tests.tasks.fake_sandbox import FakeSandbox

MANY = 12


@pytest.fixture(scope="module")
def by_family() -> dict[str, list[Task]]:
    return {name: generate(name, MANY, seed=0) for name in TURNS}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox() as sandbox:
        yield sandbox


def follow(task: Task, sandbox: Sandbox) -> tuple[list[float], list[str], Outcome]:
    """Do a task reply by reply: the rate of its file assertions before and after each, what each was, and the end."""
    assert task.oracle is not None
    task = task.model_copy(update={"assertions": tuple(item for item in task.assertions if item.on_files)})
    sandbox.open(task.files())
    initial = sandbox.snapshot()
    known: dict[str, str] = {}
    said: list[str] = []
    end = Outcome(initial, initial)
    rates = [grade(task, end).rate or 0.0]
    for step in task.oracle.commands:
        said.append(resolve(command_of(step), known))
        result = sandbox.run(said[-1])
        assert result.exit_code == 0 or not result.stderr, (task.id, said[-1], result)
        known |= read(step, result.stdout_text)
        end = Outcome(sandbox.snapshot(), initial)
        rates.append(grade(task, end).rate or 0.0)
    return rates, said, end


def test_there_are_fifteen_and_they_change_no_other_mix(by_family: dict[str, list[Task]]) -> None:
    assert len(TURNS) == 15
    assert set(ALL_FAMILIES) == {*FAMILIES, *OFFICE, *TURNS, *SMALL_TURNS}
    assert {task.family for task in generate("all", len(FAMILIES) + len(OFFICE), 0)} == {*FAMILIES, *OFFICE}
    assert {task.family for task in load_tasks(f"generated:{TURNS_MIX}?n=15")} == set(TURNS)
    turns = {task.turns for tasks in by_family.values() for task in tasks}
    assert turns == set(range(3, 11))


@pytest.mark.parametrize("family", [*TURNS, *SMALL_TURNS])
def test_each_reply_makes_progress_and_only_all_of_them_pass(family: str, sandbox: FakeSandbox) -> None:
    first, second = sorted(generate(family, 6, seed=7), key=lambda task: task.turns or 0)[:2]
    rates, said, end = follow(first, sandbox)
    assert first.turns is not None and first.oracle is not None
    assert first.turns == len(said) == len(replies(first.oracle.commands)) <= first.budget.max_turns - parts.LOOKS
    assert rates[0] <= 0.5 and rates[-1] == 1.0
    assert all(assertion.on_files for assertion in first.assertions)
    assert sum(after > before for before, after in zip(rates, rates[1:], strict=False)) >= first.turns - 1, rates
    joined = play(first, sandbox, ["\n".join(command_of(step) for step in first.oracle.commands)])
    assert joined.grade.rate is not None and joined.grade.rate < 1
    # What was right for one task is not right for another.
    assert not play(second, sandbox, ["\n".join(said)]).grade.passed
    for wrong in (*damaged(end.initial, end.files), *cheats(first.intent, end.initial, end.files)):
        assert not grade_end(first, sandbox, Outcome(wrong.files, end.initial)).passed, (first.id, wrong.name)


def test_the_programs_run_in_a_real_sandbox() -> None:
    try:
        sandbox = open_sandbox("auto")
    except SandboxUnavailable as reason:
        pytest.skip(str(reason))
    with sandbox:
        for name in ("panel", "mails"):
            assert follow(generate(name, 1, seed=8)[0], sandbox)[0][-1] == 1.0


def test_requests_and_observations_are_worded_in_several_ways(by_family: dict[str, list[Task]]) -> None:
    for name, tasks in by_family.items():
        assert len({task.intent.split()[0:3].__str__() for task in tasks}) >= 3, name
        forms = {
            pattern
            for task in tasks
            if task.oracle
            for step in task.oracle.commands
            if not isinstance(step, str)
            for key, pattern in step.reads.items()
            if key.startswith(next(iter(step.reads)).rstrip("0123456789"))
        }
        assert len(forms) >= 3, (name, forms)
        assert all(TURNS[name].reveals != other.reveals for other in TURNS.values() if other.name != name)


def test_nothing_that_is_revealed_can_be_read_before(by_family: dict[str, list[Task]], sandbox: FakeSandbox) -> None:
    for name in ("help_desk", "rooms", "letters", "failing_tests"):
        task = by_family[name][0]
        source = "".join((entry.content or b"").decode() for entry in task.files().values())
        assert task.oracle is not None
        sandbox.open(task.files())
        first = task.oracle.commands[0]
        shown = sandbox.run(command_of(first)).stdout_text
        (word, *_) = read(first, shown).values()
        assert word and shown.splitlines()[-1] not in source, name
        page = next(line for line in source.splitlines() if re.match(r"    '[0-9a-f]{80,}',$", line))
        assert sealing.opened("0\n\nwrong", page.strip(" ',")) is None
        said = "\n\n" if name != "letters" else f"\nsaid\n{command_of(first).split()[1]}"  # ./chest WORD
        assert sealing.opened(f"0{said}", page.strip(" ',")) is not None


def test_the_small_ones_speak_the_words_of_the_quickstart() -> None:
    tasks = load_tasks("generated:quickstart_turns?n=20&seed=3")
    assert {task.turns for task in tasks} == {3, 4} and {task.family for task in tasks} == set(SMALL_TURNS)
    known = {*ALL_WORDS, "./ask", "cp", "mv", "rm", "echo", ">", ">>", "&&"}
    for task in tasks:
        assert task.oracle is not None and task.intent == task.intent.lower()
        said = " ".join(re.sub(r"{{\w+}}", "1", command_of(step)) for step in task.oracle.commands)
        assert set(said.split()) <= known, said
        assert set(task.workspace.files) - {"ask"} <= set(ALL_WORDS)
        assert all(entry.content and len(entry.content) <= 120 for path, entry in task.files().items() if path != "ask")


@pytest.mark.parametrize(
    ("rule", "said", "found"),
    [
        ("", (), ""),
        ("said", ("Kettle", "12"), "kettle 12"),
        ("text|a.txt", (), "one\n\n two"),
        ("text|sub/", (), "x\ny"),
        ("text|lacks", (), ""),
        ("head|a.txt|1", (), "one"),
        ("row|t.csv|7", (), "7,b"),
        ("row|t.csv|8", (), ""),
        ("json|c.json|a.b", (), "3"),
        ("json|c.json|a.c", (), ""),
        ("json|a.txt|a", (), ""),
        ("value|s.ini|port", (), "80"),
        ("value|s.ini|name", (), "x: y"),
        ("value|s.ini|rate", (), "4"),
        ("value|s.ini|none", (), ""),
    ],
)
def test_facts(rule: str, said: tuple[str, ...], found: str) -> None:
    files = {
        "a.txt": "\none  \n\n two\n\n",
        "sub/": "x\ny",
        "t.csv": "id,name\n7,b\n",
        "c.json": '{"a": {"b": 3}}',
        "s.ini": "[s]\nport = 80\nname: 'x: y'\n\"rate\": 4,\n",
    }
    assert sealing.fact(rule, said, files.get) == found


def test_a_template_from_which_nothing_can_be_read_is_refused() -> None:
    from random import Random

    with pytest.raises(ValueError, match="'b' cannot be read from"):
        parts.page(Random(0), 1, ["{a} or {b}"], {"b": "x y"}, a="left or right")
    told = parts.page(Random(0), 2, ["first\n{a}: {b}, {c}!"], {"b": 5, "c": "z"}, a="A")
    assert told["b"] == "{{b2}}" and set(told.reads) == {"b2", "c2"}
    assert [re.search(pattern, told.text)[1] for pattern in told.reads.values()] == ["5", "z"]  # type: ignore[index]


def test_no_twins_stand_on_both_sides(by_family: dict[str, list[Task]]) -> None:
    tasks = [task for group in by_family.values() for task in group]
    assert len(by_meaning(tasks)) == len(tasks) == len({task.problem_hash for task in tasks})
    assert not split_tasks(tasks, held_out_fraction=0.3, seed=0).twins_across()
