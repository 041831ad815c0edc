"""Every guard is silent on a real run of the quickstart policy."""

from __future__ import annotations

import json

import pytest

from agents.credited import key_of, read_advantages
from agents.trajectory import read_jsonl
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
    assert {"logprob_parity", "signal_meter", "update_health", "dead_update"} <= {
        one[0] for one in figures[-1]["figures"]
    }
    for step in range(1, 8):
        played = list(read_jsonl(healthy.folder / f"trajectories/step_{step:06d}.jsonl"))
        advantages = read_advantages(healthy.folder / f"advantages/step_{step:06d}.json")
        assert set(advantages) == {key_of(episode) for episode in played}
        assert all(len(advantages[key_of(episode)]) == len(episode.turns) for episode in played)
        by_reward = sorted(played, key=lambda episode: (episode.task_id, episode.reward))
        signs = {sum(value or 0.0 for value in advantages[key_of(episode)]) > 0 for episode in by_reward}
        assert signs == {False, True}, "some attempts were better than their group"
    metrics = [arguments[1] for method, arguments in healthy.events if method == "step"]
    assert all(m["mask/trained_tokens"] == m["mask/sampled_tokens"] > 0 for m in metrics)
    assert all(m["groups/signal_frac"] + m["groups/all_pass_frac"] <= 1 for m in metrics)
    moved = [m["update/weight_delta_share"] for m in metrics]
    assert 0 < moved[-1] < 0.95  # Adam's state is kept: later steps move less than the first would
