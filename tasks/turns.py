"""Proving that a task needs its turns and its user: fewer replies, or an agent that does not speak, do not pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tasks.assertions.grade import Grade
from tasks.oracle import Saying, Step, answer_waits, at_once, layers, replies, request_of
from tasks.task import Task


class Played(Protocol):
    """One episode of a proof."""

    @property
    def grade(self) -> Grade:
        """How its end is judged."""


class Play(Protocol):
    """What plays commands in a fresh workspace: `tasks.proof.play` of a task in a sandbox."""

    def __call__(
        self, commands: Sequence[Step], answer: str | None, name: str = ..., together: Sequence[int] = ...
    ) -> Played:
        """Play commands; those at the positions `together` do not know what the commands of their reply print."""


def prove_turns(task: Task, play: Play) -> tuple[list[str], list[str]]:
    """Try each way of the oracle in fewer replies than `task.turns`.

    A reply may hold the last command and submit, so a way of N commands, each of which needs what the one before
    printed, needs N replies; one more where the answer needs what the last command printed. Played are: all commands
    joined into one reply; every two neighbouring replies made one; and, where the reads alone would allow fewer
    replies in another order, that order (a command may also wait for what another one did). A message to a user is a
    reply of its own; where there are any, the order is that of the oracle.

    Returns:
        What was found, a line for each way, and what is wrong: empty if the task needs its turns.

    Raises:
        SandboxError: The machinery failed.
    """
    assert task.oracle is not None
    notes: list[str] = []
    problems: list[str] = []
    for number, way in enumerate(task.oracle.ways):
        name = f"oracle alternative {number}" if number else "oracle"
        note, wrong = _prove_way(task, way, name, play)
        notes += [note] if note and not wrong else []
        problems += wrong
    return notes, problems


def _prove_way(task: Task, way: Sequence[Step], name: str, play: Play) -> tuple[str, list[str]]:
    assert task.oracle is not None and task.turns is not None
    turns, answer = task.turns, task.oracle.answer
    parts = replies(way)
    forced = len(parts) + answer_waits(way, parts, answer)
    if forced < turns:
        return "", [
            f"turns: {turns}, but what the {name} reads forces no more than {forced} of them (submitting needs none of "
            "its own): let a later command need what an earlier one prints, or lower turns"
        ]
    first = at_once(way)
    joined = play(first, answer, together=[len(first)])
    problems = _judged(joined, f"the {name} joined into one reply")
    free: list[str] = []
    for before, part in zip(parts, [*parts[1:], [len(way)]], strict=True):
        if part == [len(way)] and forced == len(parts):
            break  # the answer may stand with the last command anyway
        merged = play(way, answer, together=part)
        what = f"command {part[0] + 1}" if part[0] < len(way) else "the answer"
        what += f" of the {name} in one reply with command {before[-1] + 1}"
        if merged.grade.passed:
            free.append(what)
        else:
            problems += _judged(merged, what)
    if forced - len(free) < turns:
        problems += [f"turns: {turns}, but it passes with {what}: what is read there is not needed" for what in free]
    early = layers(way)
    if task.user is None and len(early) + answer_waits(way, early, answer) < turns:
        order = [position for part in early for position in part]
        starts = {sum(map(len, early[:count])) for count in range(len(early))}
        together = [index for index in range(len(order)) if index not in starts]
        sooner = play([way[position] for position in order], answer, together=together)
        said = ", ".join(" with ".join(str(position + 1) for position in part) for part in early)
        problems += _judged(sooner, f"the {name} in {len(early)} replies (commands {said})")
    score = joined.grade.rate
    return f"turns: {turns}; in one reply the {name} scores {score:.2f}" if score is not None else "", problems


_UNMOVED = "passes without the user"


def prove_user(task: Task, play: Play) -> tuple[list[str], list[str]]:
    """Try each way of the oracle as an agent would that does not speak, or does not listen: none may pass.

    Played are: the way without its messages, and without each of them; without what a request asks for; and what could
    be done before anybody has said anything, in one reply. An agent that submits early hears a request all the same,
    because the submission is not taken (`tasks.user`), so what a request asks for is simply part of the task.

    Returns:
        What was found, a line for each way, and what is wrong.

    Raises:
        SandboxError: The machinery failed.
    """
    assert task.oracle is not None and task.user is not None
    notes: list[str] = []
    problems: list[str] = []
    for number, way in enumerate(task.oracle.ways):
        name = f"oracle alternative {number}" if number else "oracle"
        messages = [position for position, step in enumerate(way) if isinstance(step, Saying)]
        requests = list(dict.fromkeys(asked for step in way if (asked := request_of(step)) is not None))
        if not messages and not requests:
            problems.append(f"the {name} neither says anything nor does what the user asks for on the way: without use")
            continue
        without = {f"saying nothing of {len(messages)}": {*messages}} if len(messages) > 1 else {}
        without |= {f"leaving out message {position + 1}": {position} for position in messages}
        for asked in requests:
            without[f"ignoring the request '{asked}'"] = {n for n, step in enumerate(way) if request_of(step) == asked}
        rates: list[float] = []
        for what, gone in without.items():
            run = play([step for position, step in enumerate(way) if position not in gone], task.oracle.answer)
            problems += _judged(run, f"the {name}, {what}", _UNMOVED)
            rates.append(run.grade.rate or 0.0)
        run = play(at_once(way), task.oracle.answer)
        problems += _judged(run, f"the {name} in one reply, before anybody has said anything", _UNMOVED)
        rates.append(run.grade.rate or 0.0)
        notes.append(f"user: without speaking and listening the {name} scores {min(rates):.2f} to {max(rates):.2f}")
    return notes, list(dict.fromkeys(problems))


def _judged(run: Played, what: str, passes: str = "passes in too few turns") -> list[str]:
    """What is wrong with a collapsed episode: it passes, or cannot be judged."""
    if run.grade.passed:
        return [f"{passes}: {what}"]
    return [f"{what}: {error.name} cannot be judged: {error.detail}" for error in run.grade.errors]
