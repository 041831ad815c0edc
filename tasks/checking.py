"""What `python -m tasks check` does: prove many tasks, several sandboxes at a time."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sandboxes import open_sandbox
from sandboxes.sandbox import Sandbox, SandboxError, SandboxUnavailable
from tasks.judges import JudgeUse, in_process_line
from tasks.lint import Proof, Status, prove
from tasks.problems import Problem, TaskError, counted
from tasks.reports import refuse_to_overwrite, to_json, write_junit
from tasks.sources import is_spec, load_tasks
from tasks.sources.clawgym_files import is_clawgym
from tasks.sources.generated import GENERATED
from tasks.sources.library import LIBRARY, load_library
from tasks.sources.yaml import task_files
from tasks.task import Task
from tasks.twins import twin_notes


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
) -> int:
    """Prove the tasks of all specs and print one line each, or one JSON document at the end.

    Broken files are listed and make the exit code 1, but the tasks of the other files are still proven.

    Returns:
        Exit code: 0 nothing failed, 1 a task or file is broken, 2 no sandbox works here, or one failed.

    Raises:
        TaskError: The JUnit file cannot be written. Found out before anything is proven.
    """
    if junit is not None:
        refuse_to_overwrite(junit)
    tasks, problems = gather(specs if specs or every else [LIBRARY], every=every, sample=sample, seed=seed)
    for problem in problems:
        print(problem, file=sys.stderr)
    proofs: list[Proof] = []
    width = max((len(task.id) for task in tasks), default=0)
    workers = min(jobs or min(os.cpu_count() or 1, 8), len(tasks))
    try:
        with _progress(len(tasks)) as advance:
            for proof in prove_all(tasks, lambda: open_sandbox(backend), workers) if tasks else ():
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
        print(to_json(proofs, problems, twins))
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
        for twin in twins:
            print(f"note: {twin}")
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

        wanted = [LIBRARY, *wanted]
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


def prove_all(tasks: Sequence[Task], make: Callable[[], Sandbox], workers: int) -> Iterator[Proof]:
    """Prove tasks on `workers` threads, each with a sandbox of its own; yields in the order of `tasks`.

    A sandbox that fails is replaced and the task tried once more; if that fails too, the proof says so.

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
                return with_judges(task, prove(task, sandbox))
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

    if task.family in ALL_FAMILIES or task.content_hash in {shipped.content_hash for shipped in load_library()}:
        return replace(proof, problems=(*proof.problems, line))
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
