"""Several processes (`accelerate launch`), each with a copy of the policy: who speaks, who plays what, what is shared.

One process, the main one (rank 0), writes the run folder and the console. Training rows are dealt out by TRL's sampler;
held-out tasks are dealt out here. What was played is gathered, so that every figure is over all episodes, not a mean of
the processes' means. With one process nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object, reduce

from agents.policy import Sampling
from agents.rollout import Job, RolloutResult
from agents.seeds import find_duplicates

T = TypeVar("T")

COUNTS = ("rollouts/fate/", "rollouts/dropped_", "rollouts/flat_groups_left")
"""Beginnings of the names of the rollout's figures that count; its others are means or shares."""
MESSAGE = 2**23
"""Numbers that `average` sends together, about."""


def launched() -> int:
    """How many processes the launcher started; 1 without a launcher. Needs no process group."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this process writes the run folder and speaks. Needs no process group."""
    return launched() == 1 or int(os.environ.get("RANK", "0")) == 0


def here() -> int:
    """How many of the launched processes share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", str(launched())))


def from_main(value: T) -> T:
    """The main process's value, on every process."""
    if launched() == 1:
        return value
    box = [value]
    broadcast_object_list(box)
    return box[0]


class OtherProcessFailed(RuntimeError):
    """Another process cannot start; it, or the main process, says why."""


def together(work: Callable[[], T], known: tuple[type[Exception], ...]) -> T:
    """Do something on every process that may be refused on some: all go on, or none.

    Args:
        work: Done on every process.
        known: Errors that are meant for people. Others are bugs and raised where they happen.

    Raises:
        OtherProcessFailed: It was refused elsewhere. The main process gets all reasons, each once.
        Exception: One of `known`, where it happened.
    """
    if launched() == 1:
        return work()
    failure: Exception | None = None
    result: T
    try:
        result = work()
    except known as error:
        failure = error
    rank = PartialState().process_index
    reasons: list[tuple[int, str]] = gather_object([(rank, str(failure))] if failure else [])
    if failure is not None:
        raise failure
    if reasons:
        said = dict((reason, number) for number, reason in reversed(reasons))
        raise OtherProcessFailed("\n".join(f"process {number}: {reason}" for reason, number in said.items()))
    return result


def play_shared(
    play: Callable[[Sequence[Job]], RolloutResult], jobs: Sequence[Job], sampling: Sampling
) -> RolloutResult:
    """Play jobs that every process has: each plays every n-th, all get all episodes, in the jobs' order."""
    state = PartialState()
    count = state.num_processes
    if count == 1:
        return play(jobs)
    parts: list[RolloutResult] = gather_object([play(jobs[state.process_index :: count])])
    whole = _joined(parts, greedy=sampling.greedy)
    whole.trajectories = [parts[i % count].trajectories[i // count] for i in range(len(jobs))]
    return whole


def gathered(result: RolloutResult) -> RolloutResult:
    """The episodes of all processes, those of the first before those of the second."""
    if launched() == 1:
        return result
    return _joined(gather_object([result]), greedy=False)


def mean_figures(figures: Mapping[str, float], weight: float = 1.0) -> dict[str, float]:
    """Figures that each process counted for itself, as means over the processes that have them.

    Args:
        figures: By name.
        weight: How much those of this process count: the denominator of its shares, for example.
    """
    if launched() == 1:
        return dict(figures)
    parts: list[tuple[float, Mapping[str, float]]] = gather_object([(weight, dict(figures))])
    out = {}
    for name in dict.fromkeys(name for _, part in parts for name in part):
        known = [(w, part[name]) for w, part in parts if name in part]
        total = sum(w for w, _ in known)
        out[name] = sum(w * value for w, value in known) / total if total else known[0][1]
    return out


def sum_figures(figures: Mapping[str, float]) -> dict[str, float]:
    """Counts of each process, summed over the processes."""
    if launched() == 1:
        return dict(figures)
    parts: list[Mapping[str, float]] = gather_object([dict(figures)])
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def average(tensors: Sequence[torch.Tensor]) -> None:
    """Have tensors that every process has hold their mean over the processes; a few large messages, not many."""
    before, messages = 0, []
    for tensor in tensors:
        messages.append((tensor.dtype, before // MESSAGE))
        before += tensor.numel()
    for _, together in groupby(zip(messages, tensors, strict=True), key=lambda pair: pair[0]):
        some = [tensor for _, tensor in together]
        means = reduce(torch.cat([tensor.reshape(-1) for tensor in some]), "mean")
        for tensor, mean in zip(some, means.split([tensor.numel() for tensor in some]), strict=True):
            tensor.copy_(mean.view_as(tensor))


def over_processes(metrics: Mapping[str, float]) -> dict[str, float]:
    """Figures of the rollout's rules over all processes: counts summed, shares averaged (each has as many rows)."""
    counts = {name: value for name, value in metrics.items() if name.startswith(COUNTS)}
    return {**sum_figures(counts), **mean_figures({n: value for n, value in metrics.items() if n not in counts})}


def _joined(parts: Sequence[RolloutResult], *, greedy: bool) -> RolloutResult:
    """Several results as one. The clock is that of the slowest: the others waited for it."""
    episodes = [episode for part in parts for episode in part.trajectories]
    slowest = max((part.timing for part in parts), key=lambda timing: timing.wall_seconds)
    timing = replace(
        slowest,
        turns=sum(part.timing.turns for part in parts),
        sampled_tokens=sum(part.timing.sampled_tokens for part in parts),
    )
    duplicates = None if greedy else find_duplicates(episodes)
    return RolloutResult(episodes, timing, sum(part.retries for part in parts), duplicates)


def close_group() -> None:
    """End the process group, if there is one, once every process is here.

    Before that none may end: a launcher stops all where one ends with an exit code, and the main one may be writing its
    summary.
    """
    if launched() > 1:
        PartialState().wait_for_everyone()
        PartialState().destroy_process_group()
