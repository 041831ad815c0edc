"""Several played servers as one: who answers whom, and what if one goes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from agents.policies.scripted import ByteTokenizer
from agents.policies.vllm import VllmPolicy, replicas
from agents.policy import Completion, PolicyError, Request, Sampling, SomeFailed
from agents.rollout import RolloutEngine
from agents.rollout.episode import Job
from tests.agents.fakes import FakeEnv, task
from tests.agents.policies.vllm.fake import BASE, PLAIN, Fake, ask, check, make, running
from tests.agents.policies.vllm.test_adapters import lora


@dataclass
class Mortal(Fake):
    """A server that may go: it then breaks every connection."""

    gone: bool = False

    def get(self, path: str) -> tuple[int, Any]:
        return (0, {}) if self.gone else super().get(path)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return (0, {}) if self.gone else super().post(path, body)


@pytest.fixture
def pair() -> Iterator[list[Mortal]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running(Mortal())) for _ in range(2)]


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "LOOK_AGAIN", 0.0)


def of(servers: list[Mortal], **changes: Any) -> VllmPolicy:
    urls = ",".join(server.url for server in servers)
    return VllmPolicy(urls, ByteTokenizer(), **{"backoff": 0.001, "timeout": 30.0, **changes})


def asked(server: Fake) -> list[int]:
    """Seeds of the requests that a server got, which name them."""
    return sorted(body["seed"] for body in server.sampled)


def test_conversations_are_shared_out_and_stay(pair: list[Mortal]) -> None:
    policy = of(pair)
    alone = make(pair[0]).complete([ask(n) for n in range(8)], PLAIN)
    for server in pair:
        server.requests.clear()
    assert policy.complete([ask(n) for n in range(8)], PLAIN) == alone, "whoever answers, the reply is the same"
    first = [asked(server) for server in pair]
    assert [len(seeds) for seeds in first] == [4, 4]
    for _ in range(3):
        policy.complete([ask(n) for n in range(8)], PLAIN)
    assert [sorted(set(asked(server))) for server in pair] == first
    assert policy.describe()["replies"] == {server.url: 16 for server in pair}


def test_a_new_conversation_goes_where_the_fewest_are_and_a_fork_to_its_origin(pair: list[Mortal]) -> None:
    policy = of(pair)
    policy.complete([ask(n) for n in range(6)], PLAIN)
    homes = {n: next(i for i, server in enumerate(pair) if 100 + n in asked(server)) for n in range(6)}
    emptier = homes[0]
    policy.forget([f"c{n}" for n in homes if homes[n] == emptier])
    policy.complete([ask(10)], PLAIN)
    assert 110 in asked(pair[emptier])
    fuller = next(n for n in homes if homes[n] != emptier)
    policy.complete([Request("c\0fork", [65], 120, fork_of=f"c{fuller}")], PLAIN)
    assert 120 in asked(pair[1 - emptier]), "its cache has the beginning"
    policy.forget([*(f"c{n}" for n in range(11)), "c\0fork"])
    assert policy._servers._homes == {} and not any(replica.homes for replica in policy._servers._all)


def test_a_replica_that_goes_in_the_middle_of_a_rollout_costs_nothing(
    pair: list[Mortal], caplog: pytest.LogCaptureFixture
) -> None:
    def play(policy: VllmPolicy) -> list[list[list[int]]]:
        with RolloutEngine(policy, FakeEnv, slots=4, workers=2) as engine:
            work = [Job(task(budget={"max_turns": 3}), attempt, 5) for attempt in range(8)]
            result = engine.run(work, Sampling(1.0, 16))
        assert all(trajectory.stop_reason != "infrastructure" for trajectory in result.trajectories)
        return [[turn.ids for turn in trajectory.turns] for trajectory in result.trajectories]

    expected = play(make(pair[0]))
    counted = threading.Semaphore(0)
    dying = pair[1]

    def dies(answer: dict[str, Any]) -> None:
        counted.release()
        dying.gone = len(dying.sampled) >= 5

    pair[0].requests.clear()
    dying.change = dies
    with caplog.at_level(logging.WARNING):
        assert play(of(pair)) == expected
    assert dying.gone and len(pair[0].sampled) > len(dying.sampled)
    assert f"vLLM replica {dying.url} is left out" in caplog.text
    assert f"conversations go on at {pair[0].url}" in caplog.text


def test_one_that_comes_back_is_used_again_with_the_adapters(
    pair: list[Mortal], looks_at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    policy = of(pair)
    name = policy.publish(lora())
    assert [list(server.adapters) for server in pair] == [[name]] * 2
    for check_reply in policy.complete([ask(0)], PLAIN):
        check(check_reply, ask(0), 1.0, name)
    pair[0].gone = True
    policy.complete([ask(n) for n in range(4)], PLAIN)
    assert "is left out" in caplog.text and "is back" not in caplog.text
    pair[0].gone = False
    pair[0].adapters.clear()  # it was started anew
    pair[0].requests.clear()
    policy.forget([f"c{n}" for n in range(4)])
    requests = [ask(n) for n in range(6)]
    for request, completion in zip(requests, policy.complete(requests, PLAIN), strict=True):
        check(completion, request, 1.0, name)
    assert f"{pair[0].url} is back" in caplog.text
    assert list(pair[0].adapters) == [name] and len(pair[0].sampled) == 3


def test_one_that_comes_back_as_another_is_not_used(
    pair: list[Mortal], looks_at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    policy = of(pair)
    policy.complete([ask(0)], PLAIN)
    pair[0].gone = True
    policy.complete([ask(n) for n in range(4)], PLAIN)
    pair[0].gone, pair[0].models = False, [{"id": BASE, "max_model_len": 500}]
    pair[0].requests.clear()
    policy.complete([ask(n) for n in range(4)], PLAIN)
    assert "is back and is not used" in caplog.text and pair[0].sampled == []


def test_one_that_was_started_anew_between_two_requests_lacks_the_adapter(
    pair: list[Mortal], looks_at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    policy = of(pair)
    name = policy.publish(lora())
    policy.complete([ask(n) for n in range(4)], PLAIN)
    pair[1].adapters.clear()
    requests = [ask(n) for n in range(4)]
    for request, completion in zip(requests, policy.complete(requests, PLAIN), strict=True):
        check(completion, request, 1.0, name)
    assert f"{pair[1].url} is left out" in caplog.text and "it lacks an adapter" in caplog.text


def test_an_adapter_that_one_refuses_is_on_none(pair: list[Mortal]) -> None:
    pair[1].max_rank = 2
    policy = of(pair)
    with pytest.raises(PolicyError, match=f"{pair[1].url}/v1/load_lora_adapter.*start the server with --max-lora-rank"):
        policy.publish(lora())
    assert [server.adapters for server in pair] == [{}, {}] and policy.model == BASE


def test_one_that_is_gone_when_an_adapter_is_published_is_left_out(
    pair: list[Mortal], caplog: pytest.LogCaptureFixture
) -> None:
    policy = of(pair)
    policy.complete([ask(0)], PLAIN)
    pair[1].gone = True
    with caplog.at_level(logging.WARNING):
        name = policy.publish(lora())
    assert f"{pair[1].url} is left out" in caplog.text
    requests = [ask(n) for n in range(4)]
    for request, completion in zip(requests, policy.complete(requests, PLAIN), strict=True):
        check(completion, request, 1.0, name)


def test_when_all_are_gone_it_ends(pair: list[Mortal]) -> None:
    policy = of(pair, retries=2)
    policy.complete([ask(n) for n in range(4)], PLAIN)
    for server in pair:
        server.gone = True
    with pytest.raises(
        PolicyError, match="all 4 requests since the last reply failed.*no answer, 3 attempts"
    ) as caught:
        policy.complete([ask(n) for n in range(4)], PLAIN)
    assert not isinstance(caught.value, SomeFailed)


def test_a_request_that_a_healthy_replica_fails_costs_no_replica(pair: list[Mortal]) -> None:
    policy = of(pair, retries=1)
    policy.complete([ask(0)], PLAIN)
    stumbling = next(server for server in pair if server.sampled)
    stumbling.failures = [500, 500]
    with pytest.raises(SomeFailed, match="HTTP 500, 2 attempts"):
        policy.complete([ask(0)], PLAIN)
    assert all(replica.up for replica in policy._servers._all)
    assert isinstance(policy.complete([ask(0)], PLAIN)[0], Completion)


def test_replicas_must_be_alike(pair: list[Mortal]) -> None:
    pair[1].mode = "raw_logprobs"
    with pytest.raises(PolicyError, match=f"the replica {pair[1].url} is not what the others are.*raw_logprobs"):
        of(pair).complete([ask(0)], PLAIN)
    with pytest.raises(ValueError, match="stands there twice"):
        of([pair[0], pair[0]])


def test_waiting_waits_for_each(pair: list[Mortal]) -> None:
    pair[1].gone = True
    with pytest.raises(PolicyError, match=f"no vLLM server was ready within 0.2 s: {pair[1].url}"):
        of(pair).wait_ready(0.2)
