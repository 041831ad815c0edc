"""The gradient of plain GRPO beside that of a step: against one computed by hand, and without a trace in the run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.trainers.credit.fixtures import cases
from tests.trainers.toy import make_config, make_model, make_tokenizer, make_trainer
from trainers.credit.episode import EpisodeOperator, episode_advantages
from trainers.errors import ConfigError
from trainers.gradients import PLAIN, adam_scales, cosine
from trainers.settings.checks import check_processes

pytestmark = pytest.mark.filterwarnings("ignore")
FIGURES = ("cosine/advantages", "cosine/gradient", "cosine/gradient_adam")


def test_a_cosine_is_of_all_tensors_together() -> None:
    ones, zeros = torch.ones(2, 2), torch.zeros(2, 2)
    assert cosine([(ones, ones), (None, None)]) == 1.0
    assert cosine([(ones, ones), (torch.ones(4), -torch.ones(4))]) == 0.0
    assert cosine([(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0]))]) == pytest.approx(0.6)
    assert cosine([(zeros, ones)]) is None and cosine([(None, ones)]) is None


def test_gradient_cosine_reference() -> None:
    """Two groups whose gradients are orthogonal: what pulls is the mean over the right minus that over the wrong."""
    (case,) = cases("gradient_cosine")
    rates = next(iter(case["inputs"].values()))
    rewards = [[1.0] * round(16 * rate) + [0.0] * (16 - round(16 * rate)) for rate in rates]
    shares = [np.where(np.array(group) == 1, 1 / sum(group), -1 / (16 - sum(group))) for group in rewards]
    gradients = []
    for operator in (EpisodeOperator.GRPO, EpisodeOperator.MAXRL):
        advantages = episode_advantages([r for group in rewards for r in group], 16, operator=operator).reshape(2, 16)
        theta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        logp = torch.from_numpy(np.stack(shares)) * theta[:, None]
        (gradient,) = torch.autograd.grad(-(torch.from_numpy(advantages) * logp).sum(), theta)
        gradients.append(gradient)
    assert cosine([tuple(gradients)]) == pytest.approx(case["expected"]["cosine"], abs=1e-5)  # MaxRL's epsilon is in it


def test_adam_divides_by_the_second_moment_from_before() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([weight], lr=0.1, betas=(0.9, 0.5), eps=0.25)
    assert adam_scales([weight], optimizer) is None
    for gradient in ([1.0, 3.0], [1.0, 3.0]):
        weight.grad = torch.tensor(gradient)
        optimizer.step()
    (scale,) = adam_scales([weight], optimizer) or ()
    assert scale.tolist() == pytest.approx([1 / 1.25, 1 / 3.25])  # of a constant gradient, v without bias is its square
    assert adam_scales([weight], torch.optim.SGD([weight], lr=0.1)) is None


def steps_of(trainer) -> list[dict[str, float]]:
    trainer.train()
    trainer.close()
    return [{name: line[name] for name in FIGURES if name in line} for line in trainer.logged if "reward" in line]


def test_plain_grpo_is_its_own_direction(tmp_path) -> None:
    plain = {"turn_grouping": "none", "beta_turn": 0.0, "gradient_cosine_steps": 1}
    first, second = steps_of(make_trainer(tmp_path, **plain))
    assert set(first) == set(FIGURES[:2]), "Adam's first step has no moment from before"
    assert [*first.values(), *second.values()] == pytest.approx([1.0] * 5)


def test_the_cosine_is_that_of_two_gradients_computed_by_hand(tmp_path) -> None:
    trainer = make_trainer(tmp_path, max_steps=1, gradient_cosine_steps=1)
    (figures,) = steps_of(trainer)
    compared, batch = trainer.batches
    assert torch.equal(compared["advantages"], batch[PLAIN]) and not torch.equal(batch["advantages"], batch[PLAIN])
    model = make_model(make_tokenizer())
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    width = batch["completion_ids"].size(1)
    logits = model(ids, attention_mask=attention).logits[:, -width - 1 : -1]
    logps = logits.log_softmax(-1).gather(-1, batch["completion_ids"][..., None])[..., 0]
    logps = logps * batch["completion_mask"] * batch["tool_mask"]
    both = [
        torch.autograd.grad((batch[name] * logps).sum(), list(model.parameters()), retain_graph=True)
        for name in ("advantages", PLAIN)
    ]
    assert figures["cosine/gradient"] == pytest.approx(cosine(zip(*both, strict=True)), abs=1e-5)
    on = (batch["completion_mask"] * batch["tool_mask"]).bool()
    a, b = (batch[name][on].double() for name in ("advantages", PLAIN))
    assert figures["cosine/advantages"] == pytest.approx(float(a @ b / a.norm() / b.norm()), abs=1e-6)
    assert abs(figures["cosine/gradient"]) < 0.999


def test_it_is_measured_every_n_steps_and_leaves_no_trace(tmp_path) -> None:
    with_it = make_trainer(tmp_path / "a", max_steps=3, gradient_cosine_steps=2)
    figures = steps_of(with_it)
    assert [set(step) & {"cosine/gradient", "cosine/gradient_adam"} for step in figures] == [
        {"cosine/gradient"}, set(), {"cosine/gradient", "cosine/gradient_adam"}
    ]  # fmt: skip
    without = make_trainer(tmp_path / "b", max_steps=3)
    assert steps_of(without) == [{}, {}, {}]
    for a, b in zip(with_it.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(a, b)
    kept = [{k: v for k, v in line.items() if k in ("loss", "grad_norm", "entropy")} for line in with_it.logged]
    assert kept == [{k: v for k, v in line.items() if k in ("loss", "grad_norm", "entropy")} for line in without.logged]


@pytest.mark.parametrize(
    "how",
    [
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"micro_batch_tokens": "400"},
    ],
    ids=["accumulation", "passes"],
)
def test_how_rows_are_cut_changes_nothing(how, tmp_path) -> None:
    (whole,) = steps_of(make_trainer(tmp_path / "a", max_steps=1, gradient_cosine_steps=1))
    (cut,) = steps_of(make_trainer(tmp_path / "b", max_steps=1, gradient_cosine_steps=1, **how))
    assert cut == pytest.approx(whole, abs=1e-5)


def test_several_processes_are_refused(tmp_path) -> None:
    config = make_config(tmp_path, gradient_cosine_steps=5)
    several = SimpleNamespace(world_size=2, overlap=None, gradient_cosine_steps=config.gradient_cosine_steps)
    with pytest.raises(ConfigError, match="gradient_cosine_steps=5: the second gradient is that of one process"):
        check_processes(several, None)  # type: ignore[arg-type]
