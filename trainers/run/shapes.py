"""How large a decoder is, from its config.json or its public name: parameters, LoRA parameters, cache, without weights.

Known are the dense shapes of Llama, Mistral, Qwen2 and Qwen3, for which the parameter count is exact (a test compares
it with the model class itself, and the named ones with their published counts). Anything else is unknown, and said so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_QUERY_BIAS = {"qwen2": True}
_QK_NORM = {"qwen3"}
KNOWN_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of the config files that are understood."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """A dense decoder with gated feed-forward layers and grouped attention.

    Attributes:
        hidden: Width.
        layers: Blocks.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of one head.
        feed_forward: Width of the gated layer.
        vocabulary: Rows of the embedding.
        context: Positions it knows.
        tied: Embedding and output head are one matrix.
        qkv_bias: Biases on query, key and value (Qwen2).
        out_bias: A bias on the attention's output.
        mlp_bias: Biases in the feed-forward layer.
        qk_norm: Norms on queries and keys (Qwen3).
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context: int
    tied: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    @property
    def query(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Width of all key (or value) heads."""
        return self.kv_heads * self.head_dim

    def linears(self) -> dict[str, tuple[int, int]]:
        """Name -> (in, out) of the linear layers of one block."""
        h, q, k, f = self.hidden, self.query, self.key, self.feed_forward
        return {
            "q_proj": (h, q), "k_proj": (h, k), "v_proj": (h, k), "o_proj": (q, h),
            "gate_proj": (h, f), "up_proj": (h, f), "down_proj": (f, h),
        }  # fmt: skip

    @property
    def parameters(self) -> int:
        """All weights."""
        block = sum(a * b for a, b in self.linears().values()) + 2 * self.hidden
        block += self.qkv_bias * (self.query + 2 * self.key) + self.out_bias * self.hidden
        block += self.mlp_bias * (2 * self.feed_forward + self.hidden) + self.qk_norm * 2 * self.head_dim
        return self.layers * block + self.hidden + self.vocabulary * self.hidden * (1 if self.tied else 2)

    def lora_parameters(self, rank: int, targets: str) -> int:
        """Weights of an adapter on `targets`: `all-linear`, or names of layers with commas between."""
        names = {name.strip() for name in targets.split(",")}
        chosen = [d for name, d in self.linears().items() if targets == "all-linear" or name in names]
        return self.layers * rank * sum(a + b for a, b in chosen)

    def cache_values(self) -> int:
        """Keys and values that one token keeps."""
        return 2 * self.layers * self.key


def shape_of(config: Mapping[str, Any]) -> DecoderShape | None:
    """The shape in a config.json; `None` where its type is not known here."""
    kind = config.get("model_type")
    if kind not in KNOWN_TYPES:
        return None
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    bias = bool(config.get("attention_bias", False))
    # What a file leaves out has the default of its class.
    tied = bool(config.get("tie_word_embeddings", False))
    return DecoderShape(
        hidden=hidden,
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or (128 if kind == "qwen3" else hidden // heads)),
        feed_forward=int(config["intermediate_size"]),
        vocabulary=int(config["vocab_size"]),
        context=int(config["max_position_embeddings"]),
        tied=tied,
        qkv_bias=_QUERY_BIAS.get(kind, bias),
        out_bias=bias and kind != "qwen2",
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=kind in _QK_NORM,
    )


def _smol(hidden: int, layers: int, heads: int, kv: int, feed_forward: int) -> DecoderShape:
    return DecoderShape(hidden, layers, heads, kv, hidden // heads, feed_forward, 49152, 8192)


def _qwen2(hidden: int, layers: int, heads: int, kv: int, feed_forward: int, vocabulary: int = 151936) -> DecoderShape:
    tied = vocabulary == 151936
    return DecoderShape(
        hidden, layers, heads, kv, hidden // heads, feed_forward, vocabulary, 32768, tied=tied, qkv_bias=True
    )


def _qwen3(hidden: int, layers: int, heads: int, feed_forward: int, *, tied: bool = True) -> DecoderShape:
    return DecoderShape(hidden, layers, heads, 8, 128, feed_forward, 151936, 40960, tied=tied, qk_norm=True)


NAMED: dict[str, DecoderShape] = {
    "smollm2-135m": _smol(576, 30, 9, 3, 1536),
    "smollm2-360m": _smol(960, 32, 15, 5, 2560),
    "smollm2-1.7b": _smol(2048, 24, 32, 32, 8192),
    "qwen2.5-0.5b": _qwen2(896, 24, 14, 2, 4864),
    "qwen2.5-1.5b": _qwen2(1536, 28, 12, 2, 8960),
    "qwen2.5-3b": _qwen2(2048, 36, 16, 2, 11008),
    "qwen2.5-7b": _qwen2(3584, 28, 28, 4, 18944, 152064),
    "qwen3-0.6b": _qwen3(1024, 28, 16, 3072),
    "qwen3-1.7b": _qwen3(2048, 28, 16, 6144),
    "qwen3-4b": _qwen3(2560, 36, 32, 9728),
    "qwen3-8b": _qwen3(4096, 36, 32, 12288, tied=False),
    "llama-3.2-1b": DecoderShape(2048, 16, 32, 8, 64, 8192, 128256, 131072),
    "llama-3.2-3b": DecoderShape(3072, 28, 24, 8, 128, 8192, 128256, 131072),
}
"""Public models by the last part of their hub id, without `-Instruct` and the like."""
OWNERS = ("huggingfacetb", "qwen", "meta-llama", "unsloth")
_SUFFIX = re.compile(r"-(instruct|base|chat|it)(-\d+)?$")


def shape_of_name(name: str) -> DecoderShape | None:
    """The shape of a public model by hub id (`Qwen/Qwen2.5-7B-Instruct`) or of `smollm2`; `None` for any other."""
    if name == "smollm2":
        return NAMED["smollm2-135m"]
    owner, _, last = name.lower().partition("/")
    return NAMED.get(_SUFFIX.sub("", last)) if owner in OWNERS else None
