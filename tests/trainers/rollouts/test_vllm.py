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


@pytest.mark.parametrize("overlap", [0, 1])
def test_three_steps_against_a_server(tmp_path, vllm_server: Server, overlap):
    """What the server says it sampled with is what the trainer computes with the weights that it was given.

    Every step samples from a new version; with overlap the second one, too, from that of the start, for the server has
    played its episodes while the first was learned on.
    """
    model, tokenizer = load_model(vllm_server.folder, dtype=torch.float32)
    lora = LoraConfig(r=4, lora_alpha=16, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    config = make_config(tmp_path, sampler=f"vllm:{vllm_server.url}", max_steps=3, learning_rate=2e-2, overlap=overlap)
    tasks = [make_task(i) for i in range(4)]
    trainer = GiGPOTrainer(
        model, config, tokenizer, tasks, ToyEnv, slots=8, workers=2, max_turn_tokens=12, peft_config=lora
    )
    names, gaps, stale, logged = [], [], [], []
    states: dict[int, dict[str, torch.Tensor]] = {}
    played, log = trainer.play, trainer.log

    def adapter():
        return {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}

    def logprobs(prompt, ids):
        with torch.no_grad():
            logits = trainer.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1).gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1)

    def check(count):
        states[trainer.state.global_step] = now = adapter()
        out = played(count)
        names.append(trainer.policy.model)
        before = states[trainer._played.version]
        if before is not now:  # also a load of the same weights would have them published anew
            trainer.model.load_state_dict(before, strict=False)
        for i, (prompt, ids) in enumerate(zip(out["prompt_ids"], out["completion_ids"], strict=True)):
            sampled, on = torch.tensor(out["logprobs"][i]), torch.tensor(out["env_mask"][i]).bool()
            gaps.append((logprobs(prompt, ids) - sampled)[on].abs().max().item())
            with trainer.model.disable_adapter():
                stale.append((len(names), (logprobs(prompt, ids) - sampled)[on].abs().max().item()))
        if before is not now:
            trainer.model.load_state_dict(now, strict=False)
        return out

    def noted(logs, *args):
        log(logs, *args)
        logged.append(dict(logs))  # TRL has put its metrics in

    trainer.play, trainer.log = check, noted
    try:
        trainer.train()
    finally:
        trainer.close()
    assert [int(name.rsplit("-v", 1)[1]) for name in names] == ([0, 0, 1] if overlap else [0, 1, 2])
    if overlap:
        steps = [line for line in logged if "loss" in line]
        assert [line["rollouts/staleness"] for line in steps] == [0, 1, 1]
        assert [line["time/rollout_hidden"] > 0 for line in steps] == [False, True, True]
        assert [line["sampling/importance_max"] > 1.01 for line in steps] == [False, True, True]
    assert max(gaps) < CLOSE, max(gaps)
    # The adapter does move what is sampled: without it the last step's figures would be far off.
    assert max(gap for step, gap in stale if step == 3) > 10 * CLOSE
    assert not trainer.rollouts.exact
    print(
        f"largest difference of log-probabilities: {max(gaps):.1e} nats; without adapter {max(g for _, g in stale):.3f}"
    )
