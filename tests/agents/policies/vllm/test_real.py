"""VllmPolicy against a real vLLM on the CPU. One server for nearly all tests: CONTRIBUTING.md says how to get it."""

from __future__ import annotations

import json
import logging
import random
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from agents.chat import Conversation
from agents.models.loading import load_model
from agents.policies.openai import OpenAIPolicy
from agents.policies.transformers import TransformersPolicy
from agents.policies.vllm import VllmPolicy
from agents.policies.vllm.policy import LogprobsMode
from agents.policy import (
    Completion,
    FinishReason,
    PolicyError,
    PromptTooLong,
    Request,
    Sampling,
    SomeFailed,
)
from agents.rollout import RolloutEngine
from agents.rollout.episode import Job
from agents.t2po import T2PO, T2POConfig
from tests.agents.fakes import FakeEnv, task
from tests.agents.policies.vllm.server import Server, kill, save_tiny, serve
from tests.agents.toys import full_forward

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.xdist_group("vllm"), pytest.mark.timeout(600)]

CLOSE = 1e-3
"""Nats. Both sides compute in float32."""


@pytest.fixture(scope="module")
def loaded(vllm_server: Server) -> tuple[Any, Any]:
    """The served model in this process, and its tokenizer."""
    return load_model(vllm_server.folder, dtype=torch.float32)


@pytest.fixture
def policy(vllm_server: Server, loaded: tuple[Any, Any]) -> Iterator[VllmPolicy]:
    with VllmPolicy(vllm_server.url, loaded[1], timeout=300.0) as made:
        made.wait_ready(300)
        yield made


@pytest.fixture
def endless(vllm_server: Server, loaded: tuple[Any, Any]) -> Iterator[VllmPolicy]:
    """The same, but replies end at an id that is hardly ever sampled: a real model likes to be brief."""
    with VllmPolicy(vllm_server.url, loaded[1], timeout=300.0, eos_ids=[0]) as made:
        yield made


def prompts(tokenizer: Any, count: int) -> list[list[int]]:
    texts = [
        f"File {n} of {count} is called notes_{n * n}.txt. " * (1 + n % 4) + "What is in it?" for n in range(count)
    ]
    return [list(tokenizer.encode(text)) for text in texts]


def ask(tokenizer: Any, count: int, **changes: Any) -> list[Request]:
    ids = prompts(tokenizer, count)
    return [Request(f"c{n}", ids[n], **{"seed": n, **changes}) for n in range(count)]


def worst(model: Any, request: Request, completion: Completion, temperature: float) -> float:
    """The largest difference from a plain forward in this process, forced ids aside."""
    expected = full_forward(model, list(request.prompt_ids), completion.ids, temperature)[0].tolist()
    assert completion.logprobs is not None
    pairs = zip(completion.logprobs, expected, completion.forced, strict=True)
    return max(abs(got - want) for got, want, forced in pairs if not forced)


def test_what_was_found_out(policy: VllmPolicy, vllm_server: Server) -> None:
    served = policy._examined()
    assert served.model == str(vllm_server.folder)
    assert served.logprobs is LogprobsMode.PROCESSED
    assert policy.max_context == 2048


def test_greedy_ids_are_those_of_this_process(policy: VllmPolicy, loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    requests = ask(tokenizer, 20)
    sampling = Sampling(0.0, 24)
    here = TransformersPolicy(model, tokenizer, eos_ids=policy.eos_ids).complete(requests, sampling)
    for request, ours, theirs in zip(requests, here, policy.complete(requests, sampling), strict=True):
        if ours.ids == theirs.ids:
            assert ours.finish is theirs.finish
            continue
        first = next(at for at, (a, b) in enumerate(zip(ours.ids, theirs.ids, strict=False)) if a != b)
        with torch.no_grad():
            logits = model(torch.tensor([[*request.prompt_ids, *ours.ids[:first]]])).logits[0, -1].double()
        best = logits.topk(2).values
        gap = float(best[0] - best[1])
        assert gap < CLOSE, f"{request.conversation}: other id at {first}, where the best two differ by {gap:.2g} nats"


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_numbers_are_those_of_a_plain_forward(policy: VllmPolicy, loaded: tuple[Any, Any], temperature: float) -> None:
    model, tokenizer = loaded
    requests = ask(tokenizer, 8)
    for request, completion in zip(requests, policy.complete(requests, Sampling(temperature, 32)), strict=True):
        assert worst(model, request, completion, temperature) < CLOSE
        if temperature == 0.7:
            assert completion.entropy_bounds is None and completion.max_logprobs is None
            continue
        _, entropies, likeliest = full_forward(model, list(request.prompt_ids), completion.ids, temperature)
        assert completion.max_logprobs == pytest.approx(likeliest.tolist(), abs=CLOSE)
        assert completion.entropy_bounds is not None
        for (low, high), exact in zip(completion.entropy_bounds, entropies.tolist(), strict=True):
            assert low - CLOSE <= exact <= high + CLOSE


def test_seeds_give_replies_whatever_else_is_sampled(endless: VllmPolicy, loaded: tuple[Any, Any]) -> None:
    (prompt,) = prompts(loaded[1], 1)
    seeds = [0, 1, 2, 2**63 - 1, 2**62 + 12345]
    requests = [Request(f"c{seed}", prompt, seed) for seed in seeds]
    replies = [completion.ids for completion in endless.complete(requests, Sampling(1.0, 32))]
    assert len({tuple(ids) for ids in replies}) == len(seeds)
    again = endless.complete([*ask(loaded[1], 5), *reversed(requests)], Sampling(1.0, 32))
    assert [completion.ids for completion in again[:4:-1]] == replies
    for request, ids in zip(requests, replies, strict=True):
        assert endless.complete([request], Sampling(1.0, 32))[0].ids == ids


def test_many_long_prompts_with_seeds_end_no_engine(endless: VllmPolicy) -> None:
    """More ids at once than a step takes: prefilled in chunks, one of them would end the engine on the CPU."""
    draw = random.Random(0)
    for _ in range(2):
        lengths = [draw.choice([50, 700, 1500]) for _ in range(64)]
        requests = [Request(f"c{n}", draw.choices(range(5, 1000), k=size), n) for n, size in enumerate(lengths)]
        assert sum(lengths) > 32_768
        assert len(endless.complete(requests, Sampling(1.0, 32))) == 64


def test_ends(endless: VllmPolicy, vllm_server: Server, loaded: tuple[Any, Any]) -> None:
    tokenizer = loaded[1]
    (request,) = ask(tokenizer, 1, seed=3)
    long = endless.complete([request], Sampling(1.0, 24))[0].ids
    with VllmPolicy(vllm_server.url, tokenizer, eos_ids=[long[6]]) as other:
        (ended,) = other.complete([request], Sampling(1.0, 24))
    assert ended.ids == long[: long.index(long[6]) + 1]
    assert ended.finish is FinishReason.STOP
    stop = next(text for text in (tokenizer.decode([token]) for token in long[4:]) if text.strip().isascii())
    (stopped,) = endless.complete([Request("c", request.prompt_ids, 3, stops=(stop,))], Sampling(1.0, 24))
    assert stopped.finish is FinishReason.STOP_TEXT
    assert stopped.ids == long[: len(stopped.ids)]
    assert stop in tokenizer.decode(stopped.ids) and stop not in tokenizer.decode(stopped.ids[:-1])


class Budget:
    """Puts an id in after every `budget` others."""

    reads_distribution = False

    def __init__(self, budget: int, close: int) -> None:
        self.budget, self.close = budget, close

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        return self.close if self.horizon(ids) == 0 else None

    def horizon(self, ids: Sequence[int]) -> int:
        since = list(reversed(ids)).index(self.close) if self.close in ids else len(ids)
        return max(0, self.budget - since)


def test_a_planned_control_forces_what_it_would_in_this_process(endless: VllmPolicy, loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    close = tokenizer.encode("!", add_special_tokens=False)[-1]
    here = TransformersPolicy(model, tokenizer, eos_ids=endless.eos_ids)
    for budget in (0, 5, 50):
        ours, theirs = (
            engine.complete(ask(tokenizer, 4, control=Budget(budget, close)), Sampling(0.0, 16))
            for engine in (here, endless)
        )
        assert [(c.ids, c.forced) for c in theirs] == [(c.ids, c.forced) for c in ours]
    requests = ask(tokenizer, 4, control=Budget(5, close))
    for request, completion in zip(requests, endless.complete(requests, Sampling(0.7, 16)), strict=True):
        assert [at for at, forced in enumerate(completion.forced) if forced] == [5, 11]
        assert worst(model, request, completion, 0.7) < CLOSE


def test_t2po_cuts_turns(endless: VllmPolicy, loaded: tuple[Any, Any]) -> None:
    wrapped = T2PO(endless, T2POConfig(max_turn_tokens=7))
    completions = wrapped.complete(ask(loaded[1], 3), Sampling(1.0, 24))
    assert [(len(c.ids), c.finish) for c in completions] == [(7, FinishReason.LENGTH)] * 3


def test_an_episode_is_trained_on_as_it_was_sampled(policy: VllmPolicy, loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    with RolloutEngine(policy, FakeEnv, slots=2, workers=2) as engine:
        work = [Job(task(budget={"max_turns": 3}), attempt, 7) for attempt in range(2)]
        trajectories = engine.run(work, Sampling(1.0, 24)).trajectories
    assert [len(trajectory.turns) for trajectory in trajectories] == [3, 3]
    for trajectory in trajectories:
        flat = trajectory.flat()
        trained = [token for token, on in zip(flat.ids, flat.mask, strict=True) if on]
        assert trained == [token for turn in trajectory.turns for token in turn.ids]
        expected = full_forward(model, trajectory.prompt_ids, flat.ids, 1.0)[0].tolist()
        for got, want, on in zip(flat.logprobs, expected, flat.mask, strict=True):
            assert not on or got == pytest.approx(want, abs=CLOSE)


# -- adapters -------------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(vllm_server: Server) -> Any:
    """The served model with an adapter that changes it visibly."""
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(load_model(vllm_server.folder, dtype=torch.float32)[0], config)
    step(wrapped, 1)
    return wrapped.eval()


def step(wrapped: Any, seed: int) -> None:
    """Another version of the adapter."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.03)


def adapters_on(server: Server) -> set[str]:
    with urllib.request.urlopen(server.url + "/v1/models", timeout=30) as answer:
        return {card["id"] for card in json.load(answer)["data"] if card.get("parent")}


def test_versions_follow_each_other(
    policy: VllmPolicy, vllm_server: Server, loaded: tuple[Any, Any], trained: Any
) -> None:
    """On one prompt of more than 700 ids: a reused name would be answered from the older version's cache."""
    base, tokenizer = loaded
    long = (prompts(tokenizer, 1)[0] * 100)[:750]
    requests = [Request(f"c{n}", [*long, *prompt], seed=n) for n, prompt in enumerate(prompts(tokenizer, 3))]
    sampling = Sampling(1.0, 24)
    replies = [[completion.ids for completion in policy.complete(requests, sampling)]]
    names = []
    for version in range(4):
        step(trained, version)
        names.append(policy.publish(trained))
        assert policy.model == names[-1]
        completions = policy.complete(requests, sampling)
        for request, completion in zip(requests, completions, strict=True):
            assert worst(trained, request, completion, 1.0) < CLOSE
            assert worst(base, request, completion, 1.0) > 10 * CLOSE
        replies.append([completion.ids for completion in completions])
        assert adapters_on(vllm_server) == set(names[-2:])
    assert all(a != b for a, b in zip(replies, replies[1:], strict=False))
    folder = policy._adapters._folder
    assert folder is not None and {path.name for path in folder.iterdir()} == set(names[-2:])
    policy.close()
    assert adapters_on(vllm_server) == set() and not folder.exists()


def test_replies_under_way_stay_on_their_version(
    endless: VllmPolicy, vllm_server: Server, loaded: tuple[Any, Any], trained: Any
) -> None:
    endless.wait_ready(300)
    overtaken = False
    for attempt in range(5):  # a busy machine may publish only after the replies have ended
        endless.publish(trained)
        before = {name: value.clone() for name, value in trained.state_dict().items()}
        requests = ask(loaded[1], 4, seed=attempt)
        with ThreadPoolExecutor(1) as aside:
            replies = aside.submit(endless.complete, requests, Sampling(1.0, 1500))
            until_running(vllm_server, replies)
            for version in (2, 3, 4):
                step(trained, version)
                endless.publish(trained)
            overtaken = not replies.done()
        trained.load_state_dict(before)
        for request, completion in zip(requests, replies.result(), strict=True):
            assert worst(trained, request, completion, 1.0) < CLOSE
        if overtaken:
            return
    pytest.fail("no reply was under way while a version was published")


def test_adapters_that_the_server_does_not_take(policy: VllmPolicy, loaded: tuple[Any, Any]) -> None:
    config = peft.LoraConfig(r=16, target_modules=["q_proj"], task_type="CAUSAL_LM")
    with pytest.raises(PolicyError, match="LoRA rank 16 is greater than max_lora_rank 8.*--max-lora-rank"):
        policy.publish(peft.get_peft_model(load_model(policy.model, dtype=torch.float32)[0], config))
    with pytest.raises(PolicyError, match="does not see the folder /nowhere/at/all"):
        policy._adapters._load("nowhere", Path("/nowhere/at/all"))
    assert policy.complete(ask(loaded[1], 1), Sampling(1.0, 4))


# -- T2PO, and the same server at text level ----------------------------------------------------------------------


def test_think_budgets_are_kept(endless: VllmPolicy, loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    opening, closing = "a", "b"  # any two single tokens will do for tags
    tags = [tokenizer.encode(tag, add_special_tokens=False)[0] for tag in (opening, closing)]
    config = T2POConfig(think_budget=6, think_answer_reserve=4, think_open=opening, think_close=closing)
    requests = [
        Request(request.conversation, [*request.prompt_ids, tags[0]], request.seed) for request in ask(tokenizer, 6)
    ]
    for request, completion in zip(requests, T2PO(endless, config).complete(requests, Sampling(1.0, 24)), strict=True):
        assert completion.ids.index(tags[1]) <= 6
        assert completion.forced.index(True) <= 6 if any(completion.forced) else tags[1] in completion.ids[:7]
        assert worst(model, request, completion, 1.0) < CLOSE


def test_turns_are_resampled_by_a_signal_that_is_exact(endless: VllmPolicy, loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    wrapper = T2PO(
        endless,
        T2POConfig(turn_resample=True, turn_resample_eta=50.0, turn_resample_signal="top1", turn_resample_max_try=2),
    )
    first = ask(tokenizer, 4, first_turn=True)
    replies = wrapper.complete(first, Sampling(1.0, 8))
    later = [
        Request(request.conversation, [*request.prompt_ids, *reply.ids, *request.prompt_ids], seed=90 + n)
        for n, (request, reply) in enumerate(zip(first, replies, strict=True))
    ]
    for request, completion in zip(later, wrapper.complete(later, Sampling(1.0, 8)), strict=True):
        likeliest = full_forward(model, list(request.prompt_ids), completion.ids, 1.0)[2]
        assert completion.signal == pytest.approx(-likeliest.mean().item(), abs=CLOSE)
        assert len(completion.candidates) == 2  # every change lies in this band
    assert wrapper.meter.undecided == 0


def test_the_server_as_a_chat_endpoint(vllm_server: Server, loaded: tuple[Any, Any]) -> None:
    """At text level the reply is the one that its own template and tokenizer give."""
    model, tokenizer = loaded
    name = str(vllm_server.folder)
    text = OpenAIPolicy(name, base_url=vllm_server.url + "/v1")
    talk = Conversation(text.tokenizer)
    prompt = talk.start("be brief", "what is in notes.txt?")
    (reply,) = text.complete([Request("a", prompt, seed=1)], Sampling(0.0, 16))
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is in notes.txt?"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    here = TransformersPolicy(model, tokenizer).complete([Request("a", ids, seed=1)], Sampling(0.0, 16))[0]
    assert text.tokenizer.decode(reply.ids, skip_special_tokens=True) == tokenizer.decode(
        here.ids, skip_special_tokens=True
    )
    assert reply.finish is here.finish and reply.logprobs is None
    assert reply.notes["prompt_tokens"] == len(ids)
    long = Conversation(text.tokenizer).start("", "notes " * 4000)
    with pytest.raises(SomeFailed) as failed:
        text.complete([Request("b", long, seed=1), Request("a", prompt, seed=1)], Sampling(0.0, 4))
    assert isinstance(failed.value.answers[0], PromptTooLong)
    assert isinstance(failed.value.answers[1], Completion)
    text.close()


# -- two servers as one ---------------------------------------------------------------------------------------------


def test_of_two_replicas_one_is_killed_in_the_middle_of_a_rollout(
    vllm_server: Server, loaded: tuple[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, tokenizer = loaded
    caplog.set_level(logging.WARNING)
    work = [Job(task(budget={"max_turns": 3, "turn_tokens": 400}), attempt, 7) for attempt in range(6)]
    with serve(vllm_server.folder, tmp_path / "second") as second:
        # Replies end at an id that is hardly ever sampled: long ones are under way whenever the server ends.
        policy = VllmPolicy([vllm_server.url, second.url], tokenizer, timeout=300.0, eos_ids=[0])
        policy.wait_ready(300)
        with RolloutEngine(policy, FakeEnv, slots=6, workers=2) as engine, ThreadPoolExecutor(1) as aside:
            rollout = aside.submit(engine.run, work, Sampling(1.0, 400))
            until_running(second, rollout)
            early = not rollout.done()
            kill(second)
            trajectories = rollout.result(300).trajectories
        said = policy.describe()["replies"]
        policy.close()
    assert early, "it was over before the server was killed"
    assert f"vLLM replica {second.url} is left out" in caplog.text
    assert said[vllm_server.url] > said[second.url], "the conversations of one went on at the other"
    assert [trajectory.stop_reason for trajectory in trajectories] == ["max_turns"] * 6
    for trajectory in trajectories:
        flat = trajectory.flat()
        expected = full_forward(model, trajectory.prompt_ids, flat.ids, 1.0)[0].tolist()
        for got, want, on in zip(flat.logprobs, expected, flat.mask, strict=True):
            assert not on or got == pytest.approx(want, abs=CLOSE)


# -- a server with vLLM's defaults, and its end ---------------------------------------------------------------------


def test_a_server_with_default_settings_and_its_death(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    model, tokenizer = load_model(folder, dtype=torch.float32)
    with serve(folder, tmp_path / "server", flags=()) as server:
        policy = VllmPolicy(server.url, tokenizer, retries=2, backoff=0.1)
        policy.wait_ready(300)
        with pytest.raises(PolicyError, match="start it with --logprobs-mode processed_logprobs"):
            policy.complete(ask(tokenizer, 1), Sampling(0.7, 4))
        requests = ask(tokenizer, 2)
        for request, completion in zip(requests, policy.complete(requests, Sampling(1.0, 16)), strict=True):
            assert worst(model, request, completion, 1.0) < CLOSE
        config = peft.LoraConfig(r=8, target_modules=["q_proj"], task_type="CAUSAL_LM")
        with pytest.raises(PolicyError, match="start the server with VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
            policy.publish(peft.get_peft_model(model, config))

        def play() -> None:
            while True:  # one after the other, so that one is under way whenever the server ends
                policy.complete(ask(tokenizer, 8), Sampling(1.0, 1500))

        with ThreadPoolExecutor(1) as aside:
            replies = aside.submit(play)
            until_running(server, replies)
            kill(server)
            with pytest.raises(PolicyError, match="requests since .*/v1/completions: no answer, 3 attempts"):
                replies.result(120)
        policy.close()


def until_running(server: Server, replies: Future[Any]) -> None:
    """Wait until the server runs a request, or the replies are there: short ones may run between two looks."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        with urllib.request.urlopen(server.url + "/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        running = [line for line in lines if line.startswith("vllm:num_requests_running")]
        if replies.done() or any(float(line.rsplit(" ", 1)[1]) > 0 for line in running):
            return
        time.sleep(0.1)
    pytest.fail(f"no request was ever running:\n{server.tail()}")
