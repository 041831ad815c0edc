"""Schedules of credit go by optimizer steps, however many generations a step has; SEPA's gate by the first draw."""

from __future__ import annotations

import pytest

from tests.trainers.rollouts.planted import make_trainer as make_planted
from tests.trainers.toy import make_trainer
from trainers.credit.settings import SepaSchedule
from trainers.credit.token.tokens import Schedule

pytestmark = pytest.mark.filterwarnings("ignore")
SEPA = {"token_operators": "sepa,gtpo", "sepa_gate": 0.0, "sepa_delay": 0, "sepa_steps": 10}


@pytest.mark.parametrize(
    "change",
    [{"gradient_accumulation_steps": 2, "steps_per_generation": 1}, {"num_iterations": 2}, {}],
    ids=["two generations a step", "two steps a generation", "one"],
)
def test_lambda_goes_by_optimizer_steps(tmp_path, change):
    trainer = make_trainer(tmp_path, max_steps=3, **SEPA, **change)
    trainer.train()
    trainer.close()
    seen = {entry["credit/lambda"] for entry in trainer.logged if "credit/lambda" in entry}
    assert seen == ({0.0, 0.2} if "num_iterations" in change else {0.0, 0.1, 0.2})


def test_the_warm_up_counts_optimizer_steps():
    def first(steps):
        schedule = Schedule(kind=SepaSchedule.AUTO, gate=0.0, warmup=3)
        for number, step in enumerate(steps, 1):
            schedule.stands_at(step)
            schedule.see(None, 1.0 / number)
            if schedule.first is not None:
                return number
        return None

    assert first([0, 1, 2]) == 3  # one batch a step
    assert first([0, 0, 1, 1, 2, 2]) == 5  # two batches a step
    assert first([0, 2, 4]) == 2  # two steps a batch
    resumed = Schedule(kind=SepaSchedule.AUTO, gate=0.0, warmup=3)
    resumed.load_state_dict({"step": 2, "open": True, "mean": 1.0, "first": None, "seen": 2})
    resumed.stands_at(2)
    resumed.see(None, 1.0)
    assert resumed.first == 1.0


def test_the_gate_reads_the_first_draw_not_what_was_chosen(tmp_path):
    """One pass in nine attempts: none in the first K, one among those that are trained on."""
    count: dict[str, int] = {}

    def plan(task_id, _):
        count[task_id] = count.get(task_id, 0) + 1
        return float(count[task_id] % 9 == 6)

    changes = {"token_operators": "sepa,gtpo", "adaptive_successes": 1, "adaptive_failures": 1}
    trainer = make_planted(tmp_path, plan, max_steps=1, **changes)
    trainer.train()
    trainer.close()
    assert any(e.passed for e in trainer.played[0])
    assert not trainer.credit.state.schedule.open
