from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agents.policies.transformers import TransformersPolicy
from agents.policy import Abilities, Policy, Request, Sampling, TaskAware, abilities, decode_label
from agents.t2po import T2PO, T2POConfig, ThinkStop
from agents.uncertainty import OFFICIAL_SKIP, mean_of, token_signals, turn_signal
from tests.agents.fakes import task
from tests.agents.scripted import SAMPLING, Script, resampler, turns
from tests.agents.toys import model, tokenizer

# -- off is off, and each switch changes ids ------------------------------------------------------------------------


def engine(think: bool = True) -> TransformersPolicy:
    return TransformersPolicy(model(), tokenizer(think=think))


def play(policy: Policy, prefix: Sequence[int] = (), count: int = 3) -> list[list[int]]:
    """Ids of `count` turns of two conversations."""
    out: list[list[int]] = []
    contexts = {"a": [20, 21, 22, *prefix], "b": [30, 31, *prefix]}
    for turn in range(count):
        requests = [Request(n, c, seed=turn * 7 + len(n), first_turn=turn == 0) for n, c in contexts.items()]
        for request, completion in zip(requests, policy.complete(requests, SAMPLING), strict=True):
            out.append(completion.ids)
            contexts[request.conversation] = [*request.prompt_ids, *completion.ids, 40, *prefix]
    return out


def test_is_a_policy_and_off_is_the_bare_policy() -> None:
    wrapper = T2PO(engine(), T2POConfig())
    assert isinstance(wrapper, Policy)
    assert play(wrapper) == play(engine())
    everything = T2PO(
        engine(),
        T2POConfig(
            max_turn_tokens=20, think_budget=2, think_answer_reserve=4, turn_resample=True, turn_resample_eta=9.0
        ),
    )
    everything.enabled = False
    assert play(everything) == play(engine())


def test_turn_cap_changes_ids() -> None:
    bare, capped = play(engine()), play(T2PO(engine(), T2POConfig(max_turn_tokens=5)))
    assert max(map(len, bare)) > 5 and max(map(len, capped)) == 5
    assert capped[0] == bare[0][:5]


def test_think_budget_changes_ids() -> None:
    open_id, close_id = (tokenizer().convert_tokens_to_ids(tag) for tag in ("<think>", "</think>"))
    bare = play(engine(), [open_id])
    wrapper = T2PO(engine(), T2POConfig(think_budget=4, think_answer_reserve=6))
    limited = play(wrapper, [open_id])
    assert limited != bare
    assert limited[0][:4] == bare[0][:4] and limited[0][4] == close_id
    completion = wrapper.complete([Request("z", [20, 21, 22, open_id], seed=1)], SAMPLING)[0]
    assert completion.forced[4] and sum(completion.forced) == 1
    assert completion.notes == {"thought_tokens": 4.0, "think_capped": 1.0}
    # Without an open block nothing is forced.
    assert play(T2PO(engine(), T2POConfig(think_budget=4, think_answer_reserve=6))) == play(engine())


@pytest.mark.parametrize(
    "settings",
    [
        {"think_stop": "official", "think_stop_patience": 3, "think_stop_eps": 10.0},
        {"think_stop": "paper", "think_stop_window": 2, "think_stop_window_eps": 10.0, "think_stop_min_tokens": 4},
        {"think_stop": "published", "think_stop_window": 2, "think_stop_window_eps": 10.0, "think_stop_min_tokens": 4},
    ],
)
def test_think_stop_changes_ids(settings: dict[str, Any]) -> None:
    open_id, close_id = (tokenizer().convert_tokens_to_ids(tag) for tag in ("<think>", "</think>"))
    bare = play(engine(), [open_id])
    stopped = play(T2PO(engine(), T2POConfig(**settings, think_answer_reserve=2)), [open_id])
    assert stopped != bare
    first = next(at for at, token in enumerate(stopped[0]) if token == close_id)
    assert first < 20 and stopped[0][:first] == bare[0][:first]


def test_turn_resample_changes_ids_of_later_turns_only() -> None:
    bare = play(engine())
    wrapper = T2PO(engine(), T2POConfig(turn_resample=True, turn_resample_eta=50.0))
    resampled = play(wrapper)
    assert resampled[:2] == bare[:2]
    assert resampled[2:] != bare[2:]
    assert wrapper.meter.triggered == wrapper.meter.eligible == 4 and wrapper.meter.extra == 8
    # The KV cache of a rejected sample does not leak into the next one: the kept ids are what a fresh engine gives.
    again = T2PO(engine(), T2POConfig(turn_resample=True, turn_resample_eta=50.0))
    assert play(again) == resampled


def test_models_without_think_tags_are_refused() -> None:
    for settings in ({"think_budget": 4}, {"think_stop": "paper"}):
        with pytest.raises(ValueError, match=r"does not think in blocks.*max_turn_tokens"):
            T2PO(engine(think=False), T2POConfig(**settings))
    T2PO(engine(think=False), T2POConfig(max_turn_tokens=4))


@pytest.mark.parametrize("signal", ["published", "official"])
def test_signals_of_paper_and_code_resample(signal: str) -> None:
    """Every turn is far inside a band as wide as that, so that each is resampled: the signal is there."""
    wrapper = T2PO(engine(), T2POConfig(turn_resample=True, turn_resample_eta=50.0, turn_resample_signal=signal))  # type: ignore[arg-type]
    sampling = Sampling(1.0, 40)
    context: list[int] = [1, 2, 3]
    for turn in range(2):
        (reply,) = wrapper.complete([Request("a", context, seed=turn, first_turn=turn == 0)], sampling)
        values = token_signals(reply, wrapper.config.turn_resample_signal, len(tokenizer()))
        expected = turn_signal(
            values, mean_of(wrapper.config.turn_resample_signal, wrapper.config.turn_resample_aggregate)
        )
        assert (reply.top_means is not None) == (signal == "published")
        if len(reply.ids) <= OFFICIAL_SKIP and signal == "official":
            pytest.skip("the toy model ended its reply early")
        assert expected is not None and reply.signal == expected.lower
        context += [*reply.ids, 7, 8]
    assert wrapper.meter.triggered == 1 and len(reply.candidates) == 2
    with wrapper.evaluation():  # nothing is resampled there, so nothing has to be looked at
        (reply,) = wrapper.complete([Request("b", [1, 2], seed=0, first_turn=True)], sampling)
    assert reply.top_means is None


def test_published_signal_needs_exact_distributions() -> None:
    with pytest.raises(ValueError, match=r"signal=published: is scaled .* Use .*official, or the engine in this"):
        T2PO(Script({}, FAR), T2POConfig(turn_resample=True, turn_resample_signal="published"))  # type: ignore[arg-type]
    T2PO(Script({}, FAR), T2POConfig(turn_resample=True, turn_resample_signal="official"))  # type: ignore[arg-type]


# -- what a policy can do -------------------------------------------------------------------------------------------

FAR = Abilities(entropies=False, every_control=False)
TEXT = Abilities(own_ids=False, logprobs=False, entropies=False, every_control=False)


def test_abilities_are_the_policy_s() -> None:
    for can in (Abilities(), FAR, TEXT):
        assert abilities(T2PO(Script({}, can), T2POConfig())) == can
    assert abilities(T2PO(T2PO(Script({}, FAR), T2POConfig()), T2POConfig())) == FAR


class Thinks(Script):
    def __init__(self, can: Abilities) -> None:
        super().__init__({}, can)
        self.tokenizer = tokenizer()


@pytest.mark.parametrize("stop", ["official", "paper", "published"])
def test_think_stop_needs_the_distribution(stop: str) -> None:
    for can in (FAR, Abilities(entropies=False), Abilities(every_control=False)):
        with pytest.raises(ValueError, match=rf"think_stop={stop} looks at .* Use think_budget, or the engine in this"):
            T2PO(Thinks(can), T2POConfig(think_stop=stop))
    T2PO(Thinks(Abilities()), T2POConfig(think_stop=stop))


def test_think_budget_needs_ids_of_the_model_only() -> None:
    T2PO(Thinks(FAR), T2POConfig(think_budget=4))
    with pytest.raises(ValueError, match=r"its ids are not the model's.*max_turn_tokens"):
        T2PO(Thinks(TEXT), T2POConfig(think_budget=4))


def test_resampling_needs_something_to_compare() -> None:
    with pytest.raises(ValueError, match=r"reports no log-probabilities.*Leave it off"):
        T2PO(Script({}, TEXT), T2POConfig(turn_resample=True))
    for signal in ("entropy", "confidence", "top1"):
        T2PO(Script({}, FAR), T2POConfig(turn_resample=True, turn_resample_signal=signal))
    T2PO(Script({}, TEXT), T2POConfig(max_turn_tokens=8))


# -- evaluation -----------------------------------------------------------------------------------------------------


def test_resampling_is_off_in_evaluation_unless_asked_for() -> None:
    for asked, calls in ((False, 2), (True, 4)):
        wrapper, policy = resampler({"a": [0.2, 0.25, 0.25, 0.25]}, turn_resample_evaluate=asked)
        with wrapper.evaluation():
            turns(wrapper, "a", 2)
        assert len(policy.calls) == calls
        # What was done there is not training's.
        assert wrapper.meter.later == 0 and wrapper.trigger_rate() is None


def test_evaluation_keeps_the_turn_cap_and_think_limits_only_if_asked() -> None:
    open_id, close_id = (tokenizer().convert_tokens_to_ids(tag) for tag in ("<think>", "</think>"))
    request = Request("z", [20, 21, 22, open_id], seed=1, first_turn=True)
    bare = engine().complete([request], SAMPLING)[0]
    assert len(bare.ids) > 15
    for asked in (False, True):
        config = T2POConfig(max_turn_tokens=15, think_budget=4, think_answer_reserve=4, think_evaluate=asked)
        wrapper = T2PO(engine(), config)
        with wrapper.evaluation():
            measured = wrapper.complete([request], SAMPLING)[0]
        assert len(measured.ids) <= 15
        assert (measured.ids[4] == close_id) == asked == any(measured.forced)
        if not asked:
            assert measured.ids == bare.ids[:15]
        assert wrapper.complete([request], SAMPLING)[0].ids[4] == close_id  # and afterwards as before


def test_evaluation_does_not_calibrate() -> None:
    script = [0.2, 0.3, 0.9, 0.1]
    wrapper, policy = resampler(
        {"a": script},
        turn_resample_eta=None,
        turn_resample_warmup=2,
        turn_resample_rate=0.5,
        turn_resample_evaluate=True,
    )
    with wrapper.evaluation():
        turns(wrapper, "a", 4)
        assert wrapper.label(SAMPLING).endswith("turn resampling off (eta is not calibrated)")
    assert (
        wrapper.eta is None
        and wrapper.state_dict() == resampler({}, turn_resample_eta=None, turn_resample_rate=0.5)[0].state_dict()
    )


def test_evaluation_ends_also_after_an_error() -> None:
    wrapper, _ = resampler({})
    with pytest.raises(KeyError), wrapper.evaluation():
        turns(wrapper, "nobody", 1)
    assert wrapper.label(SAMPLING).endswith("on (eta=0.3, max_try=2, keep=last)")


def test_labels_say_what_was_on() -> None:
    plain = "T=1, max_tokens=400"
    assert decode_label(engine(), Sampling(1.0, 400)) == plain
    wrapper = T2PO(
        engine(),
        T2POConfig(
            think_budget=300, think_stop="paper", turn_resample=True, turn_resample_eta=0.25, think_evaluate=True
        ),
    )
    assert decode_label(wrapper, Sampling(1.0, 400)) == (
        f"{plain}, think_budget=300, think_stop=paper, turn resampling on (eta=0.25, max_try=2, keep=last)"
    )
    assert wrapper.label(Sampling(0.0, 400)) == (
        "greedy, max_tokens=400, think_budget=300, think_stop=paper, turn resampling off"
    )
    with wrapper.evaluation():
        assert wrapper.label(Sampling(1.0, 400)) == (
            f"{plain}, think_budget=300, think_stop=paper, turn resampling off"
        )
    wrapper.enabled = False
    assert wrapper.label(Sampling(1.0, 400)) == plain
    capped = T2PO(engine(), T2POConfig(max_turn_tokens=50, think_budget=9, think_answer_reserve=8))
    with capped.evaluation():
        assert capped.label(Sampling(1.0, 400)) == "T=1, max_tokens=50, think limits off, turn resampling off"
    calibrating = T2PO(engine(), T2POConfig(turn_resample=True))
    assert (
        calibrating.label(Sampling(1.0, 400))
        == f"{plain}, turn resampling on once eta is calibrated (max_try=2, keep=last)"
    )


# -- repetition, state, settings ------------------------------------------------------------------------------------


def test_same_seeds_same_bytes_with_resampling_on() -> None:
    def record() -> str:
        wrapper = T2PO(
            engine(), T2POConfig(turn_resample=True, turn_resample_eta=0.1, think_budget=6, think_answer_reserve=4)
        )
        out = []
        context = [20, 21, 22]
        for turn in range(4):
            (made,) = wrapper.complete([Request("a", context, seed=turn, first_turn=turn == 0)], SAMPLING)
            out.append(
                [made.ids, made.logprobs, made.entropies, made.signal, made.notes, [c.ids for c in made.candidates]]
            )
            context = [*context, *made.ids, 40]
        return json.dumps([out, wrapper.state_dict()])

    assert record() == record()


def test_what_another_seed_gives_differs_and_seed_0_is_a_seed() -> None:
    def ids(seed: int) -> list[int]:
        return T2PO(engine(), T2POConfig()).complete([Request("a", [20, 21], seed=seed)], SAMPLING)[0].ids

    assert ids(0) == ids(0) != ids(1)


def test_tasks_and_invalidation_reach_the_policy() -> None:
    class Aware(Script):
        begun: list[str] = []
        invalidated = 0

        def begin(self, conversation: str, task: Any) -> None:
            self.begun.append(conversation)

        def invalidate(self) -> None:
            self.invalidated += 1

    policy = Aware({})
    wrapper = T2PO(policy, T2POConfig())
    assert isinstance(wrapper, TaskAware)
    wrapper.begin("a", task())
    wrapper.invalidate()
    assert policy.begun == ["a"] and policy.invalidated == 1
    T2PO(Script({}), T2POConfig()).begin("a", task())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"think_stop": "papre"}, "think_stop='papre': one of none, official, paper"),
        ({"turn_resample_eta": -1}, "turn_resample_eta=-1: above 0"),
        ({"turn_resample_max_try": 0}, "turn_resample_max_try=0: 1 or more"),
        ({"turn_resample_rate": 15}, "turn_resample_rate=15: above 0, below 1"),
        ({"max_turn_tokens": 40, "think_budget": 10}, "every think block would be closed at once"),
        ({"turn_resample_eta": float("inf")}, "turn_resample_eta=inf: above 0"),
        ({"think_budget": -5}, "think_budget=-5: above 0"),
        ({"think_stop_eps": -1e-4}, "think_stop_eps=-0.0001: 0 or more"),
        ({"think_answer_reserve": -1}, "think_answer_reserve=-1: 0 or more"),
        ({"turn_resample_signal": "entropie"}, "turn_resample_signal='entropie': one of entropy, confidence, top1"),
        ({"turn_resample_signal": "confidence", "turn_resample_aggregate": "geometric"}, "no geometric mean"),
        ({"turn_resample_signal": "official", "turn_resample_aggregate": "geometric"}, "can be negative"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        T2PO(engine(), T2POConfig(**settings))


def test_zero_is_how_people_write_off() -> None:
    off = T2POConfig(max_turn_tokens=0, think_budget=0, turn_resample_eta=0)
    assert off == T2POConfig() and off.think_budget is None and not off.thinks
    assert T2POConfig(think_stop="paper").think_stop is ThinkStop.PAPER  # type: ignore[arg-type]


def test_conversations_that_are_made_up_begin_with_their_task() -> None:
    class Aware(Script):
        def __init__(self) -> None:
            super().__init__({"a": [0.2, 0.25, 0.9, 0.8]})
            self.begun: list[tuple[str, str]] = []

        def begin(self, conversation: str, task: Any) -> None:
            self.begun.append((conversation, task.id))

    policy = Aware()
    wrapper = T2PO(policy, T2POConfig(turn_resample=True, turn_resample_eta=0.3))
    wrapper.begin("a", task())
    turns(wrapper, "a", 2)
    assert policy.begun == [("a", "first"), ("a\0try2", "first")]


def test_the_cap_is_said_to_those_who_ask() -> None:
    wrapper = T2PO(T2PO(Script({}), T2POConfig(max_turn_tokens=7)), T2POConfig(max_turn_tokens=9))
    assert wrapper.cap(Sampling(1.0, 12)) == 7 and wrapper.cap(Sampling(1.0, 3)) == 3
    one = T2PO(Script({}), T2POConfig(max_turn_tokens=9))
    one.enabled = False
    assert one.cap(Sampling(1.0, 12)) == 12
