"""What an evaluation asks of a policy that runs elsewhere: its own arguments, its costs."""

from __future__ import annotations

import json
import math
import threading
from argparse import ArgumentParser, Namespace
from typing import Any

from agents.policies.openai import Usage
from agents.policies.opening import PolicyKind, PolicyName

READS = {
    "concurrency": "concurrency",
    "timeout": "timeout",
    "request_body": "extra",
    "tokenizer": "tokenizer",
    "eos_ids": "eos_ids",
    "dtype": "dtype",
    "sample_dtype": "sample_dtype",
    "device": "device",
    "torch_threads": "device",
}
"""Arguments that only some policies look at, and what they are in `agents.policies.opening.PolicyWay.reads`."""
LEAST = {
    "samples": 1,
    "slots": 1,
    "max_tokens": 1,
    "concurrency": 1,
    "limit": 0,
    "max_turns": 0,
    "sandbox_workers": 0,
    "torch_threads": 0,
}
"""The smallest value of an argument, where it is given."""


def check_arguments(arguments: Namespace, parser: ArgumentParser, named: PolicyName) -> None:
    """Refuse arguments that do not go with the policy.

    Raises:
        ValueError: One would do nothing, is no value that it can have, or cannot work with a chat endpoint.
    """
    for name, read in READS.items():
        if read not in named.way.reads and getattr(arguments, name) != parser.get_default(name):
            raise ValueError(f"--{name} does nothing with --model {arguments.model}: leave it out")
    for name, least in LEAST.items():
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} is {value}: at least {least}")
    if arguments.timeout is not None and not 0 < arguments.timeout < threading.TIMEOUT_MAX:
        raise ValueError(f"--timeout is {arguments.timeout:g}: a number of seconds above 0")
    if any(token < 0 for token in arguments.eos_ids or ()):
        raise ValueError("--eos_ids must not be negative")
    if not all(0 <= value < math.inf for value in arguments.temperature or ()):
        raise ValueError("--temperature must be a number and not negative (0 is greedy)")
    if named.kind is PolicyKind.OPENAI and arguments.prompt_style == "base":
        raise ValueError("--prompt_style base is one running text, and a chat endpoint takes messages: leave it out")


def read_body(text: str | None) -> dict[str, Any]:
    """`--request_body` as keys of a request; empty without one.

    Raises:
        ValueError: It is no JSON object.
    """
    try:
        body = json.loads(text or "{}")
    except ValueError as error:
        raise ValueError(f"--request_body is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise ValueError('--request_body is no JSON object, as \'{"reasoning_effort": "low"}\' is')
    return body


def usage_line(usage: Usage) -> str:
    """What an evaluation has cost so far."""
    missing = f" ({usage.without_usage} of the replies came without counts)" if usage.without_usage else ""
    return (
        f"used so far, as the server counts: {usage.replies} replies, {usage.prompt_tokens:,} prompt tokens, "
        f"{usage.completion_tokens:,} completion tokens{missing}"
    )
