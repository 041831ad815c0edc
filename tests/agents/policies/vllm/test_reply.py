from __future__ import annotations

from typing import Any

import pytest

from agents.policy import PolicyError
from tests.agents.policies.vllm.fake import EOS, PLAIN, WARM, Fake, ask, make, prompt


def test_no_sampling_setting_is_left_to_the_server(fake: Fake) -> None:
    make(fake).complete([ask(0, max_tokens=3, stops=("END",))], WARM)
    (body,) = fake.sampled
    assert body["prompt"] == prompt(0)
    assert (body["temperature"], body["max_tokens"], body["stop"]) == (0.7, 3, ["END"])
    assert (body["stop_token_ids"], body["ignore_eos"]) == ([EOS], True)
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "min_tokens": 0, "n": 1, "watermarking": False}
    penalties = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    text = {"include_stop_str_in_output": True, "skip_special_tokens": False, "spaces_between_special_tokens": False}
    assert {**neutral, **penalties, **text}.items() <= body.items()


def _choice(name: str, value: Any) -> Any:
    return lambda answer: answer["choices"][0].__setitem__(name, value)


WRONG = {
    "empty": (_choice("token_ids", []), "empty reply"),
    "other prompt": (_choice("prompt_token_ids", [1, 2]), "another prompt than it was sent: 2 ids for 6"),
    "no ids": (_choice("token_ids", None), "no token ids"),
    "one logprob short": (
        lambda answer: answer["choices"][0]["logprobs"]["token_logprobs"].pop(),
        "11 log-probabilities for 12 ids",
    ),
    "a missing logprob": (
        lambda answer: answer["choices"][0]["logprobs"]["token_logprobs"].__setitem__(3, None),
        "or some that are no numbers",
    ),
    "one position short": (
        lambda answer: answer["choices"][0]["logprobs"]["top_logprobs"].pop(),
        "likeliest ids of 11 positions for 12 ids",
    ),
    "aborted": (_choice("finish_reason", "abort"), "after 12 of 12 ids with finish_reason 'abort'"),
    "foreign stop id": (_choice("finish_reason", "stop"), "ends a turn of this model, add it to eos_ids"),
    "no choice": (lambda answer: answer.pop("choices"), "did not answer with one completion"),
}


@pytest.mark.parametrize("name", WRONG)
def test_answers_that_are_not_what_was_asked_for(fake: Fake, name: str) -> None:
    fake.change, said = WRONG[name]
    with pytest.raises(PolicyError, match=said):
        make(fake).complete([ask(0)], PLAIN)
