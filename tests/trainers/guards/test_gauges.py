"""What guards judge by: on the far side of its limit where the guard fires, on the near side in a run that is well."""

from __future__ import annotations

import operator

import pytest

from tests.trainers.guards.planted import METRICS, attempts, evaluation, facts, on, result, steps
from trainers.guards import Fires, Gauge, GuardName, Watch
from trainers.guards.guard import Update
from trainers.settings import GiGPOConfig

SIDES = {Fires.ABOVE: operator.gt, Fires.FROM: operator.ge, Fires.BELOW: operator.lt, Fires.TO: operator.le}


def beyond(watch: Watch, **changes: float) -> list[str]:
    gauges: list[Gauge] = [gauge for some in watch.gauges({**METRICS, **changes}).values() for gauge in some]
    return [gauge.name for gauge in gauges if SIDES[gauge.fires](gauge.value, gauge.limit)]


@pytest.mark.parametrize(
    ("guard", "fault", "times", "gauge"),
    [
        ("logprob_parity", {"sampling/logp_difference_mean": 0.041}, 1, "mean abs difference"),
        ("logprob_parity", {"sampling/ratio_max": 1.9}, 1, "largest ratio"),
        ("mask_by_length", {"mask/trained_tokens": 290.0}, 1, "tokens trained"),
        ("seeds", {"env/impossible_duplicate_frac": 0.1}, 1, "attempts that are equal"),
        ("inert_intervention", {"credit/changed_frac": 0.001}, 5, "tokens that an operator changed"),
        ("inert_intervention", {"credit/cosine_uniform": 0.999}, 5, "cosine"),
        ("inert_intervention", {"credit/mask_requested": 0.2, "credit/mask_kept": 0.4}, 5, "share that the mask keeps"),
        ("inert_intervention", {"credit/capped_frac": 0.6}, 5, "tokens at the cap"),
        ("inert_intervention", {"gigpo/turn_adv_abs_mean": 0.0}, 6, "largest mean turn advantage"),
        ("signal_meter", {"gigpo/frac_zero_adv": 1.0}, 3, "steps in a row without an advantage"),
        ("update_health", {"kl": 11.0}, 1, "kl (nats)"),
        ("update_health", {"kl_p99": 11.0}, 3, "kl_p99 (nats)"),
        ("update_health", {"grad_norm": 2.5}, 1, "gradient norm"),
        ("update_health", {"entropy": 0.008, "reward": 0.2}, 4, "entropy per token"),
        ("update_health", {"update/weight_delta_share": 0.99}, 5, "step of the weights"),
        ("update_health", {"env/mean_turns": 1.02, "env/submitted": 0.99, "env/pass_rate": 0.1}, 4, "mean turns"),
        ("update_health", {"env/submitted": 0.0}, 4, "episodes submitted"),
        ("verifier_health", {"env/infra_error_frac": 0.2}, 1, "episodes lost to the machinery"),
    ],
)
def test_a_gauge_passes_its_limit_when_its_guard_fires(guard, fault, times, gauge):
    watch = on(GuardName(guard), facts({"beta_turn": 1.0}))
    steps(watch, [{}] * 12)
    assert watch.findings == [] and beyond(watch) == []
    steps(watch, [fault] * times, 13)
    assert len(watch.findings) == 1
    assert [name for name in beyond(watch, **fault) if name.startswith(gauge)] != []


def test_gauges_of_episodes_and_of_measurements():
    watch = on(GuardName.SHIP_BY_HELD_OUT)
    watch.measured(evaluation(0, 0.5, best=True))
    assert watch.gauges(METRICS) == {}
    for step, skill in enumerate((0.1, 0.95), 1):
        watch.episodes(step, result(attempts(skill, seed=step)))
        watch.measured(evaluation(step, 0.3, best=False, p=0.001))
    assert beyond(watch) == ["p that the pool rose, held-out no better", "p that held-out fell"]
    assert len(watch.findings) == 2

    watch = on(GuardName.DEAD_UPDATE)
    for step in (1, 2, 3):
        assert beyond(watch) == []
        watch.update(step, Update(1e-4, 10.0, 0.0, False))
    assert beyond(watch) == ["steps in a row in which no weight moved", "steps in a row without a gradient"]

    watch = on(GuardName.SIGNAL_METER)
    for step in range(1, 4):
        watch.episodes(step, result(attempts(0.0, seed=step)))
    (gauges,) = watch.gauges(METRICS).values()
    assert [gauge.name for gauge in gauges][0] == "groups with signal, last 10 steps"


def test_the_defaults_give_every_figure_a_name_of_its_own():
    watch = Watch()
    watch.begin(facts({"beta_turn": GiGPOConfig.beta_turn}))
    for step in range(1, 12):
        watch.episodes(step, result(attempts(seed=step)))
        watch.step(step, METRICS)
    for gauges in watch.gauges(METRICS).values():
        assert len({gauge.name for gauge in gauges}) == len(gauges)
