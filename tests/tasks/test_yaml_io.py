from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.model import TaskError
from tasks.proof import Status, prove
from tasks.sources import load_tasks
from tasks.task import Task
from tasks.yaml import dump_task, load_task, parse_task
from tests.tasks.fake_sandbox import FakeSandbox

FULL = """\
id: demo
intent: |
  do it
persona: {role: cook, context: in a hurry}
tags: [a, b]
difficulty: hard
split: held_out
workspace:
  files:
    a.txt: |
      hello
      world
    run.sh: {text: "#!/bin/sh\\necho\\n", mode: "0755"}
    b.bin: {base64: "AAEC"}
    l: {symlink: a.txt}
    "yes": "1"
  dirs: [out/]
budget: {max_turns: 5, command_seconds: 2}
assertions:
  - {kind: file_exists, path: out/x}
  - {kind: file_not_exists, path: y}
  - {kind: file_contains, path: a.txt, contains: "yes"}
  - {kind: file_contains, path: a.txt, contains: ["1", "2"], weight: 2}
  - {kind: file_matches, path: a.txt, pattern: '(?m)^x$'}
  - {kind: file_unchanged, path: a.txt, name: keep}
oracle:
  commands:
    - cp a.txt out/x
    - |
      cat > y <<'E'
      a
      E
"""


def test_a_duplicate_key_does_not_hide_the_other_problems_of_its_file() -> None:
    text = FULL.replace("difficulty: hard", "difficulty: hardest").replace(
        "budget: {max_turns: 5", "budget: {max_turns: 0"
    )
    with pytest.raises(TaskError) as caught:
        parse_task(text + "persona: {role: baker}\nodd: 1\n", "t.yaml")
    keys = [problem.key for problem in caught.value.problems]
    assert keys[0] == "persona" and {"difficulty", "budget.max_turns", "odd"} <= set(keys)
    with pytest.raises(TaskError) as caught:
        parse_task(FULL + "persona: {roll: baker}\n", "t.yaml")  # which of the two was meant is not known: one problem
    assert [problem.key for problem in caught.value.problems] == ["persona"]


def test_a_whole_file() -> None:
    task = parse_task(FULL)
    assert task.intent == "do it"
    assert task.files()["a.txt"].content == b"hello\nworld\n"
    assert task.oracle is not None
    assert task.oracle.commands[1] == "cat > y <<'E'\na\nE\n"
    assert task.budget.command_seconds == 2.0


def test_written_and_read_back_it_is_the_same() -> None:
    task = parse_task(FULL)
    text = dump_task(task)
    assert parse_task(text) == task
    assert dump_task(parse_task(text)) == text
    assert "hello\n      world" in text  # a literal block, not an escaped line
    assert "contains: 'yes'" in text


@pytest.mark.parametrize("spec", ["library", "generated:quickstart?n=60&seed=3"])
def test_all_tasks_survive_the_round_trip(spec: str) -> None:
    for task in load_tasks(spec):
        again = parse_task(dump_task(task))
        assert again == task
        assert again.content_hash == task.content_hash


@example("\x85", "0")
@example("a\u2028b", " ")
@example("\r\n", "a: b")
@example("  x\n\n", "# y")
@settings(max_examples=150, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(min_size=1, max_size=20, alphabet="aé: #'\"-yn0{[&*!|>%@`"),
)
def test_any_text_survives_the_round_trip(content: str, word: str) -> None:
    task = Task.model_validate(
        {
            "id": "t",
            "intent": "x",
            "workspace": {"files": {"f": content}},
            "assertions": [{"kind": "file_contains", "path": "f", "contains": [content, word], "name": word}],
        }
    )
    assert parse_task(dump_task(task)) == task


def test_crlf_files_are_read_as_plain_lines_and_say_so(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_bytes(FULL.replace("\n", "\r\n").encode())
    with caplog.at_level(logging.WARNING):
        task = load_task(path)
    assert task == parse_task(FULL)
    assert f"{path} has CRLF line endings" in caplog.text


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + FULL.encode())
    assert load_task(path) == parse_task(FULL)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty: `python -m tasks new NAME`"),
        (b"# nothing\n", "is empty"),
        (b"- a\n", "a task is a mapping"),
        (b"id: x\nintent: \xff\n", "t.yaml:2: is not UTF-8 text"),
        (b'id: x\nintent: "\\ud800"\n', "t.yaml"),
    ],
)
def test_files_that_are_no_task(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_bytes(content)
    with pytest.raises(TaskError) as caught:
        load_task(path)
    assert words in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot be read: No such file"):
        load_task(tmp_path / "none.yaml")


def test_the_example_of_the_documentation_is_a_proven_task() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    task = parse_task(text.split("```yaml\n")[1].split("```")[0])
    with FakeSandbox() as sandbox:
        assert prove(task, sandbox).status is Status.PROVEN
