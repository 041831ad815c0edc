"""`python -m agents convert`: a trajectory file in another format."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from agents.commands.chosen import UsageError
from agents.records import FORMATS, read_trajectories
from tasks.atomic_file import atomic_file


def convert(args: argparse.Namespace) -> int:
    """Write the new file; returns 0.

    Raises:
        UsageError: It is there already.
        RecordError: The old one cannot be read.
        OSError: A file cannot be read or written.
    """
    episodes = read_trajectories(args.file, allow_cut=args.allow_cut)
    write = FORMATS[args.to].write
    assert write is not None  # the command line offers no other
    out = Path(args.out)
    if out.exists():
        raise UsageError(f"{out} is already there: remove it, or choose another name")
    count = 0
    with atomic_file(out, sync=False) as file:
        for record in write(episodes):
            file.write(json.dumps(record) + "\n")
            count += 1
    print(f"{count} episodes written to {args.out} ({args.to})")
    return 0
