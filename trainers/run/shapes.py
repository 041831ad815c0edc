"""How large a decoder is, from its config.json or its public name: parameters, LoRA parameters, cache, without weights.

The model class itself is built on torch's meta device, which allocates nothing, and its layers are read. Known are the
dense models of Llama, Mistral, Qwen2 and Qwen3, whose activations `trainers.run.memory` can count. Anything else is
unknown, and said so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KNOWN_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of the config files that are understood."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """A dense decoder with gated feed-forward layers and grouped attention.

    Attributes:
        parameters: All weights.
        layers: Blocks.
        linear: Name -> (in, out) of the linear layers of one block.
        vocabulary: Rows of the embedding.
        context: Positions it knows.
        qk_norm: Norms on queries and keys (Qwen3).
    """

    parameters: int
    layers: int
    linear: Mapping[str, tuple[int, int]]
    vocabulary: int
    context: int
    qk_norm: bool

    @property
    def hidden(self) -> int:
        """Width."""
        return self.linear["q_proj"][0]

    @property
    def query(self) -> int:
        """Width of all query heads."""
        return self.linear["q_proj"][1]

    @property
    def key(self) -> int:
        """Width of all key (or value) heads."""
        return self.linear["k_proj"][1]

    @property
    def feed_forward(self) -> int:
        """Width of the gated layer."""
        return self.linear["up_proj"][1]

    def lora_parameters(self, rank: int, targets: str) -> int:
        """Weights of an adapter on `targets`: `all-linear`, or names of layers with commas between."""
        names = {name.strip() for name in targets.split(",")}
        chosen = [d for name, d in self.linear.items() if targets == "all-linear" or name in names]
        return self.layers * rank * sum(a + b for a, b in chosen)

    def cache_values(self) -> int:
        """Keys and values that one token keeps."""
        return 2 * self.layers * self.key


def shape_of(config: Mapping[str, Any]) -> DecoderShape | None:
    """The shape in a config.json; `None` where its type is not known here. What it leaves out has its class's default.

    Raises:
        ValueError: The model class cannot be made with these settings.
    """
    if config.get("model_type") not in KNOWN_TYPES:
        return None
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    # Quantised weights are counted as the numbers that they stand for.
    settings = AutoConfig.for_model(**{key: value for key, value in config.items() if key != "quantization_config"})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(settings)
    modules = dict(model.model.layers[0].named_modules())
    linear = {name: module for name, module in modules.items() if isinstance(module, torch.nn.Linear)}
    return DecoderShape(
        parameters=model.num_parameters(),
        layers=len(model.model.layers),
        linear={name.rpartition(".")[2]: (one.in_features, one.out_features) for name, one in linear.items()},
        vocabulary=settings.vocab_size,
        context=settings.max_position_embeddings,
        qk_norm="self_attn.q_norm" in modules,
    )


def _config(kind: str, hidden: int, layers: int, heads: int, kv: int, feed_forward: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": feed_forward, "tie_word_embeddings": True, **more,
    }  # fmt: skip


_SMOL = {"vocab_size": 49152, "max_position_embeddings": 8192}
_QWEN2 = {"vocab_size": 151936, "max_position_embeddings": 32768}
_QWEN3 = {"vocab_size": 151936, "max_position_embeddings": 40960, "head_dim": 128}
_LLAMA = {"vocab_size": 128256, "max_position_embeddings": 131072}
NAMED: dict[str, dict[str, Any]] = {
    "smollm2-135m": _config("llama", 576, 30, 9, 3, 1536, **_SMOL),
    "smollm2-360m": _config("llama", 960, 32, 15, 5, 2560, **_SMOL),
    "smollm2-1.7b": _config("llama", 2048, 24, 32, 32, 8192, **_SMOL),
    "qwen2.5-0.5b": _config("qwen2", 896, 24, 14, 2, 4864, **_QWEN2),
    "qwen2.5-1.5b": _config("qwen2", 1536, 28, 12, 2, 8960, **_QWEN2),
    "qwen2.5-3b": _config("qwen2", 2048, 36, 16, 2, 11008, **_QWEN2),
    "qwen2.5-7b": _config(
        "qwen2", 3584, 28, 28, 4, 18944, **{**_QWEN2, "vocab_size": 152064, "tie_word_embeddings": False}
    ),
    "qwen3-0.6b": _config("qwen3", 1024, 28, 16, 8, 3072, **_QWEN3),
    "qwen3-1.7b": _config("qwen3", 2048, 28, 16, 8, 6144, **_QWEN3),
    "qwen3-4b": _config("qwen3", 2560, 36, 32, 8, 9728, **_QWEN3),
    "qwen3-8b": _config("qwen3", 4096, 36, 32, 8, 12288, **_QWEN3, tie_word_embeddings=False),
    "llama-3.2-1b": _config("llama", 2048, 16, 32, 8, 8192, head_dim=64, **_LLAMA),
    "llama-3.2-3b": _config("llama", 3072, 28, 24, 8, 8192, head_dim=128, **_LLAMA),
}
"""Settings of public models by the last part of their hub id, without `-Instruct` and the like."""
OWNERS = ("huggingfacetb", "qwen", "meta-llama", "unsloth")
_SUFFIX = re.compile(r"-(instruct|base|chat|it)(-\d+)?$")


def shape_of_name(name: str) -> DecoderShape | None:
    """The shape of a public model by hub id (`Qwen/Qwen2.5-7B-Instruct`) or of `smollm2`; `None` for any other."""
    owner, _, last = name.lower().partition("/")
    known = name == "smollm2" or owner in OWNERS
    config = NAMED.get("smollm2-135m" if name == "smollm2" else _SUFFIX.sub("", last)) if known else None
    return None if config is None else shape_of(config)
