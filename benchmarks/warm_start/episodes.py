"""Demonstrations: episodes of generated tasks, acted out in the emulator by an agent with known faults.

The text is that of the `compact` prompt style: the intent, then replies and observations in turn.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import Random
from typing import Any

from benchmarks.warm_start.emulator import State, run
from benchmarks.warm_start.habits import HABITS, Recipe, misname
from envs.actions import STOP_WORD
from envs.prompts import Compact
from sandboxes.sandbox import CommandResult
from tasks.families import MAX_TURNS, MIX, Family, TaskParts, stream
from tasks.families.quickstart import FILE_NAMES

BLOCK = 1000
"""Demonstrations drawn from one random generator; blocks are what is spread over processes."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One acted episode.

    Attributes:
        task_id: Family and `problem_key` of the task, with a colon between them.
        first_message: What the environment says first.
        turns: Reply and what the environment answered; the submitting reply is the last and has the answer "".
        family: The family of the task.
        parts: The task.
        files: The workspace at the end.
    """

    task_id: str
    first_message: str
    turns: tuple[tuple[str, str], ...]
    family: Family
    parts: TaskParts
    files: State

    @property
    def submitted(self) -> bool:
        """Whether the agent said that it was done."""
        return self.turns[-1][0] == STOP_WORD

    def to_json(self) -> dict[str, Any]:
        """Return the line of a demonstration file, which `trainers.sft` reads."""
        return {"task_id": self.task_id, "messages": self.messages()}

    def messages(self) -> list[dict[str, str]]:
        """Return the episode as chat messages; the agent's last word ends it."""
        out = [{"role": "user", "content": self.first_message}]
        for reply, observation in self.turns:
            out += [{"role": "assistant", "content": reply}, {"role": "user", "content": observation}]
        return out[:-1]


def problem_key(intent: str, files: Mapping[str, str]) -> str:
    """Return 16 hex digits that name what the agent is asked and finds; cheap enough for every demonstration."""
    content = json.dumps([intent, sorted(files.items())], separators=(",", ":"))
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def demonstrations(
    n: int, seed: int = 0, recipe: Recipe | None = None, *, processes: int = 1, exclude: Collection[str] = frozenset()
) -> Iterator[Demonstration]:
    """Yield `n` demonstrations of the quickstart mix; the same arguments give the same ones, whatever `processes` is.

    Args:
        n: How many.
        seed: Any integer.
        recipe: The faults; the default `Recipe` if None.
        processes: Worker processes to spread the work over.
        exclude: Keys (see `problem_key`) of tasks that must not be shown, such as the held-out ones.
    """
    make = partial(_block, seed, recipe or Recipe(), frozenset(exclude))
    sizes = [(index, min(BLOCK, n - start)) for index, start in enumerate(range(0, n, BLOCK))]
    if processes <= 1:
        for size in sizes:
            yield from make(size)
        return
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        for block in pool.imap(make, sizes):
            yield from block


def _block(seed: int, recipe: Recipe, exclude: Collection[str], block: tuple[int, int]) -> list[Demonstration]:
    index, size = block
    rng = Random(f"demonstrations:{seed}:{index}")
    return list(islice(_acted(rng, recipe, exclude), size))


def _acted(rng: Random, recipe: Recipe, exclude: Collection[str]) -> Iterator[Demonstration]:
    for family, parts in stream(MIX, rng):
        key = problem_key(parts.intent, parts.files)
        if key not in exclude:
            yield act(rng, family, parts, recipe, key)


def act(rng: Random, family: Family, parts: TaskParts, recipe: Recipe, key: str = "") -> Demonstration:
    """Act out one task with the faults of the recipe; the steps themselves are never left out."""
    scene = _Scene(dict(parts.files))
    commands = _with_habit(rng, family.name, parts.commands, recipe)
    look_before = rng.randint(0, len(commands)) if rng.random() < recipe.extra else -1
    for number, command in enumerate(commands):
        if number == look_before:
            scene.look(rng, recipe)
        if rng.random() < recipe.misname:
            failed = scene.command(misname(rng, command, scene.files))
            if failed and rng.random() < recipe.retry:
                scene.command(command)
        else:
            scene.command(command)
    if look_before == len(commands):
        scene.look(rng, recipe)
    if rng.random() < recipe.endless:
        while len(scene.turns) < MAX_TURNS:
            scene.look(rng, recipe)
    else:
        scene.turns.append((STOP_WORD, ""))
    return Demonstration(
        f"{family.name}:{key or problem_key(parts.intent, parts.files)}",
        parts.intent,
        tuple(scene.turns),
        family,
        parts,
        scene.files,
    )


def _with_habit(rng: Random, family: str, commands: tuple[str, ...], recipe: Recipe) -> tuple[str, ...]:
    if rng.random() >= recipe.share(family):
        return commands
    return tuple(HABITS[family](command) for command in commands)


class _Scene:
    """The episode so far: workspace, turns, and the last command."""

    def __init__(self, files: State) -> None:
        self.files = files
        self.turns: list[tuple[str, str]] = []
        self.last = ""

    def command(self, command: str) -> bool:
        """Run one command as a turn; return whether it failed."""
        self.files, exit_code, stdout, stderr = run(self.files, command)
        self.turns.append((f"```bash\n{command}\n```", _observation(exit_code, stdout, stderr)))
        self.last = command
        return exit_code != 0

    def look(self, rng: Random, recipe: Recipe) -> None:
        """Spend a turn on something that no step needs."""
        if self.last and rng.random() < recipe.repeat:
            self.command(self.last)
            return
        last = self.last
        named = [word for word in last.split() if word in _FILE_NAMES]
        here = named or [path for path in self.files if path in _FILE_NAMES]
        self.command(f"cat {rng.choice(here)}" if here and rng.random() < 0.5 else "ls")
        self.last = last


_FILE_NAMES = frozenset(FILE_NAMES)


_STYLE = Compact()


def _observation(exit_code: int, stdout: str, stderr: str) -> str:
    return _STYLE.observation(CommandResult(exit_code, stdout.encode(), stderr.encode()))
