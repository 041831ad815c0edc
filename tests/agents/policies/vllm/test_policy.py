"""VllmPolicy against a played server; `test_real.py` has a real one."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

import pytest

from agents.policies.scripted import ByteTokenizer
from agents.policies.vllm import VllmPolicy
from agents.policy import (
    LEAST_REPLY,
    Abilities,
    Completion,
    FinishReason,
    Policy,
    PolicyError,
    Request,
    Sampling,
    SomeFailed,
    Streaming,
    abilities,
)
from agents.rollout import RolloutEngine
from agents.rollout.episode import Job
from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from tests.agents.fakes import FakeEnv, task
from tests.agents.policies.vllm.fake import (
    BASE,
    GREEDY,
    PLAIN,
    VOCABULARY,
    WARM,
    Fake,
    ask,
    check,
    logits,
    make,
    prompt,
    running,
    streamed,
)


def test_is_a_policy_that_says_what_it_knows(fake: Fake) -> None:
    policy = make(fake)
    assert isinstance(policy, Policy)
    assert abilities(policy) == Abilities(
        own_ids=True, logprobs=True, entropies=False, every_control=False, asynchronous=True
    )
    assert fake.requests == []  # nothing is asked before the first use
    assert policy.max_context == 1000
    assert policy.model == BASE


# -- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [PLAIN, WARM, GREEDY], ids=lambda sampling: sampling.label())
def test_numbers_are_those_of_the_server(fake: Fake, sampling: Sampling) -> None:
    requests = [ask(n) for n in range(5)]
    for request, completion in zip(requests, make(fake).complete(requests, sampling), strict=True):
        check(completion, request, sampling.temperature)
        assert completion.entropies is None
        known = sampling.temperature in (0.0, 1.0)
        assert (completion.entropy_bounds is not None) == (completion.max_logprobs is not None) == known


def test_greedy_is_the_argmax(fake: Fake) -> None:
    request = ask(0)
    (completion,) = make(fake).complete([request], GREEDY)
    ids = prompt(0)
    for token in completion.ids:
        assert token == logits(BASE, ids).argmax()
        ids.append(token)


def test_without_likeliest_ids_nothing_is_bounded(fake: Fake) -> None:
    (completion,) = make(fake, top_logprobs=0).complete([ask(0)], PLAIN)
    assert completion.entropy_bounds is None and completion.max_logprobs is None
    check(completion, ask(0), 1.0)


def test_results_are_in_order_however_many_go_out(fake: Fake) -> None:
    requests = [ask(n) for n in range(40)]
    one = [make(fake, concurrency=1).complete([request], PLAIN)[0] for request in requests]
    fake.slow = 0.01
    assert make(fake, concurrency=16).complete(requests, PLAIN) == one
    assert make(fake).complete([], PLAIN) == []


def test_requests_of_a_call_are_out_together(fake: Fake) -> None:
    fake.hold = threading.Event()
    policy = make(fake, concurrency=3)
    done: list[list[Completion]] = []
    thread = threading.Thread(target=lambda: done.append(policy.complete([ask(n) for n in range(5)], PLAIN)))
    thread.start()
    for _ in range(3):
        assert fake.held.acquire(timeout=30)
    assert not fake.held.acquire(timeout=0.2)  # three and no more, while none is answered
    fake.hold.set()
    thread.join(30)
    assert len(done[0]) == 5


def test_seeds_pass_as_they_are_and_zero_is_one(fake: Fake) -> None:
    seeds = [0, 1, 2**63 - 1, derive_seed("a")]
    replies = [make(fake).complete([Request("c", prompt(0), seed)], PLAIN)[0].ids for seed in seeds]
    assert [body["seed"] for body in fake.sampled] == seeds
    assert len({tuple(ids) for ids in replies}) == 4
    make(fake).complete([Request("c", prompt(0), -1), Request("c", prompt(0), 2**64)], PLAIN)
    assert sorted(body["seed"] for body in fake.sampled[4:]) == [0, 2**63 - 1]  # -1 would mean: no seed


def test_every_reason_to_end(fake: Fake) -> None:
    long = make(fake).complete([ask(0)], PLAIN)[0]
    assert long.finish is FinishReason.LENGTH and len(long.ids) == 12
    (ended,) = make(fake, eos_ids=[long.ids[4], 3]).complete([ask(0)], PLAIN)
    assert ended.finish is FinishReason.STOP
    assert ended.ids == long.ids[: long.ids.index(long.ids[4]) + 1]
    letters = [at for at, token in enumerate(long.ids) if 65 <= token < 123]
    word = chr(long.ids[letters[0]])
    (stopped,) = make(fake).complete([ask(0, stops=("never said", word))], PLAIN)
    assert stopped.finish is FinishReason.STOP_TEXT
    assert stopped.ids == long.ids[: letters[0] + 1]


def test_what_does_not_fit_is_refused_before_anything_is_sent(fake: Fake) -> None:
    policy = make(fake, max_context=15)
    with pytest.raises(PolicyError, match="6 prompt ids and up to 12 reply ids do not fit into the context of 15"):
        policy.complete([ask(0)], PLAIN)
    with pytest.raises(PolicyError, match="0 prompt ids"):
        policy.complete([Request("a", [], 0)], PLAIN)
    with pytest.raises(PolicyError, match="0 reply ids"):
        policy.complete([ask(0, max_tokens=0)], PLAIN)
    assert fake.sampled == []
    assert len(policy.complete([ask(0, max_tokens=9)], PLAIN)[0].ids) <= 9
    with pytest.raises(PolicyError, match="max_context is 2000 and the server's --max-model-len 1000"):
        make(fake, max_context=2000).complete([ask(0)], PLAIN)


@pytest.mark.parametrize("limit", ["context", "budget"])
def test_the_server_is_asked_for_what_is_left(fake: Fake, limit: str) -> None:
    def play(most: int | None) -> Trajectory:
        policy = make(fake, max_context=most if limit == "context" else None)
        sampling = Sampling(1.0, 24, most if limit == "budget" else None)
        with RolloutEngine(policy, FakeEnv, slots=1, workers=1) as engine:
            (episode,) = engine.run([Job(task(), 0, 7)], sampling).trajectories
        return episode

    whole = play(None)
    prompts = [len(body["prompt"]) for body in fake.sampled]
    assert whole.stop_reason == "max_turns"
    cut = play(prompts[3] + LEAST_REPLY + 1)
    assert [turn.max_tokens for turn in cut.turns] == [24, 24, 24, LEAST_REPLY + 1]
    assert [body["max_tokens"] for body in fake.sampled[len(prompts) :]] == [24, 24, 24, LEAST_REPLY + 1]
    assert cut.stop_reason == "max_tokens" and cut.turns[3].ids == whole.turns[3].ids[: LEAST_REPLY + 1]


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="no end-of-turn id"):
        VllmPolicy("http://127.0.0.1:9", type("Bare", (), {"eos_token_id": None})())
    with pytest.raises(ValueError, match="concurrency"):
        VllmPolicy("http://127.0.0.1:9", ByteTokenizer(), concurrency=0)


@pytest.mark.parametrize("url", ["http://bob:hunter2@h:1", "http://h:1/?key=hunter2", "h:8000"])
def test_an_address_with_a_secret_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address") as caught:
        VllmPolicy(url, ByteTokenizer())
    assert "hunter2" not in str(caught.value)


def test_the_key(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="characters that no key has") as caught:
        make(fake, api_key="sk-SECRET\u2013x")
    assert "SECRET" not in str(caught.value)
    make(fake, api_key="k1\n").wait_ready(10)
    monkeypatch.setenv("VLLM_API_KEY", "k2")
    make(fake).wait_ready(10)
    assert {sent.get("Authorization") for sent in fake.headers} == {"Bearer k1", "Bearer k2"}
    fake.get = lambda path: (401, {"error": "Unauthorized"})  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="is VLLM_API_KEY set, and is it this server's.*Unauthorized"):
        make(fake).wait_ready(10)


def test_no_proxy_is_used(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert make(fake, retries=0).complete([ask(0)], PLAIN)


def test_temperatures_that_the_server_would_change_are_refused(fake: Fake) -> None:
    with pytest.raises(PolicyError, match="temperature 0.005: vLLM samples at 0.01 instead"):
        make(fake).complete([ask(0)], Sampling(0.005, 4))
    assert fake.requests == []
    make(fake).complete([ask(0)], Sampling(0.01, 4))


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 408, 429, 500, 503])
def test_passing_failures_are_tried_again(fake: Fake, status: int) -> None:
    expected = make(fake).complete([ask(0)], PLAIN)
    fake.failures = [status, status]
    assert make(fake, retries=2).complete([ask(0)], PLAIN) == expected
    assert len(fake.sampled) == 1 + 3


@pytest.mark.parametrize(
    ("status", "last"),
    [(0, "no answer, 3 attempts.*RemoteDisconnected"), (503, "HTTP 503, 3 attempts: made to fail with 503")],
)
def test_lasting_failures_are_raised(fake: Fake, status: int, last: str) -> None:
    fake.failures = [status] * 9
    with pytest.raises(PolicyError, match=f"{fake.url}/v1/completions: {last}"):
        make(fake, retries=2).complete([ask(0)], PLAIN)
    assert len(fake.sampled) == 3


def test_a_refusal_is_final(fake: Fake) -> None:
    fake.failures = [400]
    with pytest.raises(PolicyError, match="HTTP 400: made to fail with 400"):
        make(fake).complete([ask(0)], PLAIN)
    assert len(fake.sampled) == 1


def test_a_server_that_does_not_answer_in_time(fake: Fake) -> None:
    policy = make(fake, timeout=0.3, retries=1)
    policy.wait_ready(10)
    fake.hold = threading.Event()
    with pytest.raises(PolicyError, match=r"no answer, 2 attempts: nothing came for 0\.3 s"):
        policy.complete([ask(0)], PLAIN)


def test_a_server_that_dies_during_a_call() -> None:
    with running(Fake()) as fake:
        policy = make(fake, retries=2)
        assert policy.complete([ask(0)], PLAIN)
    with pytest.raises(PolicyError, match="no answer, 3 attempts.*is the server running, and is this its address"):
        policy.complete([ask(n) for n in range(8)], PLAIN)


@pytest.mark.parametrize(
    ("bad", "message"),
    [(400, "made to fail with 400"), (500, "HTTP 500, 2 attempts"), ("short", "1 log-probabilities for 12 ids")],
)
def test_one_failure_of_many_is_its_own_and_no_thread_stays(fake: Fake, bad: int | str, message: str) -> None:
    policy = make(fake, retries=1)
    policy.wait_ready(10)
    expected = policy.complete([ask(n) for n in range(20)], PLAIN)
    plain = fake.post

    def stumbles(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        status, answer = plain(path, body)
        if body.get("seed") != 107:
            return status, answer
        if isinstance(bad, int):
            return bad, {"error": {"message": f"made to fail with {bad}"}}
        del answer["choices"][0]["logprobs"]["token_logprobs"][1:]
        return status, answer

    fake.post = stumbles  # type: ignore[method-assign]
    with pytest.raises(SomeFailed, match=f"1 of 20 requests failed.*{message}") as caught:
        policy.complete([ask(n) for n in range(20)], PLAIN)
    assert [n for n, answer in enumerate(caught.value.answers) if isinstance(answer, PolicyError)] == [7]
    assert caught.value.answers[:7] + caught.value.answers[8:] == expected[:7] + expected[8:]
    assert not [thread for thread in threading.enumerate() if thread.name == "turngym-call"]


def test_a_stream_answers_one_by_one_what_a_call_answers_at_once(fake: Fake) -> None:
    policy = make(fake)
    assert isinstance(policy, Streaming)
    requests = [ask(n) for n in range(6)]
    expected = policy.complete(requests, PLAIN)
    assert streamed(policy, requests) == {f"c{n}": completion for n, completion in enumerate(expected)}


def test_without_seeds_none_is_sent(fake: Fake) -> None:
    policy = make(fake, extra={"seed": None})
    policy.complete([ask(0)], PLAIN)
    assert all("seed" not in body for body in fake.requests)
    assert policy.describe()["seeds"].startswith("not sent")


def test_an_interrupt_leaves_no_thread(fake: Fake) -> None:
    policy = make(fake)
    policy.wait_ready(10)
    fake.hold = threading.Event()

    def interrupt() -> None:
        for _ in range(4):
            fake.held.acquire(timeout=30)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        policy.complete([ask(n) for n in range(4)], PLAIN)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("turngym-call")]


# -- with the rest --------------------------------------------------------------------------------------------------


def test_an_episode_of_three_turns_is_recorded_as_sampled(fake: Fake) -> None:
    policy = make(fake)
    with RolloutEngine(policy, FakeEnv, slots=2, workers=2) as engine:
        work = [Job(task(budget={"max_turns": 3}), attempt, 5) for attempt in range(2)]
        trajectories = engine.run(work, Sampling(1.0, 16)).trajectories
    for trajectory in trajectories:
        assert len(trajectory.turns) == 3
        flat = trajectory.flat()
        assert [t for t, on in zip(flat.ids, flat.mask, strict=True) if on] == [
            token for turn in trajectory.turns for token in turn.ids
        ]
        assert flat.entropies is None
        context = list(trajectory.prompt_ids)
        for turn in trajectory.turns:
            context += turn.context_ids
            assert turn.entropy_bounds is not None and turn.max_logprobs is not None
            sent = [body for body in fake.sampled if body["prompt"] == context]
            assert derive_seed(5, "first", trajectory.attempt, turn.index) in [body["seed"] for body in sent]
            context += turn.ids
        assert type(trajectory).from_json(json.loads(json.dumps(trajectory.to_json()))) == trajectory


def test_the_vocabulary_of_the_bounds_is_no_smaller_than_the_models(fake: Fake) -> None:
    assert make(fake)._vocabulary >= VOCABULARY
