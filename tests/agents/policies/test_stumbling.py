"""Endpoints that stumble lose nothing: through `complete`, and one by one through `stream`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agents.chat import ChatTemplate, Conversation
from agents.policies.openai import OpenAIPolicy
from agents.policies.scripted import ByteTokenizer
from agents.policy import Completion, PolicyError, Request, Sampling, SomeFailed, Streaming
from tasks.endpoints import http
from tests.agents.policies.fake_endpoint import Answer, endpoint, last_user, said
from tests.agents.policies.stumbling import CUT, EXTRA, STUMBLING, limited

TEMPLATE = ChatTemplate(ByteTokenizer())
SAMPLING = Sampling(0.7, 64)
TURNS = 5


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(http, "FIRST_WAIT", 0.005)


def echo(body: dict[str, Any]) -> Any:
    return said(f"to {last_user(body)}")


Rounds = Callable[[OpenAIPolicy, Sequence[Request]], Iterator[tuple[str, Completion]]]


def in_rounds(policy: OpenAIPolicy, requests: Sequence[Request]) -> Iterator[tuple[str, Completion]]:
    completions = policy.complete(requests, SAMPLING)
    yield from zip((request.conversation for request in requests), completions, strict=True)


class Streamed:
    """Plays conversations each at its own pace."""

    def __init__(self, policy: OpenAIPolicy) -> None:
        self.woken = threading.Event()
        self.stream = policy.stream(SAMPLING, self.woken.set)

    def play(self, talks: dict[str, Conversation]) -> dict[str, list[str]]:
        replies: dict[str, list[str]] = {name: [] for name in talks}
        self.stream.ask([Request(name, talk.ids, 0) for name, talk in talks.items()])
        while any(len(said) < TURNS for said in replies.values()):
            assert self.woken.wait(60), "nothing came"
            self.woken.clear()
            for name, answer in self.stream.advance():
                assert isinstance(answer, Completion), answer
                replies[name].append(talks[name].reply(answer.ids, answer.finish))
                if len(replies[name]) < TURNS:
                    talks[name].observe(f"{name}{len(replies[name])}")
                    self.stream.ask([Request(name, talks[name].ids, 0)])
        self.stream.close()
        return replies


def talks(count: int) -> dict[str, Conversation]:
    made = {f"c{n}-": Conversation(TEMPLATE) for n in range(count)}
    for name, talk in made.items():
        talk.start("", f"{name}0")
    return made


def play_in_rounds(policy: OpenAIPolicy, open_talks: dict[str, Conversation]) -> dict[str, list[str]]:
    replies: dict[str, list[str]] = {name: [] for name in open_talks}
    for turn in range(TURNS):
        requests = [Request(name, talk.ids, 0) for name, talk in open_talks.items()]
        for name, completion in in_rounds(policy, requests):
            replies[name].append(open_talks[name].reply(completion.ids, completion.finish))
            if turn < TURNS - 1:
                open_talks[name].observe(f"{name}{turn + 1}")
    return replies


@pytest.mark.parametrize("way", ["complete", "stream"])
@pytest.mark.parametrize("name", STUMBLING)
def test_nothing_is_lost(name: str, way: str) -> None:
    with endpoint(STUMBLING[name](echo)) as server:
        policy = OpenAIPolicy("m", base_url=server.url, extra=EXTRA.get(name))
        assert isinstance(policy, Streaming)
        conversations = talks(24)
        replies = play_in_rounds(policy, conversations) if way == "complete" else Streamed(policy).play(conversations)
        policy.close()
    assert replies == {talk: [f"to {talk}{turn}" for turn in range(TURNS)] for talk in replies}
    assert len(replies) == 24


def test_a_server_that_admits_few_is_not_hammered() -> None:
    """The whole client learns from one refusal: without that, each of the calls would find out for itself."""
    with endpoint(limited(echo)) as server:
        policy = OpenAIPolicy("m", base_url=server.url, concurrency=16)
        Streamed(policy).play(talks(24))
        assert len(server.asked) < 1.8 * 24 * TURNS


@pytest.mark.parametrize("bad", [Answer(500, {"error": {"message": "boom"}}), CUT, said("a", "strange")])
def test_what_always_fails_for_one_fails_it_alone(bad: Any) -> None:
    def script(body: dict[str, Any]) -> Any:
        return bad if last_user(body) == "c3-0" else echo(body)

    woken = threading.Event()
    with endpoint(script) as server:
        policy = OpenAIPolicy("m", base_url=server.url, retries=2)
        requests = [Request(name, talk.ids, 0) for name, talk in talks(8).items()]
        with pytest.raises(SomeFailed, match="1 of 8 requests failed"):
            policy.complete(requests, SAMPLING)
        stream = policy.stream(SAMPLING, woken.set)
        stream.ask(requests)
        answers: dict[str, Completion | PolicyError] = {}
        while len(answers) < 8:
            assert woken.wait(60)
            woken.clear()
            answers |= dict(stream.advance())
        stream.close()
    failed = {name for name, answer in answers.items() if isinstance(answer, PolicyError)}
    assert failed == {"c3-"}


def test_a_server_that_dies_ends_a_stream_with_one_error() -> None:
    answered = []

    def script(body: dict[str, Any]) -> Any:
        answered.append(body)
        return echo(body) if len(answered) <= 8 else Answer(503, {"error": {"message": "out of memory"}})

    woken = threading.Event()
    with endpoint(script) as server:
        policy = OpenAIPolicy("m", base_url=server.url, retries=2)
        stream = policy.stream(SAMPLING, woken.set)
        stream.ask([Request(name, talk.ids, 0) for name, talk in talks(40).items()])
        with pytest.raises(PolicyError, match=r"all \d+ requests since the last reply failed.*out of memory") as caught:
            while True:
                assert woken.wait(60)
                woken.clear()
                stream.advance()
        stream.close()
        assert len(server.asked) < 40, "the others were not tried one after the other"
    assert not isinstance(caught.value, SomeFailed)
