"""IFEval and IFBench: write a text that follows instructions on its form; `ifeval:sample`, `ifeval:PATH`, `ifeval:hub`.

The rows are those of the public set: `key`, `prompt`, `instruction_id_list`, and `kwargs`, one object for each
instruction in the same order. Rows of ours have a `reply` too, which follows everything. Parameters: `split=` (of a
folder or the hub), `limit=` (the first so many), `semantics=` (`fixed` by the wording of the prompts, `reference` for
published numbers), `loose=` (1: the reply may be taken without its first or last line and without stars).

IFBench (`ifbench:sample`, ...) has the same rows and parameters. Two of its 58 ids need the extra `turngym[ifbench]`;
without it their verdict is error, which says so, and the answers of such prompts have no reward.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tasks.answers.ifeval import InstructionError, Semantics
from tasks.answers.instructions import InstructionFollowed, make
from tasks.model import Problem, TaskError
from tasks.sources.questions import SAMPLE, Row, choice, read_rows, split_spec, whole_number
from tasks.task import Budget, Oracle, Task

HUBS = {"ifeval": "google/IFEval", "ifbench": "allenai/IFBench_test"}
"""What plain `hub` stands for, by the name of the set: scheme, family, and the beginning of the ids."""
PARAMETERS = ("split", "limit", "semantics", "loose")
BUDGET = Budget(max_turns=8, turn_tokens=4096)


def load(rest: str) -> list[Task]:
    """Load the tasks for what stands after `ifeval:`.

    Raises:
        TaskError: an unknown parameter, nothing there, no network, or rows that hold no such prompt, with an
            instruction that is unknown or lacks an argument; every faulty row is named with its file and line.
    """
    return _load(rest, "ifeval")


def load_ifbench(rest: str) -> list[Task]:
    """Load the tasks for what stands after `ifbench:`.

    Raises:
        TaskError: as `load`.
    """
    return _load(rest, "ifbench")


def _load(rest: str, scheme: str) -> list[Task]:
    where, params = split_spec(rest, scheme, PARAMETERS)
    spec = f"{scheme}:{rest}"
    semantics = Semantics(choice(params, "semantics", spec, Semantics, Semantics.FIXED))
    loose = choice(params, "loose", spec, ("0", "1"), "0") == "1"
    limit = whole_number(params, "limit", spec)
    rows = read_rows(where, scheme, HUBS[scheme], params.get("split"))[:limit]
    tasks: dict[str, Task] = {}
    problems: list[Problem] = []
    for row in rows:
        try:
            task = _task(row, scheme, "sample-" if where == SAMPLE else "", semantics, loose)
        except TaskError as error:
            problems += error.problems
            continue
        if tasks.setdefault(task.id, task) is not task:
            problems.append(row.problem(f"stands twice: another row has the id '{task.id}' too", "key"))
    if problems:
        raise TaskError(*problems)
    return list(tasks.values())


def _task(row: Row, scheme: str, label: str, semantics: Semantics, loose: bool) -> Task:
    prompt = row.text("prompt")
    if not prompt.strip():
        raise TaskError(row.problem("is blank", "prompt"))
    assertions = tuple(
        InstructionFollowed(id=id, kwargs=kwargs, semantics=semantics, loose=loose) for id, kwargs in _asked(row)
    )
    reply = row.text("reply") if "reply" in row.data else None
    return Task(
        id=f"{scheme}-{label}{_key(row)}",
        intent=prompt,
        family=scheme,
        tags=(f"set:{scheme}", *dict.fromkeys(f"instruction:{assertion.id}" for assertion in assertions)),
        budget=BUDGET,
        assertions=assertions,
        oracle=None if reply is None else Oracle(answer=reply),
    )


def _key(row: Row) -> str:
    """Return the row's key, fit for an id; whole numbers in four digits at least, so that names sort."""
    key = row.data.get("key", row.line)
    if isinstance(key, bool) or not isinstance(key, int | str) or not re.search(r"[A-Za-z0-9]", str(key)):
        raise TaskError(
            row.problem(f"must be a whole number or a text, not {json.dumps(key, default=str)[:60]}", "key")
        )
    text = str(key)
    return f"{int(text):04d}" if text.isascii() and text.isdigit() else re.sub(r"[^a-z0-9._-]+", "-", text.lower())


def _asked(row: Row) -> list[tuple[str, dict[str, Any]]]:
    """Return each instruction with its own arguments, by position: a prompt may give one twice."""
    ids, kwargs = row.data.get("instruction_id_list"), row.data.get("kwargs")
    if not isinstance(ids, list) or not ids or not all(isinstance(id, str) for id in ids):
        raise TaskError(row.problem("must be a list of ids with at least one", "instruction_id_list"))
    if not isinstance(kwargs, list) or len(kwargs) != len(ids):
        raise TaskError(row.problem(f"must be a list of {len(ids)} objects, one for each instruction", "kwargs"))
    asked: list[tuple[str, dict[str, Any]]] = []
    problems: list[Problem] = []
    for number, (id, given) in enumerate(zip(ids, kwargs, strict=True)):
        if not isinstance(given, Mapping):
            problems.append(row.problem("must be an object", f"kwargs[{number}]"))
            continue
        arguments = {name: value for name, value in given.items() if value is not None}
        try:
            make(id, arguments)
        except InstructionError as error:
            problems.append(row.problem(str(error), f"kwargs[{number}]"))
        asked.append((id, arguments))
    if problems:
        raise TaskError(*problems)
    return asked
