from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from agents.policies.openai import OpenAIPolicy, Usage
from agents.policies.opening import read_name
from agents.policies.scripted import NoOpPolicy
from agents.policy import Completion, Request, Sampling, decode_label
from sandboxes import SandboxUnavailable, open_sandbox
from tasks.endpoints.chat import read_body
from trainers.evaluate import main
from trainers.evaluation.arguments import build_parser, check_arguments
from trainers.evaluation.shown import usage_line


def test_the_label_holds_what_was_added_to_each_request() -> None:
    plain = OpenAIPolicy("m", base_url="http://h/v1")
    more = OpenAIPolicy("m", base_url="http://h/v1", extra={"b": 1, "a": [2]})
    assert decode_label(plain, Sampling(0.7, 64)) == "T=0.7, max_tokens=64"
    assert decode_label(more, Sampling(0.0, 64)) == 'greedy, max_tokens=64, {"a": [2], "b": 1}'


def test_the_body_is_an_object_or_an_error() -> None:
    assert read_body(None) == read_body("{}") == {}
    assert read_body('{"a": {"b": 1}}') == {"a": {"b": 1}}
    for wrong, message in (("{", "is not JSON"), ("3", "is no JSON object")):
        with pytest.raises(ValueError, match=message):
            read_body(wrong)


def test_an_argument_that_is_left_out_is_none_to_refuse() -> None:
    parser = build_parser()
    check_arguments(parser.parse_args([]), parser, read_name("oracle"))
    vllm = parser.parse_args(["--concurrency", "2", "--timeout", "3", "--eos_ids", "5"])
    check_arguments(vllm, parser, read_name("vllm:http://h"))
    with pytest.raises(ValueError, match="--eos_ids does nothing"):
        check_arguments(vllm, parser, read_name("openai:m@http://h"))


def test_costs_say_what_is_missing() -> None:
    assert usage_line(Usage(3, 0, 12345, 678)).endswith("3 replies, 12,345 prompt tokens, 678 completion tokens")
    assert usage_line(Usage(3, 2, 10, 1)).endswith("1 completion tokens (2 of the replies came without counts)")


def test_a_person_is_asked_for_one_reply_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        open_sandbox("auto").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox works here: {error}")
    batches: list[int] = []

    class Person(NoOpPolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            batches.append(len(requests))
            return super().complete(requests, sampling)

    module = ModuleType("agents.policies.human")
    module.HumanPolicy = Person  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    argv = ["--model", "human", "--tasks", "generated:quickstart?n=3&seed=11", "--output_dir", str(tmp_path / "e")]
    assert main(argv) == 0
    assert batches == [1, 1, 1]
