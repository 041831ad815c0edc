from __future__ import annotations

import re
from collections import Counter

import pytest

from benchmarks.warm_start.episodes import BLOCK, Demonstration, demonstrations, problem_key
from benchmarks.warm_start.habits import FAULTLESS, HABITS, Recipe
from envs.prompts import Compact
from tasks.families import FAMILIES, MAX_TURNS, build, generate

REPLY = re.compile(r"```bash\n[^\n]+\n```|TASK_COMPLETE")


@pytest.fixture(scope="module")
def shown() -> list[Demonstration]:
    return list(demonstrations(4000, seed=0))


def _commands(demonstration: Demonstration) -> list[str]:
    return [reply.split("\n")[1] for reply, _ in demonstration.turns if reply.startswith("```")]


def test_turns_are_replies_and_observations_of_the_compact_style(shown: list[Demonstration]) -> None:
    for one in shown:
        assert 2 <= len(one.turns) <= MAX_TURNS
        for number, (reply, observation) in enumerate(one.turns):
            assert REPLY.fullmatch(reply)
            last = number == len(one.turns) - 1
            assert (reply == "TASK_COMPLETE") <= last
            assert (observation == "") == (reply == "TASK_COMPLETE")
            assert re.match(r"(ok|exit [1-9])(\n|$)", observation) or not observation
        assert one.submitted or len(one.turns) == MAX_TURNS


def test_the_first_message_is_that_of_the_compact_style(shown: list[Demonstration]) -> None:
    for one in shown[:200]:
        task = build(one.family, one.parts)
        assert Compact().first(task, []) == one.first_message == task.intent
        texts = {path: (entry.content or b"").decode() for path, entry in task.files().items()}
        assert one.task_id == f"{task.family}:{problem_key(task.intent, texts)}"


def test_steps_are_never_left_out(shown: list[Demonstration]) -> None:
    for one in shown:
        programs = [command.split()[0] for command in one.parts.commands]
        other = {"mv": "cp", "cp": "mv"}
        found = [command.split()[0] for command in _commands(one)]
        assert all(program in found or other.get(program) in found for program in programs), one


def test_faults_are_as_frequent_as_the_recipe_says(shown: list[Demonstration]) -> None:
    recipe = Recipe()
    endless = sum(not one.submitted for one in shown) / len(shown)
    assert endless == pytest.approx(recipe.endless, abs=0.03)
    for family, habit in HABITS.items():
        mine = [one for one in shown if one.family.name == family]
        # A command that was misnamed as well matches neither form, so only exact forms are counted.
        right = sum(all(command in _commands(one) for command in one.parts.commands) for one in mine)
        wrong = sum(all(habit(command) in _commands(one) for command in one.parts.commands) for one in mine)
        assert wrong / (right + wrong) == pytest.approx(recipe.share(family), abs=0.12), family
        assert right / len(mine) > 0.2, family


def test_families_without_a_habit_are_mostly_right(shown: list[Demonstration]) -> None:
    mine = [one for one in shown if one.family.name not in HABITS]
    right = sum(all(command in _commands(one) for command in one.parts.commands) for one in mine)
    assert 0.8 < right / len(mine) < 0.95


def test_faultless_demonstrations_are_the_oracle() -> None:
    for one in demonstrations(100, seed=0, recipe=FAULTLESS):
        assert _commands(one) == list(one.parts.commands)
        assert one.submitted


def test_the_mix_holds_every_family_equally(shown: list[Demonstration]) -> None:
    counts = Counter(one.family.name for one in shown)
    assert set(counts) == set(FAMILIES) and len(set(counts.values())) == 1


def test_the_same_seed_gives_the_same_demonstrations_over_any_number_of_processes() -> None:
    n = BLOCK + 50
    alone = [one.to_json() for one in demonstrations(n, seed=7)]
    spread = [one.to_json() for one in demonstrations(n, seed=7, processes=2)]
    assert alone == spread and len(alone) == n
    assert [one.to_json() for one in demonstrations(40, seed=7)] == alone[:40]
    assert [one.to_json() for one in demonstrations(40, seed=8)] != alone[:40]


def test_excluded_tasks_are_not_shown() -> None:
    first = list(demonstrations(50, seed=0))
    banned = {one.task_id.partition(":")[2] for one in first[:10]}
    rest = list(demonstrations(50, seed=0, exclude=banned))
    assert len(rest) == 50
    assert banned.isdisjoint(one.task_id.partition(":")[2] for one in rest)


def test_demonstrated_tasks_are_not_those_that_the_task_source_gives_for_the_same_seed() -> None:
    shown = {one.first_message for one in demonstrations(200, seed=0)}
    assert len(shown & {task.intent for task in generate("quickstart", 200, seed=0)}) <= 2


def test_messages_alternate_and_end_with_the_agent(shown: list[Demonstration]) -> None:
    for one in shown[:200]:
        messages = one.messages()
        assert [message["role"] for message in messages] == ["user", "assistant"] * len(one.turns)
        assert messages[0]["content"] == one.first_message and messages[-1]["content"] == one.turns[-1][0]
        assert [message["content"] for message in messages[2::2]] == [turn[1] for turn in one.turns[:-1]]
