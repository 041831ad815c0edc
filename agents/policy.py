"""The Policy protocol: token ids in, token ids out, with what the sampler knew about each token.

What was sampled is what is trained, so a policy never sees or returns text: ids, log-probabilities and
uncertainties come from the sampler and are kept as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tasks.task import Task


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    """The model sampled an end-of-turn id (it is the last of `ids`)."""
    LENGTH = "length"
    """The reply reached `max_tokens`."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Decode settings, recorded with every figure.

    Attributes:
        temperature: 0 means greedy (argmax); log-probabilities are then reported at temperature 1.
        max_tokens: Cap on the reply, in tokens.
    """

    temperature: float = 1.0
    max_tokens: int = 512

    @property
    def greedy(self) -> bool:
        """True when nothing is drawn."""
        return self.temperature == 0.0

    def label(self) -> str:
        """For tables: `greedy` or `T=0.7`, with the cap."""
        head = "greedy" if self.greedy else f"T={self.temperature:g}"
        return f"{head}, max_tokens={self.max_tokens}"


class TokenControl(Protocol):
    """A rule consulted while one reply is decoded; it may force the next id. One instance per reply."""

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        """The id that must come next; `None` leaves it to the model. Called once per position, in order.

        Args:
            ids: The reply so far.
            entropy: Full-vocabulary entropy of the position to fill (nats, temperature 1).
            max_logprob: Its top-1 log-probability (nats, temperature 1).
        """


@dataclass(frozen=True, slots=True)
class Request:
    """One reply wanted.

    Attributes:
        conversation: Names the conversation across turns, so that an engine may keep its KV cache.
        prompt_ids: All ids before the reply, from the start of the conversation.
        seed: Seed of this reply alone; equal seeds and prompts give equal replies whatever else is in the batch.
        max_tokens: Cap for this reply; `None` takes the sampling's.
        first_turn: True for the first reply of a conversation.
        control: A rule that may force ids (see `TokenControl`).
    """

    conversation: str
    prompt_ids: Sequence[int]
    seed: int
    max_tokens: int | None = None
    first_turn: bool = False
    control: TokenControl | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reply that was sampled and not used (turn resampling keeps all of them on record)."""

    ids: tuple[int, ...]
    signal: float | None


@dataclass(slots=True)
class Completion:
    """One reply, as sampled. All lists have one entry per id of `ids`.

    Attributes:
        ids: Sampled (and forced) ids, the end-of-turn id included when it was sampled. Never empty.
        logprobs: Log-probability of each id under the sampling distribution (nats).
        entropies: Entropy of the full distribution at temperature 1 at each position (nats).
        max_logprobs: Log-probability of the most likely id at each position, temperature 1 (nats).
        forced: True where an id was put in, not sampled: it stays in the context and carries mask 0.
        finish: Why the reply ended.
        signal: The turn's uncertainty, where a wrapper computed one; `None` means missing, never 0.
        candidates: Replies that were sampled before this one and rejected, in order.
        notes: Counts a wrapper adds (for example `think_capped`), by name.
    """

    ids: list[int]
    logprobs: list[float]
    entropies: list[float]
    max_logprobs: list[float]
    forced: list[bool]
    finish: FinishReason
    signal: float | None = None
    candidates: list[Candidate] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)


class PolicyError(RuntimeError):
    """The engine failed (not the model): an infrastructure failure, never an empty reply."""


@runtime_checkable
class Policy(Protocol):
    """Who acts."""

    @property
    def tokenizer(self) -> Any:
        """A Hugging Face tokenizer (or compatible) with or without a chat template."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a turn."""

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion per request, in order.

        Raises:
            PolicyError: The engine failed.
        """

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over: caches of theirs may go."""


@runtime_checkable
class TaskAware(Protocol):
    """A policy that wants to know the task of a conversation (scripted policies do)."""

    def begin(self, conversation: str, task: Task) -> None:
        """A conversation about `task` begins, or begins again; called before its first request."""
