"""Training with a real vLLM server as the sampler (see tests/agents/policies/vllm/server.py)."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig

from agents.models.loading import load_model
from tests.agents.policies.vllm.server import Server
from tests.trainers.toy import ToyEnv, make_config, make_task
from trainers.gigpo import GiGPOTrainer

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.xdist_group("vllm"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
]

CLOSE = 2e-3
"""Nats. Both sides compute in float32."""


def test_two_steps_against_a_server(tmp_path, vllm_server: Server):
    """Every step samples from a new version, and what the server says it sampled with is what the trainer computes."""
    model, tokenizer = load_model(vllm_server.folder, dtype=torch.float32)
    lora = LoraConfig(r=4, lora_alpha=16, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    config = make_config(tmp_path, sampler=f"vllm:{vllm_server.url}", max_steps=3, learning_rate=2e-2)
    tasks = [make_task(i) for i in range(4)]
    trainer = GiGPOTrainer(
        model, config, tokenizer, tasks, ToyEnv, slots=8, workers=2, max_turn_tokens=12, peft_config=lora
    )
    names, gaps, stale = [], [], []
    played = trainer.play

    def logprobs(prompt, ids):
        with torch.no_grad():
            logits = trainer.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1).gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1)

    def check(count):
        out = played(count)
        names.append(trainer.policy.model)
        for i, (prompt, ids) in enumerate(zip(out["prompt_ids"], out["completion_ids"], strict=True)):
            sampled, on = torch.tensor(out["logprobs"][i]), torch.tensor(out["env_mask"][i]).bool()
            gaps.append((logprobs(prompt, ids) - sampled)[on].abs().max().item())
            with trainer.model.disable_adapter():
                stale.append((len(names), (logprobs(prompt, ids) - sampled)[on].abs().max().item()))
        return out

    trainer.play = check
    try:
        trainer.train()
    finally:
        trainer.close()
    assert len(set(names)) == len(names) == 3
    assert [int(name.rsplit("-v", 1)[1]) for name in names] == [0, 1, 2]
    assert max(gaps) < CLOSE, max(gaps)
    # The adapter does move what is sampled: without it the last step's figures would be far off.
    assert max(gap for step, gap in stale if step == 3) > 10 * CLOSE
    assert not trainer.rollouts.exact
    print(
        f"largest difference of log-probabilities: {max(gaps):.1e} nats; without adapter {max(g for _, g in stale):.3f}"
    )
