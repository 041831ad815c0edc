"""Two groups of two episodes of three turns, worked out by hand: advantages, loss and gradient of the trainer.

Nothing here uses our credit code. beta_turn = 0.5, gamma = 0.5, rewards centred within their group.

    group 1, rewards 1 and 0, mean 0.5: episode terms +0.5 and -0.5
      episode 0: signals 0.2, 0.4, none; states S, A, B; returns 0.2 + 0.5 * 0.4 = 0.4, then 0.4, then none
      episode 1: signals 0, 0, 0.4;      states S, A, C; returns 0.1, 0.2, 0.4
      S: 0.4 and 0.1, mean 0.25: +0.15, -0.15. A: 0.4 and 0.2, mean 0.3: +0.1, -0.1. C is alone: 0.
      episode 0: 0.5 + 0.075, 0.5 + 0.05, 0.5;  episode 1: -0.5 - 0.075, -0.5 - 0.05, -0.5
    group 2, rewards 0.25 and 0.25: flat, episode terms 0, and still turn credit
      episode 2: signals 0.3, 0, 0.2; states S, A, S; returns 0.35, 0.1, 0.2
      episode 3: signals 0, 0.2, 0;   states S, B, A; returns 0.1, 0.2, 0
      S: 0.35, 0.2 and 0.1, mean 13/60: +8/60, -1/60, -7/60. A: 0.1 and 0: +0.05, -0.05. B is alone: 0.
      episode 2: 4/60, 0.025, -1/120;  episode 3: -7/120, 0, -0.025
"""

from __future__ import annotations

import pytest
import torch

from agents.trajectory import Trajectory, Turn
from tests.trainers.replay import make_scripted
from tests.trainers.test_gigpo import rows_of
from tests.trainers.toy import make_model, make_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")

REWARDS = [1.0, 0.0, 0.25, 0.25]
SIGNALS = [[0.2, 0.4, None], [0.0, 0.0, 0.4], [0.3, 0.0, 0.2], [0.0, 0.2, 0.0]]
STATES = ["SAB", "SAC", "SAS", "SBA"]
TOKENS = [[2, 3, 1], [3, 2, 4], [1, 2, 3], [4, 1, 2]]
"""Sampled tokens of each turn; a forced one follows in the first turn of episode 0."""
ADVANTAGES = [
    [0.575, 0.55, 0.5],
    [-0.575, -0.55, -0.5],
    [4 / 60, 0.025, -1 / 120],
    [-7 / 120, 0.0, -0.025],
]
LOSS = 103 / 60 / 28
"""Ratios are 1, so the loss is minus the sum of advantage times tokens, over all 28 tokens. Episode 0: 1.15 + 1.65 +
0.5; 1: -1.725 - 1.1 - 2; 2: 4/60 + 0.05 - 0.025; 3: -28/120 - 0.05; together -103/60."""


def episodes() -> list[Trajectory]:
    out = []
    for i, reward in enumerate(REWARDS):
        turns = []
        for t, count in enumerate(TOKENS[i]):
            forced = [False] * count + ([True] if (i, t) == (0, 0) else [])
            ids = [(40 + 31 * i + 17 * t + 7 * n) % 250 for n in range(len(forced))]
            turns.append(
                Turn(
                    index=t,
                    context_ids=[11 + t, 12 + i] if t else [],
                    ids=ids,
                    logprobs=[-5.0] * len(ids),
                    entropies=[5.0] * len(ids),
                    forced=forced,
                    finish=None,
                    reply="",
                    signal=SIGNALS[i][t],
                    anchor=STATES[i][t],
                )
            )
        out.append(Trajectory("toy-0", "", i % 2, i, [5, 6, 7 + i // 2], turns, "max_turns", reward, False, reward))
    return out


def test_advantages_loss_and_gradient_are_those_worked_out_by_hand(tmp_path):
    trainer = make_scripted(tmp_path, episodes(), num_generations=2, beta_turn=0.5, turn_gamma=0.5, max_steps=1)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).double()

    by_ids = {tuple(ids): advantages for _, ids, _, _, advantages in rows_of(inputs)}
    model = make_model(make_tokenizer()).double()  # the same seed, the same weights
    total = torch.zeros((), dtype=torch.float64)
    for i, episode in enumerate(episodes()):
        ids, weights = list(episode.prompt_ids), [0.0] * len(episode.prompt_ids)
        for t, turn in enumerate(episode.turns):
            ids += turn.context_ids + turn.ids
            weights += [0.0] * len(turn.context_ids)
            weights += [0.0 if forced else ADVANTAGES[i][t] for forced in turn.forced]
        start = len(episode.prompt_ids)
        assert by_ids[tuple(ids[start:])] == pytest.approx(weights[start:], abs=1e-7)
        logits = model(torch.tensor([ids])).logits[0, :-1]
        logps = logits.log_softmax(-1).gather(1, torch.tensor(ids)[1:, None])[:, 0]
        ratio = (logps - logps.detach()).exp()
        advantages = torch.tensor(weights[1:], dtype=torch.float64)
        total = total - torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum()
    total = total / sum(map(sum, TOKENS))
    total.backward()
    want = torch.cat([p.grad.flatten() for p in model.parameters()])

    assert total.item() == pytest.approx(LOSS, abs=1e-12)
    assert loss.item() == pytest.approx(LOSS, abs=1e-7)
    error = ((gradient - want).norm() / want.norm()).item()
    print("relative gradient error", error)
    assert error < 1e-6
    trainer.close()


def test_a_wrong_turn_would_be_noticed(tmp_path):
    """The same batch with one signal moved to another turn gives another loss and gradient."""
    changed = episodes()
    changed[2].turns[0].signal, changed[2].turns[1].signal = 0.0, 0.3
    losses = []
    for batch in (episodes(), changed):
        trainer = make_scripted(tmp_path, batch, num_generations=2, beta_turn=0.5, turn_gamma=0.5, max_steps=1)
        inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
        trainer.current_gradient_accumulation_steps = 1
        losses.append(trainer.compute_loss(trainer.model.train(), inputs).item())
        trainer.close()
    assert abs(losses[0] - losses[1]) > 1e-4
