from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agents.chat import ChatTemplate, Conversation
from agents.policies.openai import OpenAIPolicy, Usage
from agents.policies.scripted import ByteTokenizer
from agents.policy import (
    LEAST_REPLY,
    Completion,
    FinishReason,
    Policy,
    PolicyError,
    PromptTooLong,
    Request,
    Sampling,
    SomeFailed,
    abilities,
)
from tasks.endpoints import http
from tests.agents.policies.fake_endpoint import Answer, FakeEndpoint, Hangup, endpoint, last_user, said

TEMPLATE = ChatTemplate(ByteTokenizer())
EOS = ByteTokenizer.eos_token_id
SAMPLED = Sampling(0.7, 64)
CONTEXT = {"message": "This model's maximum context length is 64 tokens, however you requested 99", "code": None}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)


def request(user: str, *, seed: int = 0, **more: Any) -> Request:
    return Request(user, Conversation(TEMPLATE).start("be brief", user), seed, **{"first_turn": True, **more})


def opened(server: FakeEndpoint, **settings: Any) -> OpenAIPolicy:
    return OpenAIPolicy("tiny", base_url=server.url, **settings)


def one(answer: Any, **more: Any) -> Completion:
    """What the policy makes of one answer."""
    with endpoint(lambda body: answer) as server:
        (completion,) = opened(server).complete([request("hi", **more)], SAMPLED)
    return completion


def text(completion: Completion) -> str:
    return TEMPLATE.text(completion.ids)


def test_it_is_a_policy_that_says_what_it_does_not_know() -> None:
    policy = OpenAIPolicy("m", base_url="http://h/v1")
    assert isinstance(policy, Policy)
    known = abilities(policy)
    assert not (known.own_ids or known.logprobs or known.entropies or known.every_control)


def test_a_request_carries_messages_and_decode_settings() -> None:
    with endpoint(lambda body: said("ok")) as server:
        policy = opened(server, extra={"reasoning_effort": "low"}, api_key="sk-1")
        talk = Conversation(TEMPLATE)
        talk.start("", "first <|im_end|>")
        policy.complete([Request("a", talk.ids, 0, first_turn=True)], Sampling(0.0, 64))
        talk.reply([*b"one"], FinishReason.LENGTH)
        talk.observe("second")
        policy.complete([Request("a", talk.ids, 2**62, max_tokens=5)], SAMPLED)
        first, second = server.asked
        assert server.paths == ["/v1/chat/completions"] * 2
        assert server.headers[0]["Authorization"] == "Bearer sk-1"
    assert first == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "first <|im_end|>"}],
        "temperature": 0.0,
        "seed": 0,
        "max_tokens": 64,
        "reasoning_effort": "low",
    }
    assert second["messages"][1:] == [{"role": "assistant", "content": "one"}, {"role": "user", "content": "second"}]
    assert (second["temperature"], second["seed"], second["max_tokens"]) == (0.7, 2**62, 5)


def test_the_key_comes_from_the_environment_and_none_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint(lambda body: said("ok")) as server:
        opened(server).complete([request("a")], SAMPLED)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
        opened(server).complete([request("a")], SAMPLED)
        assert "Authorization" not in server.headers[0] and server.headers[1]["Authorization"] == "Bearer sk-env"


def test_replies_keep_the_order_of_the_requests_under_concurrency() -> None:
    gate = threading.Barrier(4)

    def script(body: dict[str, Any]) -> Any:
        gate.wait(20)  # four are under way, whoever came first
        return said(last_user(body).upper())

    with endpoint(script) as server:
        policy = opened(server, concurrency=4)
        completions = policy.complete([request(f"r{i}", seed=i) for i in range(12)], SAMPLED)
        assert server.most == 4
        assert {last_user(body): body["seed"] for body in server.asked} == {f"r{i}": i for i in range(12)}
    assert [text(c) for c in completions] == [f"R{i}" for i in range(12)]
    assert policy.usage == Usage(12, 0, 120, 36)


@pytest.mark.parametrize(
    ("answer", "ids", "finish"),
    [
        (said("done <|im_end|> ß"), [*"done <|im_end|> ß".encode(), EOS], FinishReason.STOP),
        (said("cut he", "length"), [*b"cut he"], FinishReason.LENGTH),
        (said(""), [EOS], FinishReason.STOP),
        (said("", "length"), [EOS], FinishReason.LENGTH),
        (said(None, "length", reasoning_content="hm"), [EOS], FinishReason.LENGTH),
        (said(None, reasoning="hm"), [EOS], FinishReason.STOP),
        (said(None, refusal="I will not."), [*b"I will not.", EOS], FinishReason.STOP),
        (said("No.", "refusal"), [*b"No.", EOS], FinishReason.STOP),
        (
            said([{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}, "c"]),
            [*b"abc", EOS],
            FinishReason.STOP,
        ),
        (said([{"type": "text", "text": ""}]), [EOS], FinishReason.STOP),
        (said([{"type": "refusal", "refusal": "no"}]), [*b"no", EOS], FinishReason.STOP),
        (said([{"type": "thinking", "thinking": "hm"}], "max_tokens"), [EOS], FinishReason.LENGTH),
    ],
)
def test_what_the_model_did_is_its_reply(answer: Any, ids: list[int], finish: FinishReason) -> None:
    completion = one(answer)
    assert (completion.ids, completion.finish) == (ids, finish)
    assert completion.logprobs is completion.entropies is completion.max_logprobs is None
    assert completion.forced == [False] * len(ids)


@pytest.mark.parametrize("reason", ["stop", "end_turn", "eos", "eos_token", "stop_sequence", "STOP", "COMPLETE"])
def test_other_words_for_a_reply_that_ended(reason: str) -> None:
    assert one(said("a", reason)).finish is FinishReason.STOP


@pytest.mark.parametrize("reason", ["length", "max_tokens", "model_length", "MAX_TOKENS", "max_output_tokens"])
def test_other_words_for_a_reply_that_was_cut(reason: str) -> None:
    assert one(said("a", reason)).finish is FinishReason.LENGTH


def test_thoughts_among_the_parts_are_notes() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "2 and 2"}], "signature": "abcdef"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "text", "text": "4"},
    ]
    completion = one(said(parts))
    assert text(completion) == "4" and completion.notes["reasoning_chars"] == 9.0
    assert one(said("no", "refusal")).notes["refused"] == 1.0


def test_reasoning_is_no_part_of_the_reply_and_is_noted_with_the_usage() -> None:
    completion = one(said("4", reasoning_content="2 and 2"))
    assert text(completion) == "4"
    assert completion.notes == {"prompt_tokens": 10.0, "completion_tokens": 3.0, "reasoning_chars": 7.0}
    assert one(said(None, refusal="no")).notes["refused"] == 1.0


def test_a_server_that_counts_nothing_gives_no_counts() -> None:
    with endpoint(lambda body: {**said("a"), "usage": None}) as server:
        policy = opened(server)
        assert policy.complete([request("hi")], SAMPLED)[0].notes == {}
    assert policy.usage == Usage(replies=1, without_usage=1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (said(None), "content is NoneType, not text"),
        (said([]), "content is list, not text"),
        (said([{"type": "image_url", "image_url": {}}]), "holds a part that is no text: 'image_url'"),
        (said([3]), "holds a part that is no text: 'int'"),
        (said([{"type": "text", "text": None}]), "holds a part that is no text: 'text'"),
        (said("a", "abort"), "finish_reason 'abort'; known are stop, end_turn"),
        (said("a", {"type": "stop"}), "finish_reason {'type': 'stop'}"),  # type: ignore[arg-type]
        (said("a", "SAFETY"), "filter withheld the reply"),
        (said("a", None), "finish_reason None"),  # type: ignore[arg-type]
        (said(None, "tool_calls", tool_calls=[{}]), "answered with a tool call"),
        (said("", "stop", tool_calls=[{}]), "answered with a tool call"),
        ({"choices": []}, "expected an answer with one choice"),
        ({"choices": said("a")["choices"] * 2}, "expected an answer with one choice"),
        ({"oops": 1}, r"one choice, got keys \['oops'\]"),
        ({"choices": [{"text": "a"}]}, "holds no message"),
        (Answer(200, b"<html>"), "not a JSON object"),
        (Answer(401, {"error": {"message": "bad key"}}), "HTTP 401.*bad key"),
        (
            Answer(400, {"error": {"message": "unknown argument seed"}}),
            "HTTP 400: unknown argument seed.*'{\"seed\": null}'",
        ),
        (Answer(422, {"detail": "extra: temperature"}), "HTTP 422: extra: temperature.*'{\"temperature\": null}'"),
    ],
)
def test_what_the_engine_did_is_an_error_of_that_request(answer: Any, message: str) -> None:
    with pytest.raises(SomeFailed, match=message):
        one(answer)


BUSY = Answer(503, {"error": {"message": "busy"}})
REFUSED = Answer(400, {"error": {"message": "text blocks must be non-empty"}})


def test_a_lone_request_ends_all_only_for_the_second_time_in_a_row() -> None:
    answers: list[Any] = [BUSY, said("ok"), BUSY, REFUSED, BUSY, BUSY]
    with endpoint(lambda body: answers.pop(0)) as server:
        policy = opened(server, retries=0)
        for answer in list(answers[:5]):
            if isinstance(answer, Answer):
                with pytest.raises(SomeFailed):
                    policy.complete([request("a")], SAMPLED)
            else:
                policy.complete([request("a")], SAMPLED)
        with pytest.raises(PolicyError, match="busy") as caught:
            policy.complete([request("a")], SAMPLED)
    assert not isinstance(caught.value, SomeFailed)


def test_refused_conversations_do_not_end_the_others_though_all_of_a_round_are() -> None:
    with endpoint(lambda body: REFUSED) as server:
        policy = opened(server)
        for _ in range(3):
            with pytest.raises(SomeFailed, match="2 of 2"):
                policy.complete([request("a"), request("b")], SAMPLED)
            with pytest.raises(SomeFailed):
                policy.complete([request("a")], SAMPLED)


def test_a_key_that_is_refused_is_named_and_ends_all() -> None:
    refused = Answer(401, {"error": {"message": "who?"}})
    said_so = "all 2 requests since the last reply failed.*is OPENAI_API_KEY set"
    with endpoint(lambda body: refused) as server, pytest.raises(PolicyError, match=said_so):
        opened(server).complete([request("a"), request("b")], SAMPLED)


def test_nothing_is_asked_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    asked, over = threading.Semaphore(0), threading.Event()

    def script(body: dict[str, Any]) -> Any:
        asked.release()
        if last_user(body) == "waits":
            over.wait(60)
        return BUSY

    def interrupt() -> None:
        for _ in range(4):
            asked.acquire(timeout=30)
        os.kill(os.getpid(), signal.SIGINT)

    with endpoint(script) as server:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            opened(server, retries=1000).complete([request("waits"), request("b"), request("c")], SAMPLED)
        left = [thread for thread in threading.enumerate() if thread.name.startswith("turngym-call")]
        over.set()
    assert left == []


def test_lone_surrogates_of_a_server_reach_no_record() -> None:
    with endpoint(lambda body: {**said("ok"), "model": "m\ud800"}) as server:
        policy = opened(server)
        policy.complete([request("a")], SAMPLED)
    assert policy.describe()["server_says"]["model"] == ["m?"]


def test_a_dead_server_is_one_error_for_all() -> None:
    def script(body: dict[str, Any]) -> Any:
        raise Hangup

    with endpoint(script) as server:
        with pytest.raises(PolicyError, match="all 3 requests since .* the first with: http.*no answer, 2 attempts"):
            opened(server, retries=1).complete([request(name) for name in "abc"], SAMPLED)
        assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Answer(500, {"error": {"message": "boom"}}), "HTTP 500, 2 attempts: boom"),
        (said("withheld", "content_filter"), "filter withheld the reply"),
        (Answer(400, {"error": {"message": "no!", "code": "content_filter"}}), "filter refuses the prompt: no!"),
        (Answer(400, {"error": CONTEXT}), "do not fit into the model's context: choose a smaller cap"),
    ],
)
def test_the_replies_beside_a_failure_are_kept(bad: Any, message: str) -> None:
    def script(body: dict[str, Any]) -> Any:
        return bad if last_user(body) == "b" else said("fine")

    with endpoint(script) as server, pytest.raises(SomeFailed, match=f"1 of 3 requests failed.*{message}") as caught:
        opened(server, retries=1).complete([request(name) for name in "abc"], SAMPLED)
    first, failed, last = caught.value.answers
    assert isinstance(first, Completion) and isinstance(last, Completion) and text(last) == "fine"
    assert isinstance(failed, PolicyError) and not isinstance(failed, PromptTooLong)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, CONTEXT),
        (400, {"message": "too long", "code": "context_length_exceeded"}),
        (400, {"message": "'max_tokens' or 'max_completion_tokens' is too large: 64. The context length is 64."}),
        (400, {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}),
        (429, {"message": "Request too large for m on tokens per min (TPM): Limit 9, Requested 99.", "type": "tokens"}),
    ],
)
def test_a_later_prompt_that_is_too_long_ends_its_episode_alone(status: int, error: dict[str, Any]) -> None:
    with endpoint(lambda body: Answer(status, {"error": error})) as server:
        with pytest.raises(SomeFailed) as caught:
            opened(server).complete([request("a", first_turn=False)], SAMPLED)
        assert [asked["max_tokens"] for asked in server.asked] == [64, 32, LEAST_REPLY]
    (failed,) = caught.value.answers
    assert isinstance(failed, PromptTooLong)


@pytest.mark.parametrize("first", [True, False])
def test_a_cap_that_the_context_has_no_room_for_is_halved_until_it_fits(first: bool) -> None:
    def script(body: dict[str, Any]) -> Any:
        return said("cut", "length") if body["max_tokens"] <= 40 else Answer(400, {"error": CONTEXT})

    with endpoint(script) as server:
        policy = opened(server)
        (cut,) = policy.complete([request("a", first_turn=first)], Sampling(0.7, 100))
        (whole,) = policy.complete([request("a", first_turn=first)], Sampling(0.7, 40))
        assert [asked["max_tokens"] for asked in server.asked] == [100, 50, 25, 40]
    assert (cut.max_tokens, cut.finish) == (25, FinishReason.LENGTH) and whole.max_tokens is None


def test_a_server_may_insist_on_the_other_name_of_the_cap_once() -> None:
    def script(body: dict[str, Any]) -> Any:
        if "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return Answer(400, {"error": {"message": message, "code": "unsupported_parameter"}})
        return said("ok")

    with endpoint(script) as server:
        policy = opened(server)
        for _ in range(2):
            assert text(policy.complete([request("a", max_tokens=7)], SAMPLED)[0]) == "ok"
        caps = [{key: value for key, value in body.items() if "max_" in key} for body in server.asked]
    assert caps == [{"max_tokens": 7}, {"max_completion_tokens": 7}, {"max_completion_tokens": 7}]
    assert policy.describe()["cap"] == "max_completion_tokens"


def test_what_no_chat_endpoint_can_do_is_refused() -> None:
    class Control:
        def force(self, ids: Any, entropy: float, max_logprob: float) -> int | None:
            return None

    with endpoint(lambda body: said("ok")) as server:
        policy = opened(server)
        with pytest.raises(ValueError, match="cannot be told to put ids into a reply"):
            policy.complete([request("a", control=Control())], SAMPLED)
        with pytest.raises(ValueError, match="stop texts belong to prompts of running text"):
            policy.complete([request("a", stops=("END",))], SAMPLED)
        with pytest.raises(ValueError, match="running text has no messages"):
            policy.complete([Request("a", list(b"### User"), 0)], SAMPLED)
        assert server.asked == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"extra": {"seed": 1, "max_tokens": 2, "top_p": 0.5}}, "extra holds max_tokens, seed"),
        ({"extra": {"seed": None, "max_tokens": None, "messages": None}}, "extra holds max_tokens, messages"),
        ({"base_url": "https://me:pw@h/v1"}, "holds a user name"),
        ({"api_key": "a b"}, "characters that no key has"),
    ],
)
def test_arguments_that_cannot_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OpenAIPolicy("m", **{"base_url": "http://h/v1", **settings})


def test_the_record_says_what_was_measured_and_no_key() -> None:
    with endpoint(lambda body: said("ok")) as server:
        policy = opened(server, api_key="sk-secret", extra={"top_p": 0.9})
        policy.complete([request("a")], SAMPLED)
        record = policy.describe()
        assert record["url"] == server.url
    assert record["model"] == "tiny" and record["extra"] == {"top_p": 0.9}
    assert record["server_says"] == {"model": ["served-model-1"], "system_fingerprint": ["fp_1"]}
    assert record["usage"] == {"replies": 1, "without_usage": 0, "prompt_tokens": 10, "completion_tokens": 3}
    assert "need not honour" in record["seeds"] and "sk-secret" not in repr(record)


def test_keys_that_a_server_refuses_are_left_out_and_the_record_says_so() -> None:
    def strict(body: dict[str, Any]) -> Any:
        unknown = sorted(body.keys() - {"model", "messages", "max_tokens", "top_p"})
        return Answer(422, {"detail": f"unknown keys: {unknown}"}) if unknown else said("ok")

    with endpoint(strict) as server:
        extra = {"seed": None, "temperature": None, "top_p": 0.5, "user": None}
        policy = opened(server, extra=extra)
        assert text(policy.complete([request("a")], SAMPLED)[0]) == "ok"
        with pytest.raises(SomeFailed, match="if it refuses the key temperature, leave that out"):
            opened(server, extra={"seed": None}).complete([request("a")], SAMPLED)
    assert policy.describe()["seeds"] == "not sent: replies are drawn with the server's own"
    assert policy.label(SAMPLED).startswith('temperature of the server\'s own, max_tokens=64, {"seed": null, "temp')
    assert opened(server, extra={"seed": None}).label(SAMPLED) == 'T=0.7, max_tokens=64, {"seed": null}'


@pytest.fixture
def talk() -> Iterator[Callable[[str], str]]:
    """A conversation over an endpoint that repeats all messages."""
    with endpoint(lambda body: said("/".join(m["content"] for m in body["messages"]))) as server:
        policy, conversation = opened(server), Conversation(TEMPLATE)

        def turn(message: str) -> str:
            if conversation.ids:
                conversation.observe(message)
            else:
                conversation.start("s", message)
            (completion,) = policy.complete([Request("a", conversation.ids, 0)], SAMPLED)
            return conversation.reply(completion.ids, completion.finish)

        yield turn


def test_a_conversation_goes_on_with_all_that_was_said(talk: Callable[[str], str]) -> None:
    assert talk("u1") == "s/u1"
    assert talk("u2") == "s/u1/s/u1/u2"
