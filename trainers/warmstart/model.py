"""A small Llama with weights that copy: the untrained model of a warm start.

Random attention has to discover "look at the token that equals me" and "pass on what you look at" before it can copy
a name, and on tens of millions of tokens that search takes most of the run. So both start near it: in every head the
query and key maps share their weights (their product is then close to a scaled identity on the head's subspace), and
the value and output maps together are close to a scaled identity.

Source: Trockman and Kolter, "Mimetic Initialization of Self-Attention Layers", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase


@dataclass(frozen=True)
class ModelShape:
    """The architecture of a new model.

    Attributes:
        hidden: Width. Must be a multiple of `heads`.
        layers: Transformer blocks.
        heads: Attention heads (as many key/value heads).
        feed_forward: Width of the gated feed-forward layer.
        context: Longest sequence, in tokens.
        init_std: Deviation of every random weight and of the noise that is added to the mimetic ones.
        qk_scale: Diagonal of each head's query-key product; 0 leaves query and key random.
        ov_scale: Diagonal of the value-output product; 0 leaves value and output random.
    """

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    feed_forward: int = 384
    context: int = 2048
    init_std: float = 0.08
    qk_scale: float = 0.7
    ov_scale: float = 0.4


def build_model(tokenizer: PreTrainedTokenizerBase, shape: ModelShape, seed: int) -> LlamaForCausalLM:
    """A new model in float32 with tied embeddings, for `tokenizer`'s vocabulary. Same arguments, same weights.

    Raises:
        ValueError: `hidden` is no multiple of `heads`.
    """
    if shape.hidden % shape.heads:
        raise ValueError(f"model.hidden={shape.hidden} is no multiple of model.heads={shape.heads}")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        initializer_range=shape.init_std,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).float()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            layers: Any = model.model.layers
            for layer in layers:
                _mimetic(layer.self_attn, shape, generator)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def _mimetic(attention: Any, shape: ModelShape, generator: torch.Generator) -> None:
    """Set one attention layer's maps. A basis of the whole width, cut among the heads, serves each pair of maps."""
    query, key = attention.q_proj.weight, attention.k_proj.weight
    value, output = attention.v_proj.weight, attention.o_proj.weight
    if shape.qk_scale:
        basis = _orthogonal(shape.hidden, generator) * shape.qk_scale**0.5
        query.copy_(basis + _noise(shape, generator))
        key.copy_(basis + _noise(shape, generator))
    if shape.ov_scale:
        basis = _orthogonal(shape.hidden, generator) * shape.ov_scale**0.5
        value.copy_(basis + _noise(shape, generator))
        output.copy_(basis.T + _noise(shape, generator))


def _orthogonal(width: int, generator: torch.Generator) -> torch.Tensor:
    basis, upper = torch.linalg.qr(torch.randn(width, width, generator=generator))
    return basis * upper.diagonal().sign()  # one convention of signs: equal on every linear algebra library


def _noise(shape: ModelShape, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape.hidden, shape.hidden, generator=generator) * shape.init_std
