"""Models that talk at random, and a policy that writes down what it was asked and what was sampled."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents.policy import Completion, Request, Sampling, TokenControl

_TRL = importlib.util.find_spec("trl")  # only its folder is wanted: importing it takes seconds
assert _TRL is not None and _TRL.origin is not None
TRL_TEMPLATES = Path(_TRL.origin).parent / "chat_templates"


def trl_template(name: str) -> str:
    """The text of a chat template that TRL ships, such as `qwen3`."""
    return (TRL_TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def speaker(vocabulary: int, likes: dict[int, float], seed: int = 0) -> Any:
    """A random Llama of two layers, float32.

    Args:
        vocabulary: Number of ids.
        likes: Added to the logit of an id, so that random replies hold it now and then.
        seed: Of its weights.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=4096,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    bias = torch.zeros(vocabulary)
    for token, amount in likes.items():
        bias[token] = amount
    head = torch.nn.Linear(32, vocabulary)
    with torch.no_grad():
        head.weight.copy_(model.lm_head.weight * 20)
        head.bias.copy_(bias)
    model.lm_head = head
    return model.eval()


@dataclass
class Said:
    """One reply: the ids before it, and a copy of what the sampler gave."""

    prompt: list[int]
    completion: Completion


class Recorder:
    """A policy around another one that keeps every request and completion, by conversation.

    Args:
        policy: Who samples.
        control: Makes a control for every reply.
    """

    def __init__(self, policy: Any, control: Callable[[], TokenControl] | None = None) -> None:
        self.policy, self.control = policy, control
        self.tokenizer, self.eos_ids = policy.tokenizer, policy.eos_ids
        self.said: dict[str, list[Said]] = {}

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        if self.control is not None:
            requests = [replace(request, control=self.control()) for request in requests]
        out = self.policy.complete(requests, sampling)
        for request, one in zip(requests, out, strict=True):
            copied = replace(one, ids=list(one.ids), logprobs=list(one.logprobs), forced=list(one.forced))
            self.said.setdefault(request.conversation, []).append(Said(list(request.prompt_ids), copied))
        return out

    def forget(self, conversations: Sequence[str]) -> None:
        self.policy.forget(conversations)


class Put:
    """A control that puts ids in at given positions."""

    def __init__(self, ids: dict[int, int]) -> None:
        self._ids = ids

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        return self._ids.get(len(ids))
