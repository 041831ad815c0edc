"""Decode speed of the in-process policy against `model.generate`, on a model of the quickstart's shape.

    python -m benchmarks.policy            # CPU, one thread
    python -m benchmarks.policy --device cuda

Both decode the same number of ids for the same prompts in one run, so the ratio stands even on a busy machine. CPU
times are process CPU time (one thread), GPU times are wall time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents.policies.transformers import TransformersPolicy
from agents.policy import Request, Sampling


class _NoStop:
    """Stands in for a tokenizer: this benchmark only moves ids."""

    eos_token_id = None


def build(width: int, layers: int, heads: int, kv_heads: int, vocabulary: int) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=100)
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=1300)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = build(args.width, args.layers, args.heads, args.kv_heads, args.vocabulary).to(args.device)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(5, args.vocabulary, (args.batch, args.prompt), generator=generator)
    policy = TransformersPolicy(model, _NoStop(), eos_ids=[args.vocabulary + 1])
    clock = time.process_time if args.device == "cpu" else time.perf_counter

    def ours(new: int, name: str) -> float:
        requests = [Request(f"{name}{i}", row, seed=i, max_tokens=new) for i, row in enumerate(prompts.tolist())]
        begin = clock()
        policy.complete(requests, Sampling())
        seconds = clock() - begin
        policy.forget([request.conversation for request in requests])
        return seconds

    def theirs(new: int) -> float:
        ids = prompts.to(args.device)
        begin = clock()
        with torch.no_grad():
            model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=new, min_new_tokens=new
            )
        return clock() - begin

    ours(2, "warm"), theirs(2)
    own, other = [], []
    for repeat in range(args.repeats):
        # The difference of two lengths leaves the decode steps alone: prefill cancels.
        own.append((ours(args.new, f"a{repeat}-") - ours(1, f"b{repeat}-")) / (args.new - 1))
        other.append((theirs(args.new) - theirs(1)) / (args.new - 1))
    a, b = statistics.median(own) * 1e3, statistics.median(other) * 1e3
    print(f"batch {args.batch}, prompt {args.prompt}, {args.new} new ids, {args.device}, torch {torch.__version__}")
    print(f"policy    {a:6.2f} ms a step (ids, logprobs, exact entropies)")
    print(f"generate  {b:6.2f} ms a step (ids only)")
    print(f"generate / policy = {b / a:.2f}")


if __name__ == "__main__":
    main()
