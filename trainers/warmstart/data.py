"""Where supervised data comes from: generated demonstrations, trajectories of a run, or chat messages of the user."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from agents.jsonl import RecordError, read_records
from agents.models.card import ModelCard
from agents.trajectory import Trajectory
from envs.registry import BUILT_IN
from tasks.families import MIX, source, stream
from trainers.demonstrations import Recipe, demonstrations, problem_key
from trainers.warmstart.corpus import ConversationEncoder, Corpus, CorpusError

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


def generated_corpus(tokenizer: Any, count: int, seed: int, recipe: Recipe, processes: int = 0) -> Corpus:
    """Generate and encode demonstrations in parallel.

    Args:
        tokenizer: A Hugging Face tokenizer with a chat template.
        count: Demonstrations.
        seed: Same seed, same corpus, whatever `processes` is.
        recipe: The faults.
        processes: 0 takes the number of cores.
    """
    chunks = [
        (min(CHUNK, count - index * CHUNK), chunk_seed(seed, index), recipe) for index in range(-(-count // CHUNK))
    ]
    workers = min(processes or len(os.sched_getaffinity(0)), len(chunks))
    if workers <= 1:
        _set_up(tokenizer)
        return Corpus.join([_chunk_corpus(chunk) for chunk in chunks])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainers.warmstart.data", "trainers.demonstrations", "transformers"])
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up, initargs=(tokenizer,)) as pool:
        return Corpus.join(list(pool.map(_chunk_corpus, chunks)))


def read_corpus(path: Path, tokenizer: Any, *, passed_only: bool = True) -> Corpus:
    """Trajectories or chat messages of a JSONL file; each line may be either.

    Trajectories keep the ids that were sampled, and forced ids stay untrained.

    Raises:
        CorpusError: A line is neither, was made with another tokenizer, or nothing is left; names file and line.
    """
    encode: ConversationEncoder | None = None
    sequences: list[tuple[list[int], list[bool]]] = []
    failed = 0
    for number, record in _records(path):
        try:
            if "turns" in record:
                trajectory = Trajectory.from_json(record)
                if passed_only and trajectory.passed is not True:
                    failed += 1
                elif trajectory.turns:
                    sequences.append(_trajectory_ids(trajectory, tokenizer))
            elif "messages" in record:
                encode = encode or ConversationEncoder(tokenizer)
                sequences.append(encode(_checked(record["messages"])))
            else:
                raise CorpusError("neither a trajectory (`turns`) nor a conversation (`messages`)")
        except (CorpusError, ValueError, TypeError, KeyError) as error:
            raise CorpusError(f"{path}:{number}: {error}") from error
    if not sequences:
        reason = f"none of its {failed} trajectories passed; train on all with --no-passed_only" if failed else "empty"
        raise CorpusError(f"{path}: nothing to train on: {reason}")
    return Corpus.of(sequences)


def spoken_in(path: Path, *, passed_only: bool = True) -> set[ModelCard]:
    """How the environments of a file's trajectories spoke to the policy; empty where no line says it.

    Args:
        path: As `read_corpus` reads it.
        passed_only: Of trajectories that passed.

    Raises:
        CorpusError: The file cannot be read.
    """
    told: set[ModelCard] = set()
    for _, record in _records(path):
        said = record.get("environment")
        if "turns" not in record or not isinstance(said, dict) or not said.get("prompt_style"):
            continue
        if passed_only and record.get("passed") is not True:
            continue
        told_env = str(said.get("env") or "")
        names = (name for name, place in BUILT_IN.items() if place.endswith(f":{told_env}"))
        stops = said.get("stops")
        told.add(
            ModelCard(
                prompt_style=str(said["prompt_style"]),
                environment=next(names, told_env if ":" in told_env else ""),
                prompt_hash=str(said.get("prompt_hash") or ""),
                tools=said.get("tools"),
                revise=said.get("revise"),
                stops=None if stops is None else tuple(stops),
            )
        )
    return told


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        yield from read_records(path)
    except RecordError as error:
        raise CorpusError(str(error)) from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from error


def _trajectory_ids(trajectory: Trajectory, tokenizer: Any) -> tuple[list[int], list[bool]]:
    flat = trajectory.flat()
    ids = [*trajectory.prompt_ids, *flat.ids]
    first = trajectory.turns[0]
    same = max(ids) < len(tokenizer) and tokenizer.decode(first.ids, skip_special_tokens=True).strip() in (
        first.reply.strip(),
        tokenizer.decode(tokenizer.encode(first.reply, add_special_tokens=False), skip_special_tokens=True).strip(),
    )
    if not same:
        raise CorpusError("the ids of this trajectory are not this model's: it was sampled with another tokenizer")
    return ids, [False] * len(trajectory.prompt_ids) + [bool(flag) for flag in flat.mask]


def _checked(messages: Any) -> Sequence[Mapping[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise CorpusError("`messages` must be a list with at least one message")
    for index, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise CorpusError(f"message {index}: needs `role` and `content`, both text")
    return messages


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
