"""The names of retrain's guide: the table, what is left out, and a run that logs them."""

from __future__ import annotations

import json

import pytest

from tests.shared_data import REPOSITORY, shared
from tests.trainers.toy import make_trainer
from trainers.metric_names import GROUP, RETRAIN, RUNNING, MetricNames, retrain_figures

pytestmark = pytest.mark.filterwarnings("ignore")


def test_names_are_those_of_the_guide() -> None:
    """Fields of their file as the inventory of the seeds lists them, where several share a line as `a/b` or `a_*`."""
    text = shared("reference/seeds.md").read_text(encoding="utf-8")
    listed = text[text.index("**metrics.jsonl**") :].split("\n", 1)[0]
    for name in [*RETRAIN, RUNNING, GROUP]:
        family = name.split("_")[0] + "_*"
        whole = name in listed or family in listed
        parts = name.replace("post_exec_", "").replace("post_plan_", "").replace("exec_", "").replace("plan_", "")
        assert whole or f"post_exec/post_plan_{parts[:9]}" in listed or f"exec/plan_{parts[:9]}" in listed, name


def test_values_come_from_ours_and_what_is_not_known_is_left_out() -> None:
    step = {
        "reward": 0.4, "env/pass_rate": 0.5, "env/episodes": 8.0, "env/infra_error_frac": 0.0,
        "gigpo/dead_group_frac": 0.25, "credit/mask_kept": 0.2, "mask/sampled_tokens": 90.0, "step_time": 3.0,
    }  # fmt: skip
    before = [{"env/pass_rate": 0.0, "env/episodes": 8.0, "env/infra_error_frac": 0.5}, {"loss": 1.0}]
    found = retrain_figures(step, before, 4)
    assert found == {
        "mean_reward": 0.4, "correct_rate": 0.5, "num_datums": 6.0, "batch_size": 8.0, "group_size": 4.0,
        "entropy_mask_fraction": pytest.approx(0.8), "tokens_per_step": 90.0, "tokens_per_second": 30.0,
        "step_time_s": 3.0, "running_correct_rate": pytest.approx(4 / 12),
    }  # fmt: skip
    assert retrain_figures({"loss": 1.0}, [], 4) == {"group_size": 4.0}


def test_every_figure_that_a_name_stands_for_exists() -> None:
    keys = json.loads((REPOSITORY / "tests/trainers/goldens/keys.json").read_text(encoding="utf-8"))
    known = set(keys["metrics.jsonl"]) | {
        "credit/capped_frac", "credit/capped_magnitude", "credit/delight_eta", "credit/post_exec_signal_mean",
        "credit/post_exec_signal_var", "credit/post_plan_signal_mean", "credit/post_plan_signal_var",
    }  # fmt: skip
    assert {need for row in RETRAIN.values() for need in row.needs} <= known


def test_the_manual_has_the_table() -> None:
    page = (REPOSITORY / "docs/trackers.md").read_text(encoding="utf-8")
    for name, row in RETRAIN.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert all(f"`{need}`" in line for need in row.needs) and row.note in line.replace("**", ""), name


@pytest.mark.parametrize("names", list(MetricNames))
def test_a_run_logs_them_beside_ours(names: MetricNames, tmp_path) -> None:
    trainer = make_trainer(tmp_path, max_steps=2, metric_names=names)
    trainer.train()
    trainer.close()
    steps = [line for line in trainer.state.log_history if "loss" in line]
    if names is MetricNames.OURS:
        assert not any({*RETRAIN, RUNNING, GROUP} & line.keys() for line in steps)
        return
    assert len(steps) == 2
    for line in steps:
        assert line["correct_rate"] == line["env/pass_rate"] and line["mean_reward"] == line["reward"]
        assert line["max_token_hit_rate"] == line["completions/clipped_ratio"] and line["group_size"] == 4
        assert line["num_datums"] == round(line["env/episodes"] * (1 - line["gigpo/dead_group_frac"]))
    rates = [line["correct_rate"] for line in steps]
    assert steps[1]["running_correct_rate"] == pytest.approx(sum(rates) / 2)
