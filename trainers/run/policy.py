"""The policy before it is loaded: where, how large, what of it is trained, does a conversation fit it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.chat import ChatError
from agents.chat_tools import template_of
from agents.models.loading import (
    ModelKind,
    ModelSource,
    adapter_config,
    listed_ends,
    local_config,
    local_tokenizer,
    resolve_model,
)
from envs.protocol import DEFAULT_PROTOCOL, PROTOCOLS
from trainers.errors import ConfigError
from trainers.settings import PolicyArguments
from trainers.settings.checks import no_such_layer, quantization_problem

# ---------------------------------------------------------------------------------------------------------------------
# How large a decoder is, from its config.json or its public name: parameters, LoRA parameters, cache, without
# weights.
#
# The model class itself is built on torch's meta device, which allocates nothing, and its layers are read. Known are
# the dense models of Llama, Mistral, Qwen2 and Qwen3, whose activations `trainers.run.dry_run` can count. Anything
# else is unknown, and said so.

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
"""Settings of public models by the last part of their hub id, without `-Instruct`, `-Coder` and the like."""
OWNERS = ("huggingfacetb", "qwen", "meta-llama", "unsloth")
_KIND = re.compile(r"-coder(?=-)|-(instruct|base|chat|it)(-\d+)?$")
"""What a model was trained for after its shape was settled (Qwen2.5-Coder has the shapes of Qwen2.5)."""


def shape_of_name(name: str) -> DecoderShape | None:
    """The shape of a public model by hub id (`Qwen/Qwen2.5-7B-Instruct`) or of `smollm2`; `None` for any other."""
    owner, _, last = name.lower().partition("/")
    known = name == "smollm2" or owner in OWNERS
    config = NAMED.get("smollm2-135m" if name == "smollm2" else _KIND.sub("", last)) if known else None
    return None if config is None else shape_of(config)


# ---------------------------------------------------------------------------------------------------------------------
# The policy of a run before it is loaded: where it is, what of it is trained, and whether a conversation fits it.


def find_policy(policy: PolicyArguments, *, dry_run: bool = False) -> ModelSource:
    """Where the policy is; a dry run converts no model.

    Raises:
        ModelError: It is not there.
        ConfigError: It cannot be trained with these settings.
    """
    source = resolve_model(policy.model_name_or_path, convert=not dry_run)
    config = local_config(source)
    if config is not None and (why := quantization_problem(config)):
        raise ConfigError(f"model_name_or_path={source.name}: {why}.")
    if source.kind is ModelKind.ADAPTER:
        kind = adapter_config(source).get("peft_type")
        if kind != "LORA":
            raise ConfigError(f"model_name_or_path={source.name}: an adapter of type {kind}; only LoRA can go on here.")
        if policy.adapter == "none":
            raise ConfigError(
                f"adapter=none with model_name_or_path={source.name}, which is an adapter: training all weights needs "
                "a whole model. Merge it first (peft: `model.merge_and_unload()`, then `save_pretrained`) and name the "
                "merged folder, or leave adapter out and the adapter itself goes on learning."
            )
    return source


def make_peft(policy: PolicyArguments, source: ModelSource | None = None) -> Any:
    """Settings of a new LoRA adapter; `None` trains all weights, or the adapter that `source` is.

    Raises:
        ConfigError: A policy of a known shape has none of the layers that are named.
    """
    if policy.full or (source is not None and source.kind is ModelKind.ADAPTER):
        return None
    from peft import LoraConfig

    targets: Any = policy.lora_target_modules
    if targets != "all-linear":
        targets = [name.strip() for name in targets.split(",")]
        shape = find_shape(source) if source is not None else None
        known = [*shape.linear, "embed_tokens"] if shape is not None else []
        if known and not any(name.rsplit(".", 1)[-1] in known for name in targets):
            raise no_such_layer(policy.lora_target_modules, known)
    return LoraConfig(
        r=policy.lora_r,
        lora_alpha=policy.lora_alpha,
        lora_dropout=policy.lora_dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )


@dataclass(frozen=True, slots=True)
class Trained:
    """What of the policy is trained.

    Attributes:
        text: For people.
        lora_r: Rank of the adapter; 0 trains all weights.
        targets: Layers of the adapter, as `DecoderShape.lora_parameters` takes them.
    """

    text: str
    lora_r: int
    targets: str


def what_is_trained(policy: PolicyArguments, source: ModelSource) -> Trained:
    """All weights, a new adapter, or the adapter that is there."""
    if source.kind is ModelKind.ADAPTER:
        found = adapter_config(source)
        targets = found.get("target_modules") or "all-linear"
        # PEFT may write each layer's whole path; the estimate counts a kind of layer in every block.
        names = targets if isinstance(targets, str) else ", ".join(sorted({t.rsplit(".", 1)[-1] for t in targets}))
        text = f"the adapter in {source.location} (rank {found.get('r')}, alpha {found.get('lora_alpha')}; {names})"
        return Trained(text, int(found.get("r") or 0), names)
    if policy.full:
        return Trained("all weights", 0, "")
    text = f"a new LoRA adapter (rank {policy.lora_r}, alpha {policy.lora_alpha}; {policy.lora_target_modules})"
    return Trained(text, policy.lora_r, policy.lora_target_modules)


def find_shape(source: ModelSource) -> DecoderShape | None:
    """The shape of the policy, from its config.json or its public name; `None` where neither says it."""
    config = local_config(source)
    return shape_of(config) if config is not None else shape_of_name(source.name)


@dataclass(frozen=True, slots=True)
class TokenizerCheck:
    """What a tokenizer says about conversations.

    Attributes:
        tokenizer: As loaded; `None` where its files are not on this machine.
        lines: For people.
    """

    tokenizer: Any
    lines: list[str]


def check_tokenizer(source: ModelSource, *, raw: bool = False, protocol: str = DEFAULT_PROTOCOL) -> TokenizerCheck:
    """Render the chat template, find the ids that end a turn; looks into no network.

    Args:
        source: The policy.
        raw: The environment writes running text: the template stays out.
        protocol: How replies say what to do.

    Raises:
        ConfigError: No conversation can be held with this tokenizer.
    """
    tokenizer = local_tokenizer(source)
    if tokenizer is None:
        return TokenizerCheck(None, ["template and stops: not checked, the tokenizer is not on this machine yet"])
    listed = listed_ends(source)
    ends = {int(i) for i in ([listed] if isinstance(listed, int) else listed or [])} | {int(tokenizer.eos_token_id)}
    if strange := sorted(i for i in ends if i >= len(tokenizer)):
        raise ConfigError(
            f"model_name_or_path={source.name}: its generation_config.json ends a turn with {strange}, and the "
            f"tokenizer has {len(tokenizer)} ids: these are files of two models. Take both from one."
        )
    try:
        template = template_of(tokenizer, ends, PROTOCOLS[protocol], raw=raw)
        template.first("", "a task")
    except ChatError as error:
        raise ConfigError(f"model_name_or_path={source.name}: {error}") from error
    overrun = [] if raw or not tokenizer.chat_template or template.overrun is None else [f"warning: {template.overrun}"]
    texts = [repr(header.text) for header in template.headers.headers]
    spoken = [f"headers: {', '.join(texts)} are plain text; where a task or an output holds one, a backslash is put in"]
    return TokenizerCheck(tokenizer, [*_about(tokenizer, ends, raw), *(spoken if texts else []), *overrun])


def _about(tokenizer: Any, ends: set[int], raw: bool) -> Iterator[str]:
    if raw:
        yield "template: none, the messages are one running text"
    elif not tokenizer.chat_template:
        yield "template: the tokenizer has none; headed paragraphs of ours stand in (a base model)"
    elif prefix_preserving(tokenizer):
        yield "template: renders, and only appends"
    else:
        yield "template: renders, but rewrites earlier turns; here they stay as they were sampled"
    named = ", ".join(f"{i} {tokenizer.decode([i])}" for i in sorted(ends))
    pad = tokenizer.pad_token_id
    shared = " (also an end: masks go by length, never by id)" if pad in ends else ""
    yield f"stops: {named}; padding {pad}{shared}"


def prefix_preserving(tokenizer: Any) -> bool:
    """Whether a longer conversation begins with exactly the text of the shorter one, thoughts included."""
    talk = [
        {"role": "user", "content": "a task"},
        {"role": "assistant", "content": "<think>\na thought\n</think>\n\nan answer"},
        {"role": "user", "content": "more"},
    ]
    short = tokenizer.apply_chat_template(talk[:2], tokenize=False)
    return bool(tokenizer.apply_chat_template(talk, tokenize=False).startswith(short))
