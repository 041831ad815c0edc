"""A tiny tokenizer and tiny random models: nothing is downloaded."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = ["write hello into greeting.txt and keep notes.txt as it is", "the file is there ok exit 1 no such file"] * 4
VOCABULARY = 320
GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")])
"""A device for `parametrize("device", ["cpu", GPU])`."""


@cache
def tokenizer(template: str | None = CHATML, think: bool = True) -> Any:
    """Byte-level BPE with ChatML controls; pad is eos, and <think> tags are plain added tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 6,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"],
        show_progress=False,
    )
    core.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        bos_token="<s>",
        additional_special_tokens=["<|im_start|>", "<|endoftext|>"],
    )
    if think:
        fast.add_tokens(["<think>", "</think>"])
    fast.chat_template = template
    return fast


def model(kind: str = "llama", seed: int = 0) -> Any:
    """Two layers of width 64, random, float32, in evaluation mode."""
    torch.manual_seed(seed)
    ids = {"bos_token_id": 3, "eos_token_id": 2, "pad_token_id": 2}
    base: dict[str, Any] = dict(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, **ids
    )
    if kind == "llama":
        made: Any = LlamaForCausalLM(LlamaConfig(**base, num_key_value_heads=4))
    elif kind == "gqa":
        made = LlamaForCausalLM(LlamaConfig(**base, num_key_value_heads=2))
    elif kind == "qwen2":  # biases on queries, keys and values
        made = Qwen2ForCausalLM(Qwen2Config(**base, num_key_value_heads=2))
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.3)
    elif kind == "qwen3":
        made = Qwen3ForCausalLM(Qwen3Config(**base, num_key_value_heads=2, head_dim=16))
    elif kind == "qwen3-windows":
        config = Qwen3Config(
            **base, num_key_value_heads=2, head_dim=16, use_sliding_window=True, sliding_window=8, max_window_layers=1
        )
        made = Qwen3ForCausalLM(config)
    elif kind == "mistral":
        made = MistralForCausalLM(MistralConfig(**base, num_key_value_heads=2, sliding_window=8))
    elif kind == "gemma2":
        made = Gemma2ForCausalLM(Gemma2Config(**base, num_key_value_heads=2, head_dim=16, sliding_window=8))
    elif kind == "granite":
        made = GraniteForCausalLM(GraniteConfig(**base, num_key_value_heads=2, logits_scaling=3.0))
    elif kind == "moe":
        made = MixtralForCausalLM(MixtralConfig(**base, num_key_value_heads=2, num_local_experts=4))
    elif kind == "gpt2":
        made = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, **ids))
    else:
        raise ValueError(kind)
    return made.eval()


def full_forward(made: Any, prompt: list[int], reply: list[int], temperature: float) -> tuple[torch.Tensor, ...]:
    """Logprobs of a reply under `temperature`, entropies and top-1 logprobs at 1, from one plain forward."""
    with torch.no_grad():
        logits = made(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1].double()
    plain = logits.log_softmax(-1)
    scaled = (logits / temperature).log_softmax(-1) if temperature else plain
    chosen = scaled.gather(1, torch.tensor(reply)[:, None])[:, 0]
    return chosen, -(plain.exp() * plain).sum(-1), plain.amax(-1)
