"""Which episodes there are: the files of runs, evaluations and campaigns, cut into parts that a page opens one by one.

What a file is called says where its episodes come from (`_ORIGINS`); what lies beside it says what a task asks for.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from agents.commands import UsageError, run_of
from agents.credited import advantages_file, put_in, read_advantages
from agents.records import RecordFile, format_of
from agents.trajectory import RecordError, Trajectory, read_records
from agents.view.pack import Tokenizers, pack, row
from agents.view.wanted import Wanted

# -- Where a file's episodes come from, by its name -------------------------------------------------------------------

TRAINING = "training"
_ORIGINS: tuple[tuple[str, Callable[[re.Match[str]], tuple[int | None, str]]], ...] = (
    (r"step_(\d+)", lambda found: (int(found[1]), TRAINING)),
    (r"step_(\d+)_(.+)", lambda found: (int(found[1]), f"held-out {found[2]}")),
    (r"confirm_(start|best)_(.+)", lambda found: (None, f"confirmed {found[1]} {found[2]}")),
    (r"episodes_(.+?)(?:\.partial)?", lambda found: (None, found[1])),
)
"""File names without their suffix, and the step and the arm that they tell of."""
_TASKS = "tasks.jsonl"
"""What each task of a run asks for."""
_LEFT_OUT = re.compile(r"checkpoint-\d+|superseded|\..*")
"""Folders whose files are copies, or what a resumed run took back."""
_CHECKPOINTS = ("best", "last", "checkpoint-*")


def origin(path: Path) -> tuple[int | None, str]:
    """Step and arm (or `training`) of the episodes in a file, as its name tells; `None` and nothing otherwise."""
    for pattern, reads in _ORIGINS:
        if found := re.fullmatch(pattern, path.stem):
            return reads(found)
    return None, ""


# -- Parts: a slice of one file, as small as a page wants to open at once ---------------------------------------------

LEVEL = 4
"""Of compression: two thirds of the time of the usual 6, for 3 % more bytes."""
PART_BYTES = 2**18
"""A part is closed beyond this size (before compression): a page opens it in about 5 ms."""


@dataclass(frozen=True, slots=True)
class Part:
    """Episodes of one file that follow one another.

    Attributes:
        id: In the order of reading; never given twice.
        file: For people, and for links: unique in the page.
        run: The folder of its run or evaluation; empty for a file by itself, and where there is one run only.
        step: That the episodes were played for.
        arm: `training`, or the decode setting they were measured with.
        first: Number of its first episode in the file.
        rows: One for each episode (`agents.view.pack.row`).
        packed: JSON list of the episodes, compressed.
    """

    id: int
    file: str
    run: str
    step: int | None
    arm: str
    first: int
    rows: list[list[Any]]
    packed: bytes

    def head(self) -> dict[str, Any]:
        """All but the episodes."""
        keys = ("id", "file", "run", "step", "arm", "first", "rows")
        return {key: getattr(self, key) for key in keys}


@dataclass(slots=True)
class _File:
    """A file while it is read."""

    path: Path
    label: str
    run: Path | None
    reader: RecordFile
    tasks: set[tuple[str, str]] = field(default_factory=set)
    """Id and content hash of the tasks of its episodes."""
    mark: tuple[int, int] = (-1, -1)
    """Inode and size when it was read last."""
    credited: bool = False
    """Its advantages were there when it was read last."""
    episodes: int = 0
    parts: list[Part] = field(default_factory=list)


class Collection:
    """All episodes of some files and folders; `refresh` reads what is new.

    Args:
        sources: Files of episodes, folders of runs or evaluations, or folders that hold some.
        tokenizers: Ids as text.
        wanted: Finds the tasks of the episodes.
        allow_cut: Leave out a last line that a crash cut.
        growing: Somebody may be writing: a last line without its end waits for the next `refresh`, and so does a
            folder without episodes.

    Raises:
        UsageError: A source is not there.
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        tokenizers: Tokenizers,
        wanted: Wanted,
        *,
        allow_cut: bool = False,
        growing: bool = False,
    ) -> None:
        self._sources = [Path(source) for source in sources]
        self._tokenizers, self._wanted = tokenizers, wanted
        self._allow_cut, self._growing = allow_cut, growing
        self._files: dict[Path, _File] = {}
        self._ids = count()
        self._asked: dict[Path, tuple[float, dict[str, str]]] = {}
        for source in self._sources:
            if not source.exists():
                raise UsageError(f"{source} is not there: a file of episodes, or the folder of a run, is needed")

    @property
    def parts(self) -> list[Part]:
        """Of all files, in order."""
        return [part for file in self._files.values() for part in file.parts]

    @property
    def intents(self) -> dict[str, str]:
        """What the tasks of the episodes ask for, by id, where a run's folder says it."""
        wanted = {one[0] for part in self.parts for one in part.rows}
        known: dict[str, str] = {}
        for run in {file.run for file in self._files.values() if file.run is not None}:
            for task, intent in self._intents(run).items():
                if task in wanted:
                    known.setdefault(task, intent)
        return known

    def wanted(self) -> dict[str, dict[str, Any]]:
        """What the tasks of the episodes wanted, by content hash, as far as they are at hand and still the same."""
        found: dict[str, dict[str, Any]] = {}
        for file in self._files.values():
            new = {(task, digest) for task, digest in file.tasks if digest not in found}
            found |= self._wanted.of(file.run or file.path.parent, file.path, new)
        return found

    def refresh(self) -> Iterator[Part]:
        """Read what is new; the new parts, one at a time.

        A file that shrank or was replaced, or whose advantages have come, is read again.

        Raises:
            RecordError: A file that the user named, or one that began as episodes, holds something else.
            OSError: A file cannot be read.
        """
        found = dict(self._found())
        for path in [path for path in self._files if path not in found]:
            del self._files[path]  # as when a whole file takes the place of a partial one
        for path, (label, run) in found.items():
            status = path.stat()
            mark, file = (status.st_ino, status.st_size), self._files.get(path)
            credited = run is not None and advantages_file(run, path).exists()
            if file is not None and file.mark == mark and file.credited == credited:
                continue
            if file is None or file.mark[0] != mark[0] or file.mark[1] > mark[1] or file.credited != credited:
                reader = RecordFile(path, allow_cut=self._allow_cut, growing=self._growing, logprobs=False)
                file = self._files[path] = _File(path, label, run, reader)
            file.mark, file.credited = mark, credited
            yield from self._parts_of(file)
        self._files = {path: self._files[path] for path in found if path in self._files}

    def _parts_of(self, file: _File) -> Iterator[Part]:
        step, arm = origin(file.path)
        near = tokenizers_near(file.run)
        advantages = read_advantages(advantages_file(file.run, file.path)) if file.run and file.credited else {}
        rows: list[list[Any]] = []
        texts: list[str] = []
        size = 0

        def close() -> Part:
            nonlocal rows, texts, size
            packed = zlib.compress(f"[{','.join(texts)}]".encode("ascii"), LEVEL)
            first = file.episodes - len(rows)
            run = "" if file.run is None else self._label(file.run)
            part = Part(next(self._ids), file.label, run, step, arm, first, rows, packed)
            file.parts.append(part)
            rows, texts, size = [], [], 0
            return part

        for episode in file.reader.read():
            put_in(episode, advantages)
            rows.append([*row(episode), _step(episode)])
            file.tasks.add((episode.task_id, episode.task_hash))
            # ASCII alone: half a surrogate pair has no UTF-8, and comes through as an escape.
            texts.append(json.dumps(pack(episode, self._tokenizers.of(episode, near)), separators=(",", ":")))
            file.episodes += 1
            size += len(texts[-1])
            if size >= PART_BYTES:
                yield close()
        if rows:
            yield close()

    def _found(self) -> Iterator[tuple[Path, tuple[str, Path | None]]]:
        """Files of episodes with their labels and their runs."""
        seen: set[Path] = set()
        for source in self._sources:
            for path in [source] if source.is_file() else _below(source):
                if path in seen:
                    continue
                seen.add(path)
                if source.is_file() or path in self._files or _holds_episodes(path):
                    yield path, (self._label(path), run_of(path))

    def _label(self, path: Path) -> str:
        """The shortest that tells it from others: below the only source, or as the user wrote it."""
        if len(self._sources) > 1:
            return str(path)
        (source,) = self._sources
        if path == source:
            return path.name if source.is_file() else ""
        return path.relative_to(source).as_posix() if source in path.parents else ""

    def _intents(self, run: Path) -> dict[str, str]:
        path = run / _TASKS
        if not path.is_file():
            return {}
        changed = path.stat().st_mtime
        if self._asked.get(run, (None, None))[0] != changed:
            self._asked[run] = changed, intents_of(run)
        return self._asked[run][1]


def _below(folder: Path) -> Iterator[Path]:
    """Files of JSON lines in a folder and below, in an order that tells the story of a run."""
    paths = [
        path
        for path in folder.rglob("*.jsonl")
        if not any(_LEFT_OUT.fullmatch(part) for part in path.relative_to(folder).parts) and path.is_file()
    ]

    def place(path: Path) -> tuple[str, float, bool, str]:
        step, arm = origin(path)
        return str(run_of(path) or ""), math.inf if step is None else step, arm == TRAINING, path.name

    yield from sorted(paths, key=place)


def _holds_episodes(path: Path) -> bool:
    """Whether its first line is an episode. An empty file, or one whose first line is being written, is none yet."""
    try:
        for _, record in read_records(path):
            format_of(record)
            return True
    except RecordError:
        return False
    return False


def intents_of(run: Path | None) -> dict[str, str]:
    """What the tasks of a run ask for, by id; none where its folder does not say it."""
    if run is None or not (run / _TASKS).is_file():
        return {}
    lines = (record for _, record in read_records(run / _TASKS, allow_cut=True))
    return {str(one.get("id")): str(one.get("intent") or "") for one in lines}


def tokenizers_near(run: Path | None) -> tuple[Path, ...]:
    """`tokenizer.json` of a run's checkpoints: of one of each kind, for all have the same."""
    if run is None:
        return ()
    found = (next(iter(sorted(run.glob(f"{name}/tokenizer.json"))), None) for name in _CHECKPOINTS)
    return tuple(path for path in found if path is not None)


def _step(episode: Trajectory) -> int | None:
    """The step that a foreign record notes itself."""
    step = episode.notes.get("step")
    return step if isinstance(step, int) else None
