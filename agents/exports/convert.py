"""`python -m agents convert`: a file of episodes in another format; a format is a row of `TARGETS`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.commands import UsageError, clean
from agents.exports import atif, inspect_log
from agents.exports.texts import UNKNOWN, Texts, facts, messages, outcome
from agents.fieldnotes import to_bundles, to_records
from agents.records import read_trajectories
from agents.trajectory import Trajectory
from agents.view.pack import Tokenizers
from agents.view.wanted import Wanted
from tasks.model import SUFFIX, atomic_file


@dataclass(frozen=True, slots=True)
class Target:
    """A format that episodes are written in.

    Attributes:
        write: Episodes as records.
        lost: What the format has no place for, said after each conversion; empty for nothing.
        file_name: Of the record with that number. The output is then a folder with a JSON file for each; `None`: one
            file, a record a line.
    """

    write: Callable[[Iterable[Trajectory], Texts], Iterable[dict[str, Any]]]
    lost: str = ""
    file_name: Callable[[int, dict[str, Any]], str] | None = None


def _conversations(episodes: Iterable[Trajectory], texts: Texts) -> Iterator[dict[str, Any]]:
    for episode in episodes:
        said = [{"role": one.role, "content": one.content} for one in messages(episode, texts.prompt(episode))]
        yield {**outcome(episode), "model": texts.model, "messages": said, "turns": [facts(t) for t in episode.turns]}


_NOT_IN_MESSAGES = (
    "ids, numbers of single tokens, texts of rejected candidates, anchors, prompts with older observations as lines "
    "(each observation stands as it came first)"
)
_NOT_IN_FIELDNOTES = "signals, anchors, uncertainties, texts of rejected candidates, weights of assertions"
TARGETS = {
    "turngym": Target(lambda episodes, _: (episode.to_json() for episode in episodes)),
    "fieldnotes": Target(
        lambda episodes, _: to_records(episodes),
        f"rewards, numbers of attempts, {_NOT_IN_FIELDNOTES} (--to bundle has rewards and attempts)",
    ),
    "bundle": Target(lambda episodes, _: to_bundles(episodes), _NOT_IN_FIELDNOTES),
    "inspect": Target(
        inspect_log.logs,
        f"{_NOT_IN_MESSAGES}. Records have no date: the log says 1 January 1970",
        inspect_log.file_name,
    ),
    "atif": Target(
        atif.trajectories,
        "anchors, bounds of entropies, log-probabilities of the likeliest ids; lists with an infinite number. Records "
        f"do not say which version of TurnGym played: the agent's is '{UNKNOWN}'",
        atif.file_name,
    ),
    "jsonl": Target(
        _conversations,
        _NOT_IN_MESSAGES,
    ),
}
"""By the name that `--to` takes."""


def convert(args: argparse.Namespace) -> int:
    """Write the new file, or the new folder; returns 0.

    Raises:
        UsageError: It is there already, or the model that is named is not here.
        RecordError: The old one cannot be read.
        OSError: A file cannot be read or written.
    """
    out, target, count = Path(args.out), TARGETS[args.to], 0
    if out.exists():
        raise UsageError(f"{out} is already there: remove it, or choose another name")
    wanted = Wanted(args.tasks)
    texts = Texts(Path(args.file), Tokenizers.with_model(args.model), wanted)

    def counted() -> Iterator[Trajectory]:
        nonlocal count
        for episode in read_trajectories(args.file, allow_cut=args.allow_cut):
            count += 1
            yield episode

    records = target.write(counted(), texts)
    if target.file_name is None:
        with atomic_file(out, sync=False) as file:
            for record in records:
                file.write(json.dumps(record) + "\n")
    else:
        with _new_folder(out) as folder:
            for place, record in enumerate(records):
                text = json.dumps(record, allow_nan=False) + "\n"
                (folder / target.file_name(place, record)).write_text(text, encoding="ascii")
    print(f"{count} episodes written to {args.out} ({args.to})")
    if target.lost:
        print(f"left out, for the format has no place for it: {target.lost}")
    for folder_of_run, why in wanted.notes.items():
        print(f"{folder_of_run}: what its tasks ask for is not at hand: {clean(why)}", file=sys.stderr)
    if texts.without_prompt:
        print(
            f"of {texts.without_prompt} episodes the prompt is not known as text, so the task's intent stands for it, "
            "or a remark: name the model whose tokenizer they have with --model",
            file=sys.stderr,
        )
    return 0


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which stands at `path` once it is whole; after an exception nothing does."""
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}{SUFFIX}")
    fresh.mkdir()
    try:
        yield fresh
        os.rename(fresh, path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
