from __future__ import annotations

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, MambaConfig, MambaForCausalLM

from agents.policies.decoder import Decoder, Held
from agents.policy import PolicyError
from tests.agents.toys import model


@pytest.mark.parametrize("kind", ["llama", "gqa", "qwen3-windows", "gemma2", "granite", "gpt2"])
def test_check_accepts_what_it_knows(kind: str) -> None:
    decoder = Decoder(model(kind))
    with decoder.sampling(Held(decoder)):
        pass


def test_models_without_positions_or_keys_are_refused() -> None:
    with pytest.raises(PolicyError, match="takes no position_ids"):
        Decoder(BloomForCausalLM(BloomConfig(vocab_size=50, hidden_size=16, n_layer=1, n_head=2)))
    with pytest.raises(PolicyError, match="takes no position_ids"):
        Decoder(MambaForCausalLM(MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1)))


def test_an_unknown_architecture_is_refused_instead_of_sampled_wrongly() -> None:
    made = model()
    base = type(made)

    class Twisted(base):  # type: ignore[misc, valid-type]
        def forward(self, *args, **kwargs):
            outputs = super().forward(*args, **kwargs)
            outputs.logits = outputs.logits * 3.0
            return outputs

    made.__class__ = Twisted
    decoder = Decoder(made)
    with pytest.raises(PolicyError, match="samples Twisted wrongly"), decoder.sampling(Held(decoder)):
        pass
    with torch.no_grad():
        assert made.training is False


def test_other_layer_kinds_are_named() -> None:
    made = model("qwen3")
    made.config.layer_types = ["full_attention", "chunked_attention"]
    with pytest.raises(PolicyError, match="chunked_attention"):
        Decoder(made)
