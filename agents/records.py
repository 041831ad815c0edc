"""Formats of trajectory files: ours, field-notes episodes, Retrain's generations; which one a file has."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from agents.fieldnotes import Episodes, Shape, from_bundle
from agents.trajectory import RecordError, Trajectory, Turn, check_lengths, parse_records

# -- Retrain's `emergence/generations.jsonl`, one reply a line, and the variant of textpolicy -------------------------
# What the format lost before we read it:
#
# * `prompt` is cut at 200 characters and `completion` at 500 (noted as `text_cut` where it has that length), and
# neither
#   a task nor a group is named: an episode gets the id `retrain:` and a hash of its prompt, and counts its attempts
#   within a step. Two prompts that begin alike look the same.
# * There are no ids (textpolicy has those of the reply, with log-probabilities and entropies, but none of the
# prompt), no
#   stop reason and no grade. Nothing can be trained on or replayed; rewards and lengths can be looked at.

RETRAIN = "retrain"
COMPLETION_CHARACTERS = 500


class _Generation(Shape):
    step: int
    prompt: str
    completion: str
    reward: float | None
    num_tokens: int | None = None
    tokens: list[int] | None = None
    logprobs: list[float] | None = None
    entropy_per_token: list[float] | None = None


class Reader:
    """Reads the records of one file in order; it counts the attempts."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[int, str]] = Counter()

    def read(self, record: dict[str, Any]) -> list[Trajectory]:
        """The episode of one record.

        Raises:
            RecordError: A key is missing or has a value of the wrong type; names the key.
        """
        given = _Generation.of(record)
        ids = given.tokens or []
        lists = {"logprobs": given.logprobs, "entropy_per_token": given.entropy_per_token}
        if given.tokens is not None:
            check_lengths("", lists, len(ids), "tokens")
        task = f"{RETRAIN}:{hashlib.sha256(given.prompt.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
        attempt = self._seen[given.step, task]
        self._seen[given.step, task] += 1
        turn = Turn(
            0,
            [],
            ids,
            given.logprobs if ids else None,
            given.entropy_per_token if ids else None,
            [False] * len(ids),
            None,
            given.completion,
        )
        if len(given.completion) >= COMPLETION_CHARACTERS:
            turn.notes["text_cut"] = 1.0
        if given.num_tokens is not None:
            turn.notes["num_tokens"] = float(given.num_tokens)
        episode = Trajectory(task, "", attempt, None, [], [turn], reward=given.reward, source=RETRAIN)
        episode.notes = {"step": given.step, "prompt": given.prompt, **given.other}
        return [episode]


# -- Trajectories of any format this package knows, told apart by the keys of the first record ------------------------
# | format | file |
# |---|---|
# | `turngym` | our own, token for token |
# | `fieldnotes` | `trajectories.jsonl`, one episode a line |
# | `bundle` | `trajectory_bundle.jsonl`, one group of episodes a line |
# | `retrain` | `emergence/generations.jsonl`, one reply a line |
#
# A format is a row of `FORMATS`. Ours is `agents.trajectory`, field-notes' are `agents.fieldnotes`.

Read = Callable[[dict[str, Any]], Iterable[Trajectory]]
"""The episodes of one record."""


@dataclass(frozen=True, slots=True)
class Format:
    """How files of a format are known and read.

    Attributes:
        keys: Every record has them.
        reader: What reads the records of one file, in order.
    """

    keys: tuple[str, ...]
    reader: Callable[[], Read]


FORMATS = {
    "turngym": Format(
        ("prompt_ids", "turns", "task_hash"),
        lambda: lambda record: [Trajectory.from_json(record)],
    ),
    "bundle": Format(("rollouts", "task_id"), lambda: from_bundle),
    "fieldnotes": Format(("task_id", "turns", "stopped"), lambda: Episodes().read),
    "retrain": Format(("prompt", "completion", "reward"), lambda: Reader().read),
}
"""The formats by name; a record is of the first whose keys it has."""


def format_of(record: dict[str, Any]) -> str:
    """The format of a record.

    Raises:
        RecordError: It has the keys of none.
    """
    for name, row in FORMATS.items():
        if all(key in record for key in row.keys):
            return name
    wanted = "; ".join(f"{name}: {', '.join(row.keys)}" for name, row in FORMATS.items())
    raise RecordError(f"is no record of a known format: its keys are {', '.join(record) or 'none'} (needed: {wanted})")


def read_trajectories(path: str | Path, *, allow_cut: bool = False) -> Iterator[Trajectory]:
    """Trajectories of a file in any known format, one at a time.

    Args:
        path: The file; the first record decides about its format.
        allow_cut: Leave out a last line that was never written to its end (a crash), with a warning.

    Raises:
        RecordError: A line is no record of the file's format; the message names file, line and key.
        OSError: The file cannot be read.
    """
    yield from RecordFile(path, allow_cut=allow_cut).read()


_LOGPROBS = re.compile(rb'("(?:max_)?logprobs": ?)\[[^\]]*\]')
"""Lists of numbers under these keys. In a text of JSON a quote has a backslash before it, so none looks like a key."""


class RecordFile:
    """One file of trajectories in any known format, read as far as it goes, and later on from there.

    Args:
        path: The file; its first record decides about its format.
        allow_cut: See `read_trajectories`.
        growing: Somebody may be writing it: a last line without its end is left for the next `read`.
        logprobs: False leaves log-probabilities out, for those who only look: half of the numbers to be read.
    """

    def __init__(
        self, path: str | Path, *, allow_cut: bool = False, growing: bool = False, logprobs: bool = True
    ) -> None:
        self.path, self._allow_cut, self._growing, self._logprobs = path, allow_cut, growing, logprobs
        self._offset = self._lines = 0
        self._read: Read | None = None
        self._kind = ""

    def read(self) -> Iterator[Trajectory]:
        """Trajectories that no call gave before; raises what `read_trajectories` does."""
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            records = parse_records(self._new(file), self.path, first=self._lines + 1, allow_cut=self._allow_cut)
            for number, record in records:
                try:
                    if self._read is None:
                        name = format_of(record)
                        self._read, self._kind = FORMATS[name].reader(), f"no record of the format {name}: "
                    yield from self._read(record)
                except RecordError as error:
                    raise RecordError(f"{self.path}:{number}: not a trajectory ({self._kind}{error})") from error

    def _new(self, file: BinaryIO) -> Iterator[bytes]:
        for line in file:
            if self._growing and not line.endswith(b"\n"):
                return
            self._offset += len(line)
            self._lines += 1
            yield line if self._logprobs else _LOGPROBS.sub(rb"\1null", line)
