"""What each message of an OpenEnv client does to an episode, and what it is sent; no server is involved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from envs.clawgym import ClawGymEnv
from envs.mixed import MixedEnv
from envs.openenv import BROKEN, Observation, Session, schema
from envs.user import ClawGymUserEnv
from sandboxes import SandboxUnavailable
from tasks.sources import load_tasks
from tests.envs.fakes import FakeSandboxes, bash, task, tasks
from tests.envs.questions import question


class Client:
    """Sends messages to a session; keeps what the session logs."""

    def __init__(self, env: Any) -> None:
        self.log: list[str] = []
        self.session = Session(env, self.log.append)

    def send(self, type: str, **data: object) -> dict[str, Any]:
        said = self.session.answer(json.dumps({"type": type, "data": data}))
        assert said is not None
        return json.loads(said)

    def seen(self, type: str, **data: object) -> tuple[dict[str, Any], float | None, bool]:
        answer = self.send(type, **data)
        assert answer["type"] == "observation", answer
        return answer["data"]["observation"], answer["data"]["reward"], answer["data"]["done"]

    def refused(self, text: str | bytes) -> str:
        said = json.loads(self.session.answer(text) or "null")
        assert said["type"] == "error", said
        return f"{said['data']['code']} {said['data']['message']}"


@pytest.fixture
def client(sandboxes: FakeSandboxes) -> Iterator[Client]:
    client = Client(ClawGymEnv([task(), *tasks(3)], reward="binary"))
    yield client
    client.session.close()


def test_an_episode_is_that_of_the_environment(client: Client) -> None:
    env = ClawGymEnv([task(), *tasks(3)], reward="binary")
    replies = [bash("ls; exit 3"), "no block", bash("echo hello > greeting.txt"), "TASK_COMPLETE"]
    text, info = env.reset(seed=5)
    first, reward, done = client.seen("reset", seed=5, episode_id="mine")
    assert (first["message"], first["system_prompt"], first["seed"]) == (text, env.system_prompt, 5)
    assert (first["task_id"], first["turn"], first["max_turns"]) == (info["task_id"], 0, 4)
    assert reward is None and not done
    for number, reply in enumerate(replies, 1):
        text, earned, terminated, truncated, info = env.step(reply)
        shown, reward, done = client.seen("step", message=reply, metadata={"of": "a typed client"})
        assert (shown["message"], reward, done) == (text, earned, terminated or truncated)
        assert (shown["turn"], shown["action"], shown["exit_code"]) == (number, info["action"], info["exit_code"])
    assert reward == 1.0 and done and shown["passed"] is True and shown["rate"] == 1.0
    assert shown["stop_reason"] == "submitted" and shown["system_prompt"] is None
    assert [item["verdict"] for item in shown["assertions"]] == ["pass"] * 4
    state = client.send("state")
    assert state == {
        "type": "state",
        "data": {
            "episode_id": "mine", "step_count": 4, "task_id": info["task_id"], "seed": 5, "max_turns": 4,
            "stop_reason": "submitted",
        },
    }  # fmt: skip
    env.close()


def test_the_turn_budget_ends_an_episode(client: Client) -> None:
    client.seen("reset", task_id="first")
    ends = [client.seen("step", message=bash("true")) for _ in range(4)]
    assert [done for _, _, done in ends] == [False, False, False, True]
    assert ends[-1][1] == 0.0 and ends[-1][0]["stop_reason"] == "max_turns"


def test_nothing_of_the_judging_leaves(sandboxes: FakeSandboxes) -> None:
    """Not what checks compare with, not why they failed, not the oracle; `info` has more than that."""
    secret = "k7d2-secret"
    assertions = [
        {"kind": "file_contains", "path": "greeting.txt", "contains": secret},
        {"kind": "command", "name": "graded", "command": f"test {secret} = other || {{ echo {secret}; exit 1; }}"},
    ]
    hidden = task(assertions=assertions, oracle={"commands": [f"echo {secret} > greeting.txt"]})
    client = Client(ClawGymEnv([hidden]))
    sent = [client.send("reset"), client.send("step", message=bash("ls")), client.send("step", message="TASK_COMPLETE")]
    observation = sent[-1]["data"]["observation"]
    assert observation["passed"] is False
    assert observation["assertions"] == [
        {"name": "file_contains:greeting.txt", "verdict": "fail", "score": 0.0},
        {"name": "graded", "verdict": "fail", "score": 0.0},
    ]
    assert secret not in json.dumps(sent)
    client.session.close()


@pytest.mark.parametrize("at", ["open", "run", "snapshot"])
def test_a_failure_of_the_machinery_is_no_reward(client: Client, sandboxes: FakeSandboxes, at: str) -> None:
    sandboxes.fail_next = [at, *(["open"] if at == "run" else [])]  # the canary of a lost sandbox fails, too
    shown, reward, done = client.seen("reset", task_id="first")
    if at == "run":
        assert not done
        shown, reward, done = client.seen("step", message=bash("ls"))
    assert done and reward is None
    assert (shown["message"], shown["stop_reason"], shown["passed"]) == (BROKEN, "infrastructure", None)
    assert client.send("state")["data"]["stop_reason"] == "infrastructure"
    assert len(client.log) == 1 and "task 'first' ended as infrastructure" in client.log[0]
    assert (
        "the episode is over (infrastructure); call reset() first"
        in client.send("step", message="x")["data"]["message"]
    )
    client.seen("reset", task_id="first")
    client.seen("step", message=bash("echo hello > greeting.txt"))
    assert client.seen("step", message="TASK_COMPLETE")[1] == 1.0


def test_what_the_agent_ends_twice_is_a_fail(client: Client, sandboxes: FakeSandboxes) -> None:
    sandboxes.deadly = ["reboot"]
    client.seen("reset", task_id="first")
    shown, reward, done = client.seen("step", message=bash("reboot"))
    assert (reward, done, shown["stop_reason"], shown["passed"]) == (0.0, True, "lost", False)


def test_no_sandbox_at_all_is_an_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: object, **kwargs: object) -> None:
        raise SandboxUnavailable("nothing works in /home/me")

    monkeypatch.setattr("envs.workplace.open_sandbox", none)
    said = client.refused('{"type": "reset"}')
    assert said == "EXECUTION_ERROR no sandbox can be had on the server; whoever runs it finds the reason in its output"
    assert client.log == ["no sandbox for a session: nothing works in /home/me"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "INVALID_JSON a message is JSON, and this is none: "),
        (b"\xff\xfe", "INVALID_JSON "),
        ("[" * 100_000, "INVALID_JSON "),
        ("[1]", "VALIDATION_ERROR a message is an object such as"),
        ("{}", "UNKNOWN_TYPE unknown type of message 'None': (valid: reset, step, state, close)"),
        ('{"type": "restet"}', "UNKNOWN_TYPE unknown type of message 'restet': did you mean 'reset'?"),
        ('{"type": "mcp", "data": {}}', "UNKNOWN_TYPE unknown type of message 'mcp'"),
        ('{"type": "step"}', "VALIDATION_ERROR step: message: Field required"),
        ('{"type": "step", "data": {"message": 1}}', "VALIDATION_ERROR step: message: Input should be a valid string"),
        ('{"type": "step", "data": "ls"}', "VALIDATION_ERROR step: data: "),
        ('{"type": "step", "data": {"message": ""}, "to": 1}', "VALIDATION_ERROR unknown key of a step message 'to'"),
        ('{"type": "reset", "data": {"task": "a"}}', "VALIDATION_ERROR reset: unknown key 'task': did you mean 'task_"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR reset: seed: Input should be greater"),
        ('{"type": "reset", "data": {"seed": true}}', "VALIDATION_ERROR reset: seed: "),
        ('{"type": "reset", "data": {"task_id": "frist"}}', "EXECUTION_ERROR reset: there is no task 'frist': "),
        ('{"type": "step", "data": {"message": "ls"}}', "EXECUTION_ERROR step(): no episode has started; call reset()"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_and_the_session_goes_on(client: Client, text: str | bytes, said: str) -> None:
    assert client.refused(text).startswith(said)
    assert client.seen("reset", task_id="first")[0]["task_id"] == "first"


def test_a_reply_that_is_no_text_is_an_observation(client: Client) -> None:
    client.seen("reset")
    shown, reward, done = client.seen("step", message="```bash\necho \ud800\n```")
    assert shown["action"] == "malformed" and reward == 0.0 and not done


def test_goodbye_has_no_answer(client: Client) -> None:
    assert client.session.answer('{"type": "close"}') is None


def test_other_environments_are_played_as_well(sandboxes: FakeSandboxes) -> None:
    """Questions among shell tasks, and a user who answers."""
    client = Client(MixedEnv([task(), question()], reward="binary"))
    client.seen("reset", task_id="eggs")
    shown, reward, done = client.seen("step", message="#### 72")
    assert (reward, done, shown["action"], len(shown["assertions"])) == (1.0, True, "submit", 1)
    assert client.seen("reset", task_id="first")[0]["max_turns"] == 4
    sandboxes.fail_next = ["open"]
    client.session.close()
    assert client.seen("reset", task_id="first")[0]["stop_reason"] == "infrastructure"
    client.session.close()
    client = Client(ClawGymUserEnv([load_tasks("library:dialogues")[0]]))
    client.seen("reset")
    shown, _, done = client.seen("step", message="What exactly do you want?")
    assert shown["action"] == "message" and "The user says:" in shown["message"] and not done
    client.session.close()


def test_the_schema_is_that_of_what_is_sent(client: Client) -> None:
    shown, _, _ = client.seen("reset")
    found = schema()
    assert found["action"]["required"] == ["message"] and found["action"]["additionalProperties"] is False
    assert found["observation"]["properties"].keys() == shown.keys() == Observation.model_fields.keys()
    assert found["state"]["properties"].keys() == client.send("state")["data"].keys()
