# ruff: noqa: E501 (one case a line)
"""A model as the user of a task: which rule it names, what it may not decide, and a replay that asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agents.models.card import ModelError
from agents.policies.openai import Unanswered
from agents.policies.scripted import OraclePolicy, ScriptedPolicy, certain, spoken
from agents.policy import Completion, PolicyError, PromptTooLong, Request, Sampling, SomeFailed
from agents.replay import ReplayError, replay
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory, env_for
from agents.users import ModelUser, RecordedUser, read_answer, read_user
from envs import ClawGymUserEnv
from sandboxes.sandbox import SandboxError
from tasks.sources import DIALOGUES, load_library
from tasks.task import Task
from tasks.user import Asked, Line, User
from tests.envs.fakes import FakeSandbox
from tests.envs.test_user import HELLO, TRASH, with_user

USER = User.model_validate(
    {"rules": [{"when": {"turn": 9}, "say": "Late."}, {"when": {"says": "budget"}, "say": "It is 400."}, {"when": {"says": "time"}, "say": "By May."}]}
)  # fmt: skip
ASKED = Asked("Buy lamps.", USER, (1, 2), (Line("agent", "What can I spend?"),), turn=2, seed=5)


class Model(ScriptedPolicy):
    """Says what it is told to, and keeps what it was asked."""

    def __init__(self, *replies: str | Exception) -> None:
        super().__init__()
        self.replies, self.asked, self.forgotten = list(replies), list[Request](), list[str]()

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        (request,) = requests
        self.asked.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return [certain(*spoken(self.tokenizer, reply, (), request.cap(sampling)))]

    def forget(self, conversations: Sequence[str]) -> None:
        self.forgotten += conversations


@pytest.mark.parametrize(
    ("reply", "rule", "text"),
    [
        ("1", 1, "It is 400."),
        (" 2.\nBy May, I think", 2, "By May."),
        ("<think>1 fits</think>\n2", 2, "By May."),
        ("0\nAsk my colleague.", None, "Ask my colleague."),
        ("0", None, "I do not know."),
        ("3", None, "I do not know."),
        ("400 euros", None, "euros"),
        ("You may spend what you like.", None, "You may spend what you like."),
        ("", None, "I do not know."),
    ],
)
def test_a_model_chooses_the_rule_and_the_words_are_the_tasks(reply: str, rule: int | None, text: str) -> None:
    said = read_answer(reply, ASKED)
    assert (said.turn, said.rule, said.text) == (2, rule, text)


def test_the_model_is_told_what_it_may_say_and_what_was_said() -> None:
    model = Model("1", "0\nHm.")
    user = ModelUser(model, "openai:tiny")
    assert user.answer(ASKED).rule == 1 and user.label == "openai:tiny"
    user.answer(replace(ASKED, open=()))
    first, second = (model.tokenizer.decode(request.prompt_ids) for request in model.asked)
    for part in (
        "Buy lamps.",
        "1. (to a message like /budget/) It is 400.",
        "2. (to",
        "Assistant: What can I spend?",
        "I do not know.",
    ):
        assert part in first
    assert "Late." not in first and "reply with 0" in second and "It is 400." not in second
    assert len({request.conversation for request in model.asked}) == 2
    assert model.forgotten == [request.conversation for request in model.asked]


@pytest.mark.parametrize("error", [Unanswered("filtered"), PromptTooLong("long"), SomeFailed([Unanswered("filtered")])])
def test_what_the_agents_words_may_cause_is_no_failure_of_the_machinery(error: PolicyError) -> None:
    said = ModelUser(Model(error), "m").answer(ASKED)
    assert (said.rule, said.text) == (None, "I do not know.")


@pytest.mark.parametrize("error", [PolicyError("down"), SomeFailed([PolicyError("down")])])
def test_an_endpoint_that_fails_is_the_machinery(error: PolicyError) -> None:
    with pytest.raises(SandboxError, match=r"the user \(m\) did not answer: down"):
        ModelUser(Model(error), "m").answer(ASKED)


def test_a_user_is_a_chat_endpoint() -> None:
    assert read_user("openai:m@http://h/v1").model == "m"
    for name in ("quickstart", "oracle", "vllm:http://h"):
        with pytest.raises(ModelError, match="is no chat endpoint; name one, such as openai:"):
            read_user(name)


# -- Episodes ----------------------------------------------------------------------------------------------------------


class Says(ScriptedPolicy):
    replies = ("What shall I write?", HELLO, "And now?", TRASH, "TASK_COMPLETE", "TASK_COMPLETE")

    def text(self, task: Task, turn: int, request: Request) -> str:
        return self.replies[turn]


def played(policy: Any, task: Task, **settings: Any) -> Trajectory:
    with (
        FakeSandbox() as sandbox,
        RolloutEngine(
            policy, lambda: ClawGymUserEnv([task], sandbox=sandbox, **settings), slots=1, workers=1
        ) as engine,
    ):
        (trajectory,) = engine.run([Job(task, 0, seed=4)], Sampling(0.0, 900)).trajectories
    return trajectory


def test_an_episode_with_a_model_is_recorded_and_played_again_without_one() -> None:
    task = with_user()
    recorded = played(Says(), task, user=ModelUser(Model("1", "0\nWait a moment."), "openai:m@http://h/v1"))
    assert recorded.passed and recorded.environment["user"] == "openai:m@http://h/v1"
    assert recorded.turns[0].observation == "The user says:\nWrite hello."
    assert recorded.turns[2].observation == "The user says:\nWait a moment.\nMake trash, too."
    assert [record["rule"] for record in recorded.notes["user"]] == [0, None, 2]
    again = Trajectory.from_json(recorded.to_json())
    assert again == recorded
    with FakeSandbox() as sandbox:
        found = replay(again, task, sandbox=sandbox)
    assert found.differences == [] and found.same_grade and found.now.environment == recorded.environment
    assert found.now.notes["user"] == recorded.notes["user"]
    other = with_user(
        user={"rules": [{"when": {"says": "x", "file": "nowhere"}, "say": "x"}]},
        assertions=task.model_dump()["assertions"][:1],
    )
    with (
        FakeSandbox() as sandbox,
        pytest.raises(ReplayError, match="a model answered as the user, in a task that was another: turn 1: rule 0"),
    ):
        replay(replace(again, task_hash=""), other, sandbox=sandbox)


def test_a_scripted_user_answers_again_in_a_replay() -> None:
    task = with_user()
    recorded = played(Says(), task)
    assert "user" not in recorded.environment and recorded.turns[0].observation == "The user says:\nI do not know."
    with FakeSandbox() as sandbox:
        found = replay(recorded, task, sandbox=sandbox)
    assert found.differences == [] and found.same_grade


def test_a_setting_only_names_the_model() -> None:
    with pytest.raises(TypeError, match="user"):
        env_for(with_user(), {"env": "ClawGymEnv"}, user=RecordedUser("m", []))
    made = env_for(with_user(), {"env": "ClawGymUserEnv", "user": "m"}, user=RecordedUser("m", []))
    assert isinstance(made, ClawGymUserEnv) and made.speaker is not None


@pytest.mark.parametrize("task", load_library(DIALOGUES)[:3], ids=lambda task: task.id)
@pytest.mark.parametrize("style", ["standard", "compact"])
def test_the_oracle_of_a_task_with_a_user_passes_as_a_policy(task: Task, style: str) -> None:
    assert played(OraclePolicy(), task, prompt_style=style).passed
