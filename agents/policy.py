"""The Policy protocol: token ids in, token ids out, with what the sampler knew about each token.

What was sampled is what is trained, so a policy never sees or returns text: ids, log-probabilities and
uncertainties come from the sampler and are kept as they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import StrictFloat, StrictInt

from envs.protocol import DEFAULT_PROTOCOL
from tasks.endpoints import PolicyError

if TYPE_CHECKING:
    from tasks.task import Task


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    """The model sampled an end-of-turn id (it is the last of `ids`)."""
    LENGTH = "length"
    """The reply reached `max_tokens`."""
    STOP_TEXT = "stop_text"
    """The reply holds one of the request's `stops`; its last id completed it."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Decode settings, recorded with every figure.

    Attributes:
        temperature: 0 means greedy (argmax); log-probabilities are then reported at temperature 1.
        max_tokens: Cap on the reply, in tokens.
        max_episode_tokens: Most ids of an episode: prompt, replies and observations; `None` is no budget. Rollouts
            hold it; a policy sees it only as the cap of a request.
        top_p: Draw among the likeliest ids that together have this probability at least; 1 is all. To measure alone:
            what is cut off has no log-probability that could be trained.
        top_k: Draw among so many of the likeliest ids; 0 is all. It cuts before `top_p` does.

    Raises:
        ValueError: The temperature is negative or no number, a cap leaves room for nothing, or a cut keeps no id.
    """

    temperature: float = 1.0
    max_tokens: int = 512
    max_episode_tokens: int | None = None
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        """Refuse what nothing can be sampled with."""
        if not 0.0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}: use a number above 0, or 0 for greedy")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}: a reply needs room for 1 token at least")
        if self.max_episode_tokens is not None and self.max_episode_tokens < 1:
            raise ValueError(
                f"max_episode_tokens is {self.max_episode_tokens}: a number above 0, or None for no budget"
            )
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}: a number above 0 and at most 1, which cuts nothing")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}: a number of ids, or 0, which cuts nothing")

    @property
    def greedy(self) -> bool:
        """True when nothing is drawn."""
        return self.temperature == 0.0

    def label(self) -> str:
        """For tables: `greedy` or `T=0.7`, with what is cut off, and the caps."""
        if self.greedy:
            return f"greedy, {self.caps}"
        cuts = f", top_p={self.top_p:g}" if self.top_p < 1 else ""
        cuts += f", top_k={self.top_k}" if self.top_k else ""
        return f"T={self.temperature:g}{cuts}, {self.caps}"

    @property
    def truncated(self) -> bool:
        """Whether some ids are never drawn."""
        return not self.greedy and (self.top_p < 1.0 or self.top_k > 0)

    @property
    def caps(self) -> str:
        """The caps, for tables."""
        episode = "" if self.max_episode_tokens is None else f", max_episode_tokens={self.max_episode_tokens}"
        return f"max_tokens={self.max_tokens}{episode}"


LEAST_REPLY = 16
"""Ids that are left for a reply at least where its cap shrinks: fewer hold no command, so the episode ends."""


def shrunk(cap: int, room: int, *, first: bool = False) -> int | None:
    """The cap of a reply for which `room` ids are left; `None` where they are too few to ask for one.

    A `first` reply is given whatever room there is: without it there is no episode.
    """
    return min(cap, room) if room >= min(cap, 1 if first else LEAST_REPLY) else None


class TokenControl(Protocol):
    """A rule consulted while one reply is decoded; it may force the next id. One instance per reply."""

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        """The id that must come next; `None` leaves it to the model. Called once per position, in order.

        Args:
            ids: The reply so far.
            entropy: Full-vocabulary entropy of the position to fill (nats, temperature 1).
            max_logprob: Its top-1 log-probability (nats, temperature 1).
        """


@runtime_checkable
class PlannedControl(TokenControl, Protocol):
    """A control that says ahead how far a reply may run without it, so that an engine far away can serve it."""

    @property
    def reads_distribution(self) -> bool:
        """Whether `force` looks at `entropy` or `max_logprob`; an engine that knows neither then refuses it."""

    def horizon(self, ids: Sequence[int]) -> int | None:
        """How many ids after `ids` are certainly left to the model; `None`: all of them.

        A reply may be sampled that far (and no further) before `force` is asked again, whatever the ids are.
        """


@runtime_checkable
class TopControl(TokenControl, Protocol):
    """A control that also reads what its request's `top` asks for."""

    def watch(self, top_mean: float) -> None:
        """The position's entry of `Completion.top_means`, told before each `force`."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a policy knows and can do. Whoever needs more than it has refuses it, with the reason.

    Attributes:
        own_ids: Ids are those of the model itself; without, text went through a tokenizer of ours and nothing can be
            trained.
        logprobs: `Completion.logprobs` is there.
        entropies: `Completion.entropies` and `max_logprobs` are exact.
        every_control: Any `TokenControl` is served; without, only a `PlannedControl` that reads no distribution.
        asynchronous: Replies come one by one at no loss, so that rollouts let every episode advance on its own.
        truncates: `Sampling.top_p` and `top_k` are heeded. Not taken for granted: who does not know them ignores them.
    """

    own_ids: bool = True
    logprobs: bool = True
    entropies: bool = True
    every_control: bool = True
    asynchronous: bool = False
    truncates: bool = False


def abilities(policy: object) -> Abilities:
    """A policy's `abilities`; one that names none has all that a policy of old could have."""
    return getattr(policy, "abilities", Abilities())


def decode_label(policy: object, sampling: Sampling) -> str:
    """For tables: the decode settings as `policy` applies them (a wrapper that changes them has `label(sampling)`)."""
    label = getattr(policy, "label", None)
    return sampling.label() if label is None else str(label(sampling))


@dataclass(frozen=True, slots=True)
class Request:
    """One reply wanted.

    Attributes:
        conversation: Names the conversation across turns, so that an engine may keep its KV cache. Names that wrappers
            make up hold a NUL character, so a caller's must not.
        prompt_ids: All ids before the reply, from the start of the conversation.
        seed: Seed of this reply alone; equal seeds and prompts give equal replies whatever else is in the batch.
        max_tokens: Cap for this reply; `None` takes the sampling's.
        first_turn: True for the first reply of a conversation.
        control: A rule that may force ids (see `TokenControl`).
        stops: The reply ends as soon as its text holds one of these.
        fork_of: Another conversation that begins alike, whose cache an engine may copy.
        top: Likeliest ids that `Completion.top_means` looks at; 0 asks for none. It costs an engine a look at every
            position.
        protocol: How the reply says what to do (`envs.protocol`), for policies that are no model of ids.
    """

    conversation: str
    prompt_ids: Sequence[int]
    seed: int
    max_tokens: int | None = None
    first_turn: bool = False
    control: TokenControl | None = None
    stops: tuple[str, ...] = ()
    fork_of: str | None = None
    top: int = 0
    protocol: str = DEFAULT_PROTOCOL

    def cap(self, sampling: Sampling) -> int:
        """Most ids of the reply: the request's own cap, else the sampling's."""
        return sampling.max_tokens if self.max_tokens is None else self.max_tokens

    def fitting_cap(self, sampling: Sampling, limit: int | None) -> int:
        """The same, for an engine with a context of `limit` ids.

        Raises:
            PolicyError: There is no prompt, no room for a reply, or the two do not fit.
        """
        size, cap = len(self.prompt_ids), self.cap(sampling)
        if not size or cap < 1:
            raise PolicyError(f"request {self.conversation}: {size} prompt ids, {cap} reply ids")
        if limit is not None and size + cap > limit:
            raise PolicyError(
                f"request {self.conversation}: {size} prompt ids and up to {cap} reply ids do not fit into the context "
                f"of {limit}"
            )
        return cap


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reply that was sampled and not used (turn resampling keeps all of them on record)."""

    ids: tuple[StrictInt, ...]
    signal: StrictFloat | None
    signal_bounds: tuple[StrictFloat, StrictFloat] | None = None


@dataclass(slots=True)
class Completion:
    """One reply, as sampled. All lists have one entry per id of `ids`; what an engine does not know is `None`.

    Attributes:
        ids: Sampled (and forced) ids, the end-of-turn id included when it was sampled. Never empty.
        logprobs: Log-probability of each id under the sampling distribution (nats).
        entropies: Exact entropy of the full distribution at temperature 1 at each position (nats).
        max_logprobs: Log-probability of the most likely id at each position, temperature 1 (nats).
        forced: True where an id was put in, not sampled: it stays in the context and carries mask 0.
        finish: Why the reply ended.
        signal: The turn's uncertainty, where a wrapper computed one; `None` means not known, never 0.
        candidates: Replies that were sampled before this one and rejected, in order.
        notes: Counts a wrapper adds (for example `think_capped`), by name.
        entropy_bounds: `(lower, upper)` of the entropy at each position, where only top-k log-probabilities are known.
        signal_bounds: `(lower, upper)` of the turn's uncertainty, where `signal` is not known and bounds are.
        seed: Seed that gave this reply, where a wrapper may have changed it; `None`: the request's.
        max_tokens: Its cap, likewise.
        top_means: Mean log-probability of the request's `top` likeliest ids at each position, temperature 1 (nats);
            only where it was asked for, by engines that know the whole distribution.
    """

    ids: list[int]
    logprobs: list[float] | None
    entropies: list[float] | None
    max_logprobs: list[float] | None
    forced: list[bool]
    finish: FinishReason
    signal: float | None = None
    candidates: list[Candidate] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)
    entropy_bounds: list[tuple[float, float]] | None = None
    signal_bounds: tuple[float, float] | None = None
    seed: int | None = None
    max_tokens: int | None = None
    top_means: list[float] | None = None


class PromptTooLong(PolicyError):
    """The engine finds that a later prompt and its reply exceed the context: the episode is graded as it stands."""


class SomeFailed(PolicyError):
    """Some requests of a call failed; the others have their completions, and their episodes go on.

    Attributes:
        answers: One per request, in order: its completion, or what failed.
    """

    def __init__(self, answers: Sequence[Completion | PolicyError]) -> None:
        failed = [answer for answer in answers if isinstance(answer, PolicyError)]
        super().__init__(f"{len(failed)} of {len(answers)} requests failed, the first with: {failed[0]}")
        self.answers = list(answers)


Answer = Completion | PolicyError
"""A reply, or why there is none."""


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
            SomeFailed: It failed some of the requests; the error has the completions of the others.
        """

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over: caches of theirs may go."""


class Stream(Protocol):
    """Replies under way with one decode setting: requests join and replies leave one by one. One thread uses it."""

    @property
    def working(self) -> bool:
        """Whether `advance` has something to compute in the caller's thread; without, replies come by themselves."""

    def ask(self, requests: Sequence[Request]) -> None:
        """Begin these replies. No two requests under way name the same conversation."""

    def advance(self) -> list[tuple[str, Answer]]:
        """Compute a little where the policy is in this process. Never waits for a reply from elsewhere.

        Returns:
            What has ended since the last call, by conversation; a request that failed alone has its error.

        Raises:
            PolicyError: The engine failed, and with it every request under way.
        """

    def close(self) -> None:
        """Give up what is under way. Idempotent."""


@runtime_checkable
class Streaming(Protocol):
    """A policy whose replies need not begin and end together."""

    def stream(self, sampling: Sampling, wake: Callable[[], None]) -> Stream:
        """Begin to take requests.

        Args:
            sampling: Decode settings of all of them.
            wake: Called, from any thread, when a reply has come from elsewhere: whoever waits looks at `advance`.
        """


@runtime_checkable
class TaskAware(Protocol):
    """A policy that wants to know the task of a conversation (scripted policies do)."""

    def begin(self, conversation: str, task: Task) -> None:
        """A conversation about `task` begins, or begins again; called before its first request."""


class Around:
    """Base of a policy around another one: what both have in common.

    Attributes:
        policy: The other one.
    """

    policy: Policy

    @property
    def tokenizer(self) -> Any:
        """The policy's."""
        return self.policy.tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        """The policy's."""
        return self.policy.eos_ids

    @property
    def max_context(self) -> int | None:
        """The policy's, where it has one."""
        return getattr(self.policy, "max_context", None)

    @property
    def abilities(self) -> Abilities:
        """The policy's."""
        return abilities(self.policy)


# -- Where a rollout meets a policy -----------------------------------------------------------------------------------


class _Calls:
    """The stream of a policy that only has `complete`: what waits is sampled together."""

    def __init__(self, policy: Policy, sampling: Sampling) -> None:
        self._policy, self._sampling = policy, sampling
        self._waiting: list[Request] = []

    @property
    def working(self) -> bool:
        return bool(self._waiting)

    def ask(self, requests: Sequence[Request]) -> None:
        self._waiting += requests

    def advance(self) -> list[tuple[str, Answer]]:
        requests, self._waiting = self._waiting, []
        if not requests:
            return []
        answers = answers_of(self._policy, requests, self._sampling)
        return [(request.conversation, answer) for request, answer in zip(requests, answers, strict=True)]

    def close(self) -> None:
        self._waiting = []


def answers_of(policy: Policy, requests: Sequence[Request], sampling: Sampling) -> Sequence[Answer]:
    """What `complete` gives, where requests may fail alone.

    Raises:
        PolicyError: The policy failed all of them.
    """
    try:
        return policy.complete(requests, sampling)
    except SomeFailed as error:
        return error.answers


def stream_of(policy: Policy, sampling: Sampling, wake: Callable[[], None]) -> Stream:
    """The policy's own stream, or calls of `complete` with whatever waits for a reply."""
    return policy.stream(sampling, wake) if isinstance(policy, Streaming) else _Calls(policy, sampling)


def checked(policy: Policy, request: Request, answer: Answer) -> Answer:
    """The answer; where it is a reply that breaks the contract of `Completion`, the failure that this is.

    A record with a list too short or a number that is none would be found steps later, or never.
    """
    if isinstance(answer, PolicyError):
        return answer
    wrong = next(_faults(policy, request, answer), None)
    if wrong is None:
        return answer
    return PolicyError(
        f"{type(policy).__name__} broke the contract of a policy (agents.policy.Completion) in its reply to "
        f"'{request.conversation}': {wrong}"
    )


def _faults(policy: Policy, request: Request, reply: Any) -> Iterator[str]:
    if not isinstance(reply, Completion):
        yield f"it is a {type(reply).__name__}, not a Completion"
        return
    count = len(reply.ids)
    if not count:
        yield "ids: there are none; a reply has one at least"
    if not all(type(token) is int and token >= 0 for token in reply.ids):
        yield "ids: one of them is no id (an int from 0 on)"
    for name in ("forced", "logprobs", "entropies", "max_logprobs", "entropy_bounds", "top_means"):
        values = getattr(reply, name)
        if values is None and name != "forced":
            continue
        if values is None or len(values) != count:
            found = "nothing" if values is None else f"{len(values)} entries"
            yield f"{name}: {found} for {count} ids"
        elif name in ("logprobs", "entropies", "max_logprobs") and not all(map(math.isfinite, values)):
            yield f"{name}: one of them is not a finite number"
    if reply.logprobs and max(reply.logprobs) > _ROUNDING:
        yield f"logprobs: {max(reply.logprobs):.3g} is the logarithm of no probability"
    if not isinstance(reply.finish, FinishReason):
        yield f"finish: {reply.finish!r} is no FinishReason"
    elif reply.finish is FinishReason.STOP and reply.ids and reply.ids[-1] not in policy.eos_ids:
        yield f"finish: 'stop', and the last id, {reply.ids[-1]}, ends no turn (eos_ids)"
    cap = request.max_tokens if reply.max_tokens is None else reply.max_tokens
    if cap is not None and count > cap and abilities(policy).own_ids:
        yield f"ids: {count} of them, and at most {cap} were asked for"


_ROUNDING = 1e-2
"""Log-probabilities of low-precision engines can lie this far above 0 (nats)."""
