"""Every guard is silent on a real run of the quickstart policy."""

from __future__ import annotations

import json

import pytest

from trainers.guards import GuardName

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", GuardName)
def test_silent_on_a_healthy_quickstart_run(name, healthy):
    assert healthy.shown_to(name) == []


def test_the_healthy_run_showed_every_event(healthy):
    assert healthy.code == 0
    kinds = [method for method, _ in healthy.events]
    assert kinds.count("begin") == 1 and kinds.count("episodes") == kinds.count("update") == kinds.count("step") == 7
    assert kinds.count("measured") == 3  # the start, step 4, the end
    assert healthy.summary()["guards"] == {"on": len(GuardName), "silent": len(GuardName), "findings": {}}
    begun = healthy.events[0][1][0]
    assert begun.template_ids and begun.dtype == begun.training_dtype == "float32" and begun.prompt_hash
    assert begun.sampling == begun.arms["sampled"] and begun.pad_id is not None and begun.eos_ids
    figures = [json.loads(line) for line in (healthy.folder / "guard_figures.jsonl").read_text().splitlines()]
    assert [line["step"] for line in figures] == list(range(1, 8))
    assert {"logprob_parity", "signal_meter", "update_health", "dead_update"} <= figures[-1]["guards"].keys()
    metrics = [arguments[1] for method, arguments in healthy.events if method == "step"]
    assert all(m["mask/trained_tokens"] == m["mask/sampled_tokens"] > 0 for m in metrics)
    assert all(m["groups/signal_frac"] + m["groups/all_pass_frac"] <= 1 for m in metrics)
    moved = [m["update/weight_delta_share"] for m in metrics]
    assert 0 < moved[-1] < 0.95  # Adam's state is kept: later steps move less than the first would
