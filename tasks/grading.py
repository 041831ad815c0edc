"""What `python -m tasks grade` does: judge a folder that somebody left, as the workspace at the end of an episode."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandboxes import open_sandbox
from sandboxes.boot import PathAlias, snapshot_of
from sandboxes.client import JudgeFailed
from sandboxes.guard import plain
from sandboxes.inside.files import MAX_VISITED, BadPath, Tree
from sandboxes.sandbox import (
    Backend,
    CommandResult,
    EntryKind,
    FileEntry,
    Files,
    JudgeIsolation,
    Limits,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
    Snapshot,
)
from tasks.assertions.base import BaseAssertion, GraderHandle, Outcome, cut_short, leaves
from tasks.assertions.grade import Grade, grade
from tasks.assertions.grader import SandboxGrader
from tasks.assertions.script import judges_reply
from tasks.judged_in import JudgedIn, is_shared, judge_isolation
from tasks.judges import JudgeUse, in_process_line
from tasks.model import Problem, TaskError
from tasks.place import lay, limits_of, prepared, refuse_unplaceable, start_of
from tasks.task import Task
from tasks.user import Heard

# -- Reading a folder that is not ours: no mode is changed, no link followed, nothing but regular files opened ---------

LOOKS = 3
"""How often a folder is read that changes meanwhile."""
_AS_IT_IS = PathAlias("/workspace", "/workspace")


class FolderChanged(RuntimeError):
    """The folder changed each time it was read, or the disk refuses: what it held at the end is not known."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a folder holds, read while nothing in it changed.

    Attributes:
        files: What a snapshot of such a workspace shows, within the same limits.
        whole: All but fifos and the like, as a sandbox takes it: files that are too large for a snapshot, too. None
            where it was not asked for, and where it is more than a workspace holds, or something may not be read.
        closed: Paths that may not be read.
    """

    files: Snapshot
    whole: Files | None
    closed: tuple[str, ...]


def read_folder(folder: Path, limits: Limits, *, whole: bool) -> Left:
    """Read a folder as a sandbox with these limits would show it; `whole`: for laying it in one as well.

    Raises:
        TaskError: There is no such folder, or it may not be read.
        FolderChanged: It changed each time.
    """
    why = ""
    for _ in range(LOOKS):
        try:
            tree = Tree(str(folder.expanduser().resolve(strict=True)), unlock=False)
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a circle of links, in Python 3.11 and 3.12
            reason = getattr(error, "strerror", None) or str(error)
            raise TaskError(Problem(f"is no folder that can be read ({reason})", str(folder))) from error
        try:
            with tree:
                before = _state(tree)
                files, closed = _look(tree, limits.snapshot_entries, limits.snapshot_file_bytes, limits.workspace_mb)
                copy = _look(tree, MAX_VISITED, limits.file_mb << 20, limits.workspace_mb)[0] if whole else None
                if _state(tree) == before:
                    return Left(files, None if copy is None else _layable(copy), closed)
                why = "entries came, went or changed"
        except (OSError, BadPath) as error:
            why = str(error)
    raise FolderChanged(f"{folder} changed each of {LOOKS} times that it was read ({why}): stop what writes into it")


def _look(tree: Tree, entries: int, file_bytes: int, workspace_mb: int) -> tuple[Snapshot, tuple[str, ...]]:
    rows, body = tree.snapshot(entries, file_bytes, workspace_mb << 20)
    return snapshot_of(rows, body, tree.cut, _AS_IT_IS), tuple(tree.closed)


def _state(tree: Tree) -> list[tuple[Any, ...]]:
    return [
        (path, s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns, target)
        for path, s, target in tree.walk(MAX_VISITED)
    ]


def _layable(copy: Snapshot) -> Files | None:
    kept = {path: entry for path, entry in copy.items() if entry.kind is not EntryKind.OTHER}
    unknown = any(entry.kind is EntryKind.FILE and entry.content is None for entry in kept.values())
    return None if copy.cut or unknown else kept


def _as_shown(files: Mapping[str, FileEntry], limits: Limits) -> dict[str, FileEntry]:
    """A workspace as the task lays it, as a snapshot of it shows it: without contents that are too large."""
    left = limits.workspace_mb << 20
    shown: dict[str, FileEntry] = {}
    for path, entry in files.items():
        size = len(entry.content or b"")
        if entry.kind is EntryKind.FILE and (size > limits.snapshot_file_bytes or size > left):
            entry, size = replace(entry, content=None), 0
        left -= size
        shown[path] = entry
    return shown


# -- Graders' commands run in a sandbox, on a copy -------------------------------------------------------------------


class CannotBeLaid(Exception):
    """The folder is more than a sandbox takes, or ends each sandbox it is laid in: the doing of who left it.

    No `SandboxError`: `tasks.assertions.base.judge` makes a fail of it, as of whatever the agent causes.
    """


class CopyGrader:
    """The `GraderHandle` of a folder: a sandbox in which a copy of it is laid when the first command runs.

    A sandbox that is lost is laid anew and the command run once more. Lost again, it is the folder's doing if a second
    sandbox beside it is well, as in an episode.

    Args:
        sandbox: Where; the caller closes it.
        task: What was to be done.
        files: The copy; None where it cannot be laid.
        network: As in `SandboxGrader`.
        judged_in: Commands run in fresh sandboxes that this asks for, one for each.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        task: Task,
        files: Files | None,
        network: str | None = None,
        judged_in: JudgedIn | None = None,
    ) -> None:
        self._sandbox, self._task, self._files, self._network = sandbox, task, files, network
        self._judged_in = judged_in
        self._laid = False
        self._inner = SandboxGrader(sandbox, task, network=network)

    @property
    def backend(self) -> Backend:
        """See `GraderHandle.backend`."""
        return self._inner.backend

    @property
    def task_hash(self) -> str | None:
        """See `GraderHandle.task_hash`."""
        return self._inner.task_hash

    def run(
        self,
        command: str,
        files: Mapping[str, str] | None = None,
        timeout: float | None = None,
        *,
        private: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """See `GraderHandle.run`."""
        if self._files is None:
            raise CannotBeLaid("the folder holds more than a workspace may, or what may not be read: no command ran")
        try:
            return self._once(command, files, timeout, private, env)
        except SandboxUnavailable:
            raise
        except SandboxError:
            self._laid = False
        try:
            return self._once(command, files, timeout, private, env)
        except SandboxError as error:
            self._laid = False
            with self._sandbox.twin() as canary:  # what befalls the machine befalls it as well
                canary.open({})
                if canary.run("echo alive").stdout != b"alive\n":
                    raise
                if isinstance(error, JudgeFailed) and canary.judge_isolation is not JudgeIsolation.FULL:
                    raise
            raise CannotBeLaid(f"the sandbox was lost twice on a copy of the folder: {error}") from error

    @contextmanager
    def beside(self, files: Files | None = None) -> Iterator[GraderHandle]:
        """See `GraderHandle.beside`."""
        if files is None:  # the untouched workspace: what is lost there is the machinery's or the task's doing
            with self._inner.beside() as fresh:
                yield fresh
        else:
            with self._sandbox.twin() as twin:
                yield CopyGrader(twin, self._task, files)

    @contextmanager
    def fresh(self, judged_in: JudgedIn, files: Files | None = None) -> Iterator[GraderHandle]:
        """See `GraderHandle.fresh`."""
        if files is None:
            with self._inner.fresh(judged_in) as fresh:
                yield fresh
        else:
            yield CopyGrader(self._sandbox, self._task, self._files, self._network, judged_in)

    def _once(
        self,
        command: str,
        files: Mapping[str, str] | None,
        timeout: float | None,
        private: bool,
        env: Mapping[str, str] | None,
    ) -> CommandResult:
        assert self._files is not None
        if self._judged_in is not None:
            with self._inner.fresh(self._judged_in, self._files) as judge:
                return judge.run(command, files, timeout, private=private, env=env)
        if not self._laid:
            lay(self._task, self._sandbox, self._files)
            self._laid = True
        return self._inner.run(command, files, timeout, private=private, env=env)


# -- From a task and a folder to a grade ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FolderGrade:
    """How a folder was judged.

    Attributes:
        grade: The results; with errors among them there is no verdict.
        judge_isolation: Whether the judge was out of reach of programs in the folder, as in an episode's record.
        notes: What is worth knowing about the verdict, a line each.
    """

    grade: Grade
    judge_isolation: JudgeIsolation
    notes: tuple[str, ...]


def grade_folder(
    task: Task, folder: Path, *, reply: str | None = None, backend: str = "auto", network: str | None = None
) -> FolderGrade:
    """Judge a folder, which is only read. A sandbox is opened only where an assertion runs commands.

    Args:
        task: What was to be done.
        folder: The workspace as it was left.
        reply: The last answer, without thoughts; empty where there was none, None where it is not known.
        backend: Where commands run: `auto` or a backend by name.
        network: The engine's network that verifiers may have which need one.

    Raises:
        TaskError: The folder cannot be read, or an assertion judges what no folder holds, or needs a network. Nothing
            was judged.
        SandboxUnavailable: No sandbox works here. Nothing was judged.
        SandboxError: The machinery failed.
        FolderChanged: Something writes into the folder.
    """
    parts = [leaf for item in task.assertions for leaf in leaves(item)]
    if heard := [_called(leaf) for leaf in parts if isinstance(leaf, Heard)]:
        raise TaskError(
            f"{', '.join(heard[:5])}{', ...' * (len(heard) > 5)}: judged by what the task's user said, which no folder "
            "holds: play the task in ClawGym-v1 (python -m envs play), which grades it"
        )
    if is_shared(task):
        raise TaskError(
            Problem("is judged beside processes that the agent left running, which no folder holds: play it", task.id)
        )
    wanting = [_called(leaf) for leaf in parts if judges_reply(leaf)]
    if wanting and reply is None:
        raise TaskError(
            f"{', '.join(wanting[:5])}{', ...' * (len(wanting) > 5)}: judged by the reply, which no folder holds: give "
            "the last answer with --reply FILE (an empty file says that there was none)"
        )
    with ExitStack() as stack:
        limits, sandbox, isolation = Limits(), None, JudgeIsolation.FULL
        judging = not all(leaf.on_files or leaf.on_answer for leaf in parts)
        if judging or prepared(task):
            sandbox = stack.enter_context(open_sandbox(backend))
            refuse_unplaceable([task], sandbox.backend, network)
            limits, isolation = sandbox.limits, judge_isolation(task, sandbox)
        limits = limits_of(task, limits)
        left = read_folder(folder, limits, whole=judging)
        start = start_of(task, sandbox) if sandbox and prepared(task) else _as_shown(task.files(), limits)
        said = [{"role": "user", "content": task.intent}]
        said += [{"role": "assistant", "content": reply}] if reply else []
        outcome = Outcome(
            files=left.files,
            initial=start,
            final_message=reply or None,
            transcript=tuple(said),
            grader=None if sandbox is None else CopyGrader(sandbox, task, left.whole, network),
            cut_short=cut_short(left.files),
        )
        done = grade(task, outcome)
    return FolderGrade(done, isolation, tuple(_notes(task, parts, left, isolation)))


def _notes(task: Task, parts: list[BaseAssertion], left: Left, isolation: JudgeIsolation) -> Iterator[str]:
    if left.closed:
        some = ", ".join(map(ascii, left.closed[:5])) + ", ..." * (len(left.closed) > 5)
        yield f"may not be read, and so counts as missing: {some} (grade it as who owns it)"
    if left.files.cut:
        yield "the folder holds more than a snapshot shows: nothing in it can be said to be absent"
    for leaf in parts:
        if judges_reply(leaf) and not leaf.on_answer:
            yield f"{_called(leaf)} may read the whole conversation: of it there was only the request and the reply"
    if task.judge_use is JudgeUse.IN_PROCESS:
        yield in_process_line(task.judge_findings)
    elif isolation is JudgeIsolation.NONE:
        yield "the judge starts programs of the folder, and nothing kept them from it here: a forged pass does not show"


def _called(leaf: BaseAssertion) -> str:
    return leaf.name or leaf.default_name()


# -- The command ------------------------------------------------------------------------------------------------------


def grade_command(
    task: Task, folder: Path, *, reply: Path | None, backend: str, as_json: bool, network: str | None = None
) -> int:
    """Judge a folder and print a line for each assertion, or one JSON object.

    Returns:
        Exit code: 0 passed, 1 not passed, 2 no sandbox works here, 3 no verdict (the machinery failed, or an assertion
        could not be decided).

    Raises:
        TaskError: See `grade_folder`; or the reply cannot be read.
    """
    text = None
    if reply is not None:
        try:
            text = reply.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            raise TaskError(Problem(f"cannot be read ({error.strerror})", str(reply))) from error
    found, problem = None, ""
    try:
        found = grade_folder(task, folder, reply=text, backend=backend, network=network)
    except SandboxUnavailable as error:
        print(f"tasks: no sandbox: {error}", file=sys.stderr)
        return 2
    except SandboxError as error:
        problem = f"the sandbox failed: {error}"
    except FolderChanged as error:
        problem = str(error)
    if found is not None and found.grade.errors:
        problem = f"no verdict: {len(found.grade.errors)} of {len(found.grade.results)} could not be decided"
    passed = None if found is None or problem else found.grade.passed
    if as_json:
        print(json.dumps(_record(task, found, passed, problem), indent=1, allow_nan=False))
    elif found is not None:
        print("\n".join(_lines(found, passed)))
    if problem:
        print(f"tasks: {plain(problem)}", file=sys.stderr)
    return 3 if passed is None else 0 if passed else 1


def _record(task: Task, found: FolderGrade | None, passed: bool | None, problem: str) -> dict[str, Any]:
    return {
        "task_id": task.id,
        "task_hash": task.content_hash,
        "passed": passed,
        "rate": None if found is None else found.grade.rate,
        "assertions": [] if found is None else [result.record() for result in found.grade.results],
        "judge_isolation": None if found is None else found.judge_isolation.value,
        "notes": [] if found is None else list(found.notes),
        "error": problem or None,
    }


def _lines(found: FolderGrade, passed: bool | None) -> Iterator[str]:
    for result in found.grade.results:
        aside = " (decides nothing)" if not result.weight else ""
        why = f": {plain(result.detail)}" if result.detail else ""
        yield f"{result.verdict:5}  {plain(result.name)}{aside}{why}"
    yield from (f"note: {plain(note)}" for note in found.notes)
    if passed is not None:
        yield f"{'passed' if passed else 'not passed'}: rate {found.grade.rate:.3f}"
