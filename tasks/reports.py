"""What `check` found, for machines: one JSON document, or a JUnit file for continuous integration."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tasks.lint import Proof, Status
from tasks.problems import Problem, TaskError

# XML 1.0 knows no way to write these, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_json(proofs: Sequence[Proof], problems: Sequence[Problem], notes: Sequence[str] = ()) -> str:
    """Return `{"tasks": [...], "problems": [...], "notes": [...], "counts": {...}}` as text.

    Proofs in order, then what was broken, then what is worth knowing of the tasks together.
    """
    counts = Counter(proof.status for proof in proofs)
    record: dict[str, Any] = {
        "tasks": [
            {
                "id": proof.task_id,
                "hash": proof.task_hash,
                "status": proof.status.value,
                "oracle_rate": proof.oracle_rate,
                "noop_rate": proof.noop_rate,
                "problems": list(proof.problems),
                "notes": list(proof.notes),
            }
            for proof in proofs
        ],
        "problems": [
            {"file": problem.file, "line": problem.line, "key": problem.key, "message": problem.message}
            for problem in problems
        ],
        "notes": list(notes),
        "counts": {status.value: counts[status] for status in Status},
    }
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)


def refuse_to_overwrite(path: Path) -> None:
    """Refuse a place where a JUnit file cannot be written, before anything takes time.

    Raises:
        TaskError: another file stands there, or the folder is missing.
    """
    if not path.parent.is_dir():
        raise TaskError(Problem("there is no such folder", str(path.parent)))
    if path.is_dir():
        raise TaskError(Problem("is a folder; a file is needed", str(path)))
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            start = file.read(200)
        if b"<testsuite" not in start:
            raise TaskError(Problem("is there already, and is no JUnit file: it was left as it is", str(path)))


def write_junit(path: Path, proofs: Sequence[Proof], problems: Sequence[Problem]) -> None:
    """Write a JUnit file: a test case per task and per broken file.

    A task that failed is a `failure`; a sandbox that failed and a file that cannot be loaded are an `error`; a task
    without an oracle is a passed case that says so.

    Raises:
        TaskError: the file cannot be written.
    """
    suite = ElementTree.Element("testsuite", name="turngym tasks")
    failures = errors = 0
    for proof in proofs:
        case = ElementTree.SubElement(suite, "testcase", classname="tasks", name=_xml(proof.task_id))
        if proof.problems:
            infrastructure = proof.status is Status.UNDECIDED
            failures, errors = failures + (not infrastructure), errors + infrastructure
            _add(case, "error" if infrastructure else "failure", proof.problems[0], "\n".join(proof.problems))
        elif proof.status is Status.UNPROVEN:
            ElementTree.SubElement(case, "system-out").text = _xml("\n".join(["unproven (no oracle)", *proof.notes]))
        elif proof.notes:
            ElementTree.SubElement(case, "system-out").text = _xml("\n".join(proof.notes))
    for problem in problems:
        name = f"{problem.file or 'tasks'}{f':{problem.line}' if problem.line else ''}"
        case = ElementTree.SubElement(suite, "testcase", classname="files", name=_xml(name))
        _add(case, "error", problem.message, str(problem))
        errors += 1
    suite.attrib.update(tests=str(len(suite)), failures=str(failures), errors=str(errors))
    try:
        ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise TaskError(Problem(f"cannot be written: {error.strerror or error}", str(path))) from error


def _add(case: ElementTree.Element, kind: str, message: str, text: str) -> None:
    ElementTree.SubElement(case, kind, message=_xml(message)[:300]).text = _xml(text)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
