"""Demonstrations of the tasks that need turns in the words of the quickstart policy: ask, do, ask again.

    python -m benchmarks.warm_start.asking --n 6000 --seed 0 > demonstrations.jsonl
    python -m trainers.sft --model_name_or_path quickstart --data demonstrations.jsonl --output_dir runs/asking

The faults are those of `benchmarks.warm_start.habits`, with shares of their own: a fault in one of several steps fails
the whole task.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from random import Random

from benchmarks.warm_start.emulator import State, UnsupportedCommandError, run
from benchmarks.warm_start.habits import HABITS, Recipe, misname
from envs.actions import STOP_WORD
from envs.prompts import Compact
from sandboxes.sandbox import CommandResult
from tasks.families import SMALL_TURNS_MIX, generate
from tasks.families.turns.small import DONE, INTENTS, PROGRAM, Request, requests

RECIPE = Recipe(habit=0.6, habits={"copy": 0.0}, misname=0.10, retry=0.6, extra=0.10, endless=0.15)
"""What the demonstrated agent does wrong; `retry`: asked for the same again, it tries what was meant."""

MEASURED = (1000, 320)
"""Seed and number of the tasks that are measured on; no demonstration shows one of their pairs of requests."""

_ASK = f"./{PROGRAM}"
_STYLE = Compact()


def demonstrations(count: int, seed: int) -> Iterator[list[dict[str, str]]]:
    """Yield conversations as chat messages; the same arguments give the same ones."""
    rng = Random(f"asking:{seed}")
    shown = {_files(task.workspace.files) for task in generate(SMALL_TURNS_MIX, MEASURED[1], MEASURED[0])}
    while count:
        drawn = requests(rng, rng.randint(2, 3))
        if _files({path for request in drawn for path in request.parts.files}) not in shown:
            yield _Scene(rng, drawn).messages
            count -= 1


def _files(paths: object) -> frozenset[str]:
    assert isinstance(paths, (set, dict))
    return frozenset(paths) - {PROGRAM}


class _Scene:
    """One acted episode."""

    def __init__(self, rng: Random, drawn: list[Request]) -> None:
        self.files: State = {path: text for request in drawn for path, text in request.parts.files.items()}
        self.messages = [{"role": "user", "content": rng.choice(INTENTS)}]
        most = 2 * len(drawn) + 3
        for request in drawn:
            self._say(_ASK, 0, request.parts.intent)
            if rng.random() < RECIPE.extra:
                self._run("ls")
            self._try(rng, request)
            if not self._is_done(request):
                self._say(_ASK, 0, request.parts.intent)
                if rng.random() < RECIPE.retry:
                    self._run(request.command)
                if not self._is_done(request):
                    self._give_up(rng, request, most)
                    return
        self._say(_ASK, 0, DONE)
        if rng.random() < RECIPE.endless:
            while len(self.messages) < 2 * most:
                self._say(_ASK, 0, DONE)
            self.messages.pop()
        else:
            self.messages.append({"role": "assistant", "content": STOP_WORD})

    def _try(self, rng: Random, request: Request) -> None:
        command = request.command
        if rng.random() < RECIPE.share(request.family):
            command = HABITS[request.family](command)
        if rng.random() < RECIPE.misname:
            command = misname(rng, command, self.files)
        self._run(command)

    def _give_up(self, rng: Random, request: Request, most: int) -> None:
        if rng.random() < 0.5:
            self.messages.append({"role": "assistant", "content": STOP_WORD})
            return
        while len(self.messages) < 2 * most:
            self._say(_ASK, 0, request.parts.intent)
        self.messages.pop()

    def _is_done(self, request: Request) -> bool:
        return all(self.files.get(path) == text for path, text in request.after.items())

    def _run(self, command: str) -> None:
        try:
            self.files, exit_code, out, err = run(self.files, command)
        except UnsupportedCommandError:  # a wrong name that makes a form without sense, such as `cp a a`
            return
        self._say(command, exit_code, out, err)

    def _say(self, command: str, exit_code: int, out: str = "", err: str = "") -> None:
        result = CommandResult(exit_code, out.encode(), err.encode())
        self.messages.append({"role": "assistant", "content": f"```bash\n{command}\n```"})
        self.messages.append({"role": "user", "content": _STYLE.observation(result)})


def main() -> None:
    """Print the demonstrations, a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--n", type=int, default=6000, metavar="N", help="how many (default: 6000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (default: 0)")
    given = parser.parse_args()
    for messages in demonstrations(given.n, given.seed):
        sys.stdout.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    main()
