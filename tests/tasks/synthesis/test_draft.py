"""What a model is asked, and what of its reply may become a task."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest

from tasks.assertions.base import AssertionKind
from tasks.endpoints.chat import Reply
from tasks.model import TaskError
from tasks.synthesis import proving
from tasks.synthesis.draft import (
    PERSONAS,
    SKILLS,
    Order,
    PersonaRow,
    Personas,
    Refused,
    SkillRow,
    Skills,
    load_table,
    orders,
    prompt_of,
    prompter,
    read_draft,
)
from tests.tasks.fake_sandbox import FakeSandbox
from tests.tasks.synthesis.drafts import task

ORDER = Order(7, PersonaRow(name="miller", role="miller", context="grinds $5 flour"), SkillRow(name="a-b", what="c"), 3)


def test_the_tables_that_ship_give_every_pair_once_in_an_order_of_the_seed() -> None:
    personas, skills = load_table(PERSONAS, Personas).personas, load_table(SKILLS, Skills).skills
    n = len(personas) * len(skills)
    assert n >= 200 and len({row.role for row in personas}) == len(personas)
    drawn = [list(islice(orders(personas, skills, seed), 2 * n)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    for half in (drawn[0][:n], drawn[0][n:]):
        assert len({(order.persona.name, order.skill.name) for order in half}) == n
    assert [order.index for order in drawn[0]] == list(range(2 * n))
    assert len({order.task_id for order in drawn[0]}) == len({order.seed for order in drawn[0]}) == 2 * n


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("personas: [{name: a, role: b, contxt: c}]", r"p\.yaml:1: personas\[0\]\.contxt: unknown key"),
        ("personas: [{name: ../a, role: b}]", r"personas\[0\]\.name"),
        ("personas: []", "is empty"),
        ("skills: [{name: a, what: b}]", "unknown key 'skills'"),
        ("personas: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text + "\n")
    with pytest.raises(TaskError, match=said):
        load_table(tmp_path / "p.yaml", Personas)


def test_the_prompt_names_who_asks_what_for_and_shows_a_draft_that_would_be_taken() -> None:
    prompt = prompt_of(prompter(), ORDER)
    assert "Who asks: miller, who grinds $5 flour.\nWhat the task is about: a-b (c)." in prompt
    assert {kind for kind in re.findall(r"kind: (\w+)", prompt)} <= set(map(str, AssertionKind))
    shown = prompt[prompt.index("```yaml\nid:") : prompt.rindex("\n\nAnswer with")]
    assert proving.judge(Reply(shown), ORDER, FakeSandbox).verdict == proving.PROVEN


def test_a_draft_becomes_a_task_of_its_order_whatever_it_calls_itself() -> None:
    text = task(id="other", persona={"role": "king", "context": "x"}, tags=["mine"])
    found = read_draft(Reply(f"<think>\n```\nno draft\n```\n</think>\n{text}Good luck!"), ORDER)
    assert (found.id, found.tags) == ("synth-miller-a-b-0007", ("synthesised", "a-b"))
    assert found.persona is not None and (found.persona.role, found.persona.context) == ("miller", "grinds $5 flour")
    assert read_draft(Reply(text.replace("\n", "\r\n")), ORDER) == found


@pytest.mark.parametrize("shown", [True, False])
def test_details_of_a_draft_are_bounded(shown: bool) -> None:
    keys = {f"key{number}": 1 for number in range(100)} if shown else {"k" * 30_000: 1}
    found = proving.judge(Reply(task(**keys)), ORDER, FakeSandbox)
    assert found.verdict == "schema" and len(found.details) <= proving.DETAILS
    assert max(map(len, found.details)) <= proving.CHARACTERS


def test_a_refusal_carries_its_reason() -> None:
    with pytest.raises(Refused) as refused:
        read_draft(Reply(task(split="pool")), ORDER)
    assert (refused.value.reason, refused.value.details) == ("bounds", ("split: not taken in a draft",))
