"""Every guard fires on a planted fault, once, with its figures and what to do. `test_healthy` has the other half."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import yaml

from agents.models.card import ModelCard
from agents.policy import FinishReason, Sampling
from tasks.sources.questions import Coverage
from tasks.splits import Choice
from tests.trainers.fake_run import task
from tests.trainers.guards.planted import (
    HELD_OUT,
    METRICS,
    POOL,
    attempts,
    evaluation,
    facts,
    kinds,
    on,
    only,
    result,
    steps,
)
from trainers.guards import GuardName, Severity, Watch
from trainers.guards.sampling import repeats_itself
from trainers.guards.signal import GroupKind, read_groups
from trainers.guards.tasks import risen
from trainers.measure import measure
from trainers.rollouts.rules import FIRST_DRAW, TRAINED
from trainers.settings.help import QUICKSTART

pytestmark = pytest.mark.filterwarnings("ignore")


def test_1_ship_by_held_out_fires_when_the_pool_runs_ahead():
    watch = on(GuardName.SHIP_BY_HELD_OUT)
    watch.measured(evaluation(0, 0.5, best=True))
    for step in range(1, 3):
        watch.episodes(step, result(attempts(0.3, seed=step)))
    watch.measured(evaluation(2, 0.6, best=True, p=0.3, best_step=2))
    for step in range(3, 5):
        watch.episodes(step, result(attempts(0.95, seed=step)))
    watch.measured(evaluation(4, 0.55, best=False, p=0.7, best_step=2))
    found = only(watch)
    assert (found.step, found.severity, found.kind) == (4, Severity.WARN, "pool_runs_ahead")
    assert "p=0.7" in found.message and "`best/` stays at step 2" in found.message and "95 % interval" in found.message
    watch.measured(evaluation(6, 0.2, best=False, p=0.001, best_step=2))
    assert kinds(watch)[1:] == [(6, "warn", "held_out_falls")]


def test_1_ship_by_held_out_fires_when_the_first_measurement_after_the_start_is_worse():
    watch = on(GuardName.SHIP_BY_HELD_OUT)
    watch.measured(evaluation(0, 0.6, best=True))
    watch.episodes(1, result(attempts(0.1, seed=1)))
    watch.measured(evaluation(1, 0.1, best=False, p=1e-6))
    assert kinds(watch) == [(1, "warn", "held_out_falls")] and "of the best at step 0" in only(watch).message


def test_1_ship_by_held_out_compares_no_pool_with_what_was_before_the_start():
    watch = on(GuardName.SHIP_BY_HELD_OUT)
    watch.measured(evaluation(0, 0.6, best=True))
    for step, skill in ((1, 0.1), (2, 0.95)):
        watch.episodes(step, result(attempts(skill, seed=step)))
        watch.measured(evaluation(step, 0.6, best=False, p=0.9))
        assert [kind for _, _, kind in kinds(watch)] == ["pool_runs_ahead"] * (step == 2)


@pytest.mark.parametrize(
    ("skills", "config", "fires"),
    [
        (
            (0.6, 0.1),
            {"beta_turn": 0.3, "turn_grouping": "turn_index", "turn_signal": "exit_code"},
            "turn_signal=exit_",
        ),
        ((0.6, 0.1), {"beta_turn": 0.0, "turn_grouping": "none"}, "graded. Lower learning_rate"),
        ((0.6, 0.6, 0.6, 0.1), {"beta_turn": 0.0, "turn_grouping": "none"}, "Lower learning_rate"),
        ((0.6, 0.45), {}, None),
        ((0.1, 0.6), {}, None),
        ((0.02, 0.0), {}, None),
    ],
)
def test_10_a_pool_that_passes_half_as_often_as_at_the_start_is_a_collapse(skills, config, fires):
    watch = on(GuardName.UPDATE_HEALTH, facts(config))
    for step in range(10 * len(skills)):
        watch.episodes(step + 1, result(attempts(skills[step // 10], seed=step)))
    assert kinds(watch) == [(10 * len(skills), "warn", "passes_fewer")] * (fires is not None)
    assert fires is None or fires in only(watch).message


def test_10_a_pool_that_grows_harder_on_purpose_is_no_collapse():
    watch = on(GuardName.UPDATE_HEALTH, facts({"curriculum": "rates.jsonl"}))
    for step in range(20):
        watch.episodes(step + 1, result(attempts(0.6 if step < 10 else 0.05, seed=step)))
    assert watch.findings == []


def pool_window(rng: random.Random, groups: int = 40, k: int = 8) -> dict[str, list[int]]:
    """Passed and graded attempts at tasks of every difficulty, most of them nearly always or nearly never passed."""
    skills = [rng.betavariate(0.4, 0.4) for _ in range(groups)]
    return {str(i): [sum(rng.random() < skill for _ in range(k)), k] for i, skill in enumerate(skills)}


def test_1_a_pool_that_does_not_change_seldom_seems_to_rise():
    """Runs of ten evaluations without any learning: of 100, 3 fire. On raw counts 42 would."""
    rng, fired = random.Random(0), 0
    for _ in range(60):
        best = pool_window(rng)
        fired += any(risen(best, pool_window(rng)) < 0.01 for _ in range(9))
    assert fired <= 4
    alike = {str(i): [8 * (i % 2), 8] for i in range(12)}, {str(i): [8 * (i % 4 > 0), 8] for i in range(12)}
    assert risen(*alike) > 0.1  # 48/96 and 72/96, of 12 tasks


def test_1_2_pool_rates_are_of_the_first_draw_and_of_no_curriculum():
    held = evaluation(0, 0.5, best=True)
    drawn, refill = attempts(0.5, k=4), attempts(0.0, seed=1, tasks=[task(i, "refill") for i in range(200, 260)])
    for episodes, first in ((drawn, True), (refill, False)):
        for episode in episodes:
            episode.notes[FIRST_DRAW] = first
    split, ship = on(GuardName.SPLIT_LINT), on(GuardName.SHIP_BY_HELD_OUT)
    split.measured(held)
    split.episodes(1, result(drawn + refill))
    assert split.findings == []
    ship.episodes(1, result(refill))
    assert ship.guards[0]._played == {}
    ordered = Watch({GuardName.SPLIT_LINT: None, GuardName.SHIP_BY_HELD_OUT: None})
    ordered.begin(facts({"curriculum": "rates.jsonl"}))
    ordered.measured(evaluation(0, 0.02, best=True))
    for step, skill in enumerate((0.1, 0.95, 0.95), 1):
        ordered.episodes(step, result(attempts(skill, seed=step)))
        ordered.measured(evaluation(step, 0.02, best=step == 1))
    assert kinds(ordered) == [(0, "note", "curriculum"), (0, "note", "curriculum")]


def test_1_ship_by_held_out_says_when_nothing_selects():
    watch = Watch({GuardName.SHIP_BY_HELD_OUT: None})
    watch.begin(facts(held_out=()))
    watch.begin(facts({"eval_strategy": "no"}))
    assert kinds(watch) == [(0, "note", "nothing_selects"), (0, "warn", "not_measured")]


def test_2_split_lint_fires_on_sides_that_are_not_equally_hard():
    watch = on(GuardName.SPLIT_LINT)
    watch.measured(evaluation(0, 0.02, best=True))
    watch.episodes(1, result(attempts(0.9)))
    found = only(watch)
    assert found.kind == "not_exchangeable" and "p=" in found.message and "/60" in found.message
    assert "not overfitting" in found.message
    fair = on(GuardName.SPLIT_LINT)
    fair.measured(evaluation(0, 0.6, best=True))
    fair.episodes(1, result(attempts(0.6)))
    assert fair.findings == []


def test_2_a_first_step_of_few_tasks_counts_as_few_however_often_each_is_tried():
    watch = on(GuardName.SPLIT_LINT)
    watch.measured(evaluation(0, 0.1, best=True))
    watch.episodes(1, result(attempts(0.7, tasks=POOL[:3], k=8)))  # 24 episodes would be p < 0.001
    assert watch.findings == []


def test_2_split_lint_fires_on_overlap_and_on_choice_by_outcome():
    watch = Watch({GuardName.SPLIT_LINT: None})
    renamed = POOL[0].model_copy(update={"id": "another-name", "intent": f" {POOL[0].intent.upper()}!"})
    watch.begin(facts(held_out=[*HELD_OUT, renamed], choice=Choice.OUTCOME))
    assert kinds(watch) == [(0, "warn", "overlap"), (0, "note", "outcome")]
    assert "1 of 61" in watch.findings[0].message and "another-name" in watch.findings[0].message


@pytest.mark.parametrize(
    ("figures", "kind", "severity"),
    [
        ({"sampling/logp_difference_mean": 0.041, "sampling/ratio_max": 1.1}, "parity", "warn"),
        ({"sampling/logp_difference_mean": 0.001, "sampling/ratio_max": 1.9}, "parity", "warn"),
        ({"sampling/logp_difference_mean": 0.41}, "parity_lost", "stop"),
        ({"kl": 0.4}, "kl_start", "warn"),
        ({"kl": -0.4}, "kl_negative", "stop"),
    ],
)
def test_3_logprob_parity_fires(figures, kind, severity):
    watch = on(GuardName.LOGPROB_PARITY, facts(sampler="VLLMPolicy", dtype="bfloat16", training_dtype="float32"))
    steps(watch, [figures, figures])
    assert kinds(watch) == [(1, severity, kind)]
    if kind == "parity":
        assert "VLLMPolicy, bfloat16, T=1" in only(watch).message and "trainer float32" in only(watch).message


def test_3_logprob_parity_accepts_an_exact_sampler():
    watch = on(GuardName.LOGPROB_PARITY)
    exact = {"sampling/logp_difference_mean": 1e-7, "sampling/logp_difference_max": 1e-5, "sampling/ratio_max": 1.00001}
    steps(watch, [{**exact, "kl": 0.0}, {**exact, "kl": 0.3}])
    assert watch.findings == []


def test_3_a_sampler_that_is_corrected_has_limits_of_its_own():
    usual = {"sampling/logp_difference_mean": 0.05, "sampling/ratio_max": 2.7, "sampling/importance_capped_frac": 0.001}
    for change, found in [
        ({}, []),
        ({"sampling/logp_difference_mean": 0.15}, [(1, "warn", "parity")]),
        ({"sampling/importance_capped_frac": 0.05}, [(1, "warn", "parity")]),
        ({"sampling/logp_difference_mean": 5.0}, [(1, "stop", "parity_lost")]),
    ]:
        watch = on(GuardName.LOGPROB_PARITY, facts(exact=False, sampler="VLLMPolicy"))
        steps(watch, [{**usual, **change}])
        assert kinds(watch) == found
        assert all("Importance weights correct for" in finding.message for finding in watch.findings)


@pytest.mark.parametrize(
    ("config", "changes", "helps"),
    [
        ({}, {"dtype": "bfloat16", "training_dtype": "bfloat16"}, "dtype=float32 shows"),
        ({"sample_dtype": "bfloat16"}, {"dtype": "bfloat16", "training_dtype": "float32"}, "sample_dtype=same"),
        ({"overlap": 1}, {"dtype": "float32", "training_dtype": "float32"}, "lower learning_rate"),
        ({"sampler": "vllm:http://x"}, {"training_dtype": "bfloat16"}, "processed_logprobs"),
    ],
)
def test_3_rounding_is_corrected_and_what_is_not_rounding_gets_the_advice_of_its_setting(config, changes, helps):
    watch = on(GuardName.LOGPROB_PARITY, facts(config, exact=False, **changes))
    rounded = {"sampling/logp_difference_mean": 0.03, "sampling/ratio_max": 2.7, "sampling/importance_capped_frac": 0.0}
    steps(watch, [rounded])
    assert watch.findings == []
    steps(watch, [{**rounded, "sampling/logp_difference_mean": 0.2}])
    assert helps in only(watch).message and "same temperature" not in only(watch).message


def test_4_mask_by_length_fires():
    watch = on(GuardName.MASK_BY_LENGTH)
    episodes = attempts()
    for episode in episodes[:3]:
        episode.turns[0].ids[1] = 0  # the pad id, sampled
    watch.episodes(1, result(episodes))
    assert not watch.findings  # any id is sampled now and then
    episodes[5].turns[0].ids[1] = 0
    watch.episodes(1, result(episodes))
    steps(watch, [{}, {"mask/trained_tokens": 337.0}], first=1)
    assert kinds(watch) == [(1, "note", "pad_inside"), (2, "stop", "mask")]
    assert "4 of 32 completions" in watch.findings[0].message and "337 tokens" in watch.findings[1].message


def test_4_a_pad_id_that_ends_replies_is_expected_in_them():
    watch = on(GuardName.MASK_BY_LENGTH, facts(pad_id=9, eos_ids=frozenset({9})))
    watch.episodes(1, result(attempts()))  # every reply of these ends with 9
    assert watch.findings == []


def test_5_seeds_fires_on_attempts_that_share_their_random_numbers():
    watch = on(GuardName.SEEDS)
    episodes = attempts()
    episodes[1].seed = episodes[0].seed
    watch.episodes(1, result(episodes))
    steps(watch, [{"env/impossible_duplicate_frac": 2 / 512, "env/episodes": 512.0}] * 2)
    assert kinds(watch) == [(1, "warn", "equal_seeds"), (1, "warn", "repeated_samples")]
    assert "2 of 32 episodes" in watch.findings[0].message and "2 of 512 episodes" in watch.findings[1].message


def test_6_prompt_parity_fires_on_garbage_and_on_other_prompts():
    watch = Watch({GuardName.PROMPT_PARITY: None})
    card = ModelCard("compact", "ClawGym-v0", "aaaa")
    watch.begin(facts(card=card, environment="ClawGym-v0", prompt_hash="bbbb", template_ids=("<|im_start|>",)))
    episodes = attempts()
    for episode in episodes[:14]:
        episode.turns[0].ids = [7, 8] * 12
    watch.episodes(1, result(episodes))
    assert kinds(watch) == [(0, "warn", "other_prompts"), (1, "warn", "garbage")]
    assert "14 of 32 first replies (44%)" in watch.findings[1].message
    assert "<|im_start|>" in watch.findings[1].message and "--prompt_style base" in watch.findings[1].message


def test_6_prompt_parity_names_a_template_whose_end_is_no_end():
    watch = Watch({GuardName.PROMPT_PARITY: None})
    watch.begin(facts(overrun="replies would run on"))
    assert kinds(watch) == [(0, "warn", "overrun")] and "run on" in watch.findings[0].message


def test_6_prompt_parity_shows_a_policy_that_cannot_act():
    episodes = attempts()
    turns = [turn for episode in episodes for turn in episode.turns]
    for turn in turns[1:]:
        turn.action, turn.reply, turn.finish = "malformed", "<|im_start|>Sure!\n" * 40, FinishReason.LENGTH
    watch = on(GuardName.PROMPT_PARITY)
    for step in (1, 2):
        watch.episodes(step, result(episodes))
    found = only(watch)
    assert (found.step, found.severity, found.kind) == (1, Severity.WARN, "unread")
    assert f"{len(turns) - 1} of the {len(turns)} replies" in found.message
    assert "'<|im_start|>Sure!\\n" in found.message and len(found.message) < 900
    assert "100% of these reached their cap of 40 tokens" in found.message and "trainers.sft" in found.message
    for turn in turns[1 : len(turns) // 2]:
        turn.action = "command"
    half = on(GuardName.PROMPT_PARITY)
    half.episodes(1, result(episodes))
    assert half.findings == []


def test_6_prompt_parity_compares_training_with_measuring():
    watch = on(GuardName.PROMPT_PARITY)
    trained = [replace(e, environment={"env": "GSM8K-v0", "prompt_hash": "aaaa"}) for e in attempts()]
    measured = evaluation(0, 0.5, best=True)
    for episode in measured.episodes["sampled"]:
        episode.environment = {"env": "GSM8K-v0", "prompt_hash": "bbbb"}
    watch.measured(measured)
    watch.episodes(1, result(trained))
    assert only(watch).kind == "train_eval" and "aaaa" in only(watch).message and "bbbb" in only(watch).message


def test_6_a_reply_that_varies_or_is_short_does_not_repeat_itself():
    assert repeats_itself([1, 2, 3] * 8)
    assert not repeats_itself([1, 2, 3] * 5) and not repeats_itself(list(range(40)) * 2)


def test_7_stop_and_truncation_fires():
    watch = Watch({GuardName.STOP_AND_TRUNCATION: None})
    watch.begin(facts(arms={"sampled": Sampling(0.6, 200)}))
    episodes = attempts()
    for number, episode in enumerate(episodes):
        episode.notes = {"text_after_stop": 9.0 if number % 2 else 0.0, "text_after_answer": 0.0}
        for turn in episode.turns:
            turn.finish = FinishReason.LENGTH
    for step in range(1, 5):
        watch.episodes(step, result(episodes))
    assert kinds(watch) == [
        (0, "warn", "caps"), (0, "note", "temperature"), (3, "warn", "capped"), (3, "warn", "past_stop"),
    ]  # fmt: skip
    assert "max_tokens=40, the arm 'sampled' with max_tokens=200" in watch.findings[0].message
    assert "100% of the replies reached their cap of 40 tokens" in watch.findings[2].message
    assert "50% of the episodes write on" in watch.findings[3].message


def test_7_another_token_budget_when_measured_is_another_setting():
    watch = Watch({GuardName.STOP_AND_TRUNCATION: None})
    watch.begin(facts(arms={"sampled": Sampling(1.0, 40, 900), "greedy": Sampling(0.0, 40)}))
    assert kinds(watch) == [(0, "warn", "caps")]
    assert "max_tokens=40, the arm 'sampled' with max_tokens=40, max_episode_tokens=900" in only(watch).message


def test_8_inert_intervention_fires():
    watch = on(GuardName.INERT_INTERVENTION, facts({"beta_turn": 0.3}))
    credit = {
        "credit/weight_min": 0.92, "credit/weight_max": 1.24, "credit/changed_frac": 0.6, "credit/capped_frac": 0.8,
        "credit/cosine_uniform": 0.993, "credit/mask_requested": 0.2, "credit/mask_kept": 1.0,
    }  # fmt: skip
    steps(watch, [{**credit, "gigpo/turn_adv_abs_mean": 0.0}] * 7)
    assert kinds(watch) == [
        (5, "warn", "inert"),
        (5, "warn", "mask"),
        (5, "note", "capped"),
        (6, "warn", "no_turn_signal"),
    ]
    assert "weights 0.92 to 1.24" in watch.findings[0].message and "0.993" in watch.findings[0].message
    assert "20% of the tokens and keeps 100%" in watch.findings[1].message
    assert "beta_turn=0.3 does nothing" in watch.findings[3].message


def test_8_an_intervention_that_acts_is_not_inert():
    watch = on(GuardName.INERT_INTERVENTION, facts({"beta_turn": 0.0}))
    credit = {"credit/changed_frac": 0.4, "credit/cosine_uniform": 0.8, "credit/mask_requested": 0.2}
    steps(watch, [{**credit, "credit/mask_kept": 0.21, "gigpo/turn_adv_abs_mean": 0.0}] * 8)
    assert watch.findings == []


def test_8_gates_near_a_half_fire_and_spread_ones_do_not():
    for share, fires in ((0.93, True), (0.5, False)):
        watch = on(GuardName.INERT_INTERVENTION)
        steps(watch, [{"credit/changed_frac": 1.0, "credit/delight_neutral_frac": share}] * 6)
        assert kinds(watch) == ([(5, "warn", "neutral_gates")] if fires else [])
        assert not fires or "93% of Delight's gates" in only(watch).message


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"env/pass_rate": 1.0}, "too easy"),
        ({"env/pass_rate": 0.0}, "too hard"),
        ({"env/pass_rate": 0.5}, "earn the same"),
        ({"env/infra_error_frac": 1.0}, "infrastructure"),
    ],
)
def test_9_signal_meter_fires_on_a_dead_signal_and_says_why(changes, why):
    watch = on(GuardName.SIGNAL_METER)
    dead = {"gigpo/frac_zero_adv": 1.0, **changes}
    steps(watch, [dead, dead, {}, dead, dead, dead, dead])
    assert kinds(watch) == [(6, "warn", "no_signal")]
    assert why in only(watch).message and "not the same as having converged" in only(watch).message


def test_9_a_few_ties_of_small_steps_are_chance_and_many_are_not():
    """With one group a step, three ties in a row are common in a run that is well (4 attempts, 80 % pass: 7 %)."""
    watch = on(GuardName.SIGNAL_METER)
    for step in range(1, 13):
        watch.episodes(step, result(attempts(1.0, tasks=POOL[:1], seed=step)))
        watch.step(step, {**METRICS, "gigpo/frac_zero_adv": 1.0})
        assert len(watch.findings) == (step == 12)
    assert only(watch).message.startswith("no signal for 12 steps: every advantage is 0")


def test_8_an_operator_that_its_schedule_holds_back_is_only_noted():
    watch = on(GuardName.INERT_INTERVENTION)
    still = {"credit/changed_frac": 0.0, "credit/lambda": 0.0}
    steps(watch, [still] * 8 + [{"credit/changed_frac": 0.0, "credit/lambda": 0.5}])
    assert kinds(watch) == [(5, "note", "inert_yet"), (9, "warn", "inert")]


def test_9_signal_meter_tells_groups_apart():
    episodes = attempts(k=4)
    for number, episode in enumerate(episodes):
        group = number // 4
        episode.reward = {0: 0.9, 1: 0.0, 2: 0.5, 3: None}.get(group, 0.1 * (number % 4))
        episode.passed = {0: True, 1: False, 2: bool(number % 2), 3: None}.get(group, False)
        for turn in episode.turns:
            turn.signal = 0.25 * turn.index if group == 1 else 0.0
    meter = read_groups(episodes)
    assert meter.counts == {
        GroupKind.ALL_PASS: 1, GroupKind.ALL_FAIL: 1, GroupKind.TIE: 1, GroupKind.LOST: 1, GroupKind.SIGNAL: 4,
    }  # fmt: skip
    assert meter.turn_signal == 1 and meter.metrics()["groups/signal_frac"] == 0.5
    watch = on(GuardName.SIGNAL_METER)
    flat = episodes[:8]
    for step in range(1, 13):
        watch.episodes(step, result(flat))
        watch.step(step, METRICS)
    assert kinds(watch) == [(10, "note", "little_signal")]
    assert "0/2 groups have signal (1 all-pass, 1 all-fail); 1 of the others" in only(watch).message


@pytest.mark.parametrize(
    ("fault", "kind", "step", "severity"),
    [
        ({"grad_norm": math.nan}, "not_finite", 21, "stop"),
        ({"loss": math.inf}, "not_finite", 21, "stop"),
        ({"kl": 2685.0}, "kl", 21, "stop"),
        ({"kl_p99": 11.0}, "kl", 23, "stop"),
        ({"grad_norm": 2.5}, "gradient", 21, "stop"),
        ({"entropy": 0.008, "reward": 0.2}, "entropy", 24, "stop"),
        ({"entropy": 0.008, "reward": 0.9}, "entropy_sure", 24, "note"),
        ({"update/weight_delta_share": 0.99}, "fresh_state", 25, "warn"),
        ({"env/mean_turns": 1.02, "env/submitted": 0.99, "env/pass_rate": 0.1}, "stops_at_once", 24, "warn"),
        ({"env/submitted": 0.0}, "never_stops", 24, "warn"),
    ],
)
def test_10_update_health_fires(fault, kind, step, severity):
    watch = on(GuardName.UPDATE_HEALTH)
    steps(watch, [{}] * 20 + [fault] * 6)
    assert kinds(watch) == [(step, severity, kind)]


def test_10_update_health_fires_on_replies_that_become_empty():
    watch = on(GuardName.UPDATE_HEALTH)
    long, empty = attempts(), attempts()
    for turn in (turn for episode in long for turn in episode.turns):
        turn.ids = list(range(30))
    for step in range(1, 15):
        watch.episodes(step, result(long if step < 7 else empty))
        watch.step(step, {**METRICS, "reward": 0.6 if step < 7 else 0.1})
    assert kinds(watch) == [(10, "stop", "length")] and "3.0 tokens, had 30.0" in only(watch).message


def test_10_update_health_knows_what_is_no_collapse():
    sure = {"entropy": 0.01, "env/mean_turns": 1.0, "env/submitted": 1.0, "env/pass_rate": 0.95}
    tail = {"kl": 0.131, "kl_p99": 0.786, "kl_max": 45.185}  # step 38 of a quickstart run that learns, beta 0.01
    for healthy in (
        [sure] * 12,
        [tail] * 12,
        [{"env/submitted": 0.0}] * 12,
        [{"grad_norm": 0.0}] * 12 + [{"grad_norm": 0.3}],
    ):
        watch = on(GuardName.UPDATE_HEALTH)
        steps(watch, healthy)
        assert watch.findings == []


def test_10_update_health_notes_an_optimizer_without_warm_up():
    watch = Watch({GuardName.UPDATE_HEALTH: None})
    watch.begin(facts({"adam_epsilon": 1e-8, "warmup_steps": 0}))
    assert kinds(watch) == [(0, "note", "optimizer")] and "adam_epsilon=1e-08" in only(watch).message


@pytest.mark.parametrize(("parameters", "noted"), [(1_000_000, 0), (20_000_001, 1)])
def test_10_update_health_says_nothing_to_the_quickstarts_measured_optimizer(parameters, noted):
    shipped = yaml.safe_load(QUICKSTART.read_text())
    watch = Watch({GuardName.UPDATE_HEALTH: None})
    recipe = {name: shipped[name] for name in ("adam_epsilon", "warmup_steps", "lr_scheduler_type", "learning_rate")}
    watch.begin(replace(facts(recipe), parameters=parameters))
    assert len(watch.findings) == noted


def test_11_verifier_health_fires():
    watch = Watch({GuardName.VERIFIER_HEALTH: None})
    watch.begin(facts(self_test=Coverage(300, 300, 300, 12, 300, ("ifbench-1: the right answer scores 0",))))
    failing = attempts()
    for episode in failing[:3]:
        episode.stop_reason, episode.reward, episode.passed = "infrastructure", None, None
        episode.error = "GradeError: task 'copy' could not be graded: check: timed out"
    for step in range(1, 5):
        watch.episodes(step, result(failing))
        watch.step(step, {**METRICS, "env/infra_error_frac": 3 / 32 if step < 3 else 0.4})
    assert kinds(watch) == [(0, "warn", "self_test"), (3, "warn", "errors"), (3, "warn", "infrastructure")]
    assert "12/300" in watch.findings[0].message
    assert "9.4%" in watch.findings[1].message and "timed out" in watch.findings[1].message
    assert "40%" in watch.findings[2].message


def test_11_verifier_health_fires_on_a_failure_that_became_a_reward_and_on_slow_graders():
    watch = on(GuardName.VERIFIER_HEALTH)
    quick, slow = attempts(), attempts()
    for number, episodes in enumerate((quick, slow)):
        for episode in episodes:
            episode.turns[-1].sandbox_seconds = (0.05, 1.7)[number]
    for step in range(1, 12):
        watch.episodes(step, result(quick if step < 6 else slow))
    assert kinds(watch) == [(8, "note", "slow")] and "was 50 ms" in only(watch).message
    slow[0].assertions[0] |= {"verdict": "error", "weight": 0.0}  # only shown: it decides nothing
    watch.episodes(12, result(slow))
    assert len(watch.findings) == 1
    slow[0].assertions[0]["weight"], slow[0].reward = 1.0, 0.0
    watch.episodes(12, result(slow))
    assert kinds(watch)[1:] == [(12, "stop", "paid")]


def test_9_groups_are_those_of_the_batch_and_of_one_place():
    four = attempts(tasks=POOL[:1])
    passing, failing = ([replace(e, reward=float(ok), passed=ok, notes={}) for e in four] for ok in (True, False))
    assert read_groups([*passing, *failing]).counts == {GroupKind.ALL_PASS: 1, GroupKind.ALL_FAIL: 1}
    surplus = [replace(episode, attempt=episode.attempt + 4) for episode in failing]
    for episode in surplus:
        episode.notes = {TRAINED: False}
    assert read_groups([*passing, *surplus]).counts == {GroupKind.ALL_PASS: 1}
    assert read_groups(surplus).groups == 0


def test_10_single_turn_questions_and_a_weak_policy_are_no_collapse():
    short = {"env/mean_turns": 1.0, "env/submitted": 1.0}
    watch = on(GuardName.UPDATE_HEALTH)
    steps(watch, [{**short, "env/pass_rate": rate} for rate in (0.4, 0.4, 0.4, 0.4, 0.1, 0.1, 0.1, 0.1)])
    steps(watch, [{**short, "env/pass_rate": 0.03}] * 6, first=9)
    assert watch.findings == []
    weak = on(GuardName.UPDATE_HEALTH)  # it shortens, but never could do anything
    steps(weak, [{"env/pass_rate": 0.02}] * 4 + [{**short, "env/pass_rate": 0.0}] * 6)
    assert weak.findings == []


def test_10_a_step_of_kl_alone_does_not_say_what_gradient_is_usual():
    flat, signal = {"grad_norm": 0.02, "gigpo/frac_zero_adv": 1.0, "kl": 0.001}, {"grad_norm": 1.3, "kl": 0.001}
    sparse = on(GuardName.UPDATE_HEALTH)
    steps(sparse, [signal if step % 9 == 0 else flat for step in range(1, 60)])
    assert sparse.findings == []


def test_11_verifier_health_fires_on_a_measurement_that_lost_episodes():
    episodes = attempts(0.9, tasks=HELD_OUT, k=1)
    for episode in episodes[:9]:
        episode.stop_reason, episode.reward, episode.passed = "infrastructure", None, None
    arms = {"sampled": measure(episodes, "T=1")}
    watch = on(GuardName.VERIFIER_HEALTH)
    watch.measured(replace(evaluation(4, 0.9, best=True), arms=arms))
    assert kinds(watch) == [(4, "warn", "held_out_lost")] and "9 of 60" in only(watch).message
