"""Shell tasks under both protocols: one task, two ways to say what to do, the same turns and rewards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import pytest

from envs import ClawGymEnv, ClawGymUserEnv, MixedEnv
from envs.calls import parse_call
from envs.episode import CutReply
from envs.prompts import Standard
from envs.protocol import PROTOCOLS, Protocol, protocol
from tests.envs.fakes import FakeSandboxes, task
from tests.envs.test_calls import HARD, broken
from tests.envs.test_user import with_user

TEXT, TOOLS = PROTOCOLS["text"], PROTOCOLS["tools"]
UNREADABLE = {"text": "I am sure.", "tools": "<tool_call>{"}


def make(spoken: Protocol | str = TOOLS, **settings: Any) -> ClawGymEnv:
    name = spoken if isinstance(spoken, str) else spoken.name
    return ClawGymEnv([task()], **{"prompt_style": "compact", "protocol": name, **settings})


def play(env: ClawGymEnv, replies: Sequence[str]) -> list[tuple[Any, ...]]:
    """What each reply did and paid; the actions and observations of an episode."""
    env.reset(seed=0)
    out = []
    for reply in replies:
        observation, reward, terminated, truncated, info = env.step(reply)
        out.append((observation, reward, terminated, truncated, info["action"], info["command"], info["signal"]))
    env.close()
    return out


@pytest.mark.parametrize("reward", ["shaped", "binary", "delta"])
def test_the_same_turns_do_and_pay_the_same(sandboxes: FakeSandboxes, reward: str) -> None:
    def said(spoken: Protocol) -> list[str]:
        commands = ["cat notes.txt", HARD, "echo hello > greeting.txt"]
        return [*map(spoken.command, commands), spoken.submission()]

    text, tools = (play(make(spoken, reward=reward), said(spoken)) for spoken in (TEXT, TOOLS))
    assert text == tools
    assert text[-1][2:5] == (True, False, "submit")


@pytest.mark.parametrize("reward", ["shaped", "binary", "delta"])
@pytest.mark.parametrize("before", [0, 2])
def test_an_unreadable_call_is_no_way_out(sandboxes: FakeSandboxes, reward: str, before: int) -> None:
    # It costs what an unreadable reply costs under the other protocol, and never pays more than to go on or to submit.
    text, tools = (
        play(
            make(spoken, reward=reward),
            [UNREADABLE[spoken.name]] * before + [spoken.command("touch trash"), spoken.submission()],
        )
        for spoken in (TEXT, TOOLS)
    )
    assert [turn[1:] for turn in text] == [turn[1:] for turn in tools]
    malformed = play(make(reward=reward), [UNREADABLE["tools"]] * 4)
    submitted = play(make(reward=reward), [TOOLS.submission()])
    assert sum(turn[1] for turn in malformed) <= sum(turn[1] for turn in submitted)
    assert malformed[-1][2:5] == (False, True, "malformed")


def test_a_thousand_broken_calls_are_observations(sandboxes: FakeSandboxes) -> None:
    draw, count = random.Random(0), 1000
    env = make(max_turns=count + 2)
    env.reset(seed=0)
    for _ in range(count):
        reply = broken(draw)
        observation, reward, terminated, truncated, info = env.step(reply)
        assert info["action"] == "malformed", reply
        assert observation.startswith("error: ") and len(observation) < 150 and "\n" not in observation
        assert (reward, terminated, truncated, info["signal"]) == (0.0, False, False, 0.0)
    assert sum(info["malformed"].values()) == count and len(info["malformed"]) >= 5
    assert all("run" not in sandbox.calls for sandbox in sandboxes.all)
    env.step(TOOLS.command("echo hello > greeting.txt"))
    assert env.step(TOOLS.submission())[4]["passed"] is True
    env.close()


def test_a_cut_reply_acts_by_the_calls_that_are_whole_in_it(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset(seed=0)
    assert env.step(CutReply(TOOLS.command("ls")))[4]["action"] == "command"
    assert env.step(CutReply(TOOLS.command("ls")[:-3]))[4]["malformed"] == {"unclosed_call": 1}
    env.close()


@pytest.mark.parametrize("spoken", PROTOCOLS.values(), ids=PROTOCOLS)
def test_the_answer_of_a_submission_is_the_final_message(sandboxes: FakeSandboxes, spoken: Protocol) -> None:
    asked = task(assertions=[{"kind": "number_equals", "gold": "42"}])
    env = ClawGymEnv([asked], protocol=spoken.name)
    env.reset(seed=0)
    assert env.step(spoken.submission("#### 42"))[4]["passed"] is True
    env.close()


@pytest.mark.parametrize("style", ["standard", "compact"])
@pytest.mark.parametrize("kind", [ClawGymEnv, ClawGymUserEnv])
def test_prompts_speak_of_one_protocol(sandboxes: FakeSandboxes, style: str, kind: type[ClawGymEnv]) -> None:
    given = task() if kind is ClawGymEnv else with_user()
    envs = {name: kind([given], prompt_style=style, protocol=name) for name in PROTOCOLS}
    said = {}
    for name, env in envs.items():
        env.reset(seed=0)
        bad = env.step(UNREADABLE["tools" if name == "tools" else "text"] if kind is ClawGymEnv else "<tool_call>{")[0]
        said[name] = env.system_prompt + bad
        env.close()
    assert "TASK_COMPLETE" not in said["tools"] and "```" not in said["tools"] and "block" not in said["tools"]
    assert "submit`" not in said["text"]
    assert len({env.prompt_hash for env in envs.values()}) == 2
    assert {env.style.name for env in envs.values()} == {style}
    assert kind([given], prompt_style=style).prompt_hash == envs["text"].prompt_hash


def test_a_style_of_ones_own_is_told_the_protocol() -> None:
    class Own(Standard):
        name = "own"

    own = Own()
    assert make("text", prompt_style=own).style is own
    env = make(prompt_style=own)
    assert env.style.name == "own" and env.style.words is TOOLS.words and own.words is TEXT.words


def test_where_a_user_answers_a_reply_without_a_call_is_a_message(sandboxes: FakeSandboxes) -> None:
    env = ClawGymUserEnv([with_user()], protocol="tools")
    env.reset(seed=0)
    observation, *_, info = env.step("Which word?")
    assert observation == "The user says:\nWrite hello." and info["action"] == "message"
    env.step(TOOLS.command("echo hello > greeting.txt; touch trash"))
    assert env.step(UNREADABLE["tools"])[4]["malformed"] == {"unclosed_call": 1}
    *_, info = env.step(TOOLS.submission())
    assert info["passed"] is True
    env.close()


def test_the_tools_are_offered_as_templates_and_endpoints_take_them() -> None:
    bash, submit = (tool.schema() for tool in TOOLS.tools)
    assert TEXT.tools == ()
    assert bash["function"]["name"] == "bash" and bash["function"]["parameters"]["required"] == ["command"]
    assert submit["function"]["name"] == "submit" and submit["function"]["parameters"]["required"] == []


def test_names() -> None:
    assert [protocol(name).name for name in PROTOCOLS] == ["text", "tools"]
    with pytest.raises(ValueError, match="there is no protocol 'mcp': choose one of text, tools"):
        make("mcp")
    with pytest.raises(TypeError, match="protocol"):
        MixedEnv(protocol="tools")
    env: Any = gym.make("envs:ClawGym-v0", tasks=[task()], protocol="tools")
    assert env.unwrapped.protocol is TOOLS
    assert parse_call(TOOLS.command("ls")) == TOOLS.parse(TOOLS.command("ls"))
