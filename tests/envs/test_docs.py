"""The examples of docs/envs.md run, and print what the page says."""

from __future__ import annotations

import re

import pytest

from sandboxes import probe
from tests.shared_data import REPOSITORY

PAGE = (REPOSITORY / "docs" / "envs.md").read_text(encoding="utf-8")


def examples() -> list[str]:
    # The first example holds fences, so it stands in a longer one.
    return [text for _, text in re.findall(r"^(`{3,})python\n(.*?)^\1$", PAGE, re.MULTILINE | re.DOTALL)]


@pytest.fixture(autouse=True)
def needs_a_sandbox() -> None:
    if not (probe("bubblewrap").ok or probe("landlock").ok):
        pytest.skip("no safe sandbox works here")


@pytest.mark.parametrize("which", [0, 1, 2, 3], ids=["shell", "tools", "question", "user"])
def test_the_worked_examples_print_what_the_page_says(which: int, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(examples()[which], "docs/envs.md", "exec"), {})
    shown = capsys.readouterr().out
    promised = PAGE.split("```text\n")[which + 1].partition("\n```")[0]
    for line in promised.split("\n"):
        assert line.removesuffix("...") in shown, line


def test_the_vector_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(examples()[4], "docs/envs.md", "exec"), {})
    assert capsys.readouterr().out.startswith("[False False]")


def test_the_wrapper_example_prints_a_graded_end(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(examples()[5], "docs/envs.md", "exec"), {})
    reward, *rest = capsys.readouterr().out.split()
    assert rest == ["True", "max_turns", "False"] and float(reward) != 0
