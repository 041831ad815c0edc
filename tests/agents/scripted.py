"""A policy whose replies have the uncertainties of a script: for what looks at them and not at ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.policies.scripted import ByteTokenizer
from agents.policy import Abilities, Completion, FinishReason, Request, Sampling
from agents.t2po import T2PO, T2POConfig

SAMPLING = Sampling(1.0, 24)


class Script:
    """Replies of two ids; each conversation has a list of entropies, one number (or an interval) per call.

    Args:
        entropies: By conversation. `None` reports nothing.
        can: What the policy says that it can do.
    """

    def __init__(self, entropies: dict[str, list[Any]], can: Abilities | None = None) -> None:
        self.tokenizer: Any = ByteTokenizer()
        self.eos_ids = frozenset([257])
        self.abilities = can or Abilities()
        self.entropies = {name: list(values) for name, values in entropies.items()}
        self.calls: list[list[Request]] = []
        self.forgotten: list[str] = []

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.calls.append(list(requests))
        return [
            self._completion(self.entropies[request.conversation.partition("\0")[0]].pop(0)) for request in requests
        ]

    def forget(self, conversations: Sequence[str]) -> None:
        self.forgotten += conversations

    def _completion(self, value: Any) -> Completion:
        ids = [65 + len(self.calls) % 100, 257]
        made = Completion(ids, [-1.0] * 2, None, None, [False] * 2, FinishReason.STOP)
        if isinstance(value, tuple):
            made.entropy_bounds, made.max_logprobs = [value] * 2, [-0.1] * 2
        elif value is not None:
            made.entropies, made.max_logprobs = [value] * 2, [-0.1] * 2
        return made


def turns(wrapper: T2PO, name: str, count: int, sampling: Sampling = SAMPLING) -> list[Completion]:
    """The first `count` turns of a conversation."""
    return [
        wrapper.complete([Request(name, [1, 2], seed=turn, first_turn=turn == 0)], sampling)[0] for turn in range(count)
    ]


def resampler(entropies: dict[str, list[Any]], **changes: Any) -> tuple[T2PO, Script]:
    """Resampling with eta 0.3 over a script."""
    policy = Script(entropies)
    return T2PO(
        policy,
        T2POConfig(
            **{
                "turn_resample": True,
                "turn_resample_eta": 0.3,
                "turn_resample_max_try": 2,
                "turn_resample_together": False,
                **changes,
            }
        ),
    ), policy
