"""The whole of credit: contract of operators, state, meter, errors."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agents.credited import EpisodeKey
from agents.trajectory import Flat, Trajectory
from tests.trainers.credit.fixtures import one_row, padded
from trainers.credit import (
    Credit,
    CreditBatch,
    CreditSettings,
    EpisodeOperator,
    TokenText,
    TurnGrouping,
    TurnRecord,
    TurnSignal,
)
from trainers.credit.batch import batch_of, joined
from trainers.credit.token import (
    OPERATORS,
    DelightMode,
    MaskScope,
    SepaSchedule,
    Stage,
    TokenOperator,
    TokenSettings,
    TokenSignal,
    make_tokens,
    operator_names,
    token_weights,
)
from trainers.errors import ConfigError
from trainers.settings.checks import idle_credit

WHICH = {"task_id": "a", "attempt": 0, "seed": 1}
EVERY: dict[str, Any] = dict(
    token_operators=",".join(OPERATORS),
    sepa_gate=0.5,
    sepa_delay=0,
    sepa_steps=4,
    delight_adaptive=True,
    entropy_mask_share=0.5,
)


def make_batch(seed=0, passed=True) -> CreditBatch:
    rng = np.random.default_rng(seed)
    turn_ids = np.where(rng.random((8, 30)) < 0.8, np.arange(30) // 10, -1)
    words = ["let", "me", "check", "x", "y"]
    return CreditBatch(
        rewards=[0.0, 1.0, 0.25, None, 0.5, 0.5, 0.5, 0.5],
        turns=[[TurnRecord(float(rng.random()), "s") for _ in range(3)] for _ in range(8)],
        turn_ids=np.where(np.arange(8)[:, None] == 3, -1, turn_ids),
        group_size=4,
        logprobs=-rng.exponential(size=(8, 30)),
        entropies=rng.exponential(size=(8, 30)),
        tokens=TokenText(rng.integers(5, size=(8, 30)), dict(enumerate(words))),
        passed=[passed] * 8,
    )


def test_the_advantage_of_a_turn_is_the_mean_of_its_tokens():
    keys = [EpisodeKey("a", 0, 1), EpisodeKey("a", 1, 2), EpisodeKey("a", 2, 3)]
    ids = np.array([[0, 0, -1, 2, 2], [-1, -1, 0, 1, -1], [-1, -1, -1, -1, -1]])
    turns = [[TurnRecord(0.0, "s")] * 3, [TurnRecord(0.0, "s")] * 2, []]
    batch = CreditBatch([1.0, 0.0, None], turns, ids, 3, keys=keys)
    found = batch.turn_advantages(np.array([[1.0, 2.0, 9.0, -1.0, -1.0], [9.0, 9.0, 0.0, 0.5, 9.0], [0.0] * 5]))
    assert found == {keys[0]: [1.5, None, -1.0], keys[1]: [0.0, 0.5], keys[2]: []}


def test_default_is_the_plain_sum_and_has_no_state():
    credit = Credit(CreditSettings())
    result = credit.assign(make_batch())
    assert not credit.needs_tokens and not credit.needs_entropies and credit.state_dict() == {}
    assert not [name for name in result.metrics if name.startswith("credit/")]


@pytest.mark.parametrize("operator", list(EpisodeOperator))
@pytest.mark.parametrize("mode", list(DelightMode))
def test_weights_multiply_the_episode_term_only(operator, mode):
    settings = CreditSettings(episode_operator=operator, beta_turn=0.5, **EVERY | dict(delight_mode=mode))
    batch = make_batch()
    result = Credit(settings).assign(batch)
    turns_only = Credit(replace(settings, alpha_episode=0.0)).assign(batch).advantages
    term = result.advantages - turns_only
    assert not term[4:].any(), "a flat group has no episode term"
    if operator not in (EpisodeOperator.REINFORCE_PP, EpisodeOperator.GTPO):  # these two centre over tokens
        assert (term[0] <= 1e-12).all() and (term[1] >= -1e-12).all()
    assert not result.advantages[batch.turn_ids < 0].any()
    assert result.metrics["credit/mask_kept"] == result.metrics["credit/mask_requested"]
    assert result.metrics["credit/weight_min"] == 0.0 < result.metrics["credit/changed_frac"] <= 1.0
    assert result.metrics["credit/cosine_uniform"] < 1.0


def test_a_weight_of_zero_stays_zero_when_the_step_is_normalised():
    settings = CreditSettings(
        episode_operator=EpisodeOperator.REINFORCE_PP,
        beta_turn=0.0,
        token_operators="entropy_mask",
        entropy_mask_share=0.5,
    )
    batch = make_batch()
    got = Credit(settings).assign(batch).advantages
    trained = got[got != 0]
    assert 0 < trained.size <= np.count_nonzero(batch.turn_ids[:4] >= 0) // 2 + 1
    assert (trained.mean(), trained.std()) == pytest.approx((0.0, 1.0), abs=1e-6)


def test_the_order_of_the_list_does_not_matter():
    batch = make_batch()
    orders = [("gtpo", "sepa", "hicra"), ("hicra", "gtpo", "sepa")]
    from trainers.credit.token import operator_names

    assert {operator_names(",".join(order)) for order in orders} == {("sepa", "gtpo", "hicra")}
    assert operator_names("none") == operator_names("") == ()
    for bad in ("gtpo,gtpo", "gtop"):
        with pytest.raises(ValueError, match=r"twice|unknown token operator"):
            operator_names(bad)
    assert Credit(CreditSettings(**EVERY)).assign(batch).advantages.any()


def test_a_new_operator_is_one_function_and_one_line(monkeypatch):
    def first_half(tokens):
        return (np.cumsum(tokens.mask, axis=1) <= tokens.counts[:, None] / 2).astype(float)

    monkeypatch.setitem(OPERATORS, "first_half", TokenOperator(first_half))
    batch = make_batch()
    settings = CreditSettings(beta_turn=0.0, token_operators="first_half")
    got, plain = (Credit(s).assign(batch).advantages for s in (settings, CreditSettings(beta_turn=0.0)))
    on = batch.turn_ids[0] >= 0
    assert np.count_nonzero(got[0]) == on.sum() // 2
    assert got[0][got[0] != 0] == pytest.approx(plain[0][np.flatnonzero(on)[: on.sum() // 2]])


def test_operators_of_others_act_after_ours_and_refuse_what_is_none(monkeypatch):
    monkeypatch.setitem(OPERATORS, "mine", TokenOperator(lambda tokens: tokens.mask))  # a mask of bool will do
    assert operator_names("mine,gtpo") == ("gtpo", "mine")
    batch = make_batch()
    settings = CreditSettings(token_operators="mine")
    assert (Credit(settings).assign(batch).advantages == Credit(CreditSettings()).assign(batch).advantages).all()
    for name, thing, message in (("b", 3, "neither a function"), ("none", len, "stands for no operator")):
        with pytest.raises(ValueError, match=message):
            OPERATORS.register(name, thing)


def test_the_signal_matters_to_an_operator_of_others(monkeypatch):
    monkeypatch.setitem(OPERATORS, "mine", TokenOperator(lambda tokens: tokens.mask))
    monkeypatch.setitem(OPERATORS, "blind", TokenOperator(lambda tokens: tokens.mask, signal=False))
    given = {"token_signal": "entropy", "planning": "wait"}
    assert not any("token_signal" in line for line in idle_credit(CreditSettings(token_operators="mine", **given)))
    said = " ".join(idle_credit(CreditSettings(token_operators="blind", **given)))
    assert "token_signal=entropy does nothing" in said and "planning=wait does nothing" in said


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (lambda t: np.full(t.mask.shape, np.nan), "mine: a value that is not finite"),
        (lambda t: np.ones(3), r"mine: shape \(3,\)"),
        (lambda t: -np.ones(t.mask.shape), "mine: a weight below 0"),
    ],
)
def test_an_operator_that_breaks_its_contract_is_named(monkeypatch, out, message):
    monkeypatch.setitem(OPERATORS, "mine", TokenOperator(out))
    with pytest.raises(ValueError, match=f"token operator {message}"):
        Credit(CreditSettings(token_operators="mine")).assign(make_batch())


def test_what_an_operator_leaves_where_nothing_was_sampled_reaches_no_sum(monkeypatch):
    monkeypatch.setitem(OPERATORS, "shifted", TokenOperator(lambda tokens: tokens.signal + 1.0, Stage.SIGNAL))
    monkeypatch.setitem(OPERATORS, "open", TokenOperator(lambda tokens: np.where(tokens.mask, 1.0, np.inf)))
    values, mask = padded([[1.0, 3.0], [1.0]])
    tokens = make_tokens(values, mask, np.ones(2), settings=TokenSettings(gtpo_beta=1.0))
    got = token_weights(["shifted", "gtpo", "open"], tokens)
    assert got[mask] == pytest.approx([2 / 3, 4 / 3, 1.0])  # 2 and 4 over their mean, which the padding is not part of
    batch, settings = make_batch(), CreditSettings(token_operators="open")
    assert (Credit(settings).assign(batch).advantages == Credit(CreditSettings()).assign(batch).advantages).all()


def test_an_operator_may_return_the_signal_itself(monkeypatch):
    monkeypatch.setitem(OPERATORS, "signal", TokenOperator(lambda tokens: tokens.raw))
    tokens = one_row([0.5, 2.0])
    got = token_weights(["signal", "gtpo"], replace(tokens, settings=TokenSettings(gtpo_beta=1.0)))
    monkeypatch.delitem(OPERATORS, "signal")
    assert got[0] == pytest.approx([0.5 * 0.4, 2.0 * 1.6]) and tokens.raw.tolist() == [[0.5, 2.0]]


@pytest.mark.parametrize("name", ["sepa", "hicra"])
def test_operators_that_lack_their_mask_say_so(name):
    with pytest.raises(ValueError, match=f"{name}: it needs a planning mask"):
        token_weights([name], one_row([1.0, 2.0]))
    with pytest.raises(ValueError, match=f"{name} need the text of tokens"):
        Credit(CreditSettings(token_operators=name)).assign(replace(make_batch(), tokens=None))


def test_state_moves_after_the_step_it_saw_and_a_resume_goes_on():
    settings = CreditSettings(**EVERY | dict(sepa_schedule=SepaSchedule.AUTO, sepa_warmup=2))
    credit = Credit(settings)
    lambdas = [credit.assign(make_batch(step, passed=step >= 1)).metrics["credit/lambda"] for step in range(3)]
    assert lambdas[:2] == [0.0, 0.0] and lambdas[2] >= 0.5, "the gate opened in step 1 and acts from step 2"
    saved = json.loads(json.dumps(credit.state_dict()))
    resumed = Credit(settings)
    resumed.load_state_dict(saved)
    for step in (3, 4):
        batch = make_batch(step)
        ours, theirs = credit.assign(batch), resumed.assign(batch)
        assert (ours.advantages == theirs.advantages).all() and ours.metrics == theirs.metrics
    fresh = Credit(settings).assign(make_batch(3))
    assert fresh.metrics["credit/lambda"] != theirs.metrics["credit/lambda"]


def test_the_automatic_schedule_goes_by_the_variance_of_the_execution_tokens():
    settings = CreditSettings(**EVERY | dict(sepa_schedule=SepaSchedule.AUTO))
    credit, batch = Credit(settings), make_batch()
    metrics = credit.assign(batch).metrics
    assert batch.logprobs is not None and batch.tokens is not None
    execution = (batch.turn_ids >= 0) & ~credit.planning.mask(batch.tokens, batch.turn_ids)
    wanted = np.minimum(-batch.logprobs[execution], 50).var()
    assert credit.state.schedule.mean == pytest.approx(wanted) == metrics["credit/exec_signal_var"]
    one = Credit(settings)
    one.assign(replace(batch, turn_ids=np.where(np.cumsum(execution.ravel()).reshape(8, 30) == 1, 0, -1)))
    assert one.state.schedule.mean is None, "one token has no variance"


def test_mask_over_the_batch_or_each_group():
    batch = replace(make_batch(), logprobs=np.where(np.arange(8)[:, None] < 4, -2.0, -1.0) * np.ones((8, 30)))
    kept = {}
    for scope in MaskScope:
        settings = CreditSettings(token_operators="entropy_mask", entropy_mask_share=0.25, entropy_mask_scope=scope)
        tokens = Credit(settings)
        weights, _ = tokens._weights(batch, batch.turn_ids >= 0, np.ones(8))
        kept[scope] = (weights[:4].sum(), weights[4:].sum())
    first, second = (np.count_nonzero(batch.turn_ids[half] >= 0) for half in (slice(4), slice(4, 8)))
    assert kept[MaskScope.GROUP] == (first // 4, second // 4)
    assert kept[MaskScope.BATCH] == ((first + second) // 4, 0)


def test_cap_cuts_the_final_advantages_and_counts():
    got = Credit(CreditSettings(advantage_cap=0.1)).assign(make_batch())
    assert np.abs(got.advantages).max() == 0.1 and 0 < got.metrics["credit/capped_frac"] <= 1
    assert got.metrics["credit/cap_bound"] == 0.75
    idle = Credit(CreditSettings(advantage_cap=5.0)).assign(make_batch())
    assert idle.metrics["credit/capped_frac"] == 0.0
    assert (idle.advantages == Credit(CreditSettings()).assign(make_batch()).advantages).all()


def test_a_cap_does_not_hide_what_is_not_finite():
    settings = CreditSettings(alpha_episode=1e308, beta_turn=0.0, advantage_cap=0.1)
    with pytest.raises(ValueError, match=r"not finite, from the episode term"), np.errstate(all="ignore"):
        Credit(settings).assign(replace(make_batch(), rewards=[-9.0, 9.0] * 4))


def test_verdicts_of_another_number_of_episodes_are_refused():
    with pytest.raises(ValueError, match=r"3 verdicts \(passed\) for 8 episodes"):
        Credit(CreditSettings()).assign(replace(make_batch(), passed=[True] * 3))


def test_inert_operators_show_in_the_meter():
    settings = CreditSettings(token_operators="gtpo", gtpo_beta=0.0)
    figures = Credit(settings).assign(make_batch()).metrics
    assert (figures["credit/weight_min"], figures["credit/weight_max"], figures["credit/changed_frac"]) == (1, 1, 0)
    assert figures["credit/cosine_uniform"] == pytest.approx(1.0)


def test_a_step_without_any_advantage_has_no_meter():
    batch = replace(make_batch(), rewards=[0.5] * 8)
    settings = CreditSettings(turn_grouping=TurnGrouping.NONE, token_operators="gtpo")
    figures = Credit(settings).assign(batch).metrics
    assert "credit/weight_min" not in figures and "credit/cosine_uniform" not in figures


# -- what episodes bring ------------------------------------------------------------------------------------------


def test_a_sampler_with_bounds_only_is_refused_when_entropies_are_read():
    credit = Credit(CreditSettings(token_operators="gtpo", token_signal=TokenSignal.ENTROPY))
    episode = SimpleNamespace(reward=1.0, turns=[], passed=True, **WHICH)
    flat = Flat([5], [1], [-0.5], None, [0])
    with pytest.raises(ConfigError, match="token_signal=entropy needs the exact entropy"):
        batch_of([as_trajectory(episode)], [flat], TurnSignal.PROGRESS, credit, group_size=1)
    plain = Credit(CreditSettings())
    assert batch_of([as_trajectory(episode)], [flat], TurnSignal.PROGRESS, plain, group_size=1).tokens is None


def as_trajectory(namespace) -> Trajectory:
    return namespace  # type: ignore[no-any-return]


def test_what_operators_read_travels_only_where_they_do():
    turns = [
        SimpleNamespace(signal=0.5, anchor="a", action="command", observation="saw this"),
        SimpleNamespace(signal=0.0, anchor="b", action="malformed", observation="error"),
    ]
    episode = as_trajectory(SimpleNamespace(reward=1.0, turns=turns, passed=False, **WHICH))
    flat = Flat([5, 9, 6], [1, 0, 1], [-0.5, 0.0, -0.1], None, [0, -1, 1])
    reads = Credit(CreditSettings(turn_grouping=TurnGrouping.SIMILARITY, token_operators="hicra"))
    decoded = []
    tokenizer = SimpleNamespace(decode=lambda ids: decoded.append(ids) or f"<{ids[0]}>")
    batch = batch_of([episode], [flat], TurnSignal.PROGRESS, reads, group_size=1, tokenizer=tokenizer)
    assert [(t.state, t.invalid) for t in batch.turns[0]] == [("", False), ("saw this", True)]
    assert batch.passed == [False]
    plain = batch_of([episode], [flat], TurnSignal.PROGRESS, Credit(CreditSettings()), group_size=1)
    assert plain.tokens is None and {t.state for t in plain.turns[0]} == {""}
    assert batch.logprobs is not None and batch.logprobs.tolist() == [flat.logprobs] and batch.entropies is None
    assert plain.logprobs is None and plain.entropies is None
    assert batch.tokens is not None and batch.tokens.ids.tolist() == [[5, 9, 6]]
    assert batch.tokens.texts == {5: "<5>", 6: "<6>"}
    assert decoded == [[5], [6]], "only what was sampled is decoded, each id once"


def test_an_infrastructure_failure_brings_nothing():
    lost = as_trajectory(SimpleNamespace(reward=None, turns=[], passed=None, **WHICH))
    batch = batch_of(
        [lost], [Flat([5], [0], [0.0], [0.0], [-1])], TurnSignal.PROGRESS, Credit(CreditSettings()), group_size=1
    )
    assert batch.rewards == [None] and batch.turns == [[]] and batch.passed == [None]


def test_batches_of_several_processes_are_joined_row_by_row():
    """Each as wide as its own longest completion; what no process read stays unread."""
    one = replace(make_batch(0), entropies=None)
    two = replace(
        make_batch(1),
        entropies=None,
        turn_ids=np.zeros((8, 2), dtype=np.int64),
        logprobs=np.full((8, 2), -1.0),
        tokens=TokenText(np.full((8, 2), 7), {7: "seven"}),
    )
    both = joined([one, two])
    assert both.turn_ids.shape == (16, 30) and both.rewards == [*one.rewards, *two.rewards]
    assert both.turn_ids[8:, :2].tolist() == two.turn_ids.tolist() and (both.turn_ids[8:, 2:] == -1).all()
    assert both.logprobs is not None and (both.logprobs[:8] == one.logprobs).all() and not both.logprobs[8:, 2:].any()
    assert (
        both.tokens is not None and both.tokens.ids[8:, :2].tolist() == [[7, 7]] * 8 and both.tokens.texts[7] == "seven"
    )
    assert both.entropies is None and both.group_size == one.group_size
