"""Make demonstrations from the command line.

    python -m benchmarks.warm_start.generate --n 1000 --seed 0 --out demonstrations.jsonl
    python -m benchmarks.warm_start.generate --n 4000 --stats

Each line of the file is `{"task_id", "messages": [{"role", "content"}, ...]}`, as `trainers.sft` reads it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.warm_start.episodes import Demonstration, demonstrations, problem_key
from benchmarks.warm_start.habits import FAULTLESS, Recipe
from benchmarks.warm_start.statistics import measure, table

__all__ = ["Demonstration", "demonstrations", "main", "problem_key"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_start.generate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--n", type=int, default=1000, help="demonstrations to make (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="any integer (default 0)")
    parser.add_argument("--out", type=Path, help="file to write, one JSON object a line; must not exist yet")
    parser.add_argument("--processes", type=int, default=1, help="worker processes; the result does not depend on it")
    parser.add_argument("--faultless", action="store_true", help="show the oracle instead of the faulty agent")
    parser.add_argument("--stats", action="store_true", help="grade the demonstrations and print a table by family")
    options = parser.parse_args(arguments)
    if options.n < 1 or options.processes < 1:
        parser.error("--n and --processes must be 1 or more")
    if options.out is None and not options.stats:
        parser.error("nothing to do: give --out FILE, --stats, or both")
    if options.out is not None and options.out.exists():
        parser.error(f"{options.out} exists: name another file, or delete it first")
    recipe = FAULTLESS if options.faultless else Recipe()
    shown = list(demonstrations(options.n, options.seed, recipe, processes=options.processes))
    if options.out is not None:
        text = "".join(json.dumps(one.to_json()) + "\n" for one in shown)
        options.out.write_text(text, encoding="utf-8")
        print(f"{options.out}: {len(shown)} demonstrations, sha256 {hashlib.sha256(text.encode()).hexdigest()}")
    if options.stats:
        print(table(measure(shown), recipe))
    return 0


if __name__ == "__main__":
    sys.exit(main())
