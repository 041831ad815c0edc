"""Supervised data of a file: trajectories of a run, or chat messages of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.models.card import ModelCard
from agents.trajectory import RecordError, Trajectory, read_records
from envs.registry import BUILT_IN
from trainers.warmstart.corpus import ConversationEncoder, Corpus, CorpusError


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
