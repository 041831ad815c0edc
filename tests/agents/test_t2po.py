from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agents.policies.bytes import ByteTokenizer
from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, FinishReason, Policy, Request, Sampling, TaskAware
from agents.t2po import T2PO, T2POConfig, in_band
from tests.agents.fakes import task
from tests.agents.toys import model, tokenizer
from tests.shared_data import shared

SAMPLING = Sampling(1.0, 24)


def fixture(key: str) -> Any:
    return json.loads(shared("fixtures/t2po_gigpo.json").read_text())[key]


class Script:
    """A policy whose replies have the entropies of a script, one per call and conversation."""

    def __init__(self, entropies: dict[str, list[float]]) -> None:
        self.tokenizer: Any = ByteTokenizer()
        self.eos_ids = frozenset([257])
        self.entropies = {name: list(values) for name, values in entropies.items()}
        self.calls: list[list[Request]] = []
        self.forgotten: list[str] = []

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.calls.append(list(requests))
        out = []
        for request in requests:
            value = self.entropies[request.conversation].pop(0)
            ids = [65 + len(self.calls), 257]
            out.append(Completion(ids, [-1.0] * 2, [value] * 2, [-0.1] * 2, [False] * 2, FinishReason.STOP))
        return out

    def forget(self, conversations: Sequence[str]) -> None:
        self.forgotten += conversations


def turns(wrapper: T2PO, name: str, count: int) -> list[Completion]:
    return [
        wrapper.complete([Request(name, [1, 2], seed=turn, first_turn=turn == 0)], SAMPLING)[0] for turn in range(count)
    ]


def resampler(entropies: dict[str, list[float]], **changes: Any) -> tuple[T2PO, Script]:
    policy = Script(entropies)
    return T2PO(policy, T2POConfig(**{"turn_resample": True, "eta": 0.3, "max_try": 2, **changes})), policy


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
        engine(), T2POConfig(max_turn_tokens=20, think_budget=2, answer_reserve=4, turn_resample=True, eta=9.0)
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
    wrapper = T2PO(engine(), T2POConfig(think_budget=4, answer_reserve=6))
    limited = play(wrapper, [open_id])
    assert limited != bare
    assert limited[0][:4] == bare[0][:4] and limited[0][4] == close_id
    completion = wrapper.complete([Request("z", [20, 21, 22, open_id], seed=1)], SAMPLING)[0]
    assert completion.forced[4] and sum(completion.forced) == 1
    assert completion.notes == {"thought_tokens": 4.0, "think_capped": 1.0}
    # Without an open block nothing is forced.
    assert play(T2PO(engine(), T2POConfig(think_budget=4, answer_reserve=6))) == play(engine())


@pytest.mark.parametrize(
    "settings",
    [
        {"think_stop": "official", "stop_patience": 3, "stop_eps": 10.0},
        {"think_stop": "paper", "stop_window": 2, "stop_window_eps": 10.0, "stop_min_tokens": 4},
    ],
)
def test_think_stop_changes_ids(settings: dict[str, Any]) -> None:
    open_id, close_id = (tokenizer().convert_tokens_to_ids(tag) for tag in ("<think>", "</think>"))
    bare = play(engine(), [open_id])
    stopped = play(T2PO(engine(), T2POConfig(**settings, answer_reserve=2)), [open_id])
    assert stopped != bare
    first = next(at for at, token in enumerate(stopped[0]) if token == close_id)
    assert first < 20 and stopped[0][:first] == bare[0][:first]


def test_turn_resample_changes_ids_of_later_turns_only() -> None:
    bare = play(engine())
    wrapper = T2PO(engine(), T2POConfig(turn_resample=True, eta=50.0))
    resampled = play(wrapper)
    assert resampled[:2] == bare[:2]
    assert resampled[2:] != bare[2:]
    assert wrapper.meter.triggered == wrapper.meter.eligible == 4 and wrapper.meter.extra == 8
    # The KV cache of a rejected sample does not leak into the next one: the kept ids are what a fresh engine gives.
    again = T2PO(engine(), T2POConfig(turn_resample=True, eta=50.0))
    assert play(again) == resampled


def test_models_without_think_tags_are_refused() -> None:
    for settings in ({"think_budget": 4}, {"think_stop": "paper"}):
        with pytest.raises(ValueError, match=r"does not think in blocks.*max_turn_tokens"):
            T2PO(engine(think=False), T2POConfig(**settings))
    T2PO(engine(think=False), T2POConfig(max_turn_tokens=4))


# -- resampling -----------------------------------------------------------------------------------------------------


def test_decisions_of_the_reference() -> None:
    seen = 0
    for case in fixture("fn_tds_decision"):
        first = [] if case["prev"] is None else [case["prev"]]
        wrapper, policy = resampler({"a": first + case["scripted"]}, eta=case["eta"], max_try=case["max_try"])
        completion = turns(wrapper, "a", len(first) + 1)[-1]
        assert completion.signal == pytest.approx(case["accepted_entropy"]), case["name"]
        assert len(policy.calls) - len(first) == case["attempts"], case["name"]
        assert len(completion.candidates) == case["attempts"] - 1
        seen += 1
    assert seen >= 8


def test_band_of_the_authors_code() -> None:
    for case in fixture("off_tds_mask"):
        got = [
            at for at, (a, b) in enumerate(zip(case["prev"], case["cur"], strict=True)) if in_band(b - a, case["eta"])
        ]
        if case["name"] == "one_missing":
            continue  # a missing score is None here and is never compared
        assert got == case["regenerate_idx"], case["name"]


def test_band_edges_allow_for_rounding() -> None:
    assert not in_band(0.1 + 0.2 - 0.3, 0.3)
    assert not in_band((0.1 + 0.7) - 0.5, 0.3)
    assert in_band(0.2999999, 0.3)


@pytest.mark.parametrize(("keep", "kept"), [("last", 0.26), ("first", 0.25), ("max_change", 0.29)])
def test_keep_decides_when_all_samples_lie_in_the_band(keep: str, kept: float) -> None:
    wrapper, _ = resampler({"a": [0.2, 0.25, 0.29, 0.26]}, keep=keep)
    completion = turns(wrapper, "a", 2)[-1]
    assert completion.signal == pytest.approx(kept)
    assert sorted(c.signal or 0 for c in completion.candidates) == sorted({0.25, 0.29, 0.26} - {kept})
    assert wrapper.meter.exhausted == 1


def test_a_sample_that_leaves_the_band_wins_whatever_keep_says() -> None:
    for keep in ("first", "last", "max_change"):
        wrapper, _ = resampler({"a": [0.2, 0.25, 0.9]}, keep=keep)
        assert turns(wrapper, "a", 2)[-1].signal == pytest.approx(0.9)


def test_resamples_use_new_seeds_the_same_prompt_and_only_the_turns_in_the_band() -> None:
    wrapper, policy = resampler({"a": [0.2, 0.25, 0.9], "b": [0.2, 0.9]})
    for turn in range(2):
        wrapper.complete([Request(n, [1, 2, turn], seed=5 + turn, first_turn=turn == 0) for n in "ab"], SAMPLING)
    assert [len(call) for call in policy.calls] == [2, 2, 1]
    (again,) = policy.calls[-1]
    assert again.conversation == "a" and again.prompt_ids == [1, 2, 1] and again.seed != 6


def test_the_accepted_signal_is_what_the_next_turn_compares_with() -> None:
    wrapper, policy = resampler({"a": [0.2, 0.25, 0.9, 1.3]})
    turns(wrapper, "a", 3)
    assert len(policy.calls) == 4  # 1.3 is compared with 0.9, not with 0.25


def test_a_missing_signal_is_not_compared() -> None:
    wrapper, policy = resampler({"a": [0.2, 0.25, 0.26]}, min_tokens=3)
    completions = turns(wrapper, "a", 3)
    assert [c.signal for c in completions] == [None] * 3
    assert len(policy.calls) == 3 and wrapper.trigger_rate() is None


def test_forced_ids_do_not_enter_the_signal() -> None:
    wrapper, _ = resampler({})
    completion = Completion([1, 2, 3], [0.0] * 3, [0.1, 9.0, 0.3], [0.0] * 3, [False, True, False], FinishReason.STOP)
    assert wrapper._signal(completion) == pytest.approx(0.2)


def test_confidence_signal() -> None:
    wrapper, _ = resampler({"a": [0.2]}, signal="confidence")
    signal = turns(wrapper, "a", 1)[0].signal
    assert signal is not None and signal < 0.4


def test_greedy_is_not_resampled() -> None:
    wrapper, policy = resampler({"a": [0.2, 0.25]})
    for turn in range(2):
        wrapper.complete([Request("a", [1], seed=0, first_turn=turn == 0)], Sampling(0.0, 5))
    assert len(policy.calls) == 2


def test_forget_drops_the_signal() -> None:
    wrapper, policy = resampler({"a": [0.2, 0.25]})
    turns(wrapper, "a", 1)
    wrapper.forget(["a"])
    wrapper.complete([Request("a", [1], seed=1)], SAMPLING)
    assert len(policy.calls) == 2 and policy.forgotten == ["a"]


def test_evaluation_is_off_unless_asked_for() -> None:
    for evaluate, calls in ((False, 2), (True, 4)):
        wrapper, policy = resampler({"a": [0.2, 0.25, 0.25, 0.25]}, evaluate=evaluate)
        with wrapper.evaluation():
            turns(wrapper, "a", 2)
        assert len(policy.calls) == calls and wrapper.enabled


# -- calibration and meter ------------------------------------------------------------------------------------------


def test_eta_is_calibrated_to_the_target_rate() -> None:
    changes = [0.01 * (i + 1) for i in range(100)]
    entropies = [1.0]
    for i, change in enumerate(changes):
        entropies.append(entropies[-1] + (change if i % 2 else -change))
    wrapper, policy = resampler({"a": entropies}, eta=None, target_rate=0.2, warmup_turns=100)
    turns(wrapper, "a", 101)
    assert len(policy.calls) == 101  # nothing was resampled while calibrating
    assert wrapper.eta is not None
    assert sum(in_band(change, wrapper.eta) for change in changes) == 20
    assert wrapper.trigger_rate() is None


def test_calibration_of_unmoved_signals_waits() -> None:
    wrapper, _ = resampler({"a": [0.5] * 10}, eta=None, warmup_turns=4)
    turns(wrapper, "a", 10)
    assert wrapper.eta is None


def test_meter_warns_at_both_ends() -> None:
    wrapper, _ = resampler({"a": [0.2, *[0.25 + 0.001 * i for i in range(300)]]}, max_try=1)
    turns(wrapper, "a", 60)
    assert wrapper.trigger_rate() == 1.0
    assert "60" not in (wrapper.warning() or "") and "59 of 59 turns" in (wrapper.warning() or "")
    wrapper, _ = resampler({"a": [float(i) for i in range(80)]})
    turns(wrapper, "a", 80)
    assert wrapper.trigger_rate() == 0.0 and "does nothing" in (wrapper.warning() or "")
    assert T2PO(Script({}), T2POConfig()).warning() is None


def test_state_survives_a_restart() -> None:
    wrapper, _ = resampler({"a": [0.2, 0.25, 0.9, 0.9]}, eta=None, warmup_turns=2, target_rate=0.5)
    turns(wrapper, "a", 3)
    other, _ = resampler({}, eta=None)
    other.load_state_dict(json.loads(json.dumps(wrapper.state_dict())))
    assert other.eta == wrapper.eta is not None and other.state_dict() == wrapper.state_dict()


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
        ({"think_stop": "papre"}, "think_stop is 'papre': use one of none, official, paper"),
        ({"eta": 0}, "eta is 0"),
        ({"max_try": 0}, "max_try is 0"),
        ({"target_rate": 15}, "target_rate is 15"),
        ({"max_turn_tokens": 40, "think_budget": 10}, "leaves no room to think"),
        ({"signal": "confidence", "how": "geometric"}, "no geometric mean"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        T2POConfig(**settings)
