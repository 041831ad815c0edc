"""Tokens per second of the in-process policy on a GPU against stock `generate`, for SmolLM2-135M's shape.

    python -m benchmarks.policy_gpu                        # 64 and 128 sequences, bfloat16
    python -m benchmarks.policy_gpu --shape qwen3-1.7b

Whole calls are compared, prefill included: the same prompts, the same number of new ids, sampling at temperature 1,
interleaved in one run. The policy reports logprobs and exact entropies, `generate` (dynamic cache) ids only. Weights
are random: speed does not depend on them. Warm-up (kernels compiled, graphs captured) is timed by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, Request, Sampling

NEVER = 10**9
"""An end-of-turn id that is never sampled: every reply reaches its cap."""


class _NoTokenizer:
    eos_token_id = None


def smollm2() -> Any:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, max_position_embeddings=8192, rope_theta=100000.0, rms_norm_eps=1e-5,
            tie_word_embeddings=True, eos_token_id=None, pad_token_id=0,
        )
    )  # fmt: skip


def qwen3() -> Any:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
            num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=True,
            eos_token_id=None, pad_token_id=0,
        )
    )  # fmt: skip


SHAPES = {"smollm2-135m": smollm2, "qwen3-1.7b": qwen3}


def lora(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    made = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.01)
    return made.eval()


def distance(model: Any, requests: list[Request], completions: list[Completion]) -> tuple[float, float]:
    """Mean and largest |logprob - logprob of a plain forward| over a few of the replies."""
    gaps = []
    for request, completion in list(zip(requests, completions, strict=True))[:4]:
        ids = torch.tensor([[*request.prompt_ids, *completion.ids]], device=model.device)
        with torch.no_grad():
            logits = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].float()
        plain = logits.log_softmax(-1).gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0]
        assert completion.logprobs is not None
        gaps.append((plain.cpu() - torch.tensor(completion.logprobs)).abs())
    every = torch.cat(gaps)
    return every.mean().item(), every.max().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--lora", action="store_true", help="an unmerged adapter on all linear layers")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("policy_gpu: no CUDA device here, nothing measured")
        return
    torch.manual_seed(0)
    model = SHAPES[args.shape]().to("cuda", torch.bfloat16).eval()
    if args.lora:
        model = lora(model).to(torch.bfloat16)
    vocabulary = model.config.vocab_size
    policy = TransformersPolicy(model, _NoTokenizer(), eos_ids=[NEVER])
    print(
        f"{args.shape}{', LoRA unmerged' if args.lora else ''}, bfloat16, prompt {args.prompt}, {args.new} new ids, "
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    )

    def ours(prompts: torch.Tensor, new: int, name: str) -> tuple[float, list[Request], list[Completion]]:
        requests = [Request(f"{name}{i}", row, seed=i, max_tokens=new) for i, row in enumerate(prompts.tolist())]
        begin = time.perf_counter()
        completions = policy.complete(requests, Sampling())
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        policy.forget([request.conversation for request in requests])
        return seconds, requests, completions

    def theirs(prompts: torch.Tensor, new: int) -> float:
        ids = prompts.to("cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.no_grad():
            model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0,
                max_new_tokens=new, min_new_tokens=new,
            )  # fmt: skip
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    for batch in args.batch:
        prompts = torch.randint(5, vocabulary, (batch, args.prompt))
        warm = ours(prompts, args.new, "warm")[0]
        theirs(prompts, 8)
        own, stock = [], []
        for repeat in range(args.repeats):
            seconds, requests, completions = ours(prompts, args.new, f"{repeat}-")
            own.append(seconds)
            stock.append(theirs(prompts, args.new))
        a, b = (batch * args.new / statistics.median(times) for times in (own, stock))
        print(f"{batch} sequences: policy {a:,.0f} tok/s ({1e3 * batch / a:.2f} ms a step), "
              f"generate {b:,.0f} tok/s; policy / generate = {a / b:.2f} (target 6)")  # fmt: skip
        mean, most = distance(model, requests, completions)
        print(f"  first call {warm:.1f} s, later ones {statistics.median(own):.2f} s: warm-up "
              f"{warm - statistics.median(own):.1f} s (limit 60); |logprob - plain forward| mean {mean:.1e}, "
              f"max {most:.1e}")  # fmt: skip


if __name__ == "__main__":
    main()
