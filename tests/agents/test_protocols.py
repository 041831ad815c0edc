"""Whole episodes under both protocols: what is done and what is paid is the same, and each can be played again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.__main__ import main
from agents.chat_tools import template_of
from agents.policies.human import HumanPolicy
from agents.policies.openai import OpenAIPolicy
from agents.policies.scripted import ByteTokenizer, NoOpPolicy, OraclePolicy
from agents.policy import Policy, Sampling
from agents.replay import replay, template_for
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory, env_for, setting_of, write_jsonl
from envs import ClawGymEnv, ClawGymUserEnv
from envs.protocol import PROTOCOLS
from sandboxes.opening import probe
from sandboxes.pool import SandboxPool
from tasks.sources import load_tasks
from tasks.task import Task
from tests.agents.fakes import FakeEnv, task
from tests.agents.policies.fake_endpoint import endpoint, said
from tests.agents.policies.test_human import lines
from tests.agents.tool_templates import tool_tokenizer

TOOLS = PROTOCOLS["tools"]
needs_bubblewrap = pytest.mark.skipif(not probe("bubblewrap").ok, reason="bubblewrap does not work here")


def played(policy: Policy, env: Any, *tasks: Task) -> list[Trajectory]:
    with RolloutEngine(policy, env, slots=2, workers=2) as engine:
        return engine.run([Job(one, 0, 0) for one in tasks], Sampling(0.0, 4000)).trajectories


def facts(episode: Trajectory) -> dict[str, Any]:
    """What happened in it, whatever was said."""
    turns = [(turn.action, turn.command, turn.exit_code, turn.signal, turn.anchor) for turn in episode.turns]
    return {"reward": episode.reward, "rate": episode.rate, "passed": episode.passed, "turns": turns}


@needs_bubblewrap
@pytest.mark.parametrize(
    ("source", "count", "kind"),
    [
        ("library", 4, ClawGymEnv),
        ("generated:turns?n=3&seed=2", 3, ClawGymEnv),
        ("library:dialogues", 3, ClawGymUserEnv),
    ],
)
def test_oracle_and_no_op_get_the_same_rewards(source: str, count: int, kind: type[ClawGymEnv]) -> None:
    tasks = load_tasks(source)[:count]
    found = {}
    with SandboxPool("bubblewrap", 2) as sandboxes:
        for name in PROTOCOLS:
            env = lambda: kind([tasks[0]], sandbox=sandboxes, protocol=name, reward="delta")  # noqa: B023, E731
            found[name] = [facts(one) for one in played(OraclePolicy(), env, *tasks)]
            found[name] += [facts(one) for one in played(NoOpPolicy(), env, tasks[0])]
    assert found["text"] == found["tools"]
    assert [one["passed"] for one in found["tools"]] == [True] * count + [False]


@needs_bubblewrap
def test_an_episode_of_calls_is_played_again() -> None:
    [shell] = load_tasks("library")[:1]
    [episode] = played(OraclePolicy(), lambda: ClawGymEnv([shell], sandbox="bubblewrap", protocol="tools"), shell)
    assert episode.environment["protocol"] == "tools"
    template = template_for(episode, ByteTokenizer())
    assert template.fingerprint == episode.tokenizer
    again = replay(episode, shell, template=template, sandbox="bubblewrap")
    assert again.same_grade and again.ids_compared and again.differences == []


@needs_bubblewrap
@pytest.mark.parametrize("changed", [None, "mcp"])
def test_the_command_plays_episodes_of_other_tokenizers_again(
    changed: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [shell] = load_tasks("library")[:1]
    env = lambda: ClawGymEnv([shell], sandbox="bubblewrap", protocol="tools")  # noqa: E731
    [episode] = played(OraclePolicy(tool_tokenizer("hermes")), env, shell)
    episode.environment["protocol"] = changed or "tools"
    with open(tmp_path / "episodes.jsonl", "w") as file:
        write_jsonl([episode], file)
    assert main(["replay", str(tmp_path / "episodes.jsonl"), "--tasks", "library"]) == (2 if changed else 0)
    assert changed is None or "there is no protocol 'mcp'" in " ".join(capsys.readouterr().out.split())


def test_records_of_the_text_protocol_do_not_name_it() -> None:
    shell = load_tasks("library")[0]
    for name in PROTOCOLS:
        env = ClawGymEnv([shell], task=shell.id, protocol=name)
        env._choose(0, None)
        setting = setting_of(env)
        assert setting.get("protocol", "text") == name and ("protocol" in setting) == (name == "tools")
        again = env_for(shell, setting, "local")
        assert again.protocol is env.protocol and again.prompt_hash == env.prompt_hash


def test_a_person_types_blocks_and_they_are_calls() -> None:
    typed = lines("$ echo one", "Well.", ".", "```bash", "echo two", "```", ".", "It is 2.", "TASK_COMPLETE", ".")
    policy = HumanPolicy(read=typed, write=lambda text: None)
    [episode] = played(policy, lambda: FakeEnv(protocol="tools"), task())
    assert [(turn.action, turn.command) for turn in episode.turns] == [
        ("command", "echo one"), ("malformed", None), ("command", "echo two"), ("submit", None),
    ]  # fmt: skip
    assert TOOLS.parse(episode.turns[-1].reply) == TOOLS.parse(TOOLS.submission("It is 2."))
    gone = HumanPolicy(read=lines(), write=lambda text: None)
    assert played(gone, lambda: FakeEnv(protocol="tools"), task())[0].turns[0].action == "submit"


# -- A chat endpoint with tools ----------------------------------------------------------------------------------------


def call(name: str, arguments: Any, number: int = 0) -> dict[str, Any]:
    return {"id": f"id-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def at_endpoint(*answers: dict[str, Any], **settings: Any) -> tuple[Trajectory, list[dict[str, Any]]]:
    """An episode at an endpoint that gives these answers in turn, and what it was asked."""
    given = iter(answers)
    with endpoint(lambda body: next(given)) as server:
        policy = OpenAIPolicy("tiny", base_url=server.url)
        env = lambda: FakeEnv(protocol=settings.pop("protocol", "tools"), **settings)  # noqa: E731
        [episode] = played(policy, env, task(budget={"max_turns": len(answers)}))
    return episode, server.asked


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_an_endpoint_is_offered_tools_and_gets_results() -> None:
    first, second = '{"command": "echo one"}', '{ "command":"echo \\"two\\"\\n" }'
    episode, asked = at_endpoint(
        said(None, "tool_calls", tool_calls=[call("bash", first)]),
        said("Now two.", "stop", tool_calls=[call("bash", second, 1)]),
        said(None, "tool_calls", tool_calls=[call("submit", "{}", 2)]),
    )
    assert [(turn.action, turn.command) for turn in episode.turns] == [
        ("command", "echo one"), ("command", 'echo "two"\n'), ("submit", None),
    ]  # fmt: skip
    assert episode.passed is True
    assert all(body["tools"] == [tool.schema() for tool in TOOLS.tools] for body in asked)
    assert asked[0]["messages"] == [{"role": "user", "content": "Say one and two."}]
    assert asked[2]["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [call("bash", first)]},
        {"role": "tool", "tool_call_id": "id-0", "content": "ok echo one"},
        {"role": "assistant", "content": "Now two.",
         "tool_calls": [call("bash", '{"command": "echo \\"two\\"\\n"}', 1)]},
        {"role": "tool", "tool_call_id": "id-1", "content": 'ok echo "two"\n'},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "kind", "calls"),
    [
        (said(None, "tool_calls", tool_calls=[call("bash", '{"command": 1}')]), "bad_arguments", 1),
        (said(None, "tool_calls", tool_calls=[call("bash", "")]), "bad_arguments", 1),
        (said(None, "tool_calls", tool_calls=[call("bash", {"cmd": "ls"})]), "bad_arguments", 1),
        (said(None, "tool_calls", tool_calls=[call("python", "{}")]), "unknown_tool", 1),
        (said(None, "tool_calls", tool_calls=[call("bash", "{}"), call("submit", "{}", 1)]), "several_calls", 2),
        # What it may refuse to take back is text: the episode would end without a grade.
        (said(None, "tool_calls", tool_calls=[call("bash", '{"command": ')]), "bad_arguments", 0),
        (said(None, "length", tool_calls=[call("bash", '{"command": "echo')]), "bad_arguments", 0),
        (said(None, "tool_calls", tool_calls=[call("bash", '{"command": 1e999}')]), "bad_arguments", 0),
        (said(None, "tool_calls", tool_calls=[call("bash<|channel|>json", "{}")]), "unknown_tool", 0),
        (said("I am done."), "no_call", 0),
        (said("<tool_call>{"), "unclosed_call", 0),
    ],
)
def test_what_a_model_gets_wrong_is_an_observation_for_each_of_its_calls(
    answer: dict[str, Any], kind: str, calls: int
) -> None:
    episode, asked = at_endpoint(answer, said(None, "tool_calls", tool_calls=[call("submit", None, 9)]))
    assert [turn.action for turn in episode.turns] == ["malformed", "submit"]
    assert TOOLS.parse(episode.turns[0].reply).kind == kind  # type: ignore[union-attr]
    reply, *results = asked[1]["messages"][1:]
    sent = reply.get("tool_calls", [])
    assert len(sent) == calls and all(isinstance(json.loads(one["function"]["arguments"]), dict) for one in sent)
    assert [one.get("tool_call_id") for one in results] == ([one["id"] for one in sent] or [None])
    assert {one["role"] for one in results} == {"tool" if calls else "user"}


def test_calls_without_a_name_get_one() -> None:
    nameless = {"type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    _, asked = at_endpoint(*[said(None, "tool_calls", tool_calls=[nameless])] * 3)
    named = [one["tool_calls"][0]["id"] for one in asked[2]["messages"] if one["role"] == "assistant"]
    answered = [one["tool_call_id"] for one in asked[2]["messages"] if one["role"] == "tool"]
    assert named == answered and len(set(named)) == 2


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"tool_calls": [{"function": {"arguments": "{}"}}]}, "without a function's name"),
        ({"tool_calls": [call("bash", 3)]}, "without a function's name"),
        ({"tool_calls": ["bash"]}, "without a function's name"),
        ({}, "sent no call"),
    ],
)
def test_what_a_server_gets_wrong_is_no_reply(message: dict[str, Any], why: str) -> None:
    episode, _ = at_endpoint(said(None, "tool_calls", **message), said("never asked"))
    assert episode.stop_reason == "infrastructure" and why in (episode.error or "")


def test_a_call_that_nobody_offered_stays_an_error_and_text_stays_text() -> None:
    unasked = said(None, "tool_calls", tool_calls=[call("bash", "{}")])
    episode, _ = at_endpoint(unasked, said("never asked"), protocol="text")
    assert "none was offered" in (episode.error or "")
    episode, asked = at_endpoint(said(TOOLS.command("ls")), said("TASK_COMPLETE"), protocol="text")
    assert [set(one) for one in asked[1]["messages"]] == [{"role", "content"}] * 3 and "tools" not in asked[1]


def test_tools_are_no_keys_for_the_caller() -> None:
    with pytest.raises(ValueError, match="extra holds tools"):
        OpenAIPolicy("tiny", base_url="http://h/v1", extra={"tools": []})
    assert template_of(ByteTokenizer(), None, TOOLS).first("", "a")
