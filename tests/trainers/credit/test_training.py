"""Token operators in a training step: what credit computes of a played batch is what the loss sees."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.toy import make_trainer
from trainers.credit import Credit, CreditBatch, TokenText, TurnSignal
from trainers.credit.batch import turn_records

pytestmark = pytest.mark.filterwarnings("ignore")


def test_operators_reach_the_loss_and_the_log(tmp_path):
    trainer = make_trainer(
        tmp_path,
        max_steps=1,
        token_operators="sepa,gtpo,hicra,entropy_mask",
        token_signal="entropy",
        planning="e, a, t",
        planning_window=1,
        gtpo_beta=0.5,
        sepa_gate=0.0,
    )
    trainer.train()
    trainer.close()
    (batch,) = trainer.batches
    episodes = trainer.played[0]
    flats = [episode.flat() for episode in episodes]
    width = batch["turn_ids"].size(1)
    rows = {
        name: np.array([[*getattr(flat, name), *[fill] * (width - len(flat.ids))] for flat in flats])
        for name, fill in (("ids", 0), ("turn_ids", -1), ("logprobs", 0.0), ("entropies", 0.0))
    }
    sampled = np.unique(rows["ids"][rows["turn_ids"] >= 0]).tolist()
    decode = trainer.processing_class.decode
    by_hand = Credit(trainer.args).assign(
        CreditBatch(
            [episode.reward for episode in episodes],
            [turn_records(episode, TurnSignal.PROGRESS) for episode in episodes],
            rows["turn_ids"],
            4,
            logprobs=rows["logprobs"],
            entropies=rows["entropies"],
            tokens=TokenText(rows["ids"], {i: decode([i]) for i in sampled}),
        )
    )
    # TRL shuffles the rows of a batch: compare them as sets, each row found by its own advantages.
    ours = sorted(by_hand.advantages.astype(np.float32).round(6).tolist())
    assert sorted(batch["advantages"].numpy().round(6).tolist()) == ours
    log = next(row for row in trainer.logged if "credit/weight_mean" in row)
    assert log["credit/weight_mean"] == pytest.approx(by_hand.metrics["credit/weight_mean"])
    assert log["credit/mask_kept"] == log["credit/mask_requested"] > 0
    assert 0 < log["credit/planning_token_ratio"] < 1
    assert trainer.credit.state_dict()["tokens"]["schedule"]["step"] == 1
