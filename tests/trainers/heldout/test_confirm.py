"""What was chosen, measured once more on tasks that nothing chose on: the right weights, and nothing else moved."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from agents.policy import Sampling
from benchmarks.selection import main, simulate
from tests.trainers.toy import make_model, make_task, make_tokenizer, make_trainer
from trainers.checkpoint import save_best
from trainers.errors import BestLostError
from trainers.heldout import Best, HeldOut
from trainers.heldout.confirm import PREFIX, Weights, confirm
from trainers.measure import Confirmation
from trainers.stats import bootstrap_mean, paired_test

pytestmark = pytest.mark.filterwarnings("ignore")
FRESH = [make_task(300 + i) for i in range(3)]
ARMS = {"sampled": Sampling(1.0, 12), "greedy": Sampling(0.0, 12)}


def trained(tmp_path, *, best: int = 2, adapter: bool = False, **changes):
    """A trainer after two steps, the weights of its start, and what those did on FRESH before the first step."""
    rule = HeldOut([make_task(100)], dict(ARMS), "greedy_reward", output_dir=tmp_path, samples=2)
    model = None
    if adapter:
        model = get_peft_model(make_model(make_tokenizer()), LoraConfig(r=4, target_modules="all-linear"))
    trainer = make_trainer(tmp_path, held_out=rule, model=model, learning_rate=0.1, **changes)
    start = Weights(trainer.model)
    before = ids(rule.play(trainer, FRESH, PREFIX))
    trainer.train()
    rule.best = Best(best, 0.5, rule.metric, "planted")
    save_best(tmp_path, rule.best, trainer.save_policy)
    return trainer, start, before


def ids(played):
    return {
        name: [(e.task_id, e.seed, [turn.ids for turn in e.turns]) for e in episodes]
        for name, (episodes, *_) in ((name, arm if isinstance(arm, tuple) else (arm,)) for name, arm in played.items())
    }


def flat(model):
    return torch.cat([p.detach().flatten().float() for p in model.parameters() if p.requires_grad])


@pytest.mark.parametrize(
    "how", [{}, {"adapter": True}, {"sample_dtype": "bfloat16"}], ids=["all weights", "adapter", "merged copy"]
)
def test_start_and_best_are_measured_on_the_same_tasks_seeds_and_settings(tmp_path, how):
    trainer, start, before = trained(tmp_path, **how)
    chosen, history = flat(trainer.model).clone(), list(trainer.held_out.history)
    with torch.no_grad():  # not the weights of the last step: those of `best/` count
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.25)
    drawn, steps = torch.get_rng_state(), trainer.state.global_step
    found, episodes = confirm(trainer, FRESH, start, "three tasks")
    trainer.close()
    assert (found.source, found.step, found.why) == ("three tasks", 2, "")
    assert list(found.before) == list(found.after) == ["greedy", "sampled"], "the arm that chose comes first"
    assert ids(episodes["start"]) == before, "the start is not the start"
    assert ids(episodes["best"]) != before, "the weights of best/ did not arrive at the sampler"
    for arm in ("greedy", "sampled"):
        pairs = zip(episodes["start"][arm], episodes["best"][arm], strict=True)
        assert all((a.task_id, a.seed, a.attempt) == (b.task_id, b.seed, b.attempt) for a, b in pairs)
        assert found.before[arm].sampling == found.after[arm].sampling
        assert found.before[arm].n == (6 if arm == "sampled" else 3)
    assert torch.equal(flat(trainer.model), chosen), "the model has other weights than those of best/ afterwards"
    assert torch.equal(torch.get_rng_state(), drawn) and trainer.state.global_step == steps
    assert trainer.held_out.history == history and trainer.held_out.best.reason == "planted"
    again = Confirmation.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found and again.test("greedy") == found.test("greedy")


def never_played(held_out):
    def refuse(*_):
        raise AssertionError("something was played")

    return SimpleNamespace(held_out=held_out, rollout=refuse, rollout_together=refuse)


def test_nothing_is_measured_where_there_is_nothing_to_confirm(tmp_path):
    rule = HeldOut([make_task(100)], dict(ARMS), "sampled_pass_rate", output_dir=tmp_path)
    for held_out, tasks, source, why in (
        (None, FRESH, "", ""),
        (rule, (), "none: confirm=0", "confirm=0"),
        (rule, FRESH, "three tasks", "no held-out measurement chose any weights"),
    ):
        found, episodes = confirm(never_played(held_out), tasks, None, source)
        assert (found.why, found.step, found.before, episodes) == (why, None, {}, {})
    rule.best = Best(0, 0.5, rule.metric, "first measurement")
    found, episodes = confirm(never_played(rule), FRESH, None, "three tasks")
    assert "no step beat the start" in found.why and "`best/` is the start" in found.why and not episodes
    rule.best = Best(1, 0.6, rule.metric, "better")
    with pytest.raises(ValueError, match="weights of the start are needed"):
        confirm(never_played(rule), FRESH, None, "three tasks")


def test_a_damaged_best_is_never_measured(tmp_path):
    trainer, start, _ = trained(tmp_path)
    path = tmp_path / "best" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BestLostError, match=r"best/model\.safetensors .*not the weights that were chosen"):
        confirm(trainer, FRESH, start)
    trainer.close()


def test_weights_are_a_copy_and_fit_their_model_only():
    model = make_model(make_tokenizer())
    kept, before = Weights(model), flat(model).clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    versions = [p._version for p in model.parameters()]
    assert not torch.equal(flat(model), before)
    kept.put(model)
    assert torch.equal(flat(model), before)
    assert all(p._version > v for p, v in zip(model.parameters(), versions, strict=True)), "samplers see it by these"
    adapter = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    assert all("lora" in name for name in Weights(adapter)._kept)
    with pytest.raises(ValueError, match="weights of another model"):
        kept.put(adapter)


def test_the_figures_are_the_paired_ones(tmp_path):
    trainer, start, _ = trained(tmp_path)
    found, _ = confirm(trainer, FRESH, start, "three tasks")
    trainer.close()
    before, after = found.before["sampled"].outcomes, found.after["sampled"].outcomes
    assert found.test("sampled") == paired_test(before, after)
    each = [[np.mean(after[task]) - np.mean(before[task])] for task in before]
    assert found.interval("sampled") == bootstrap_mean(each)
    found.after["sampled"].outcomes.clear()
    assert found.interval("sampled") is None and found.test("sampled").tasks == 0


# -- what it is for: benchmarks/selection.py at a small size -----------------------------------------------------------


def test_runs_that_learn_nothing_are_not_told_to_be_better():
    """Eleven measurements: p < .05 comes twice as often as it says on the tasks that chose, and not on fresh ones."""
    rng = np.random.default_rng(0)
    runs = [simulate(rng, tasks=320, measurements=11, fresh=186) for _ in range(1000)]
    old, new = (
        np.mean([p < 0.05 for p in ps]) for ps in zip(*((r.held_out_p, r.confirmed_p) for r in runs), strict=True)
    )
    assert old > 0.08 and new <= 0.05
    assert np.mean([r.held_out_points for r in runs]) > 2.0
    assert abs(np.mean([r.confirmed_points for r in runs])) < 0.5
    chosen = [r for r in runs if r.confirmed_points]
    assert len(chosen) > 800 and all(r.held_out_points >= 0 for r in runs)


def test_the_benchmark_prints_both_shares(capsys):
    assert main(["--runs", "40", "--measurements", "4", "11", "--tasks", "50", "--fresh", "30"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("50 tasks x  4 measurements, 40 runs: p < 0.05 on the tasks that chose ")
    assert "on 30 fresh tasks" in second and " x 11 measurements" in second and "points" in second
