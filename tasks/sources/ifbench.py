"""IFBench: write a text that follows unusual instructions on its form; `ifbench:sample`, `ifbench:PATH`, `ifbench:hub`.

Rows and parameters are those of `ifeval`. Two of the 58 ids need the extra `turngym[ifbench]`; without it their verdict
is error, which says so, and the answers of such prompts have no reward.
"""

from __future__ import annotations

from tasks.sources.ifeval import load_instructions
from tasks.task import Task

SCHEME = "ifbench"
HUB = "allenai/IFBench_test"


def load(rest: str) -> list[Task]:
    """Load the tasks for what stands after `ifbench:`.

    Raises:
        TaskError: an unknown parameter, nothing there, no network, or rows that hold no such prompt, with an
            instruction that is unknown or lacks an argument; every faulty row is named with its file and line.
    """
    return load_instructions(rest, SCHEME, HUB)
