from __future__ import annotations

from agents.policies.scripted import OraclePolicy
from agents.policies.transformers import TransformersPolicy
from agents.policy import Sampling
from agents.rollout import RolloutEngine
from agents.rollout.episode import Job
from tests.agents.fakes import FakeEnv, task
from tests.agents.toys import model, tokenizer
from trainers.guards import (
    InfrastructureFailures,
    NeverStops,
    NoSignal,
    NoTurnSignal,
    RepeatedSamples,
    Resampling,
    StopsAtOnce,
    default_guards,
)
from trainers.run.episode_metrics import episode_metrics


def metrics(**changes):
    base = {
        "env/mean_turns": 2.6,
        "env/submitted": 0.9,
        "env/pass_rate": 0.8,
        "env/infra_error_frac": 0.0,
        "gigpo/frac_zero_adv": 0.3,
        "gigpo/turn_adv_abs_mean": 0.1,
    }
    return {**base, **{k.replace("__", "/"): v for k, v in changes.items()}}


def messages(guard, *steps):
    return [m for i, step in enumerate(steps) if (m := guard.see(i, step)) is not None]


def test_a_healthy_run_says_nothing():
    for guard in default_guards(beta_turn=0.3):
        assert messages(guard, *[metrics()] * 40) == []


def test_stopping_at_once_is_named_once():
    collapse = metrics(env__mean_turns=1.02, env__submitted=0.99, env__pass_rate=0.1)
    said = messages(StopsAtOnce(), *[metrics()] * 5, *[collapse] * 10)
    assert len(said) == 1 and "stops at once" in said[0] and "was 80%" in said[0]


def test_short_episodes_that_pass_are_no_collapse():
    solved = metrics(env__mean_turns=1.0, env__submitted=1.0, env__pass_rate=0.95)
    assert messages(StopsAtOnce(), *[solved] * 20) == []


def test_never_stopping_is_named():
    said = messages(NeverStops(), metrics(env__submitted=0.6), *[metrics(env__submitted=0.0)] * 6)
    assert len(said) == 1 and "never submits" in said[0] and "was 60%" in said[0]


def test_a_policy_that_never_submitted_did_not_collapse():
    assert messages(NeverStops(), *[metrics(env__submitted=0.0)] * 10) == []


def test_dead_signal_says_why():
    for passed, word in ((1.0, "too easy"), (0.0, "too hard"), (0.5, "earn the same")):
        said = messages(NoSignal(), *[metrics(gigpo__frac_zero_adv=1.0, env__pass_rate=passed)] * 4)
        assert len(said) == 1 and word in said[0]
    lost = {"gigpo/frac_zero_adv": 1.0, "env/infra_error_frac": 1.0}
    assert "infrastructure" in messages(NoSignal(), *[lost] * 3)[0]


def test_one_live_step_keeps_the_signal_alive():
    dead = metrics(gigpo__frac_zero_adv=1.0)
    assert messages(NoSignal(), dead, dead, metrics(), dead, dead) == []


def test_a_turn_term_that_does_nothing_says_so():
    dead = metrics(gigpo__turn_adv_abs_mean=0.0)
    assert "beta_turn=0.3 does nothing" in messages(NoTurnSignal(0.3), *[dead] * 7)[0]
    assert messages(NoTurnSignal(0.0), *[dead] * 7) == []


def test_lost_episodes_are_named():
    said = messages(InfrastructureFailures(), metrics(), metrics(env__infra_error_frac=0.4))
    assert len(said) == 1 and "40%" in said[0] and "step 1" in said[0]


def test_attempts_that_share_their_random_numbers_are_named_once():
    """Planted: all attempts with the seed of the first. Healthy: seeds of their own; and a policy without doubt."""

    def step(attempts, policy):
        with RolloutEngine(policy, FakeEnv, slots=4, workers=1) as engine:
            return episode_metrics(engine.run([Job(task(), k, 11) for k in attempts], Sampling(1.0, 16)))

    planted = step([0, 0, 0, 0], TransformersPolicy(model("gqa"), tokenizer()))
    healthy = step([0, 1, 2, 3], TransformersPolicy(model("gqa"), tokenizer()))
    sure = step([0, 1, 2, 3], OraclePolicy())
    assert planted["env/duplicate_frac"] == sure["env/duplicate_frac"] == 1.0
    assert healthy["env/duplicate_frac"] == 0.0
    assert messages(RepeatedSamples(), healthy, sure, healthy) == []
    said = messages(RepeatedSamples(), healthy, planted, planted)
    assert len(said) == 1 and "4 of 4 episodes of step 1" in said[0]
    assert any(isinstance(guard, RepeatedSamples) for guard in default_guards(0.3))


def test_repeated_samples_are_counted_however_few_they_are():
    few = {"env/impossible_duplicate_frac": 2 / 512, "env/episodes": 512.0}
    assert "2 of 512 episodes" in messages(RepeatedSamples(), few)[0]


def test_each_kind_of_the_wrapper_s_warnings_is_passed_on_once():
    answers = iter([None, "resampled 5 of 9 (eta 0.3)", "resampled 7 of 9 (eta 0.3)", "cannot decide 3"])
    said = messages(Resampling(lambda: next(answers)), *[metrics()] * 4)
    assert said == ["resampled 5 of 9 (eta 0.3)", "cannot decide 3"]
