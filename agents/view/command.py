"""`python -m agents view`: write the page of all episodes, or serve it while they are played."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from agents.commands import clean
from agents.view.pack import Tokenizers
from agents.view.page import PAGE, write_page
from agents.view.serve import serve
from agents.view.wanted import Wanted


def view(args: argparse.Namespace) -> int:
    """`python -m agents view`: write the page, or serve it; returns 0.

    Raises:
        UsageError: There is nothing to show, or the model that is named is not here.
        RecordError: A file holds something else than episodes.
        OSError: A file cannot be read or written.
    """
    tokenizers = Tokenizers.with_model(args.model)
    if args.serve:
        return serve(args.sources, tokenizers, Wanted(args.tasks), port=args.port, show=args.open)
    out = Path(args.out) if args.out else default_output(args.sources)
    wanted = Wanted(args.tasks)
    count = write_page(args.sources, out, tokenizers, wanted, allow_cut=args.allow_cut)
    size = out.stat().st_size
    for folder, why in wanted.notes.items():
        print(f"{folder}: what its tasks wanted is left out, for they are not at hand: {clean(why)}", file=sys.stderr)
    print(f"{count} episodes, {size / 1e6:.1f} MB: {out}")
    if args.open:
        webbrowser.open(out.resolve().as_uri())
    return 0


def default_output(sources: Sequence[str]) -> Path:
    """In the folder that is shown; here, where files or several folders are."""
    first = Path(sources[0])
    return first / PAGE if len(sources) == 1 and first.is_dir() else Path(PAGE)
