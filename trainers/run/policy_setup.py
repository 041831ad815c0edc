"""The policy of a run before it is loaded: where it is, what of it is trained, and whether a conversation fits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agents.chat import ChatError, ChatTemplate
from agents.models.loading import (
    ModelKind,
    ModelSource,
    adapter_config,
    listed_ends,
    local_config,
    local_tokenizer,
    resolve_model,
)
from trainers.config import PolicyArguments
from trainers.config.backends import quantization_problem
from trainers.errors import ConfigError
from trainers.run.shapes import DecoderShape, shape_of, shape_of_name


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
            raise ConfigError(
                f"lora_target_modules={policy.lora_target_modules}: the model has no such layer. Use all-linear, or of "
                f"{', '.join(known)}."
            )
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


def check_tokenizer(source: ModelSource, *, raw: bool = False) -> TokenizerCheck:
    """Render the chat template, find the ids that end a turn; looks into no network.

    Args:
        source: The policy.
        raw: The environment writes running text: the template stays out.

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
        template = ChatTemplate(tokenizer, ends, raw=raw)
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
