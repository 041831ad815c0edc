"""The examples of docs/agents.md, docs/vllm.md and docs/endpoints.md run, with no names but their own."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agents.chat import ChatTemplate, Conversation
from agents.policies.scripted import ByteTokenizer
from agents.policy import Request, Sampling
from sandboxes import probe
from tests.agents.policies.fake_endpoint import endpoint, said
from tests.agents.policies.vllm.fake import Fake, running
from tests.shared_data import REPOSITORY

PAGE = (REPOSITORY / "docs" / "agents.md").read_text(encoding="utf-8")
BLOCK = r"^```python\n(.*?)^```$"
EXAMPLES = re.findall(BLOCK, PAGE, re.MULTILINE | re.DOTALL)


def test_the_first_example_passes_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    if not (probe("bubblewrap").ok or probe("landlock").ok):
        pytest.skip("no safe sandbox works here")
    exec(compile(EXAMPLES[0], "docs/agents.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and all(line.endswith("submitted True") for line in lines)


def test_the_monitor_says_when_an_agent_is_stuck(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = (code for code in EXAMPLES if "Monitor(" in code)
    exec(compile(example, "docs/agents.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "escalate: entropy has moved by less than 0.05 for 3 turns",
        "True 3",
    ]


def test_the_second_example_makes_a_policy() -> None:
    names: dict[str, object] = {}
    exec(compile(EXAMPLES[1], "docs/agents.md", "exec"), names)
    assert "policy" in names


def test_the_example_of_a_progress_bar_goes_on_from_the_first() -> None:
    if not (probe("bubblewrap").ok or probe("landlock").ok):
        pytest.skip("no safe sandbox works here")
    (example,) = [text for text in EXAMPLES if "RolloutProgress" in text]
    names: dict[str, object] = {}
    for code in (EXAMPLES[0], example):
        exec(compile(code, "docs/agents.md", "exec"), names)


def test_the_example_of_a_vllm_server_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda folder: ByteTokenizer())
    with running(Fake()) as fake:
        names = run("vllm", "http://127.0.0.1:8000", fake.url)
    reply: Any = names["reply"]
    assert len(fake.sampled) == 1 and 1 <= len(reply.ids) <= 8


def test_the_example_of_an_endpoint_makes_a_policy() -> None:
    with endpoint(lambda body: said("ok")) as server:
        policy: Any = run("endpoints", "https://api.openai.com/v1", server.url)["policy"]
        conversation = Conversation(ChatTemplate(ByteTokenizer()))
        conversation.start("", "hi")
        assert policy.complete([Request("a", conversation.ids, 0)], Sampling(0.0, 8))


def run(page: str, address: str, instead: str) -> dict[str, Any]:
    """The Python of a page, all blocks in one go, against a played server; what it has defined."""
    text = (REPOSITORY / "docs" / f"{page}.md").read_text(encoding="utf-8").replace(address, instead)
    names: dict[str, Any] = {}
    for code in re.findall(BLOCK, text, re.MULTILINE | re.DOTALL):
        exec(compile(code, f"docs/{page}.md", "exec"), names)
    return names
