from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agents.policies.scripted import ByteTokenizer
from agents.policies.vllm import VllmPolicy
from agents.policies.vllm.policy import LogprobsMode
from agents.policy import PolicyError, Request, Sampling
from tasks.endpoints.http import HttpError
from tests.agents.policies.vllm import fake as played
from tests.agents.policies.vllm.fake import BASE, Fake, make

REQUEST = Request("c", [65, 66, 67], seed=1)


def test_the_server_is_examined_once(fake: Fake) -> None:
    policy = make(fake)
    policy.wait_ready(10)
    examined = len(fake.requests)
    assert examined == 3
    policy.complete([REQUEST], Sampling(1.0, 4))
    policy.complete([REQUEST], Sampling(0.5, 4))
    assert len(fake.requests) == examined + 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_raw_log_probabilities_will_do_at_temperature_1(fake: Fake, temperature: float) -> None:
    expected = make(fake).complete([REQUEST], Sampling(temperature, 4))
    fake.mode = "raw_logprobs"
    policy = make(fake)
    assert policy.complete([REQUEST], Sampling(temperature, 4)) == expected
    assert policy._examined().logprobs is LogprobsMode.RAW


def test_raw_log_probabilities_are_refused_at_others(fake: Fake) -> None:
    fake.mode = "raw_logprobs"
    with pytest.raises(PolicyError, match="start it with --logprobs-mode processed_logprobs, or sample at temp"):
        make(fake).complete([REQUEST], Sampling(0.7, 4))
    assert fake.sampled == []


def test_logits_are_refused(fake: Fake) -> None:
    fake.mode = "raw_logits"
    with pytest.raises(PolicyError, match="reports logits for log-probabilities"):
        make(fake).complete([REQUEST], Sampling(1.0, 4))


def test_a_flat_model_tells_nothing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(played, "logits", lambda model, ids: np.zeros(played.VOCABULARY))
    with pytest.raises(PolicyError, match="every id is equally likely to 'base'"):
        make(fake).wait_ready(10)


def test_another_tokenizer_is_refused(fake: Fake) -> None:
    class Other(ByteTokenizer):
        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            ids = super().encode(text)
            return [*ids[:5], 32, *ids[5:]]

    fake.tokenizer = Other()
    with pytest.raises(PolicyError, match=r"another tokenizer .* ids there and \d+ here, first different at 5"):
        make(fake).wait_ready(10)


def test_which_model(fake: Fake) -> None:
    fake.adapters["mine"] = "/somewhere"
    assert make(fake).model == BASE  # adapters are no models of their own
    assert make(fake, model="mine").model == "mine"
    assert make(fake, model="mine").max_context == 1000
    with pytest.raises(PolicyError, match="serves no model 'other'; it has base, mine"):
        make(fake, model="other").wait_ready(10)
    fake.models.append({"id": "second", "max_model_len": 50})
    with pytest.raises(PolicyError, match="serves 2 models, name one of them: model=base or second"):
        make(fake).wait_ready(10)


def test_what_is_no_vllm_server(fake: Fake) -> None:
    fake.models = "nonsense"  # type: ignore[assignment]
    fake.get = lambda path: (200, "hello")  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="not a JSON object but hello"):
        make(fake).complete([REQUEST], Sampling(1.0, 4))


def test_too_many_log_probabilities_are_explained(fake: Fake) -> None:
    post = fake.post

    def limited(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if body.get("logprobs", 0) > 5:
            return 400, {"error": {"message": "Requested sample logprobs of 20, which is greater than max allowed: 5"}}
        return post(path, body)

    fake.post = limited  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="max allowed: 5. If it is about logprobs: .* --max-logprobs 20"):
        make(fake).wait_ready(10)
    make(fake, top_logprobs=5).wait_ready(10)


def test_waiting_ends_at_a_refusal(fake: Fake) -> None:
    fake.get = lambda path: (404, {"detail": "Not Found"})  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="/health: HTTP 404"):
        make(fake).wait_ready(3600)


def test_waiting_for_a_silent_server_takes_no_longer_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = VllmPolicy("http://127.0.0.1:9", ByteTokenizer(), timeout=600)
    asked: list[float] = []

    def tell(path: str, *, retries: int, timeout: float) -> None:
        asked.append(timeout)
        raise HttpError("nothing came")

    monkeypatch.setattr(policy._servers.clients[0], "tell", tell)
    with pytest.raises(PolicyError, match="ready within 0.7 s: nothing came"):
        policy.wait_ready(0.7)
    assert asked and all(timeout <= 0.7 for timeout in asked)


def test_waiting_ends() -> None:
    policy = VllmPolicy("http://127.0.0.1:9", ByteTokenizer())
    with pytest.raises(PolicyError, match=r"no vLLM server was ready within 0 s: .*no answer"):
        policy.wait_ready(0.0)
