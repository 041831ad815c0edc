"""What `python -m tasks check` does: prove many tasks, several sandboxes at a time; lines, JSON, JUnit."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sandboxes import choose, open_sandbox
from sandboxes.sandbox import Sandbox, SandboxError, SandboxUnavailable
from tasks.comparable import twin_notes
from tasks.images import IMAGES, image_ids, image_lines
from tasks.judges import JudgeUse, in_process_line
from tasks.model import Problem, TaskError, counted
from tasks.place import refuse_unplaceable
from tasks.proof import Fault, Proof, Status, prove
from tasks.sources import GENERATED, LIBRARY, SHELVES, is_spec, load_shipped, load_tasks, task_files
from tasks.sources.clawgym import is_clawgym
from tasks.task import Task

# -- What `check` found, for machines: one JSON document, or a JUnit file for continuous integration ------------------

# XML 1.0 knows no way to write these, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_json(
    proofs: Sequence[Proof],
    problems: Sequence[Problem],
    notes: Sequence[str] = (),
    images: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Return `{"tasks": [...], "problems": [...], "notes": [...], "images": {...}, "counts": {...}}` as text.

    Proofs in order, then what was broken, what is worth knowing of the tasks together, and the ids of the images by
    their names.
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
        IMAGES: {name: list(ids) for name, ids in (images or {}).items()},
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


# -- What `python -m tasks check` does: prove many tasks, several sandboxes at a time ---------------------------------


def check(
    specs: Sequence[str],
    *,
    every: bool,
    sample: int,
    seed: int,
    backend: str,
    jobs: int | None,
    as_json: bool = False,
    junit: Path | None = None,
    build: bool = False,
    network: str | None = None,
) -> int:
    """Prove the tasks of all specs and print one line each, or one JSON document at the end.

    Broken files are listed and make the exit code 1, but the tasks of the other files are still proven. With `build`
    the images of their Dockerfiles are built first. `network` is that of the engine, for verifiers which need one.

    Returns:
        Exit code: 0 nothing failed, 1 a task or file is broken, 2 no sandbox works here, or one failed.

    Raises:
        TaskError: The JUnit file cannot be written. Found out before anything is proven.
    """
    if junit is not None:
        refuse_to_overwrite(junit)
    tasks, problems = gather(specs if specs or every else [LIBRARY], every=every, sample=sample, seed=seed)
    if build:
        problems += build_images(tasks)
    for problem in problems:
        print(problem, file=sys.stderr)
    proofs: list[Proof] = []
    width = max((len(task.id) for task in tasks), default=0)
    workers = min(jobs or min(os.cpu_count() or 1, 8), len(tasks))
    try:
        images = image_ids(tasks, choose(backend)) if tasks else {}
        with _progress(len(tasks)) as advance:
            for proof in prove_all(tasks, lambda: open_sandbox(backend), workers, network) if tasks else ():
                if not as_json:
                    if not proofs:
                        print(f"{'id':<{width}}  {'hash':<12}  oracle  no-op  result")
                    print(_line(proof, width), flush=True)
                proofs.append(proof)
                advance()
    except SandboxUnavailable as error:
        print(f"tasks: no sandbox: {error}", file=sys.stderr)
        return 2
    twins = twin_notes(tasks)
    if as_json:
        print(to_json(proofs, problems, twins, images))
    if junit is not None:
        write_junit(junit, proofs, problems)
    if not tasks:
        print(f"nothing to prove, {counted(len(problems), 'problem')} in files", file=sys.stderr)
        return 1
    counts = Counter(proof.status for proof in proofs)
    failed, undecided = counts[Status.FAILED], counts[Status.UNDECIDED]
    summary = f"{counts[Status.PROVEN]} proven, {counts[Status.UNPROVEN]} unproven (no oracle), {failed} failed"
    if undecided:
        summary += f", {undecided} undecided (the sandbox failed)"
    if not as_json:
        for note in (*twins, *image_lines(images)):
            print(f"note: {note}")
        print(summary + (f"; {counted(len(problems), 'problem')} in files" if problems else ""))
    return 1 if failed or problems else 2 if undecided else 0


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr while a person looks at it; yields what moves it on by one task."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("proving"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        row = bar.add_task("proving", total=total)
        yield lambda: bar.advance(row)


def gather(specs: Sequence[str], *, every: bool, sample: int, seed: int) -> tuple[list[Task], list[Problem]]:
    """Load the tasks to prove and the problems of what could not be loaded.

    A folder is loaded file by file, so that one broken file does not keep the others from being proven.
    """
    wanted: list[str | Path] = []
    problems: list[Problem] = []
    for spec in specs:
        folder = Path(spec).expanduser()
        if not is_spec(spec) and folder.is_dir() and not is_clawgym(folder):
            try:
                wanted += task_files(folder)
            except TaskError as error:
                problems += error.problems
        else:
            wanted.append(spec)
    if every:
        from tasks.families import ALL_FAMILIES

        wanted = [LIBRARY, *(f"{LIBRARY}:{shelf}" for shelf in SHELVES), *wanted]
        wanted += [f"{GENERATED}:{family}?n={sample}&seed={seed}" for family in ALL_FAMILIES]
    tasks: dict[str, Task] = {}
    for source in wanted:
        try:
            loaded = load_tasks(source)
        except TaskError as error:
            problems += error.problems
            continue
        for task in loaded:
            first = tasks.setdefault(task.id, task)
            if first is not task and first.content_hash != task.content_hash:
                problems.append(
                    Problem(f"the id '{task.id}' names two different tasks: rename one", str(source), key="id")
                )
    return list(tasks.values()), problems


def build_images(tasks: Sequence[Task]) -> list[Problem]:
    """Build the images of tasks' Dockerfiles that are not on the engine yet; returns what could not be built."""
    from sandboxes.docker.dockerfile import BuildFailed, build  # only here: few tasks have one

    problems: list[Problem] = []
    for task in tasks:
        if task.dockerfile is not None:
            try:
                build(task.dockerfile.text, say=lambda line: print(line, file=sys.stderr))
            except (BuildFailed, SandboxError) as error:
                problems.append(Problem(f"the image was not built: {error}", task.id, key="dockerfile"))
    return problems


def prove_all(
    tasks: Sequence[Task],
    make: Callable[[], Sandbox],
    workers: int,
    network: str | None = None,
    seconds: float = math.inf,
) -> Iterator[Proof]:
    """Prove tasks on `workers` threads, each with a sandbox of its own; yields in the order of `tasks`.

    A sandbox that fails is replaced and the task tried once more; if that fails too, the proof says so. A proof may
    take `seconds`.

    Raises:
        SandboxUnavailable: no sandbox could be opened.
    """
    opened: list[Sandbox] = []
    own = threading.local()

    def fresh() -> Sandbox:
        own.sandbox = make()
        opened.append(own.sandbox)
        return own.sandbox

    def attempt(task: Task) -> Proof:
        reason = ""
        for _ in range(2):
            sandbox = getattr(own, "sandbox", None) or fresh()
            try:
                refuse_unplaceable([task], sandbox.backend, network)
            except TaskError as error:
                why = tuple(problem.message for problem in error.problems)
                return Proof(task.id, task.content_hash, None, None, (), (), problems=why, undecided=True)
            try:
                return with_judges(task, prove(task, sandbox, network, seconds))
            except SandboxUnavailable:  # nor will it work for the next task
                raise
            except SandboxError as error:
                reason = str(error)
                sandbox.close()
                own.sandbox = None
        problem = f"the sandbox failed twice: {reason}"
        return Proof(task.id, task.content_hash, None, None, (), (), problems=(problem,), undecided=True)

    executor = ThreadPoolExecutor(workers, thread_name_prefix="prove")
    try:
        yield from executor.map(attempt, tasks)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
        for sandbox in opened:
            sandbox.close()


def with_judges(task: Task, proof: Proof) -> Proof:
    """Add to a proof that a judge runs the agent's code in its own process: wrong in what ships, a note elsewhere."""
    if task.judge_use is not JudgeUse.IN_PROCESS:
        return proof
    line = in_process_line(task.judge_findings)
    from tasks.families import ALL_FAMILIES  # only here: few tasks have such a judge

    if task.family in ALL_FAMILIES or task.content_hash in {shipped.content_hash for shipped in load_shipped()}:
        return replace(proof, problems=(*proof.problems, line), faults=(*proof.faults, Fault.JUDGE))
    return replace(proof, notes=(*proof.notes, line))


def _line(proof: Proof, width: int) -> str:
    result = f"{proof.status}{' (no oracle)' if proof.status is Status.UNPROVEN else ''}"
    line = (
        f"{proof.task_id:<{width}}  {proof.task_hash[:12]}  {_rate(proof.oracle_rate):<6}  "
        f"{_rate(proof.noop_rate):<5}  {result}"
    )
    remarks = [*proof.problems, *(f"note: {note}" for note in proof.notes)]
    return "\n".join([line, *(f"    {remark}" for remark in remarks)])


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.2f}"
