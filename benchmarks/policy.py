"""Decode speed of the in-process policy against `model.generate`, and of a stream of replies against lockstep.

    python -m benchmarks.policy            # CPU, one thread
    python -m benchmarks.policy --device cuda

The model has the quickstart's shape. Both sides of a ratio decode the same number of ids for the same prompts in one
run, so it stands even on a busy machine. CPU times are process CPU time (one thread), GPU times are wall time.

The stream plays conversations of some turns that come back at scattered moments after each reply; lockstep plays the
same ones turn by turn. Environments take no time in either: what a stream saves by not waiting for the slowest command
is left out, and what it costs to admit a few at a time is all there.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, Request, Sampling


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


def conversations(prompts: list[list[int]], turns: int, new: int, name: str) -> list[list[Request]]:
    """Requests with caps from 1 to `new`: ids are random, so what the model says changes no time."""
    draw, made = random.Random(0), []
    for n, prompt in enumerate(prompts):
        requests, context = [], list(prompt)
        for turn in range(turns):
            cap = draw.randint(1, new)
            requests.append(Request(f"{name}{n}", context, seed=n * turns + turn, max_tokens=cap))
            context = [*context, *(draw.choice(prompt) for _ in range(cap + 12))]
        made.append(requests)
    return made


def in_lockstep(policy: TransformersPolicy, talks: list[list[Request]]) -> int:
    """Every turn of all conversations together; the number of ids."""
    return sum(len(reply.ids) for turn in zip(*talks, strict=True) for reply in policy.complete(turn, Sampling()))


def in_a_stream(policy: TransformersPolicy, talks: list[list[Request]], away: int) -> int:
    """Each conversation comes back up to `away` steps after its reply; the number of ids."""
    draw, step, ids = random.Random(1), 0, 0
    coming = {talk[0].conversation: list(talk) for talk in talks}
    back = [(draw.randrange(away), name) for name in coming]
    stream = policy.stream(Sampling(), wake=lambda: None)
    while back or stream.working:
        stream.ask([coming[name].pop(0) for at, name in back if at <= step])
        back = [(at, name) for at, name in back if at > step]
        for name, reply in stream.advance():
            assert isinstance(reply, Completion), reply
            ids += len(reply.ids)
            if coming[name]:
                back.append((step + draw.randrange(away), name))
        step += 1
    stream.close()
    return ids


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
    parser.add_argument("--turns", type=int, default=4, help="of each conversation, in a stream and in lockstep")
    parser.add_argument("--away", type=int, default=16, help="steps after which a conversation comes back, at most")
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

    def rate(play: Callable[[TransformersPolicy, list[list[Request]]], int], name: str) -> float:
        talks = conversations(prompts.tolist(), args.turns, args.new, name)
        begin = clock()
        ids = play(policy, talks)
        seconds = clock() - begin
        policy.forget([talk[0].conversation for talk in talks])
        return ids / seconds

    rates = [
        (rate(in_lockstep, f"c{repeat}-"), rate(lambda p, talks: in_a_stream(p, talks, args.away), f"d{repeat}-"))
        for repeat in range(args.repeats + 1)
    ][1:]  # the first warms up
    lockstep, stream = (statistics.median(side) for side in zip(*rates, strict=True))
    ratio = statistics.median(b / a for a, b in rates)
    print(
        f"{args.batch} conversations of {args.turns} turns, up to {args.new} ids each, away for up to {args.away} steps"
    )
    print(f"lockstep  {lockstep:6.0f} ids a second")
    print(f"stream    {stream:6.0f} ids a second")
    print(f"stream / lockstep = {ratio:.2f} ({min(b / a for a, b in rates):.2f} to {max(b / a for a, b in rates):.2f})")


if __name__ == "__main__":
    main()
