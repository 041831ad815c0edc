"""What `python -m tasks stats` prints: how many tasks of which kind a source holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from tasks.assertions.base import leaves
from tasks.description import HAND_WRITTEN
from tasks.task import Task

TOP = 12
"""Names of one count that the table shows; JSON has all."""


def count(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return counts of the tasks, JSON-able."""
    kinds = Counter(str(leaf.kind) for task in tasks for item in task.assertions for leaf in leaves(item))
    turns = [len(task.oracle.commands) + 1 for task in tasks if task.oracle]
    sizes = [sum(entry.size or 0 for entry in task.files().values()) for task in tasks]
    return {
        "tasks": len(tasks),
        "with_oracle": len(turns),
        "with_alternatives": sum(bool(task.oracle and task.oracle.alternatives) for task in tasks),
        "different_problems": len({task.problem_hash for task in tasks}),
        "family": _ordered(task.family or HAND_WRITTEN for task in tasks),
        "difficulty": _ordered(task.difficulty.value for task in tasks),
        "persona": _ordered(task.persona.role if task.persona else "none" for task in tasks),
        "tags": _ordered(tag for task in tasks for tag in task.tags),
        "split": _ordered(task.split.value if task.split else "undecided" for task in tasks),
        "assertions": dict(kinds.most_common()),
        "oracle_turns": _spread(turns),
        "assertions_per_task": _spread([len(task.assertions) for task in tasks]),
        "workspace_bytes": _spread(sizes),
    }


def in_words(counts: dict[str, Any]) -> str:
    """Write counts for people."""
    lines = []
    for name, value in counts.items():
        label = name.replace("_", " ")
        if isinstance(value, dict) and set(value) == {"least", "median", "most"}:
            shown = f"{value['least']:g} to {value['most']:g}, median {value['median']:g}"
        elif isinstance(value, dict):
            shown = ", ".join(f"{key} {number}" for key, number in list(value.items())[:TOP])
            shown += f", and {len(value) - TOP} more" if len(value) > TOP else ""
        else:
            shown = "none" if value is None else str(value)
        lines.append(f"{label:<20}  {shown or 'none'}")
    return "\n".join(lines)


def stats(tasks: Sequence[Task], *, as_json: bool) -> int:
    """Print counts of the tasks."""
    counts = count(tasks)
    print(json.dumps(counts, indent=1, ensure_ascii=False) if as_json else in_words(counts))
    return 0


def _ordered(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def _spread(numbers: Sequence[int]) -> dict[str, float] | None:
    return {"least": min(numbers), "median": median(numbers), "most": max(numbers)} if numbers else None
