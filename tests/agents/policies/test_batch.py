"""Streams: replies that need not begin and end together are those of `complete`, but for the rounding of sums."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from agents.models.loading import load_model
from agents.policies.cuda import GraphStepper
from agents.policies.draw import uniforms
from agents.policies.transformers import TransformersPolicy, TransformersStream
from agents.policy import Answer, Completion, FinishReason, PolicyError, Request, Sampling, Stream, Streaming
from tasks.sources import load_tasks
from tests.agents.toys import full_forward, model, tokenizer

WARM = Sampling(0.7, 12)
NEAR = 1e-5
"""Draws this near to a boundary between two ids may go either way; log-probabilities are as near as this."""


def make(kind: str = "gqa", *, fixed: bool = False, **changes: Any) -> TransformersPolicy:
    return served(TransformersPolicy(model(kind), tokenizer(), **changes), fixed)


def served(policy: TransformersPolicy, fixed: bool) -> TransformersPolicy:
    if fixed:
        policy._stepper = GraphStepper(policy._decoder, policy._table.cache, capture=False)
    return policy


def prompt(n: int, length: int) -> list[int]:
    return [10 + (n * 7 + i * i) % 200 for i in range(length)]


def ask(n: int, length: int = 5, **changes: Any) -> Request:
    return Request(f"c{n}", prompt(n, length), seed=100 + n, **changes)


def opened(policy: TransformersPolicy, sampling: Sampling = WARM) -> TransformersStream:
    return policy.stream(sampling, wake=lambda: None)


def drain(stream: Stream) -> dict[str, Answer]:
    got: dict[str, Answer] = {}
    while stream.working:
        for name, answer in stream.advance():
            assert name not in got
            got[name] = answer
    return got


def reply(answer: Answer) -> Completion:
    assert isinstance(answer, Completion), answer
    return answer


def equal(ours: Completion, theirs: Completion) -> None:
    """Equal ids, and numbers as near as rounding (entropies are sums over the vocabulary)."""
    assert (ours.ids, ours.forced, ours.finish) == (theirs.ids, theirs.forced, theirs.finish)
    assert ours.logprobs == pytest.approx(theirs.logprobs, abs=NEAR)
    for name in ("entropies", "max_logprobs", "top_means"):
        got, want = getattr(ours, name), getattr(theirs, name)
        assert got == (None if want is None else pytest.approx(want, abs=5 * NEAR))


# -- The replies of a stream are those of lockstep --------------------------------------------------------------------


class Talk:
    """One conversation of some turns, the environment's words fixed beforehand."""

    def __init__(self, name: str, first: list[int], words: list[list[int]], cap: int) -> None:
        self.name, self.context, self.words, self.cap = name, first, words, cap
        self.said: list[tuple[Request, Completion]] = []

    def request(self) -> Request:
        return Request(self.name, self.context, seed=hash_of(self.name, len(self.said)), max_tokens=self.cap)

    def hear(self, request: Request, completion: Completion) -> bool:
        """Whether the conversation goes on."""
        self.said.append((request, completion))
        if len(self.said) > len(self.words):
            return False
        self.context = [*request.prompt_ids, *completion.ids, *self.words[len(self.said) - 1]]
        return True


def hash_of(name: str, turn: int) -> int:
    return sum(ord(c) * 131**i for i, c in enumerate(name)) + turn


def talks(tokens: Any, count: int, turns: int) -> list[Talk]:
    """Shell tasks as the quickstart policy knows them, two attempts at each, and answers of some lengths."""
    draw = random.Random(5)
    tasks = load_tasks(f"generated:quickstart?n={-(-count // 2)}&seed=77")
    answers = ["ok", "exit 1\ncat: nothing.txt: No such file or directory", "ok\n" + "verse.txt\nagenda.md\n" * 6]
    made = []
    for n in range(count):
        first = tokens.encode(f"<|im_start|>user\n{tasks[n // 2].intent}<|im_end|>\n<|im_start|>assistant\n")
        words = [tokens.encode(f"\n<|im_start|>user\n{draw.choice(answers)}<|im_end|>\n<|im_start|>assistant\n")
                 for _ in range(turns - 1)]  # fmt: skip
        made.append(Talk(f"talk {n}", first, words, draw.choice([4, 12, 30])))
    return made


def in_lockstep(policy: TransformersPolicy, going: list[Talk], sampling: Sampling) -> None:
    while going:
        requests = [talk.request() for talk in going]
        completions = policy.complete(requests, sampling)
        going = [t for t, r, c in zip(going, requests, completions, strict=True) if t.hear(r, c)]


def scattered(policy: TransformersPolicy, going: list[Talk], sampling: Sampling) -> None:
    """Each conversation comes back some steps after its reply, in an order that has nothing to do with that of ends."""
    stream, draw, step = opened(policy, sampling), random.Random(11), 0
    due: list[tuple[int, Talk]] = [(draw.randrange(40), talk) for talk in going]
    asked: dict[str, tuple[Talk, Request]] = {}
    while due or asked:
        now = [talk for at, talk in due if at <= step]
        due = [(at, talk) for at, talk in due if at > step]
        requests = [talk.request() for talk in now]
        asked |= {talk.name: (talk, request) for talk, request in zip(now, requests, strict=True)}
        stream.ask(requests)
        for name, answer in stream.advance():
            talk, request = asked.pop(name)
            if talk.hear(request, reply(answer)):
                due.append((step + draw.randrange(12), talk))
            else:
                policy.forget([name])
        step += 1
    assert not stream.working
    stream.close()


def nearest(made: Any, request: Request, ids: list[int], at: int, temperature: float) -> float:
    """How far the draw of position `at` is from a boundary (sampled), or the first from the second id (greedy)."""
    with torch.no_grad():
        logits = made(torch.tensor([[*request.prompt_ids, *ids[:at]]])).logits[0, -1].double()
    if temperature == 0.0:
        first, second = logits.log_softmax(-1).topk(2).values.tolist()
        return float(first - second)
    running = (logits / temperature).softmax(-1).cumsum(-1)
    return float((running - uniforms(request.seed, at + 1)[at]).abs().min())


@pytest.mark.parametrize(
    ("temperature", "fixed", "count"),
    [(0.0, False, 24), (1.0, False, 24), (1.4, False, 24), (0.0, True, 8), (1.4, True, 8)],
)  # fmt: skip
def test_scattered_arrivals_get_the_replies_of_lockstep(temperature: float, fixed: bool, count: int) -> None:
    made, tokens = load_model("quickstart")
    sampling, played = Sampling(temperature, 40), []
    for play in (in_lockstep, scattered):
        going = talks(tokens, count, 6)
        play(served(TransformersPolicy(made, tokens), fixed), list(going), sampling)
        played.append(going)
    compared, exceptions = 0, []
    for ours, theirs in zip(*played, strict=True):
        assert len(ours.said) == len(theirs.said) == 6
        for (request, one), (_, other) in zip(ours.said, theirs.said, strict=True):
            same = next((i for i, (a, b) in enumerate(zip(one.ids, other.ids, strict=False)) if a != b), None)
            if same is not None:
                exceptions.append(nearest(made, request, one.ids, same, temperature))
                break  # from here on they are different conversations
            equal(one, other)
            compared += len(one.ids)
    assert compared > 22 * count
    assert all(distance < NEAR for distance in exceptions), exceptions
    assert len(exceptions) <= 1 + compared / 1000


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gqa", "qwen3-windows", "gemma2", "gpt2"])
def test_a_reply_does_not_depend_on_its_companions(kind: str, fixed: bool) -> None:
    requests = [ask(n, 3 + 40 * (n % 2) + n, max_tokens=3 + 5 * n) for n in range(7)]
    alone = {r.conversation: make(kind).complete([r], Sampling(1.0, 40))[0] for r in requests}
    for order in ([0, 1, 2, 3, 4, 5, 6], [6, 0, 5, 1, 4, 2, 3]):
        stream, got = opened(make(kind, fixed=fixed), Sampling(1.0, 40)), {}
        for n in order:
            stream.ask([requests[n]])
            got |= dict(stream.advance())
        got |= drain(stream)
        assert got.keys() == alone.keys()
        for name, answer in got.items():
            equal(reply(answer), alone[name])


def test_attempts_that_come_later_take_over_what_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make()
    policy.complete([ask(9)], WARM)
    computed: list[int] = []
    hidden = policy._decoder.hidden
    monkeypatch.setattr(policy._decoder, "hidden", lambda ids, *a: (computed.append(ids.numel()), hidden(ids, *a))[1])
    stream = opened(policy)
    requests = [Request(f"try{i}", prompt(0, 60), seed=i) for i in range(5)]
    stream.ask(requests[:1])
    got = dict(stream.advance())
    assert max(computed) == 60
    del computed[:]
    stream.ask(requests[1:])
    got |= drain(stream)
    assert max(computed) <= 5  # one id of each row: nobody computed the prompt anew
    for request in requests:
        equal(reply(got[request.conversation]), make().complete([request], WARM)[0])


# -- Controls, stops, forks -------------------------------------------------------------------------------------------


class Watching:
    """Forces an id now and then, and keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.tops: list[float] = []

    def watch(self, top_mean: float) -> None:
        self.tops.append(top_mean)

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        self.told.append(len(ids))
        return 42 if len(ids) % 4 == 3 else None


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_controls_tops_and_stops_are_served(temperature: float, fixed: bool) -> None:
    sampling = Sampling(temperature, 30)
    text = tokenizer().decode(make().complete([ask(3)], sampling)[0].ids)
    kinds: list[Callable[[], dict[str, Any]]] = [
        dict, lambda: {"control": Watching(), "top": 5}, lambda: {"top": 3}, lambda: {"stops": (text[2:5],)},
    ]  # fmt: skip
    alone = [make().complete([ask(n, **kind())], sampling)[0] for n, kind in enumerate(kinds)]
    requests = [ask(n, **kind()) for n, kind in enumerate(kinds)]
    stream, got = opened(make(fixed=fixed), sampling), {}
    for request in requests:
        stream.ask([request])
        got |= dict(stream.advance())
    got |= drain(stream)
    for request, want in zip(requests, alone, strict=True):
        equal(reply(got[request.conversation]), want)
    assert alone[3].finish is FinishReason.STOP_TEXT and 42 in alone[1].ids
    control = requests[1].control
    assert isinstance(control, Watching)
    assert control.told == list(range(len(alone[1].ids)))
    assert control.tops == pytest.approx(alone[1].top_means, abs=NEAR)


@pytest.mark.parametrize("fixed", [False, True])
def test_forks_of_what_is_under_way_and_of_what_waits_for_its_environment(fixed: bool) -> None:
    policy = make(fixed=fixed, eos_ids=[1000])
    stream = opened(policy, Sampling(1.0, 60))
    stream.ask([ask(0, 20, max_tokens=3), ask(1, 30, max_tokens=60)])
    got = dict(stream.advance()) | dict(stream.advance())
    assert got.keys() == {"c0"}
    parked = [*prompt(0, 20), *reply(got["c0"]).ids, 77]
    forks = [
        Request("x", parked, seed=5, fork_of="c0"),
        Request("y", [*prompt(1, 30), 9], seed=6, fork_of="c1"),
        Request("z", prompt(1, 12), seed=7, fork_of="nobody"),
    ]
    stream.ask(forks)
    got |= drain(stream)
    for request in [*forks, ask(1, 30, max_tokens=60)]:
        equal(reply(got[request.conversation]), make(eos_ids=[1000]).complete([request], Sampling(1.0, 60))[0])


# -- Slots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [False, True])
def test_slots_are_used_again(fixed: bool) -> None:
    policy = make(fixed=fixed)
    stream, names, replies = opened(policy), iter(range(300)), 0
    stream.ask([ask(next(names), 4, max_tokens=3) for _ in range(8)])
    while stream.working:
        ended = stream.advance()
        policy.forget([name for name, _ in ended])
        replies += len(ended)
        stream.ask([ask(n, 4, max_tokens=1 + n % 6) for _, n in zip(ended, names, strict=False)])
    assert replies == 300
    assert len(policy._table.slots) <= 8 and policy._table.cache.slots <= 8
    assert policy._table.cache.length <= 64 * (9 if fixed else 1)


def test_a_forgotten_conversation_is_given_up_and_the_others_go_on() -> None:
    policy = make(eos_ids=[1000])
    stream = opened(policy)
    stream.ask([ask(n) for n in range(3)])
    stream.advance()
    stream.ask([ask(3), ask(4)])
    policy.forget(["c1", "c3"])
    got = drain(stream)
    assert got.keys() == {"c0", "c2", "c4"}
    for n in (0, 2, 4):
        equal(reply(got[f"c{n}"]), make(eos_ids=[1000]).complete([ask(n)], WARM)[0])
    stream.ask([ask(1)])  # and it may come back
    equal(reply(drain(stream)["c1"]), make(eos_ids=[1000]).complete([ask(1)], WARM)[0])
    stream.ask([ask(0, 9)])
    stream.advance()
    policy.forget(["c0"])
    assert not stream.working and stream.advance() == []


# -- More than one at a time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [False, True])
def test_complete_between_two_steps_of_a_stream(fixed: bool) -> None:
    policy = make(fixed=fixed, eos_ids=[1000])
    stream = opened(policy, Sampling(1.0, 40))
    stream.ask([ask(n, 4 + 9 * n, max_tokens=10 + 7 * n) for n in range(5)])
    got = dict(stream.advance())
    for n in range(7, 10):
        between = [ask(n, 12), ask(n + 10, 3)]
        for request, completion in zip(between, policy.complete(between, WARM), strict=True):
            equal(completion, make(eos_ids=[1000]).complete([request], WARM)[0])
        got |= dict(stream.advance())
    got |= drain(stream)
    for n in range(5):
        request = ask(n, 4 + 9 * n, max_tokens=10 + 7 * n)
        equal(reply(got[f"c{n}"]), make(eos_ids=[1000]).complete([request], Sampling(1.0, 40))[0])


@pytest.mark.parametrize("fixed", [False, True])
def test_what_a_gpu_computes_is_read_one_call_later(fixed: bool) -> None:
    stream = opened(make(fixed=fixed, eos_ids=[1000]))
    stream.ask([ask(1, max_tokens=1), ask(2, max_tokens=2)])
    first = dict(stream.advance())
    assert sorted(first) == ([] if fixed else ["c1"]) and stream.working
    second = dict(stream.advance())
    assert sorted(first | second) == ["c1", "c2"] and not stream.working
    for n, answer in (first | second).items():
        request = ask(int(n[1:]), max_tokens=int(n[1:]))
        equal(reply(answer), make(eos_ids=[1000]).complete([request], WARM)[0])


@pytest.mark.parametrize("fixed", [False, True])
def test_two_streams_at_once(fixed: bool) -> None:
    policy = make(fixed=fixed, eos_ids=[1000])
    streams = [opened(policy, Sampling(1.0, 40)), opened(policy, Sampling(0.0, 40))]
    got: list[dict[str, Answer]] = [{}, {}]
    for n in range(6):
        streams[n % 2].ask([ask(n, 4 + 9 * n, max_tokens=10 + 5 * n)])
        for stream, had in zip(streams, got, strict=True):
            had |= dict(stream.advance())
    while any(stream.working for stream in streams):
        for stream, had in zip(streams, got, strict=True):
            had |= dict(stream.advance())
    assert [sorted(had) for had in got] == [["c0", "c2", "c4"], ["c1", "c3", "c5"]]
    for n in range(6):
        request = ask(n, 4 + 9 * n, max_tokens=10 + 5 * n)
        alone = make(eos_ids=[1000]).complete([request], Sampling(1.0 - n % 2, 40))[0]
        equal(reply(got[n % 2][f"c{n}"]), alone)


def test_a_conversation_has_one_reply_at_a_time() -> None:
    policy = make()
    stream, other = opened(policy), opened(policy)
    stream.ask([ask(0)])
    busy = "a reply of conversation c0 is under way in a stream already"
    with pytest.raises(PolicyError, match=busy):
        stream.ask([ask(1), ask(0)])
    with pytest.raises(PolicyError, match=busy):
        other.ask([ask(0)])
    with pytest.raises(PolicyError, match=busy):
        policy.complete([ask(0)], WARM)
    with pytest.raises(PolicyError, match="two requests of one call name the same conversation"):
        stream.ask([ask(2), ask(2)])
    assert drain(stream).keys() == {"c0"}  # and nothing of what was refused
    policy.complete([ask(0)], WARM)
    # A stream that nobody closed holds nothing back.
    stream.ask([ask(0)])
    stream.advance()
    del stream
    gc.collect()
    policy.complete([ask(0)], WARM)


# -- What goes wrong --------------------------------------------------------------------------------------------------


def test_a_request_that_does_not_fit_fails_alone() -> None:
    policy = make(max_context=20)
    stream = opened(policy)
    stream.ask([ask(0, 9), ask(1, 5), Request("empty", [], seed=0)])
    got = drain(stream)
    assert isinstance(got["c0"], PolicyError) and "9 prompt ids and up to 12 reply ids do not fit" in str(got["c0"])
    assert isinstance(got["empty"], PolicyError)
    equal(reply(got["c1"]), make().complete([ask(1, 5)], WARM)[0])


@pytest.mark.parametrize("when", ["prefill", "decode"])
@pytest.mark.parametrize("error", [RuntimeError("out of memory"), MemoryError(), IndexError("no such id")])
def test_an_engine_that_fails_gives_everything_up_and_may_go_on(
    when: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make(eos_ids=[1000])
    stream = opened(policy)
    stream.ask([ask(0), ask(1)])
    stream.advance()

    def broken(ids: torch.Tensor, *rest: Any) -> None:
        if (ids.shape[1] > 1) == (when == "prefill"):
            raise error
        return hidden(ids, *rest)

    hidden = policy._decoder.hidden
    monkeypatch.setattr(policy._decoder, "hidden", broken)
    stream.ask([ask(2)])
    with pytest.raises(PolicyError, match=type(error).__name__):
        stream.advance()
    assert not stream.working and stream.advance() == []
    assert all(slot.conversation is None for slot in policy._table.slots)
    monkeypatch.setattr(policy._decoder, "hidden", hidden)
    stream.ask([ask(2), ask(0)])
    for name, answer in drain(stream).items():
        equal(reply(answer), make(eos_ids=[1000]).complete([ask(int(name[1:]))], WARM)[0])


def test_logits_that_are_no_numbers_are_an_error() -> None:
    policy = make()
    policy._decoder.base.model.norm.weight.data[3] = float("nan")
    stream = opened(policy)
    stream.ask([ask(0)])
    with pytest.raises(PolicyError, match="logits are not numbers|samples LlamaForCausalLM wrongly"):
        stream.advance()


def test_a_failure_elsewhere_is_told_to_whoever_was_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make(eos_ids=[1000])
    stream, idle = opened(policy), opened(policy)
    idle.ask([ask(3)])
    assert drain(idle).keys() == {"c3"}
    stream.ask([ask(0)])
    stream.advance()
    with pytest.raises(PolicyError, match="IndexError"):
        policy.complete([Request("a", [11, 10**6], seed=1)], WARM)
    assert stream.working and not idle.working
    with pytest.raises(PolicyError, match="the model's forward failed: IndexError"):
        stream.advance()
    assert not stream.working
    for one, n in ((stream, 0), (idle, 1)):
        one.ask([ask(n)])
        equal(reply(drain(one)[f"c{n}"]), make(eos_ids=[1000]).complete([ask(n)], WARM)[0])
    # A request that is refused beforehand is no failure of the engine.
    stream.ask([ask(0)])
    stream.advance()
    with pytest.raises(PolicyError, match="0 prompt ids"):
        policy.complete([Request("b", [], seed=1)], WARM)
    assert drain(stream).keys() == {"c0"}


def changes() -> list[Any]:
    def step(policy: TransformersPolicy) -> None:
        with torch.no_grad():
            next(iter(policy._decoder.base.parameters())).mul_(1.01)

    def moved(policy: TransformersPolicy) -> None:
        parameter = next(iter(policy._decoder.base.parameters()))
        parameter.data = parameter.data * 1.01

    def complete(policy: TransformersPolicy) -> None:
        step(policy)
        policy.complete([ask(8)], WARM)

    return [step, moved, complete, TransformersPolicy.invalidate, TransformersPolicy.renew]


@pytest.mark.parametrize("change", changes())
def test_weights_that_change_end_a_stream(change: Callable[[TransformersPolicy], None]) -> None:
    policy = make(eos_ids=[1000])
    stream = opened(policy)
    stream.ask([ask(0)])
    stream.advance()
    change(policy)
    for n in (1, 2):
        stream.ask([ask(n)])
        assert stream.working
        with pytest.raises(PolicyError, match="the weights changed while a stream was open"):
            stream.advance()
        assert not stream.working
    stream.close()
    made = policy._decoder.base
    stream = opened(policy)
    stream.ask([ask(0)])
    completion = reply(drain(stream)["c0"])
    want = full_forward(made, prompt(0, 5), completion.ids, WARM.temperature)[0]
    assert completion.logprobs == pytest.approx(want.tolist(), abs=NEAR)


def test_a_merged_copy_goes_on_with_the_weights_of_its_stream() -> None:
    peft = pytest.importorskip("peft")
    wrapped = peft.get_peft_model(model("gqa"), peft.LoraConfig(r=4, task_type="CAUSAL_LM")).eval()
    policy = TransformersPolicy(wrapped, tokenizer(), sample_dtype=torch.float32, eos_ids=[1000])
    stream = opened(policy)
    stream.ask([ask(0)])
    got = dict(stream.advance())
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.5)
    policy.renew()
    got |= drain(stream)
    equal(reply(got["c0"]), make(eos_ids=[1000]).complete([ask(0)], WARM)[0])
    after = policy.complete([ask(0)], WARM)[0]
    want = full_forward(wrapped, prompt(0, 5), after.ids, WARM.temperature)[0]
    assert after.logprobs == pytest.approx(want.tolist(), abs=NEAR)
    assert after.logprobs != pytest.approx(reply(got["c0"]).logprobs, abs=1e-3)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_closed_stream_leaves_a_cache_that_is_right(fixed: bool) -> None:
    policy = make(fixed=fixed, eos_ids=[1000])
    stream = opened(policy, Sampling(1.0, 40))
    stream.ask([ask(n, 6 + n) for n in range(4)])
    stream.advance()
    stream.ask([ask(4)])
    stream.close()
    stream.close()
    assert not stream.working and stream.advance() == []
    with pytest.raises(PolicyError, match="the stream is closed"):
        stream.ask([ask(5)])
    requests = [ask(n, 6 + n) for n in range(5)]
    for request, completion in zip(requests, policy.complete(requests, Sampling(1.0, 40)), strict=True):
        equal(completion, make(eos_ids=[1000]).complete([request], Sampling(1.0, 40))[0])


def test_flags_are_as_before_between_two_steps() -> None:
    made = model("gpt2").train()  # has dropout
    made.transformer.h[0].eval()
    flags = {name: module.training for name, module in made.named_modules()}
    policy = TransformersPolicy(made, tokenizer())
    stream = opened(policy)
    stream.ask([ask(0)])
    got: dict[str, Answer] = {}
    while stream.working:
        got |= dict(stream.advance())
        assert {name: module.training for name, module in made.named_modules()} == flags
        assert torch.is_grad_enabled()
    equal(reply(got["c0"]), make("gpt2").complete([ask(0)], WARM)[0])


def test_it_is_streaming() -> None:
    policy = make()
    assert isinstance(policy, Streaming)
    stream = opened(policy)
    assert not stream.working and stream.advance() == []
    stream.ask([])
    assert not stream.working
