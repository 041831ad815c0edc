"""A model that answers single messages: the request, and every form of answer."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.endpoints import PolicyError, http
from tasks.endpoints.chat import ChatModel, Reply
from tests.agents.policies.fake_endpoint import Answer, endpoint, said


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)


def ask(answer: Any, **settings: Any) -> tuple[Reply, dict[str, Any]]:
    with endpoint(lambda body: answer) as server:
        model = ChatModel("m", server.url, **settings)
        try:
            return model.ask("hello", 5), server.asked[0]
        finally:
            model.close()


def test_a_request_holds_the_message_the_seed_and_the_keys_that_are_not_left_out() -> None:
    reply, asked = ask(said("hi"), body={"temperature": 0.5, "top_p": None})
    assert asked == {"model": "m", "messages": [{"role": "user", "content": "hello"}], "seed": 5, "temperature": 0.5}
    assert reply == Reply("hi", "", 10, 3, None)
    assert "seed" not in ask(said("hi"), body={"seed": None})[1]


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (said([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}], "end_turn"), Reply("hi")),
        (said(None, reasoning_content="hm"), Reply("")),
        (said("h\ud800i"), Reply("h?i")),
        (said("hi", "length"), Reply("hi", "cut at its cap")),
        (said("hi", "content_filter"), Reply("hi", "withheld by the server's filter")),
        (said("hi", "tool_calls"), Reply("hi", "ended with 'tool_calls'")),
        (
            Answer(400, {"error": {"code": "content_filter", "message": "no"}}),
            Reply("", "withheld by the server's filter: no"),
        ),
    ],
)
def test_every_form_of_answer(answer: Any, reply: Reply) -> None:
    found, _ = ask(answer)
    assert (found.text, found.problem) == (reply.text, reply.problem)


def test_tokens_are_those_that_the_server_tells() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": "many", "prompt_tokens_details": {"cached_tokens": 4}}
    assert ask({**said("hi"), "usage": usage})[0] == Reply("hi", "", 7, None, 4)
    assert ask({**said("hi"), "usage": None})[0] == Reply("hi")


def test_the_key_is_sent_and_taken_out_of_what_comes_back() -> None:
    reply, _ = ask(said("your key is sk-1234, and ***** stays"), api_key="sk-1234")
    assert reply.text == "your key is ***, and ***** stays"


@pytest.mark.parametrize(
    "answer", [{"choices": []}, {"choices": [{"message": "hi"}]}, {}, Answer(404, {"error": "no"})]
)
def test_what_is_no_completion_is_the_endpoints_failure(answer: Any) -> None:
    with pytest.raises(PolicyError):
        ask(answer)
