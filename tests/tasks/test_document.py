from __future__ import annotations

import pytest

from tasks.document import dotted, parse


def problems(text: str) -> list[str]:
    return [str(problem) for problem in parse(text, "f.yaml").problems]


def test_plain_data_with_lines_and_spelling() -> None:
    document = parse("a: 1\nb:\n  - x: yes\n  - 0755\n", "f.yaml")
    assert document.problems == []
    assert document.data == {"a": 1, "b": [{"x": True}, 493]}
    assert document.lines[("b", 0, "x")] == 3
    assert document.raw[("b", 0, "x")] == "yes"
    assert document.raw[("b", 1)] == "0755"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: the key 'a' stands here twice (first in line 1)"),
        ("a:\n  b: 1\n  b: 2\n", "f.yaml:3: a.b: the key 'b' stands here twice (first in line 2)"),
        ("on: x\n", 'the key `on` is not read as text: put it in quotes: "on"'),
        ("1: x\n", 'put it in quotes: "1"'),
        ("? [a]\n: x\n", "the key `?` is not read as text"),
        ("a: 1\n---\nb: 2\n", "a file of its own"),
        ("a:\n\tb: 1\n", "f.yaml:2: not valid YAML"),
        ("a: b: c\n", "put a text that holds `: ` in quotes"),
        ("a: @x\n", "put text that starts with @"),
        ("a: [1\n", "not valid YAML"),
        ("a: !!python/object:os.system {}\n", "f.yaml:1: a: YAML tags such as !!python/object:os.system are not used"),
        ("a: !!binary AAEC\n", "YAML tags such as !!binary are not used"),
        ("a: !!set {x}\n", "YAML tags such as !!set are not used"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "merge keys"),
        ("a: &x [*x]\n", "repeats without end"),
        ("a: 2024-99-99\n", "put it in quotes"),
        ("a: " + "[" * 5000 + "\n", "not valid YAML|nested too deeply"),
    ],
)
def test_surprises_are_refused(text: str, words: str) -> None:
    found = problems(text)
    assert any(choice in found[0] for choice in words.split("|")), found


def test_every_problem_of_a_file_is_listed() -> None:
    assert len(problems("a: 1\na: 2\non: 3\nb: !!binary AA==\n")) == 3


def test_anchors_may_repeat_a_value_but_not_explode() -> None:
    assert parse("a: &x [1]\nb: *x\n", "f").data == {"a": [1], "b": [1]}
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    assert "repeats without end" in problems(bomb)[0]


def test_places_are_written_as_people_do() -> None:
    assert dotted(("assertions", 1, "path")) == "assertions[1].path"
    assert dotted(()) == ""
