"""What a reply asks for where the agent answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs import answer_actions
from envs.actions import Command, Malformed, MalformedKind, Submit
from envs.answer_actions import STOP_LOOKS, read_answer, stop_at
from envs.questions import GSM8KEnv
from tests.envs.fakes import bash

STOPS = GSM8KEnv.default_stops


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("It is 5.\n#### 5", "It is 5.\n#### 5"),
        ("<think>```bash\nls\n```</think>\n#### 5", "#### 5"),
        ("a thought that the prompt opened</think>#### 5", "#### 5"),
        ("```json\n{}\n```", "```json\n{}\n```"),
        ("```\n{}\n```", "```\n{}\n```"),  # a block without a tag belongs to the answer
        ("```python\nprint(1)", "```python\nprint(1)"),  # not closed, but none for the shell
        ("inline ``` ticks ```", "inline ``` ticks ```"),
        ("#### 5\r\nso", "#### 5\nso"),
        ("#### 5\nTASK_COMPLETE", "#### 5"),
        ("#### 5\n TASK_COMPLETE \n#### 6", "#### 5"),
        ("TASK_COMPLETE\n#### 5", "#### 5"),
        ("```json\nTASK_COMPLETE\n```", "```json\nTASK_COMPLETE\n```"),
        ("TASK_COMPLETE", ""),
        ("the word TASK_COMPLETE inside", "the word TASK_COMPLETE inside"),
    ],
)
def test_answers(reply: str, answer: str) -> None:
    assert read_answer(reply).action == Submit(answer)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("", MalformedKind.EMPTY),
        (" \n ", MalformedKind.EMPTY),
        ("<think>only</think>", MalformedKind.EMPTY),
        ("<think>on and on", MalformedKind.UNCLOSED_THINK),
        ("```bash\nls", MalformedKind.UNCLOSED_FENCE),
        (f"{bash('ls')}\n{bash('pwd')}", MalformedKind.SEVERAL_BLOCKS),
        ("```bash ls```", MalformedKind.ONE_LINE_FENCE),
        ("```bash -x\nls\n```", MalformedKind.ONE_LINE_FENCE),
        ("```sh\n# nothing\n```", MalformedKind.EMPTY_BLOCK),
        (bash("TASK_COMPLETE"), MalformedKind.STOP_WORD_IN_BLOCK),
        (bash("echo \0"), MalformedKind.NOT_TEXT),
        ("\ud800", MalformedKind.NOT_TEXT),
    ],
)
def test_malformed(reply: str, kind: MalformedKind) -> None:
    action = read_answer(reply).action
    assert isinstance(action, Malformed) and action.kind is kind and action.reason


def test_commands() -> None:
    assert read_answer(f"Let me see.\n{bash('ls')}").action == Command("ls", False, f"Let me see.\n{bash('ls')}")
    both = read_answer(f"{bash('ls')}\n#### 5\nTASK_COMPLETE").action
    assert both == Command("ls", True, f"{bash('ls')}\n#### 5")
    beside = read_answer(f"```json\n{{}}\n```\n{bash('ls')}").action
    assert isinstance(beside, Command) and beside.text == "ls"


def test_without_tools_every_reply_is_the_answer() -> None:
    for reply in (bash("ls"), f"{bash('ls')}\n{bash('pwd')}", "```bash\nls", "```bash ls```"):
        assert read_answer(reply, tools=False).action == Submit(reply)
    assert read_answer("#### 5\nTASK_COMPLETE", tools=False).action == Submit("#### 5")
    empty = read_answer("", tools=False).action
    assert isinstance(empty, Malformed) and empty.kind is MalformedKind.EMPTY


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ("#### 5\n\nQuestion: How many?\nAnswer: 9\n#### 9", "#### 5\n"),
        ("#### 5\nQ: next", "#### 5"),
        ("#### 5\n\n\nmore", "#### 5"),
        ("#### 5</s>#### 6", "#### 5"),
        ("#### 5<|im_end|>\n#### 6", "#### 5"),
        ("Question: again\n#### 5", "Question: again\n#### 5"),  # only behind something, and at the start of a line
        ("The FAQ: Question: is 5\n#### 5", "The FAQ: Question: is 5\n#### 5"),
        ("<think>a\n\n\nb\nQuestion: c</think>\n#### 5", "<think>a\n\n\nb\nQuestion: c</think>\n#### 5"),
    ],
)
def test_a_reply_ends_at_the_first_stop_sequence(reply: str, kept: str) -> None:
    assert reply[: stop_at(reply, STOPS)] == kept
    reading = read_answer(reply, STOPS)
    assert reading.after == len(reply) - len(kept)


def test_a_stop_sequence_inside_a_closed_block_cuts_nothing() -> None:
    code = "def f():\n    pass\n\n\nprint('''\nQuestion: ''')"
    reading = read_answer(f"Run\n{bash(code)}\n\n\nQuestion: x", STOPS)
    assert isinstance(reading.action, Command) and reading.action.text == code
    assert reading.after == len("\n\n\nQuestion: x")
    left_open = read_answer(f"#### 5\n\nQuestion: x\n```bash\n{code}", STOPS)  # what follows the answer is not read
    assert left_open.action == Submit("#### 5")


def test_a_reply_is_taken_apart_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    whole = answer_actions.take_apart
    monkeypatch.setattr(answer_actions, "take_apart", lambda text: looks.append(len(text)) or whole(text))
    read_answer("```python\na\n\n\nb\n```\n" * 500, STOPS)
    assert len(looks) <= 2 * STOP_LOOKS + 1


def test_a_reply_that_was_cut_is_no_answer_unless_it_was_whole_before() -> None:
    cut = read_answer("so it is 1", whole=False).action
    assert isinstance(cut, Malformed) and cut.kind is MalformedKind.CUT
    assert read_answer("#### 5\nQuestion: and", STOPS, whole=False).action == Submit("#### 5")
    assert read_answer("#### 5\nTASK_COMPLETE\nand", whole=False).action == Submit("#### 5")
    assert isinstance(read_answer(f"{bash('ls')}\nand then", whole=False).action, Command)


@given(st.text(alphabet="a`~\n#<think>/bshTASK_COMPLE QA:", max_size=200), st.booleans(), st.booleans())
def test_never_raises_and_loses_nothing(reply: str, tools: bool, whole: bool) -> None:
    reading = read_answer(reply, STOPS, tools=tools, whole=whole)
    assert 0 <= reading.after <= len(reply)
    if isinstance(reading.action, Submit):
        assert reading.action.text == reading.action.text.strip() and reading.action.text in reply.replace("\r\n", "\n")
