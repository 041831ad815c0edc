"""What `test_processes.py` starts: one of several processes that train the toy policy, or one that trains it alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from agents.policy import Sampling
from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer
from trainers.graphed import GraphedLayers
from trainers.heldout import HeldOut


class BrokenEnv(ToyEnv):
    """A process whose machinery breaks in a way that nobody foresaw."""

    def step(self, reply: str) -> Any:
        raise RuntimeError("planted: this process breaks")


class KeepingEnv(ToyEnv):
    """Long answers, of which prompts show the last one in full."""

    keep_observations = 1

    def step(self, reply: str) -> Any:
        observation, *rest = super().step(reply)
        return f"{observation} {'and more ' * 6}", *rest

    def summary(self, observation: str) -> str:
        return observation[:6]


class Trainer(NotingTrainer):
    """Notes the batch and the gradient of each step, averaged over processes as the optimizer sees it."""

    quiet = False
    """In the first step this process has no advantage."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self.quiet and not self.state.global_step:
            inputs["advantages"].zero_()
        return super().compute_loss(model, inputs, *args, **kwargs)

    def _clip_grad_norm(self, model: Any) -> Any:
        self.last.append(self.batches[-1])
        self.gradients.append([p.grad.clone() for p in self.model.parameters()])
        return super()._clip_grad_norm(model)


def train(folder: Path, rows: int, fail: bool, keep: bool, budget: int, quiet: bool, shaped: int) -> None:
    """Two steps on three groups of four, `rows` of the twelve here; what came of it goes to `folder`.

    With a `budget` the second process has passes of twice as many tokens, and so fewer of them. The first `shaped`
    processes compute passes in the shapes of graphs, unrecorded.
    """
    rank = int(os.environ.get("RANK", "0"))
    tokenizer = make_tokenizer()
    held_out = HeldOut([make_task(100 + i) for i in range(5)], {"sampled": Sampling(1.0, 12)}, "sampled_reward")
    Trainer.gradients, Trainer.last, Trainer.quiet = [], [], quiet and rank == 1
    trainer = Trainer(
        make_model(tokenizer),
        make_config(
            folder,
            per_device_train_batch_size=rows,
            num_generations=4,
            eval_strategy="steps",
            eval_steps=2,
            eval_on_start=True,
            save_strategy="steps",
            save_steps=2,
            micro_batch_tokens=budget * (rank + 1),
        ),
        tokenizer,
        [make_task(i) for i in range(4)],
        BrokenEnv if fail and rank == 1 else KeepingEnv if keep else ToyEnv,
        held_out=held_out,
        slots=8,
        workers=2,
        max_turn_tokens=12,
    )
    if rank < shaped:
        trainer._graphed = GraphedLayers(trainer.accelerator.unwrap_model(trainer.model), capture=False)
    laid = []
    trainer.rollouts.engine.prepare = laid.append
    trainer.train()
    trainer.close()
    # Each process lays out the tasks of its own rows: no measurement stands before the second generation.
    assert [[(job.task.id, job.attempt, job.seed) for job in jobs] for jobs in laid] == [
        [(e.task_id, e.attempt, e.seed) for e in trainer.played[1]]
    ]
    assert rank >= shaped or trainer._graphed.passes > 0
    steps = []
    for batch, gradient in zip(Trainer.last, Trainer.gradients, strict=True):
        lengths = batch["completion_mask"].sum(1)
        rows_of = {
            tuple(ids[:n].tolist()): advantages[:n].tolist()
            for ids, advantages, n in zip(batch["completion_ids"], batch["advantages"], lengths, strict=True)
        }
        steps.append({"advantages": rows_of, "gradient": torch.cat([g.flatten() for g in gradient])})
    weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    logged = [{k: v for k, v in log.items() if "time" not in k and "second" not in k} for log in trainer.logged]
    state = trainer.held_out.state()
    torch.save({"steps": steps, "weights": weights, "logged": logged, "held_out": state}, folder / f"{rank}.pt")
