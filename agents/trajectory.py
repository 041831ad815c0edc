"""Turn and Trajectory: the record of one attempt at one task, token for token; JSONL in and out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from agents.policy import Candidate, FinishReason


@dataclass(slots=True)
class Turn:
    """One reply of the policy and what the environment answered.

    Attributes:
        index: 0 for the first turn.
        context_ids: Ids the chat added before this reply (environment message and template), mask 0. Empty for the
            first turn, whose context is the trajectory's `prompt_ids`.
        ids: The reply's ids as sampled (see `Completion` for the lists beside it).
        reply: The reply as text, for people and for the environment.
        action: `command`, `submit` or `malformed`.
        command: The command that ran, when one did.
        observation: What the environment answered, as text.
        exit_code: The command's, when one ran.
        signal: What the turn earned by itself (change of the file assertions' rate); `None` for none.
        anchor: The state before this turn, as turn groups compare it.
        uncertainty: The turn's uncertainty from the T2PO wrapper; `None` means missing.
        sandbox_seconds: Wall time of the environment's step.
        model_seconds: This turn's share of the batched call that sampled it.
    """

    index: int
    context_ids: list[int]
    ids: list[int]
    logprobs: list[float]
    entropies: list[float]
    forced: list[bool]
    finish: FinishReason
    reply: str
    action: str = ""
    command: str | None = None
    observation: str = ""
    exit_code: int | None = None
    signal: float | None = None
    anchor: str = ""
    uncertainty: float | None = None
    candidates: list[Candidate] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)
    sandbox_seconds: float = 0.0
    model_seconds: float = 0.0


@dataclass(slots=True)
class Flat:
    """A trajectory as one completion for a trainer. All lists have one entry per completion id.

    Attributes:
        ids: Replies and the environment's messages between them; nothing after the last reply.
        mask: 1 where the id was sampled; 0 for environment, template and forced ids.
        logprobs: The sampler's; 0.0 where `mask` is 0.
        entropies: The sampler's; 0.0 where `mask` is 0.
        turn_ids: Index of the turn that sampled the id; -1 where `mask` is 0.
    """

    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    entropies: list[float]
    turn_ids: list[int]


@dataclass(slots=True)
class Trajectory:
    """One attempt at one task.

    Attributes:
        task_id: The task; `task_hash` its content hash.
        attempt: 0..K-1 within the group.
        seed: The episode's seed.
        prompt_ids: Ids before the first reply.
        stop_reason: `submitted`, `max_turns`, `max_tokens` or `infrastructure`.
        reward: `None` when the episode has none (infrastructure): it enters no mean.
        passed: All assertions pass; `None` without a grade.
        rate: Mean assertion score in [0, 1]; `None` without a grade.
        assertions: The grade, one record per assertion (name, kind, verdict, score, detail).
        error: What failed, for `infrastructure`.
        sampling: The decode settings, as a label.
        family: Family of the task (or its set).
        notes: What only some environments say at the end, JSON-able: `answers`, `text_after_stop`, `text_after_answer`.
    """

    task_id: str
    task_hash: str
    attempt: int
    seed: int
    prompt_ids: list[int]
    turns: list[Turn] = field(default_factory=list)
    stop_reason: str = ""
    reward: float | None = None
    passed: bool | None = None
    rate: float | None = None
    assertions: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    sampling: str = ""
    family: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    def flat(self) -> Flat:
        """The episode as one completion: sampled ids with mask 1, everything between them with mask 0."""
        out = Flat([], [], [], [], [])
        for turn in self.turns:
            if turn.index:
                n = len(turn.context_ids)
                out.ids += turn.context_ids
                out.mask += [0] * n
                out.logprobs += [0.0] * n
                out.entropies += [0.0] * n
                out.turn_ids += [-1] * n
            on = [not forced for forced in turn.forced]
            out.ids += turn.ids
            out.mask += [int(flag) for flag in on]
            out.logprobs += [x if flag else 0.0 for x, flag in zip(turn.logprobs, on, strict=True)]
            out.entropies += [x if flag else 0.0 for x, flag in zip(turn.entropies, on, strict=True)]
            out.turn_ids += [turn.index if flag else -1 for flag in on]
        return out

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record; `from_json` gives the same trajectory back."""
        record = asdict(self)
        if not self.notes:
            del record["notes"]
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Trajectory:
        """Rebuild a trajectory from `to_json`'s record.

        Raises:
            TypeError: A key is unknown or missing.
        """
        turns = []
        for raw in record["turns"]:
            candidates = [Candidate(tuple(c["ids"]), c["signal"]) for c in raw["candidates"]]
            turns.append(Turn(**{**raw, "finish": FinishReason(raw["finish"]), "candidates": candidates}))
        return cls(**{**record, "turns": turns})


def write_jsonl(trajectories: Iterable[Trajectory], file: TextIO) -> None:
    """Append one line per trajectory; each line is written whole and flushed, so a crash loses at most one."""
    for trajectory in trajectories:
        file.write(json.dumps(trajectory.to_json(), ensure_ascii=False) + "\n")
        file.flush()


def read_jsonl(path: str | Path) -> Iterator[Trajectory]:
    """Trajectories of a file, in order.

    Raises:
        ValueError: A line is no trajectory; the message names file and line.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield Trajectory.from_json(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}:{number}: not a trajectory ({error})") from error


def groups(trajectories: Sequence[Trajectory]) -> dict[str, list[Trajectory]]:
    """Trajectories by task, in order of first appearance."""
    out: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        out.setdefault(trajectory.task_id, []).append(trajectory)
    return out
