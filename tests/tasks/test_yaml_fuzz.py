"""Any text is a task or the product's own error; what is a task comes back from YAML as it was."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.model import TaskError
from tasks.task import Task
from tasks.yaml import dump_task, parse_task

ANY_TEXT = st.text(max_size=30)
_WORDS = """
id intent persona role context tags difficulty family workspace files dirs text base64 size symlink mode workdir budget
max_turns command_seconds turn_tokens assertions kind path contains pattern name weight oracle commands answer
alternatives split pool held_out easy hard file_exists file_contains file_matches file_unchanged script command
schema_version metadata turns reads run from parameters values n seed min max {{n}} {{kind}}
json_value csv_cell any_of not yes 0755 1e3 ~ null a/b ../x /x a.txt
"""
WORDS = st.sampled_from(_WORDS.split())
SCALARS = st.one_of(
    WORDS, ANY_TEXT, st.none(), st.booleans(), st.integers(), st.floats(), st.dates(), st.binary(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.one_of(WORDS, ANY_TEXT), inner, max_size=5),
    max_leaves=25,
)


def is_task_or_told(text: str) -> None:
    try:
        task = parse_task(text)
    except TaskError as error:
        assert error.problems
        assert str(error)
        return
    comes_back(task)


def comes_back(task: Task) -> None:
    again = parse_task(dump_task(task))
    assert again == task
    assert again.content_hash == task.content_hash


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.text(alphabet="ab:-[]{}&*!|>'\"%@`#?,\n\t \\0~<=.\u2028\x85", max_size=60)))
@example("id: \ud800")
@example("? &a [*a]\n: b")
@example("!!timestamp x")
@example("a: !!bool maybe")
@example("a: !!float x")
@example("a: 0x")
@example("a: 1:60")
@example("a: 190:20:30")
@example("a: !!int x")
@example("a: 9999-99-99T99:99:99Z")
@example("a: 0001-01-01T00:00:00+23:59")
@example("a: " + "9" * 5000)
@example("a: " + "{" * 3000)
@example("%YAML 9.9\n---\na")
@example("&a *a")
def test_no_text_crashes_the_reader(text: str) -> None:
    is_task_or_told(text)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_no_yaml_crashes_the_reader(value: Any) -> None:
    try:
        text = yaml.safe_dump(value, allow_unicode=True)
    except (yaml.YAMLError, UnicodeError):
        return
    is_task_or_told(text)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A task with some of its values, at any depth, replaced by others."""
    task: dict[str, Any] = {
        "id": "t",
        "intent": "x",
        "persona": {"role": "cook", "context": "c"},
        "tags": ["a"],
        "workspace": {"files": {"a": "x", "b": {"base64": "AA=="}, "c": {"symlink": "a"}}, "dirs": ["d"]},
        "budget": {"max_turns": 3, "command_seconds": 1.5, "turn_tokens": 9},
        "assertions": [
            {"kind": "file_contains", "path": "a", "contains": ["x"], "weight": 2},
            {"kind": "file_unchanged", "path": "a"},
            {"kind": "any_of", "of": [{"kind": "file_exists", "path": "z"}]},
            {"kind": "command", "command": "true"},
            {"kind": "script", "command": "true", "files": {"x.py": "1"}},
        ],
        "oracle": {"commands": ["ls"], "alternatives": [["ls"]], "answer": "yes"},
    }
    if draw(st.booleans()):
        task |= {
            "schema_version": 2,
            "metadata": {"source": "x", "level": [1]},
            "turns": 2,
            "parameters": {"n": 1, "seed": 0, "values": {"a": ["x", "y"], "b": {"min": 1, "max": 3}}},
            "intent": "{{a}}",
            "tags": ["{{b}}"],
            "oracle": {"commands": [{"run": "ls", "reads": {"c": "(x)"}}, "echo {{c}}"], "answer": "{{c}}"},
        }
    for _ in range(draw(st.integers(1, 2))):
        node: Any = task
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = draw(st.sampled_from(keys))
            if isinstance(node[key], dict | list) and node[key] and draw(st.booleans()):
                node = node[key]
                continue
            if isinstance(node, dict) and draw(st.integers(0, 5)) == 0:
                node[draw(st.one_of(WORDS, ANY_TEXT))] = node.pop(key)
            else:
                node[key] = draw(VALUES)
            break
    return task


@settings(max_examples=400, deadline=None)
@given(damaged())
def test_no_damaged_task_crashes_the_reader(value: dict[str, Any]) -> None:
    try:
        text = yaml.safe_dump(value, allow_unicode=True)
    except (yaml.YAMLError, UnicodeError):
        return
    is_task_or_told(text)


GOOD_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
PATHS = st.lists(st.text("abé ._-#:", min_size=1, max_size=8), min_size=1, max_size=3).map("/".join)
FILES = st.one_of(
    GOOD_TEXT,
    st.builds(lambda text, mode: {"text": text, "mode": mode}, GOOD_TEXT, st.sampled_from(["0755", "644", "0600"])),
    st.builds(lambda size: {"size": size}, st.integers(0, 9)),
    st.just({"base64": "AP8="}),
    st.builds(lambda target: {"symlink": target}, PATHS),
)


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "id": st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,20}\Z"),
            "intent": GOOD_TEXT,
            "workspace": st.fixed_dictionaries(
                {"files": st.dictionaries(PATHS, FILES, max_size=3), "dirs": st.lists(PATHS, max_size=2)}
            ),
            "assertions": st.lists(
                st.one_of(
                    st.builds(lambda path: {"kind": "file_exists", "path": path}, PATHS),
                    st.builds(
                        lambda path, text, name: {
                            "kind": "file_contains",
                            "path": path,
                            "contains": text,
                            "name": name,
                        },
                        PATHS,
                        st.lists(GOOD_TEXT, min_size=1, max_size=2),
                        GOOD_TEXT,
                    ),
                    st.builds(lambda path: {"kind": "not", "of": {"kind": "dir_exists", "path": path}}, PATHS),
                    st.builds(
                        lambda path, text: {"kind": "file_equals", "path": path, "equals": text}, PATHS, GOOD_TEXT
                    ),
                ),
                min_size=1,
                max_size=3,
            ),
        },
        optional={
            "persona": st.builds(lambda role, context: {"role": role, "context": context}, GOOD_TEXT, GOOD_TEXT),
            "tags": st.lists(GOOD_TEXT, max_size=2),
            "difficulty": st.sampled_from(["easy", "medium", "hard"]),
            "family": GOOD_TEXT,
            "split": st.sampled_from(["pool", "held_out"]),
            "budget": st.builds(
                lambda turns, time: {"max_turns": turns, "command_seconds": time},
                st.integers(1, 50),
                st.floats(0.001, 3600),
            ),
            "oracle": st.fixed_dictionaries(
                {"commands": st.lists(GOOD_TEXT, min_size=1, max_size=2)},
                optional={"answer": GOOD_TEXT, "alternatives": st.lists(st.lists(GOOD_TEXT, min_size=1), max_size=2)},
            ),
        },
    )
)
def test_what_the_schema_accepts_comes_back(value: dict[str, Any]) -> None:
    try:
        task = Task.model_validate(value)
    except ValueError:  # pydantic's own error: the schema does not accept it
        return
    comes_back(task)


@pytest.mark.parametrize("number", ["0x" + "f" * 9000, "9" * 9000, "1" + ":1" * 9000, "1." + "0" * 9000])
def test_a_number_of_thousands_of_digits_is_refused_with_its_line(number: str) -> None:
    text = f"id: a\nintent: b\nbudget: {{max_turns: {number}}}\nassertions: [{{kind: file_exists, path: b}}]\n"
    with pytest.raises(TaskError, match=r"a.yaml:3: budget.max_turns: is a number of \d+ characters"):
        parse_task(text, "a.yaml")
