"""Steps launched before the last ones are read: the replies, and what slots say they hold, stay as they are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from agents.policies import batch
from agents.policies.cuda import GraphStepper
from agents.policies.draw import Feed, Fetched, Sampled
from agents.policies.slots import SlotCache
from agents.policies.transformers import TransformersPolicy, TransformersStream
from agents.policy import Answer, Completion, FinishReason, PolicyError, Request, Sampling
from tests.agents.toys import model, tokenizer

NEAR = 1e-5
"""Log-probabilities are equal but for so much."""
ENDS = [2, *range(40, 64)]
"""So many ids end a turn that replies have about a dozen."""


class OnDevice(torch.Tensor):
    """What the host must not read in passing: on a GPU it would wait for everything that was launched."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.__name__ not in ("tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__index__"), func
        return super().__torch_function__(func, types, args, kwargs or {})


class Late(GraphStepper):
    """A GPU as the host sees it: in `log` stand the steps that were launched and read, by number.

    What is launched runs at once here, in the order of launches, as on a GPU; only reading it is not free.
    """

    def __init__(self, policy: TransformersPolicy, *, ahead: bool) -> None:
        super().__init__(policy._decoder, policy._table.cache, capture=False)
        self.ahead = ahead
        self.log: list[tuple[str, int]] = []
        self.steps = self.count = 0
        self.longest = 0
        """Positions that no slot may need more of, where it is set."""

    def advance(self, feed: Feed) -> Sampled:
        assert feed.draws is None or feed.draws.shape == (len(feed.lengths), feed.steps)
        assert not self.longest or max(feed.lengths) < self.longest
        self.count += 1
        self.steps += feed.steps
        self.log.append(("launched", self.count))
        done = super().advance(feed)
        if feed.keep:
            return done
        ids = done.ids.as_subclass(OnDevice)
        ids.number = self.count
        return Sampled(ids, done.facts.as_subclass(OnDevice), done.known)


@pytest.fixture(autouse=True)
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Late]]:
    """What is read was fetched before, and is noted by those steppers that are put into the list."""
    noting: list[Late] = []

    class Noted(Fetched):
        def __init__(self, *tensors: torch.Tensor) -> None:
            self.number = getattr(tensors[0], "number", 0)
            super().__init__(*(tensor.as_subclass(torch.Tensor).clone() for tensor in tensors))
            if self.number:
                tensors[1].fill_(torch.nan)  # facts that are read in another way are no numbers

        def wait(self) -> list[np.ndarray]:
            for stepper in noting:
                if self.number:
                    stepper.log.append(("read", self.number))
            return super().wait()

    monkeypatch.setattr(batch, "Fetched", Noted)
    yield noting


def prompt(n: int, length: int) -> list[int]:
    return [70 + (n * 7 + i * i) % 200 for i in range(length)]


def make(*, ahead: bool = True, ends: list[int] = ENDS) -> tuple[TransformersPolicy, Late]:
    policy = TransformersPolicy(model("gqa"), tokenizer(), eos_ids=ends)
    policy._stepper = stepper = Late(policy, ahead=ahead)
    return policy, stepper


def opened(policy: TransformersPolicy, temperature: float = 1.0) -> TransformersStream:
    return policy.stream(Sampling(temperature, 60), wake=lambda: None)


def drain(stream: TransformersStream) -> dict[str, Answer]:
    got: dict[str, Answer] = {}
    while stream.working:
        got |= dict(stream.advance())
    return got


def alone(request: Request, temperature: float = 1.0, ends: list[int] = ENDS) -> Completion:
    """The reply of an engine that has computed nothing before, one step at a time."""
    fresh = TransformersPolicy(model("gqa"), tokenizer(), eos_ids=ends)
    return fresh.complete([request], Sampling(temperature, 60))[0]


def equal(ours: Answer, theirs: Completion) -> None:
    assert isinstance(ours, Completion), ours
    assert (ours.ids, ours.forced, ours.finish) == (theirs.ids, theirs.forced, theirs.finish)
    assert ours.logprobs == pytest.approx(theirs.logprobs, abs=NEAR)
    assert ours.entropies == pytest.approx(theirs.entropies, abs=5 * NEAR)
    assert ours.max_logprobs == pytest.approx(theirs.max_logprobs, abs=5 * NEAR)


def true(policy: TransformersPolicy) -> None:
    """Each slot holds the keys and values of the ids that it names."""
    decoder, cache = policy._decoder, policy._table.cache
    for at, slot in enumerate(policy._table.slots):
        if slot.conversation is None or not slot.ids:
            continue
        count, fresh = len(slot.ids), SlotCache()
        fresh.layer_count = decoder.layer_count
        fresh.reserve(1, count)
        positions = torch.arange(count).unsqueeze(0)
        fresh.select(0, 1, positions, count)
        with torch.inference_mode():
            decoder.hidden(torch.tensor([slot.ids]), positions, count, fresh)
        for ours, theirs in zip(cache._blocks, fresh._blocks, strict=True):
            assert torch.allclose(ours[:, at, :, :count], theirs[:, 0, :, :count], atol=1e-4), slot.conversation


class Play:
    """Conversations of some turns that come and go in a stream, as `seed` has it; each reply is checked.

    Args:
        names: Put before the conversations' names.
    """

    def __init__(self, policy: TransformersPolicy, seed: int, temperature: float, names: str = "c") -> None:
        self.policy, self.temperature, self.names = policy, temperature, names
        self.stream = opened(policy, temperature)
        self.draw = random.Random(seed)
        self.step = self.count = 0
        self.due: list[tuple[int, Request]] = []
        self.asked: dict[str, Request] = {}
        self.said: list[tuple[Request, Completion]] = []
        self.left: dict[str, int] = {}

    def begin(self, count: int, turns: int = 3) -> None:
        for _ in range(count):
            name = f"{self.names}{self.count}"
            self.count += 1
            self.left[name] = self.draw.randrange(1, turns + 1)
            words = prompt(self.draw.randrange(40), self.draw.randrange(2, 40))
            self.due.append((self.step + self.draw.choice([0, 0, 1, 5, 9]), self.request(name, words)))

    def request(self, name: str, ids: list[int]) -> Request:
        """A turn: some have small caps, some stop at a text, some look at each id, some fork what is there."""
        kind = self.draw.randrange(10)
        changes: dict[str, Any] = {"max_tokens": self.draw.choice([1, 2, 5, 17, 36])}
        if kind < 3:
            changes["stops"] = ("e", "a", "th")
        elif kind == 3 and self.asked and name not in self.asked and self.left[name] == 1:
            other = self.draw.choice(sorted(self.asked))
            changes["fork_of"] = other
            ids = [*self.asked[other].prompt_ids, *ids[:3]]
        elif kind == 4 and self.count % 3 == 0:
            changes["top"] = 3
        return Request(name, ids, seed=self.draw.randrange(10**6), **changes)

    def advance(self) -> None:
        now = [request for at, request in self.due if at <= self.step]
        self.due = [(at, request) for at, request in self.due if at > self.step]
        self.asked |= {request.conversation: request for request in now}
        self.stream.ask(now)
        for name, answer in self.stream.advance():
            request = self.asked.pop(name)
            assert isinstance(answer, Completion), answer
            self.said.append((request, answer))
            self.left[name] -= 1
            if self.left[name]:
                more = [*request.prompt_ids, *answer.ids, *prompt(self.step, self.draw.randrange(1, 9))]
                self.due.append((self.step + self.draw.choice([0, 1, 2, 6]), self.request(name, more)))
            elif self.draw.random() < 0.5:
                self.policy.forget([name])
        self.step += 1

    @property
    def working(self) -> bool:
        return bool(self.due or self.asked)

    def check(self) -> None:
        for request, answer in self.said:
            equal(answer, alone(request, self.temperature))
            assert answer.top_means is None or len(answer.top_means) == len(answer.ids)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize(("seed", "temperature"), [(1, 1.0), (2, 1.4), (3, 0.0)])
def test_replies_and_slots_are_those_of_an_engine_that_looks_at_each_id(
    seed: int, temperature: float, ahead: bool
) -> None:
    policy, _ = make(ahead=ahead)
    play = Play(policy, seed, temperature)
    play.begin(18)
    while play.working:
        play.advance()
        if play.step in (9, 14):
            play.begin(6)
        if play.step % 2:
            true(policy)
        assert all(row.live or not row.unread for row in play.stream._batch.rows)
    assert not play.stream.working and not play.stream._batch._launched
    assert {answer.finish for _, answer in play.said} == set(FinishReason)
    play.check()


def test_streams_and_calls_take_turns_at_one_table() -> None:
    policy, _ = make()
    plays = [Play(policy, 5, 1.0, "a"), Play(policy, 6, 0.7, "b")]
    for play in plays:
        play.begin(10, turns=2)
    round = 0
    while any(play.working for play in plays):
        round += 1
        for play in plays:
            for _ in range(1 + round % 3):  # one has steps unread when the other one comes
                play.advance()
            true(policy)
        if round % 4 == 0:
            requests = [Request(f"between {round} {n}", prompt(n, 5 + 9 * n), seed=n) for n in range(3)]
            for request, answer in zip(requests, policy.complete(requests, Sampling(1.0, 60)), strict=True):
                equal(answer, alone(request))
            true(policy)
    for play in plays:
        play.check()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_turns_of_calls_go_on_from_what_slots_hold(temperature: float) -> None:
    policy, _ = make()
    contexts = {f"c{n}": prompt(n, 3 + 4 * n) for n in range(12)}
    for turn in range(3):
        requests = [
            Request(name, ids, seed=turn * 31 + n, max_tokens=1 + 5 * n)
            for n, (name, ids) in enumerate(contexts.items())
        ]
        for request, answer in zip(requests, policy.complete(requests, Sampling(temperature, 60)), strict=True):
            equal(answer, alone(request, temperature))
            contexts[request.conversation] = [*request.prompt_ids, *answer.ids, *prompt(turn, 4)]
        true(policy)
    assert not any(row.unread for row in policy._table.order)


# -- What is launched and read, and when ------------------------------------------------------------------------------


def ends_at_cap(n: int, cap: int) -> Request:
    return Request(f"c{n}", prompt(n, 5), seed=n, max_tokens=cap)


def test_steps_are_launched_before_the_last_ones_are_read(reading: list[Late]) -> None:
    for ahead in (True, False):
        policy, stepper = make(ahead=ahead, ends=[1000])
        reading[:] = [stepper]
        stream = opened(policy)
        stream.ask([ends_at_cap(n, 40) for n in range(3)])
        drain(stream)
        rounds = stepper.count
        assert rounds > 5 and stepper.steps == 39  # caps are known: nobody computes beyond them
        if ahead:
            want = [("launched", 1)]
            for n in range(1, rounds):
                want += [("launched", n + 1), ("read", n)]
            want.append(("read", rounds))
        else:
            want = [(what, n) for n in range(1, rounds + 1) for what in ("launched", "read")]
        assert stepper.log == want
        del stepper.log[:]
        policy.complete([ends_at_cap(n, 40) for n in range(3, 5)], Sampling(1.0, 60))
        first = stepper.log[0][1]
        behind = stepper.log.index(("read", first)) - stepper.log.index(("launched", first))
        assert behind == (2 if ahead else 1)


def test_one_that_ends_costs_no_more_than_the_steps_that_were_launched_meanwhile() -> None:
    ids = alone(ends_at_cap(1, 60), ends=[1000]).ids
    end = next(ids[at] for at in range(12, 40) if ids[at] not in ids[:at])
    spent = {}
    for ahead in (True, False):
        policy, stepper = make(ahead=ahead, ends=[end])
        stream = opened(policy)
        stream.ask([ends_at_cap(1, 60)])
        equal(drain(stream)["c1"], alone(ends_at_cap(1, 60), ends=[end]))
        assert not stream._batch._launched
        true(policy)
        spent[ahead] = stepper.steps
    assert spent[False] < spent[True] <= spent[False] + stepper.pace() + 1


def test_where_most_reach_their_caps_the_others_wait_to_be_read() -> None:
    policy, stepper = make(ends=[1000])
    stream = opened(policy)
    stream.ask([ends_at_cap(n, 60 if n == 0 else 3) for n in range(8)])
    stream.advance()  # two steps or more: seven of the eight are at their caps
    assert stepper.steps >= 2 and not stream._batch.ahead
    rows = []
    forward = stepper.advance
    stepper.advance = lambda feed: (rows.append(len(feed.lengths)), forward(feed))[1]  # type: ignore[method-assign]
    drain(stream)
    assert set(rows) == {1}


def test_no_row_is_fed_beyond_its_cap() -> None:
    policy, stepper = make(ends=[1000])
    stepper.longest = 5 + 12
    stream = opened(policy)
    requests = [ends_at_cap(n, 12 - n % 5) for n in range(11)]
    for request in requests:
        stream.ask([request])
        for name, answer in stream.advance():
            equal(answer, alone(requests[int(name[1:])], ends=[1000]))
    for name, answer in drain(stream).items():
        equal(answer, alone(requests[int(name[1:])], ends=[1000]))


# -- Who comes, who goes, and what fails, while something is unread ---------------------------------------------------


def test_a_control_that_joins_is_asked_at_each_id() -> None:
    class Every:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def force(self, ids: Any, entropy: float, max_logprob: float) -> int | None:
            self.seen.append(len(ids))
            return 75 if len(ids) % 3 == 2 else None

    policy, _ = make(ends=[1000])
    stream, control = opened(policy), Every()
    stream.ask([ends_at_cap(n, 50) for n in range(3)])
    got = dict(stream.advance()) | dict(stream.advance())
    assert stream._batch._launched
    stream.ask([Request("looks", prompt(9, 6), seed=9, max_tokens=10, control=control)])
    got |= drain(stream)
    assert control.seen == list(range(10))
    equal(got["looks"], alone(Request("looks", prompt(9, 6), seed=9, max_tokens=10, control=Every()), ends=[1000]))
    for n in range(3):
        equal(got[f"c{n}"], alone(ends_at_cap(n, 50), ends=[1000]))


@pytest.mark.parametrize("ahead", [True, False])
def test_who_is_forgotten_before_anything_was_read_goes_and_may_come_back(ahead: bool) -> None:
    policy, _ = make(ahead=ahead, ends=[1000])
    stream = opened(policy)
    stream.ask([ends_at_cap(n, 30) for n in range(4)])
    stream.advance()
    policy.forget(["c1", "c2"])
    got = dict(stream.advance())
    stream.ask([ends_at_cap(2, 30), ends_at_cap(5, 30)])
    got |= drain(stream)
    assert sorted(got) == ["c0", "c2", "c3", "c5"]
    for name, answer in got.items():
        equal(answer, alone(ends_at_cap(int(name[1:]), 30), ends=[1000]))
    true(policy)


def test_a_closed_stream_leaves_slots_that_are_right() -> None:
    policy, _ = make(ends=[1000])
    stream = opened(policy)
    stream.ask([ends_at_cap(n, 50) for n in range(4)])
    for _ in range(3):
        stream.advance()
    stream.close()
    true(policy)
    again = [ends_at_cap(n, 50) for n in range(6)]
    for request, answer in zip(again, policy.complete(again, Sampling(1.0, 60)), strict=True):
        equal(answer, alone(request, ends=[1000]))


def test_logits_that_are_no_numbers_are_an_error_one_round_later() -> None:
    policy, _ = make(ends=[1000])
    stream = opened(policy)
    stream.ask([ends_at_cap(n, 50) for n in range(3)])
    stream.advance()
    policy._table.cache._blocks[0][:, 0] = torch.nan
    stream.advance()
    with pytest.raises(PolicyError, match="logits are not numbers"):
        stream.advance()
    assert not stream.working and not stream._batch._launched
    policy._table.cache._blocks[0].zero_()
    stream.ask([ends_at_cap(1, 20)])
    equal(drain(stream)["c1"], alone(ends_at_cap(1, 20), ends=[1000]))


def test_an_engine_that_looks_at_each_id_launches_nothing_ahead() -> None:
    policy = TransformersPolicy(model("gqa"), tokenizer(), eos_ids=[1000])
    stream = opened(policy)
    stream.ask([ends_at_cap(n, 9) for n in range(3)])
    while stream.working:
        stream.advance()
        assert not stream._batch._launched and not stream._batch.ahead
