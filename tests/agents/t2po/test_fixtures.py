"""Numbers of the reference implementations: what is right in them must match, what is a defect must not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.policies.draw import know
from agents.policy import Completion, FinishReason, Request, Sampling
from agents.t2po import T2PO, T2POConfig
from agents.t2po.resample import Place, place
from agents.t2po.think import Cause, OfficialStop, ThinkControl
from agents.uncertainty import (
    Aggregate,
    Bounds,
    Signal,
    aggregate,
    confidence,
    entropy_bounds,
    exactly,
    mean_of,
    normalised_entropy,
    published_uncertainty,
    token_signals,
    turn_signal,
    uncertainty,
)
from tests.agents.scripted import SAMPLING, Script, resampler, turns
from tests.shared_data import shared

FIXTURES: dict[str, Any] = json.loads(shared("fixtures/t2po_gigpo.json").read_text())
CREDIT: list[dict[str, Any]] = json.loads(shared("fixtures/credit.json").read_text())["cases"]
READ = {
    "fn_tds_decision",
    "fn_topk_entropy",
    "fn_topk_entropy_upper_bound",
    "off_recorder_bug",
    "off_score",
    "off_shared_state_bug",
    "off_tds_mask",
    "off_token_processor",
    "paper_signal",
}
"""Keys that the tests below read."""
ELSEWHERE = {
    "fn_compute_reward",
    "fn_group_advantages",
    "fn_group_skip_bug",
    "fn_loss",
    "fn_parse_action",
    "fn_step_advantages",
    "fn_turn_step_reward",
}
"""Rewards, parsing and credit: tests of other folders."""


def test_no_key_of_t2po_is_left_out() -> None:
    ours = {key for key in FIXTURES if key.startswith(("off_", "fn_", "paper_"))}
    assert ours == READ | ELSEWHERE
    source = Path(__file__).read_text(encoding="utf-8")
    assert all(source.count(f'FIXTURES["{key}"]') for key in READ)


# -- one token ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FIXTURES["off_score"], ids=lambda case: case["name"])
def test_scores_of_the_authors_code_from_full_logits(case: dict[str, Any]) -> None:
    known, size = know(torch.tensor([case["logits"]])), len(case["logits"])
    entropy, top = float(known.entropies[0]), float(known.max_logprobs[0])
    assert entropy == pytest.approx(case["entropy"], abs=2e-6)
    assert top == pytest.approx(case["max_logprob"], abs=2e-6)
    assert normalised_entropy(entropy, size) == pytest.approx(case["H_norm"], abs=2e-6)
    assert confidence(entropy, top, size) == pytest.approx(case["code_score"], abs=2e-6)
    assert confidence(entropy, top, size, 0.9) == pytest.approx(case["score_alpha_0p9"], abs=2e-6)
    assert uncertainty(entropy, top, size) == pytest.approx(case["uncertainty_form"], abs=2e-6)
    assert 0.4 - confidence(entropy, top, size) == pytest.approx(case["identity_0p4_minus_score"], abs=2e-6)


def test_scores_at_the_size_of_a_real_vocabulary() -> None:
    (case,) = (case for case in CREDIT if case["group"] == "t2po.tti")
    size, alpha = case["inputs"]["vocab"], case["inputs"]["alpha"]
    got = [confidence(row["entropy"], row["max_logprob"], size, alpha) for row in case["expected"]]
    assert got == pytest.approx([row["score"] for row in case["expected"]], abs=case["abs_tol"])


# Vocabulary of each case; the logprobs of the others are the whole distribution.
VOCABULARY = {
    "truncated_mass_0.7_0.2_of_1": 3,
    "uniform1000_top20": 1000,
    "spike0.9_tail_0.1_over_10000_top20": 10_001,
}
SPIKE = [math.log(0.9)] + [math.log(1e-5)] * 19
EXPECTED_OUTSIDE = set(VOCABULARY)
"""Cases whose renormalised estimate is wrong: it lies outside of the bounds."""


@pytest.mark.parametrize("case", FIXTURES["fn_topk_entropy"], ids=lambda case: case["name"])
def test_bounds_hold_the_truth_where_renormalising_is_wrong(case: dict[str, Any]) -> None:
    name = case["name"]
    rows = [SPIKE] if name.startswith("spike") else case["top_logprobs"] or []
    bounds = [entropy_bounds(row, VOCABULARY.get(name, len(row))) for row in rows]
    if name == "empty":
        # The reference says 0; nothing is known.
        assert case["out"] == 0.0 and bounds == [] and aggregate([]) is None
        return
    if name == "one_token_without_logprobs":
        # The reference leaves the token out of the mean; an id of which nothing is known has no bounds.
        assert bounds[0] is not None and bounds[1] is None
        return
    known = [b for b in bounds if b is not None]
    lower, upper = (aggregate([getattr(b, end) for b in known]) for end in ("lower", "upper"))
    assert lower is not None and upper is not None and len(known) == len(rows)
    truth = case.get("full_vocab_entropy", case["out"])
    assert lower - 1e-5 <= truth <= upper + 1e-5
    outside = not lower - 1e-5 <= case["out"] <= upper + 1e-5
    assert outside == (name in EXPECTED_OUTSIDE)


@pytest.mark.parametrize("case", [c for c in CREDIT if c["group"] == "tds.entropy"], ids=lambda case: case["id"])
def test_bounds_are_the_entropy_where_the_top_k_is_everything(case: dict[str, Any]) -> None:
    rows = case["inputs"]["top_probs"]
    bounds = [entropy_bounds([math.log(p) for p in row], len(row) if sum(row) > 0.99 else 10) for row in rows]
    lower, upper = (aggregate([getattr(b, end) for b in bounds]) for end in ("lower", "upper"))
    if not rows:  # the reference says 0; nothing is known
        assert case["expected"] == 0.0 and lower is None
        return
    assert lower is not None and upper is not None
    if case["id"] == "topk_entropy_mass_lost":  # the reference says ln 5 of half a distribution
        assert lower > case["expected"] == pytest.approx(math.log(5))
        return
    assert (lower, upper) == pytest.approx((case["expected"],) * 2, abs=1e-5)


def test_bounds_are_not_capped_at_the_logarithm_of_k() -> None:
    case = FIXTURES["fn_topk_entropy_upper_bound"]
    assert case["max"] == pytest.approx(math.log(case["k"]), abs=1e-6)
    bounds = entropy_bounds([-math.log(1000)] * case["k"], 1000)
    assert bounds is not None and bounds.upper == pytest.approx(math.log(1000)) and bounds.lower > case["max"]


# -- one turn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FIXTURES["paper_signal"], ids=lambda case: case["name"])
def test_geometric_mean_of_the_paper(case: dict[str, Any]) -> None:
    got = aggregate(case["M"], Aggregate.GEOMETRIC, floor=case["log_floor"])
    assert got == pytest.approx(case["phi_geometric"], abs=1e-5)
    entropies, confidences = case["entropy"], case["conf_topj_neg_mean_logprob"]
    assert published_uncertainty(entropies, confidences, case["alpha"]) == pytest.approx(case["M"], abs=1e-6)
    n = len(entropies)
    reply = Completion(
        [65] * n, None, entropies, None, [False] * n, FinishReason.STOP, top_means=[-c for c in confidences]
    )
    signal = turn_signal(token_signals(reply, Signal.PUBLISHED, 8), mean_of(Signal.PUBLISHED, Aggregate.ARITHMETIC))
    assert signal is not None and signal.lower == pytest.approx(case["phi_geometric"], abs=5e-6)


class Recorded(Script):
    """Replies whose mean confidence is given, on every call anew."""

    def _completion(self, value: float) -> Completion:
        length = FIXTURES["off_recorder_bug"]["response_len"]
        top = (value - 0.4) / 0.6  # a position of entropy 0 has confidence 0.6 top + 0.4
        return Completion(
            [65] * length, [0.0] * length, [0.0] * length, [top] * length, [False] * length, FinishReason.LENGTH
        )


@pytest.mark.parametrize(
    "settings",
    [{"turn_resample_signal": "confidence", "turn_resample_min_tokens": 32}, {"turn_resample_signal": "official"}],
)
def test_turn_scores_are_exact_on_every_call(settings: dict[str, Any]) -> None:
    calls = FIXTURES["off_recorder_bug"]["calls"]
    names = [str(i) for i in range(FIXTURES["off_recorder_bug"]["batch"])]
    script = {name: [call["intended"][int(name)] for call in calls] for name in names}
    wrapper = T2PO(Recorded(script), T2POConfig(**settings))
    for number, call in enumerate(calls):
        requests = [Request(name, [1], seed=0, first_turn=number == 0) for name in names]
        signals = [completion.signal for completion in wrapper.complete(requests, Sampling(1.0, 40))]
        assert signals == pytest.approx(call["intended"])
        # The authors' recorder is right once; afterwards it finds nothing and says 0.
        assert (signals == pytest.approx(call["reference_out"])) == (number == 0)


# -- thinking -------------------------------------------------------------------------------------------------------

PROCESSOR = FIXTURES["off_token_processor"]
OPEN, CLOSE = PROCESSOR["think_start"], PROCESSOR["think_end"]


def knowledge(logits: list[float]) -> tuple[float, float]:
    top = max(logits)
    total = math.fsum(math.exp(x - top) for x in logits)
    logprobs = [x - top - math.log(total) for x in logits]
    return -math.fsum(math.exp(x) * x for x in logprobs), max(logprobs)


@pytest.mark.parametrize("case", FIXTURES["off_token_processor"]["cases"], ids=lambda case: case["name"])
def test_official_form_step_by_step(case: dict[str, Any]) -> None:
    params = case["params"]
    stop = OfficialStop(PROCESSOR["vocab"], params["patience"], PROCESSOR["eps"], PROCESSOR["alpha"])
    rule = ThinkControl(
        open_id=OPEN, close_id=CLOSE, inside=False, max_tokens=1000, think_budget=params.get("budget"), stop=stop
    )  # fmt: skip
    ids = list(case["start_ids"])
    for logits, expected in zip(case["logits"], case["steps"], strict=True):
        entropy, top = knowledge(logits)
        assert entropy == pytest.approx(expected["entropy"], abs=2e-6)
        assert top == pytest.approx(expected["max_logprob"], abs=2e-6)
        assert confidence(entropy, top, PROCESSOR["vocab"]) == pytest.approx(expected["score"], abs=2e-6)
        forced = rule.force(ids, entropy, top)
        # Ending the turn outside of thinking is in the authors' code, never switched on there, and not offered here.
        assert forced == (None if expected["forced"] == params.get("eos", -1) else expected["forced"])
        assert stop._count == expected["stagnation"]
        ids.append(expected["next"])


def test_interleaved_rows_do_not_share_a_counter() -> None:
    # The authors' code keeps one counter for the batch: two stagnant rows with different scores never fire there.
    case = FIXTURES["off_shared_state_bug"]
    assert case["any_forced"] is False and set(case["forced_tokens"]) == {None}
    rows = [
        ThinkControl(open_id=OPEN, close_id=CLOSE, inside=True, max_tokens=99, stop=OfficialStop(8, patience=3))
        for _ in range(2)
    ]
    facts = [(1.2, -0.5), (0.6, -0.2)]
    ids: list[list[int]] = [[], []]
    fired: list[list[int]] = [[], []]
    for step in range(len(case["forced_tokens"]) // 2):
        for row in (0, 1):
            forced = rows[row].force(ids[row], *facts[row])
            if forced is not None:
                fired[row].append(step)
            ids[row].append(0 if forced is None else forced)
    assert fired == [[3], [3]]
    assert rows[0].causes == rows[1].causes == [Cause.STOP]


# -- resampling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FIXTURES["fn_tds_decision"], ids=lambda case: case["name"])
def test_decisions_of_field_notes(case: dict[str, Any]) -> None:
    first = [] if case["prev"] is None else [case["prev"]]
    wrapper, policy = resampler(
        {"a": first + case["scripted"]}, turn_resample_eta=case["eta"], turn_resample_max_try=case["max_try"]
    )
    completion = turns(wrapper, "a", len(first) + 1)[-1]
    assert completion.signal == pytest.approx(case["accepted_entropy"])
    assert len(policy.calls) - len(first) == case["attempts"]
    assert len(completion.candidates) == case["attempts"] - 1


@pytest.mark.parametrize(
    "case",
    [c for c in CREDIT if c["group"] == "tds.decision" and c["source"] != "derived"],
    ids=lambda case: case["id"],
)
def test_decisions_of_field_notes_once_more(case: dict[str, Any]) -> None:
    given, wanted = case["inputs"], case["expected"]
    first = [] if given["prev"] is None else [given["prev"]]
    if given["max_try"] == 0:  # off is leaving turn_resample out
        with pytest.raises(ValueError, match="max_try=0: 1 or more"):
            resampler({"a": first}, turn_resample_eta=given["eta"], turn_resample_max_try=0)
        return
    wrapper, policy = resampler(
        {"a": first + given["samples"]}, turn_resample_eta=given["eta"], turn_resample_max_try=given["max_try"]
    )
    completion = turns(wrapper, "a", len(first) + 1)[-1]
    assert completion.signal == pytest.approx(wanted["entropy_used"])
    assert len(policy.calls) - len(first) == wanted["attempts"] == wanted["regens"] + 1


@pytest.mark.parametrize("case", FIXTURES["off_tds_mask"], ids=lambda case: case["name"])
def test_band_of_the_authors_code(case: dict[str, Any]) -> None:
    missing = case["name"] in ("one_missing", "all_zero")  # there 0 stands for a score that was not found
    if not missing:
        pairs = zip(case["prev"], case["cur"], strict=True)
        places = [place(exactly(abs(b - a)), case["eta"]) for a, b in pairs]
        assert [at for at, where in enumerate(places) if where is Place.IN] == case["regenerate_idx"]
    names = [str(at) for at in range(len(case["cur"]))]
    script = {
        name: [None if missing and value == 0 else value for value in (case["prev"][int(name)], case["cur"][int(name)])]
        for name in names
    }
    wrapper, policy = resampler(
        {name: [*values, 99.0] for name, values in script.items()}, turn_resample_eta=case["eta"]
    )
    for turn in range(2):
        wrapper.complete([Request(name, [1], seed=turn, first_turn=turn == 0) for name in names], SAMPLING)
    again = [request.conversation for call in policy.calls[2:] for request in call]
    assert again == [names[at] for at in case["regenerate_idx"]]


def test_an_interval_of_a_known_value_is_that_value() -> None:
    assert entropy_bounds([math.log(0.5)] * 2, 2) == Bounds(pytest.approx(math.log(2)), pytest.approx(math.log(2)))
