"""Generated demonstrations as supervised data: what `trainers.sft` trains a new policy on."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import islice
from typing import Any

from benchmarks.warm_start.episodes import demonstrations, problem_key
from benchmarks.warm_start.habits import Recipe
from tasks.families import MIX, source, stream
from trainers.warmstart.corpus import ConversationEncoder, Corpus

__all__ = ["CHUNK", "MEASURED", "Recipe", "chunk_seed", "demonstration_messages", "generated_corpus", "measured_keys"]

CHUNK = 1000
"""Demonstrations that one seed makes; the same on every machine, whatever the number of processes."""

MEASURED = ((2, 1000), (1000, 1000))
"""Seed and number of the generated tasks that are measured on: the quickstart's held-out ones and the default of
`python -m trainers.evaluate`. No demonstration shows one of them."""

_worker: dict[str, Any] = {}
"""What a data process keeps between chunks."""


def chunk_seed(seed: int, index: int) -> int:
    """Seed of one chunk of demonstrations."""
    return int.from_bytes(hashlib.sha256(f"demonstrations:{seed}:{index}".encode()).digest()[:6], "big")


@cache
def measured_keys() -> frozenset[str]:
    """Keys of the tasks that demonstrations must not show."""
    keys = set()
    for seed, count in MEASURED:
        for _, parts in islice(stream(MIX, source(MIX, seed)), 2 * count):
            keys.add(problem_key(parts.intent, parts.files))
    return frozenset(keys)


def demonstration_messages(count: int, seed: int, recipe: Recipe) -> Iterator[list[dict[str, str]]]:
    """Generated demonstrations as chat messages, chunk after chunk."""
    for index in range(-(-count // CHUNK)):
        yield from _chunk_messages(min(CHUNK, count - index * CHUNK), chunk_seed(seed, index), recipe)


def generated_corpus(tokenizer: Any, count: int, seed: int, recipe: Recipe, processes: int | None = None) -> Corpus:
    """Generate and encode demonstrations in parallel.

    Args:
        tokenizer: A Hugging Face tokenizer with a chat template.
        count: Demonstrations.
        seed: Same seed, same corpus, whatever `processes` is.
        recipe: The faults.
        processes: `None` takes the number of cores.
    """
    chunks = [
        (min(CHUNK, count - index * CHUNK), chunk_seed(seed, index), recipe) for index in range(-(-count // CHUNK))
    ]
    workers = min(processes or len(os.sched_getaffinity(0)), len(chunks))
    if workers <= 1:
        _set_up(tokenizer)
        return Corpus.join([_chunk_corpus(chunk) for chunk in chunks])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.warm_start.corpus", "transformers"])
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up, initargs=(tokenizer,)) as pool:
        return Corpus.join(list(pool.map(_chunk_corpus, chunks)))


def _chunk_messages(count: int, seed: int, recipe: Recipe) -> Iterator[list[dict[str, str]]]:
    for demonstration in demonstrations(count, seed, recipe, exclude=measured_keys()):
        messages = [{"role": "user", "content": demonstration.first_message}]
        for reply, observation in demonstration.turns:
            messages.append({"role": "assistant", "content": reply})
            messages.append({"role": "user", "content": observation or ""})
        yield messages


def _set_up(tokenizer: Any) -> None:
    _worker["encode"] = ConversationEncoder(tokenizer)


def _chunk_corpus(chunk: tuple[int, int, Recipe]) -> Corpus:
    encode = _worker["encode"]
    return Corpus.of(encode(messages) for messages in _chunk_messages(*chunk))
