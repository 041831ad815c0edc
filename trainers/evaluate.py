"""Measure a policy on tasks: `python -m trainers.evaluate`.

    python -m trainers.evaluate                                      # the quickstart policy, as shipped
    python -m trainers.evaluate --model runs/quickstart --samples 4  # the checkpoint a run chose, pass@k
    python -m trainers.evaluate --model oracle --tasks my_tasks/     # are my tasks solvable?
    python -m trainers.evaluate --env GSM8K-v0 --tasks gsm8k:test.jsonl --model Qwen/Qwen2.5-1.5B-Instruct
    python -m trainers.evaluate --model openai:gpt-4o-mini@https://api.openai.com/v1 --env GSM8K-v0
    python -m trainers.evaluate --tasks my_tasks/ --split my.lock    # are both sides of a split equally hard?
    python -m trainers.evaluate --model runs/mine --all_checkpoints  # one row per checkpoint
    python -m trainers.evaluate --compare runs/eval-a runs/eval-b    # paired p-value of two evaluations

Every figure comes with its counts, interval and decode settings. Exit codes: 0 measured, 1 the engine failed or
nothing could be graded, 2 an argument, a task or the machine is not right, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from agents.models.card import ModelError
from agents.policy import PolicyError
from sandboxes import SandboxUnavailable
from tasks.model import TaskError
from trainers.errors import RunFolderError
from trainers.evaluation.arms import read_arms
from trainers.evaluation.check import EvaluateError
from trainers.evaluation.checkpoints import evaluate_checkpoints
from trainers.evaluation.compare import compare
from trainers.evaluation.compared import FILE, shown, write_comparison
from trainers.evaluation.play import evaluate
from trainers.evaluation.resume import parse
from trainers.run.folder import disk_full, refuse_unwritable
from trainers.run.pipes import start
from trainers.run.summary import wide

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    console = wide(Console(highlight=False, emoji=False))  # `instruction:repeat:...` is a name, and no picture
    try:
        arguments = parse(argv)
        if arguments.compare:
            return _compare(arguments.compare, arguments.output_dir, console)
        measure = evaluate_checkpoints if arguments.all_checkpoints else evaluate
        return measure(arguments, console)
    except (EvaluateError, TaskError, ModelError, SandboxUnavailable, RunFolderError) as error:
        print(f"trainers.evaluate: {error}", file=sys.stderr)
        return 2
    except PolicyError as error:
        print(f"trainers.evaluate: the policy failed: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if not disk_full(error):
            raise
        print(f"trainers.evaluate: no space left on the disk: {error.filename or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("trainers.evaluate: stopped", file=sys.stderr)
        return 130


def _compare(paths: Sequence[str], output: str | None, console: Console) -> int:
    """Compare folders with the first one; writes comparison.json into `output`, or the last folder."""
    if len(paths) < 2:
        raise EvaluateError(f"--compare {paths[0]}: name two folders or more")
    arms = [read_arms(path) for path in paths]
    comparisons = compare(arms)
    for part in shown(comparisons):
        console.print(part, soft_wrap=isinstance(part, str))
    file = Path(output or paths[-1]) / FILE
    refuse_unwritable(file.parent)
    write_comparison(file, arms, comparisons)
    console.print(f"stored in {file}", markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    start(main)
