from __future__ import annotations

import json
import random
from typing import Any

import pytest

from agents.policies.transformers import TransformersPolicy
from agents.policy import Abilities, Request, Sampling
from agents.seeds import derive_seed
from agents.t2po import T2PO, T2POConfig
from agents.t2po.resample import Place, place
from agents.uncertainty import exactly
from tests.agents.scripted import SAMPLING, resampler, turns
from tests.agents.toys import model, tokenizer


@pytest.mark.parametrize(("keep", "kept"), [("last", 0.26), ("first", 0.25), ("max_change", 0.29)])
def test_keep_decides_when_all_samples_lie_in_the_band(keep: str, kept: float) -> None:
    wrapper, _ = resampler({"a": [0.2, 0.25, 0.29, 0.26]}, turn_resample_keep=keep)
    completion = turns(wrapper, "a", 2)[-1]
    assert completion.signal == pytest.approx(kept)
    assert sorted(c.signal or 0 for c in completion.candidates) == sorted({0.25, 0.29, 0.26} - {kept})
    assert wrapper.meter.exhausted == 1


def test_of_equal_replies_the_first_is_kept_whatever_the_rounding_of_their_batch() -> None:
    """Else which seed is recorded would depend on how many episodes are played at once."""
    for one, two in ((0.29, 0.29 + 1e-8), (0.29 + 1e-8, 0.29)):
        wrapper, _ = resampler(
            {"a": [0.2, 0.25, one, two]}, turn_resample_keep="max_change", turn_resample_together=True
        )
        completion = turns(wrapper, "a", 2)[-1]
        assert completion.seed == derive_seed(1, "resample", 1) and completion.signal == one


def test_a_sample_that_leaves_the_band_wins_whatever_keep_says() -> None:
    for keep in ("first", "last", "max_change"):
        wrapper, _ = resampler({"a": [0.2, 0.25, 0.9]}, turn_resample_keep=keep)
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
    wrapper, policy = resampler({"a": [0.2, 0.25, 0.26]}, turn_resample_min_tokens=3)
    completions = turns(wrapper, "a", 3)
    assert [c.signal for c in completions] == [None] * 3
    assert len(policy.calls) == 3 and wrapper.trigger_rate() is None


def test_greedy_is_not_resampled() -> None:
    wrapper, policy = resampler({"a": [0.2, 0.25]})
    turns(wrapper, "a", 2, Sampling(0.0, 5))
    assert len(policy.calls) == 2 and wrapper.meter.greedy == 1


def test_forget_drops_the_signal() -> None:
    wrapper, policy = resampler({"a": [0.2, 0.25]})
    turns(wrapper, "a", 1)
    wrapper.forget(["a"])
    wrapper.complete([Request("a", [1], seed=1)], SAMPLING)
    assert len(policy.calls) == 2 and policy.forgotten == ["a"]


def test_eta_is_calibrated_to_the_target_rate() -> None:
    changes = [0.01 * (i + 1) for i in range(100)]
    entropies = [1.0]
    for i, change in enumerate(changes):
        entropies.append(entropies[-1] + (change if i % 2 else -change))
    wrapper, policy = resampler(
        {"a": entropies}, turn_resample_eta=None, turn_resample_rate=0.2, turn_resample_warmup=100
    )
    turns(wrapper, "a", 101)
    assert len(policy.calls) == 101  # nothing was resampled while calibrating
    assert wrapper.eta is not None
    assert sum(place(exactly(change), wrapper.eta) is Place.IN for change in changes) == 20
    assert wrapper.trigger_rate() is None


def test_calibration_of_unmoved_signals_waits() -> None:
    wrapper, _ = resampler({"a": [0.5] * 10}, turn_resample_eta=None, turn_resample_warmup=4)
    turns(wrapper, "a", 10)
    assert wrapper.eta is None


def test_state_survives_a_restart() -> None:
    wrapper, _ = resampler(
        {"a": [0.2, 0.25, 0.9, 0.9]}, turn_resample_eta=None, turn_resample_warmup=2, turn_resample_rate=0.5
    )
    turns(wrapper, "a", 3)
    other, _ = resampler({}, turn_resample_eta=None, turn_resample_warmup=2, turn_resample_rate=0.5)
    other.load_state_dict(json.loads(json.dumps(wrapper.state_dict())))
    assert other.eta == wrapper.eta is not None and other.state_dict() == wrapper.state_dict()


def test_a_configured_eta_wins_over_a_stored_one() -> None:
    calibrated, _ = resampler(
        {"a": [0.2, 0.25, 0.9]}, turn_resample_eta=None, turn_resample_warmup=2, turn_resample_rate=0.5
    )
    turns(calibrated, "a", 3)
    given, _ = resampler({}, turn_resample_eta=0.7)
    given.load_state_dict(calibrated.state_dict())
    assert calibrated.eta not in (None, 0.7) and given.eta == 0.7


def test_the_first_turn_starts_a_new_comparison_also_without_forget() -> None:
    wrapper, policy = resampler({"a": [0.2, None, 0.25]})
    turns(wrapper, "a", 1)
    for turn in range(2):  # the same name again, and its first turn has no signal
        wrapper.complete([Request("a", [1], seed=turn, first_turn=turn == 0)], SAMPLING)
    assert len(policy.calls) == 3 and wrapper.meter.missing == 1


def test_finished_episodes_are_not_sampled_again() -> None:
    wrapper, policy = resampler({"a": [0.2], "b": [0.2, 0.25, 0.9]})
    wrapper.complete([Request(n, [1], seed=0, first_turn=True) for n in "ab"], SAMPLING)
    wrapper.forget(["a"])
    wrapper.complete([Request("b", [1], seed=1)], SAMPLING)
    assert [[request.conversation for request in call] for call in policy.calls] == [["a", "b"], ["b"], ["b"]]


def test_a_missing_turn_leaves_the_last_known_signal_to_compare_with() -> None:
    wrapper, policy = resampler({"a": [0.2, None, 0.25, 0.9]})
    turns(wrapper, "a", 3)
    assert len(policy.calls) == 4 and wrapper.meter.missing == 1


# -- only bounds are known ------------------------------------------------------------------------------------------

FAR = Abilities(entropies=False, every_control=False)


def test_only_turns_whose_both_ends_agree_are_resampled() -> None:
    script = [(0.2, 0.22), (0.23, 0.26), (0.7, 0.8), (0.5, 0.9), (1.5, 1.6)]
    wrapper, policy = resampler({"a": script})
    completions = turns(wrapper, "a", 4)
    # In for certain (and its second sample out for certain), undecided, out for certain.
    assert [len(c.candidates) for c in completions] == [0, 1, 0, 0]
    meter = wrapper.meter
    assert (meter.eligible, meter.triggered, meter.undecided, meter.extra) == (3, 1, 1, 1)
    assert [c.signal for c in completions] == [None] * 4
    assert completions[1].signal_bounds == pytest.approx((0.7, 0.8))
    assert completions[1].candidates[0].signal_bounds == pytest.approx((0.23, 0.26))


def test_a_sample_that_becomes_undecided_is_kept() -> None:
    wrapper, policy = resampler({"a": [(0.2, 0.22), (0.23, 0.26), (0.3, 0.9)]}, turn_resample_keep="first")
    completion = turns(wrapper, "a", 2)[-1]
    assert len(policy.calls) == 3 and completion.signal_bounds == pytest.approx((0.3, 0.9))


def test_top1_is_exact_where_only_bounds_of_the_entropy_are_known() -> None:
    wrapper, policy = resampler({"a": [(0.2, 5.0)] * 2}, turn_resample_signal="top1")
    completions = turns(wrapper, "a", 2)
    assert [c.signal for c in completions] == pytest.approx([0.1, 0.1]) and completions[0].signal_bounds is None


# -- rate -----------------------------------------------------------------------------------------------------------


def walk(rng: random.Random, count: int) -> list[float]:
    """Entropies of turns that differ by noise."""
    return [abs(rng.gauss(0.4, 0.1)) for _ in range(count)]


@pytest.mark.parametrize("bounded", [False, True])
def test_the_calibrated_rate_is_the_wanted_one_on_simulated_turns(bounded: bool) -> None:
    rng = random.Random(1)
    names = [str(i) for i in range(40)]
    script = {n: [(h, h + 0.02) if bounded else h for h in walk(rng, 200)] for n in names}
    policy_can = FAR if bounded else Abilities()
    wrapper, policy = resampler(script, turn_resample_eta=None, turn_resample_warmup=400)
    policy.abilities = policy_can
    for turn in range(40):
        wrapper.complete([Request(n, [1], seed=turn, first_turn=turn == 0) for n in names], SAMPLING)
    rate = wrapper.trigger_rate()
    assert wrapper.meter.eligible == 39 * 40 - 400
    assert rate == pytest.approx(0.15, abs=0.04)
    assert wrapper.warning() is None


def test_a_script_has_no_leftovers_of_another_run() -> None:
    one, _ = resampler({"a": [0.2, 0.25, 0.26, 0.27, 0.9]})
    two, _ = resampler({"a": [0.2, 0.25, 0.26, 0.27, 0.9]})
    first, second = ([(c.ids, c.signal, c.candidates) for c in turns(w, "a", 3)] for w in (one, two))
    assert first == second and one.state_dict() == two.state_dict()


def test_all_tries_in_one_pass_take_the_first_that_left_the_band() -> None:
    for entropies, kept in (([0.25, 0.9, 0.8], 0.9), ([0.25, 0.26, 0.8], 0.8), ([0.25, 0.26, 0.27], 0.27)):
        wrapper, policy = resampler({"a": [0.2, *entropies]}, turn_resample_together=True)
        turn = turns(wrapper, "a", 2)[1]
        assert turn.signal == kept
        assert sorted([turn.signal, *(c.signal for c in turn.candidates)]) == sorted(entropies)
        first, second = policy.calls[2]
        assert (first.conversation, first.fork_of) == ("a", None)
        assert (second.conversation, second.fork_of) == ("a\0try2", "a")
        assert first.seed != second.seed and first.prompt_ids == second.prompt_ids
        assert policy.forgotten == ["a\0try2"]
        assert wrapper.meter.extra == 2 and wrapper.meter.exhausted == (kept == 0.27)


def test_a_conversation_named_like_a_further_sample_of_old_is_served_beside_it() -> None:
    wrapper, policy = resampler({"a": [0.2, 0.25, 0.9, 0.8], "a#2": [0.2, 0.25, 0.9, 0.8]}, turn_resample_together=True)
    for turn in range(2):
        wrapper.complete([Request(n, [1, 2], seed=turn, first_turn=turn == 0) for n in ("a", "a#2")], SAMPLING)
    names = [request.conversation for request in policy.calls[2]]
    assert len(set(names)) == len(names) == 4
    assert not {"a", "a#2"} & set(policy.forgotten)


def test_one_pass_or_one_after_the_other_accepts_the_same_replies() -> None:
    played = []
    for together in (True, False):
        config = T2POConfig(
            turn_resample=True, turn_resample_eta=0.5, turn_resample_max_try=3, turn_resample_together=together
        )
        wrapper = T2PO(TransformersPolicy(model("gqa"), tokenizer()), config)
        contexts = {f"c{n}": [11 + n, 12, 13] for n in range(4)}
        for turn in range(4):
            requests = [
                Request(name, ids, seed=10 * turn + at, first_turn=turn == 0)
                for at, (name, ids) in enumerate(contexts.items())
            ]
            for request, reply in zip(requests, wrapper.complete(requests, Sampling(1.0, 8)), strict=True):
                contexts[request.conversation] = [*request.prompt_ids, *reply.ids, 14, 15]
        assert wrapper.meter.triggered > 3
        played.append((contexts, wrapper.meter.triggered))
    assert played[0] == played[1]


RISING = [0.2 + 0.01 * n for n in range(20)]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("budget", "asked", "unpaid"),
    [
        ({}, 6, 0),
        ({"turn_resample_episode_budget": 3}, 3, 1),
        ({"turn_resample_run_budget": 5}, 5, 0),
        ({"turn_resample_run_budget": 2, "turn_resample_episode_budget": 5}, 2, 2),
    ],
)
def test_extra_samples_stop_where_a_budget_is_spent(
    budget: dict[str, int], asked: int, unpaid: int, together: bool
) -> None:
    """Three turns in a row lie in the band, whatever is drawn."""
    wrapper, policy = resampler({"a": RISING}, turn_resample_together=together, **budget)
    replies = [
        *turns(wrapper, "a", 2),
        *(wrapper.complete([Request("a", [1, 2], seed=n, first_turn=False)], SAMPLING)[0] for n in (7, 8)),
    ]
    meter = wrapper.meter
    assert (meter.asked, meter.extra, meter.unpaid) == (asked if budget else 0, asked, unpaid)
    assert sum(len(call) for call in policy.calls) == 4 + asked and meter.eligible == 3
    assert sum(reply.notes.get("resample_unpaid", 0) for reply in replies) == unpaid
    figures = wrapper.metrics()
    assert (figures.get("t2po/extra_samples"), "t2po/unpaid_frac" in figures) == (
        asked if budget else None,
        bool(budget),
    )
    spent = budget.get("turn_resample_run_budget") == asked
    assert ("extra samples is spent" in (wrapper.warning() or "")) is spent
    with wrapper.evaluation():
        assert not wrapper._resampler.meter.asked and wrapper._resampler._affordable("b") == 2
    again, _ = resampler({}, turn_resample_together=together, **budget)
    again.load_state_dict(json.loads(json.dumps(wrapper.state_dict())))
    assert again.meter == meter


def test_another_episode_has_a_budget_of_its_own() -> None:
    wrapper, _ = resampler({"a": RISING, "b": RISING}, turn_resample_episode_budget=2)
    assert [len(turns(wrapper, name, 3)[at].candidates) for name in "ab" for at in (1,)] == [2, 2]
    assert wrapper.meter.unpaid == 2
    turns(wrapper, "a", 2)  # the name begins anew
    assert wrapper.meter.asked == 6


# -- what is kept, and what is stored -------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("further", "kept"), [([None, 0.9], 0.9), ([None, 0.27], 0.27), ([0.9, None], 0.9), ([None, None], 0.25)]
)
def test_a_sample_without_a_signal_is_never_kept(together: bool, further: list[float | None], kept: float) -> None:
    wrapper, _ = resampler({"a": [0.2, 0.25, *further]}, turn_resample_together=together)
    assert turns(wrapper, "a", 2)[1].signal == pytest.approx(kept)


def test_the_seed_and_the_cap_of_a_reply_are_those_that_gave_it() -> None:
    wrapper = T2PO(
        TransformersPolicy(model("gqa"), tokenizer()), T2POConfig(turn_resample=True, turn_resample_eta=50.0)
    )
    contexts, resampled = [11, 12, 13], 0
    for turn in range(4):
        asked = Request("a", contexts, seed=turn, max_tokens=8, first_turn=turn == 0)
        reply = wrapper.complete([asked], Sampling(1.0, 12))[0]
        assert reply.seed is not None and reply.max_tokens == 8
        again = Request("b", contexts, seed=reply.seed, max_tokens=reply.max_tokens, first_turn=True)
        bare = TransformersPolicy(model("gqa"), tokenizer())
        assert bare.complete([again], Sampling(1.0, 12))[0].ids == reply.ids
        resampled += reply.seed != turn
        contexts = [*contexts, *reply.ids, 14]
    assert resampled == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"turn_resample_signal": "top1"}, "signal entropy then, top1 now"),
        ({"turn_resample_aggregate": "geometric"}, "how arithmetic then, geometric now"),
        ({"turn_resample_rate": 0.3}, "target_rate 0.5 then, 0.3 now"),
        ({"turn_resample_eta": 0.7}, "calibrated True then, False now): eta is 0.7, as given"),
    ],
)
def test_a_calibration_of_other_settings_starts_anew_and_says_so(changes: dict[str, Any], words: str) -> None:
    settings = {"turn_resample_eta": None, "turn_resample_warmup": 2, "turn_resample_rate": 0.5}
    before, _ = resampler({"a": [0.2, 0.25, 0.9, 0.9]}, **settings)
    turns(before, "a", 3)
    assert before.eta is not None
    after, _ = resampler({}, **{**settings, **changes})
    said = after.load_state_dict(before.state_dict())
    assert said is not None and words in said
    assert after.eta == changes.get("turn_resample_eta") and after.meter.later == 0
    given, _ = resampler({}, turn_resample_eta=0.7)
    calibrating, _ = resampler({}, **settings)
    assert "calibrated anew" in (calibrating.load_state_dict(given.state_dict()) or "") and calibrating.eta is None
    other, _ = resampler({}, turn_resample_eta=0.7, turn_resample_rate=0.4)  # a rate that nothing is calibrated to
    assert other.load_state_dict(given.state_dict()) is None


def test_the_state_of_another_release_is_refused_in_words() -> None:
    wrapper, _ = resampler({}, turn_resample_eta=None)
    with pytest.raises(ValueError, match="another release"):
        wrapper.load_state_dict({"eta": 0.1, "changes": [0.1], "meter": [1, 2, 3, 4]})


def test_a_calibration_that_cannot_give_the_rate_says_so_at_once() -> None:
    wrapper, _ = resampler(
        {"a": [0.5 + 0.1 * (i % 2) for i in range(30)]}, turn_resample_eta=None, turn_resample_warmup=20
    )
    turns(wrapper, "a", 20)
    assert wrapper.warning() is None
    turns(wrapper, "b", 0)
    for turn in range(20, 22):
        wrapper.complete([Request("a", [1], seed=turn)], SAMPLING)
    assert "0 of the 20 changes seen lie in that band, where 15% were wanted" in (wrapper.warning() or "")
