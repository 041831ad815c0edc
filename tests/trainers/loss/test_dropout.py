"""Every dropout of a model is found and switched off, whatever its class calls it."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, FalconConfig, OPTConfig, PreTrainedConfig

from trainers.loss import active_dropout, silence_dropout

SMALL = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        (OPTConfig(**SMALL, ffn_dim=16, word_embed_proj_dim=16), "model.decoder.layers.0.dropout"),
        (BloomConfig(**SMALL, hidden_dropout=0.1), "transformer.h.0.mlp.hidden_dropout"),
        (BloomConfig(**SMALL, attention_dropout=0.1), "transformer.h.0.self_attention.attention_dropout"),
        (FalconConfig(**SMALL, hidden_dropout=0.1), "config.hidden_dropout"),
    ],
    ids=["opt", "bloom", "bloom, a module of that name", "falcon"],
)
def test_a_model_in_training_mode_gives_the_same_numbers_twice(config: PreTrainedConfig, rate: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).train()
    ids = torch.arange(16)[None]
    with torch.no_grad():
        assert not torch.equal(model(ids).logits, model(ids).logits)
        assert rate in active_dropout(model)
        assert rate in silence_dropout(model)
        assert torch.equal(model(ids).logits, model(ids).logits)
    assert active_dropout(model) == []
