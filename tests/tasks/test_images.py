"""By which ids images are known, in what is recorded and what is compared with a record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sandboxes import Backend, nodes
from sandboxes.docker import dockerfile
from tasks.images import image_ids, image_lines, other_images, recorded_images, refuse_missing_images
from tasks.model import TaskError
from tests.tasks.test_place import make

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
THERE = {"turngym-shell:mine": [A], "two:1": [A, B], "gone:1": []}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def ids(names: Iterable[str], **_: Any) -> dict[str, list[str]]:
        asked.extend(names)
        return {name: THERE.get(name, []) for name in asked}

    monkeypatch.setattr(dockerfile, "image_ids", ids)
    monkeypatch.setenv("TURNGYM_IMAGE", "turngym-shell:mine")
    return asked


def test_each_image_of_the_tasks_is_asked_for_once(engine: list[str]) -> None:
    tasks = [make(), make(image="two:1"), make(image="two:1"), make()]
    ids = image_ids(tasks, "docker")
    assert ids == {"turngym-shell:mine": [A], "two:1": [A, B]} and engine == list(ids)
    assert image_lines(ids | {"gone:1": []}) == [
        "image turngym-shell:mine: sha256:aaaaaaaaaaaa",
        "image two:1: sha256:aaaaaaaaaaaa and sha256:bbbbbbbbbbbb",
    ]


@pytest.mark.parametrize("name", [Backend.BUBBLEWRAP, "ray:landlock"])
def test_where_no_engine_is_asked_nothing_is_known(engine: list[str], name: str) -> None:
    assert image_ids([make(image="two:1")], name) == {} and engine == []
    assert refuse_missing_images([make(image="gone:1")], name) == {}


def test_on_a_cluster_the_engines_of_all_nodes_are_asked(engine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def two_nodes(ask: Callable[[], dict[str, list[str]]]) -> list[dict[str, list[str]]]:
        first = ask()
        return [first, {name: [B] * (name != "gone:1") for name in first}]

    monkeypatch.setattr(nodes, "on_each_node", two_nodes)
    assert image_ids([make(), make(image="two:1")], "ray:docker") == {"turngym-shell:mine": [A, B], "two:1": [A, B]}
    with pytest.raises(TaskError, match="the image 'gone:1' is not on this engine"):
        refuse_missing_images([make(image="gone:1")], "ray:docker")


def test_tasks_without_their_image_are_refused_each_by_its_id(engine: list[str]) -> None:
    recipe = {"text": "FROM two:1\n"}
    tasks = [make(), make(id="a", image="gone:1"), make(id="b", image="two:1"), make(id="c", dockerfile=recipe)]
    with pytest.raises(TaskError) as error:
        refuse_missing_images(tasks, "docker")
    assert [(problem.file, problem.key) for problem in error.value.problems] == [("a", "image"), ("c", "dockerfile")]
    assert "remedy: build or load it" in str(error.value) and "tasks check --build" in str(error.value)
    engine.clear()
    assert refuse_missing_images([tasks[0], tasks[2]], "docker") == {"turngym-shell:mine": [A], "two:1": [A, B]}
    assert engine == ["turngym-shell:mine", "two:1"]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"x:1": [A]}, {"x:1": [A]}, None),
        ({"x:1": [A, B]}, {"x:1": [B, A]}, None),
        ({}, {"x:1": [A]}, None),
        ({"x:1": [A]}, {}, None),
        ({"x:1": [A]}, {"x:1": []}, None),
        ({"x:1": [A], "y:1": [B]}, {"y:1": [B], "x:1": [B]}, "x:1 is sha256:bbbbbbbbbbbb, and was sha256:aaaaaaaaaaaa"),
        ({"x:1": ["a"]}, {"x:1": ["a", "b"]}, "x:1 is a and b, and was a"),
    ],
)
def test_another_id_of_the_same_name_is_one_line(before: Any, now: Any, said: str | None) -> None:
    lines = other_images(before, now)
    assert lines == [] if said is None else (len(lines) == 1 and lines[0].startswith(f"the image {said}: commands may"))


@pytest.mark.parametrize(
    ("text", "found"),
    [(json.dumps({"images": THERE}), THERE), ("{}", {}), ("[]", None), ('{"images": 1}', None), ("{", None)],
)
def test_a_record_is_read_or_said_to_be_damaged(text: str, found: Any, tmp_path: Path) -> None:
    assert recorded_images(tmp_path / "none") == {}
    (tmp_path / "environment.json").write_text(text)
    if found is None:
        with pytest.raises(ValueError):
            recorded_images(tmp_path / "environment.json")
    else:
        assert recorded_images(tmp_path / "environment.json") == found
