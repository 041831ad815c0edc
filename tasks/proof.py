"""Proving a task: its oracle scores 1, doing nothing does not pass, and no wrong end made from the right one does."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import re
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from sandboxes.sandbox import CommandResult, EntryKind, FileEntry, Sandbox
from tasks.answers import AnswerAssertion
from tasks.assertions.base import Outcome, Verdict, cut_short, leaves
from tasks.assertions.grade import Grade, grade
from tasks.assertions.on_files import TooSlow
from tasks.assertions.run import SandboxGrader
from tasks.oracle import NotRead, Saying, Step, command_of, read, request_of, resolve
from tasks.place import CannotBegin, begin, lay, prepared
from tasks.task import Task
from tasks.turns import prove_turns, prove_user
from tasks.user import Dialogue

# ---------------------------------------------------------------------------------------------------------------------
# Wrong ends of an episode, made from the right one: damaged results, and cheap cheats. No task may pass with one.
#
# A damaged result is the oracle's with one thing wrong: a file that it made or changed is emptied, has junk at its
# end, is missing, holds what another one should hold, or is as it was at the start; members of archives likewise. A
# cheap cheat is what a policy finds that does not do the work: delete all, touch the files, fill them with an input or
# with words of the request.

JUNK = b"junk 7f3a\n"
"""What is appended: a line that no request asks for."""

NOWHERE = "no/such/place"
"""Where a damaged link leads."""

MAX_CONSTANTS = 40
"""Words and numbers of a request that are tried as contents, the first ones."""

MAX_UNPACKED = 64 * 1024 * 1024
"""Bytes that an archive may unpack to for its members to be damaged; a larger one is a file like others."""

_QUOTED = re.compile(r"'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"|`([^`\n]{1,80})`")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_BLANK_ENDS = re.compile(rb"[ \t\r]*(?:\n|\Z)")

T = TypeVar("T")

Tree = Mapping[str, FileEntry]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong end.

    Attributes:
        name: What is wrong, in the words that `oracle.may_survive` takes, such as `report.txt: emptied`.
        files: The workspace then.
        path: Which file is damaged; empty for a cheat.
    """

    name: str
    files: dict[str, FileEntry]
    path: str = ""


def damaged(initial: Tree, end: Tree) -> Iterator[Mutant]:
    """Yield every damaged result.

    Args:
        initial: Snapshot before the oracle.
        end: Snapshot after it.
    """
    made = _changed(initial, end)
    for path in made:
        entry = end[path]
        yield Mutant(f"{path}: deleted", _without(end, path), path)
        if entry.kind is EntryKind.SYMLINK:
            yield Mutant(f"{path}: leads nowhere", {**end, path: replace(entry, target=NOWHERE)}, path)
        elif entry.content is not None:
            if entry.content:
                yield Mutant(f"{path}: emptied", {**end, path: _holding(entry, b"")}, path)
            yield Mutant(f"{path}: junk appended", {**end, path: _holding(entry, entry.content + JUNK)}, path)
            for name, content in _damaged_members(entry.content):
                yield Mutant(f"{path}: {name}", {**end, path: _holding(entry, content)}, path)
    contents = {path: end[path].content for path in made if end[path].content is not None}
    targets = {path: end[path].target for path in made if end[path].target is not None}
    for path, other in (*_neighbours(contents), *_neighbours(targets)):
        yield Mutant(f"{path}: swapped with {other}", {**end, path: end[other], other: end[path]}, path)
    for path, entry in initial.items():
        if entry.kind in (EntryKind.FILE, EntryKind.SYMLINK) and end.get(path) != entry:
            parents = {folder: initial[folder] for folder in _parents(path) if folder not in end}
            back = dict(sorted({**_without(end, path), **parents, path: entry}.items()))
            yield Mutant(f"{path}: left as it was", back, path)


def cheats(request: str, initial: Tree, end: Tree, aside: Collection[str] = ()) -> Iterator[Mutant]:
    """Yield what cheap policies leave behind, but for what comes to the same as the right end.

    Args:
        request: What the agent is asked.
        initial: Snapshot before the oracle.
        end: Snapshot after it, which says what the files to be made are called.
        aside: Paths that need not be made.
    """
    yield Mutant(DELETE_ALL, {})
    made = [path for path in _changed(initial, end) if end[path].kind is EntryKind.FILE and path not in aside]
    named = {path: FileEntry() for path in made if path not in initial}
    if any(end[path].content for path in named):
        yield Mutant("touch the files", _laid(initial, named, end))
    contents = {f"copy {path}": entry.content for path, entry in initial.items() if entry.content}
    contents |= {f"write {word!r}": f"{word}\n".encode() for word in _constants(request)}
    seen: set[bytes] = set()
    for name, content in contents.items():
        if not made or not content or content in seen:
            continue
        seen.add(content)
        if all(_same_text(content, end[path].content) for path in made):
            continue  # that is the work
        filled = {path: _holding(end[path], content) for path in made}
        yield Mutant(name, _laid(initial, filled, end))
        yield Mutant(f"{name}, all else done", {**end, **filled})


DELETE_ALL = "delete all"
"""Name of the cheat that leaves an empty workspace."""


def deletes_something(initial: Tree, end: Tree) -> bool:
    """Whether the right end lacks a path of the start: then deleting all may earn a part of the reward."""
    return any(path not in end for path in initial)


def _changed(initial: Tree, end: Tree) -> list[str]:
    """Return the paths whose file, link or empty folder is new or holds something else, sorted."""
    found = []
    for path, entry in end.items():
        before = initial.get(path)
        if entry.kind is EntryKind.DIR:
            if before is None and not any(other.startswith(f"{path}/") for other in end):
                found.append(path)
        elif before is None or (before.kind, before.content, before.target) != (
            entry.kind,
            entry.content,
            entry.target,
        ):
            found.append(path)
    return sorted(found)


Members = Mapping[str, bytes]
"""Files of an archive: name to content, in the archive's order."""


def _damaged_members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the damages of an archive's members, each with the bytes of the archive then; nothing for other files."""
    archive = _read_archive(content)
    if archive is None:
        return
    members, write = archive
    for name, data in members.items():
        yield f"{name} deleted in it", write({other: kept for other, kept in members.items() if other != name})
        if data:
            yield f"{name} emptied in it", write({**members, name: b""})
        yield f"junk appended to {name} in it", write({**members, name: data + JUNK})
    for name, other in _neighbours(members):
        swapped = {name: members[other], other: members[name]}
        yield f"{name} swapped with {other} in it", write({**members, **swapped})


def _read_archive(content: bytes) -> tuple[Members, Callable[[Members], bytes]] | None:
    """Return the files in a tar (packed or not) or zip archive and what writes it anew; None for other files.

    What writes keeps folders, links, modes, times and the order.
    """
    try:
        if zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as zipped:
                infos = [info for info in zipped.infolist() if not info.is_dir()]
                _refuse_bomb(sum(info.file_size for info in infos))
                if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
                    return None  # `zipfile` unpacks the others whole, whatever size they name
                return {info.filename: zipped.read(info) for info in infos}, partial(_write_zip, zipped.infolist())
        raw, pack = _unpacked(content)
        if raw[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
                every = archive.getmembers()
                _refuse_bomb(sum(member.size for member in every))  # a sparse one is larger than its archive
                found = {member.name: archive.extractfile(member) for member in every if member.isreg()}
                members = {name: file.read() for name, file in found.items() if file is not None}
                return members, lambda kept: pack(_write_tar(every, kept))
    except (
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
    ):
        pass  # no archive, whatever its first bytes say: then it is a file like others
    return None


def _unpacked(content: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    if content.startswith(b"\x1f\x8b"):
        return _inflated(partial(zlib.decompressobj, wbits=31), content), partial(gzip.compress, mtime=0)
    if content.startswith(b"BZh"):
        return _inflated(bz2.BZ2Decompressor, content), bz2.compress
    if content.startswith(b"\xfd7zXZ"):
        return _inflated(lzma.LZMADecompressor, content), lzma.compress
    return content, bytes


def _inflated(make: Callable[[], Any], content: bytes) -> bytes:
    """Unpack all streams of a file; `make` makes a decompressor of `bz2`, `lzma` or `zlib` for one.

    Raises:
        ValueError: It is cut, or holds more than `MAX_UNPACKED` bytes.
    """
    data = b""
    while content:
        unpacker = make()
        try:
            data += unpacker.decompress(content, MAX_UNPACKED + 1 - len(data))
        except (OSError, lzma.LZMAError):
            if not data:
                raise
            break  # `bz2` and `xz` read what stands before something else
        if not unpacker.eof or len(data) > MAX_UNPACKED:
            raise ValueError(f"is cut, or unpacks to more than {MAX_UNPACKED} bytes")
        content = unpacker.unused_data.lstrip(b"\0")  # zeros fill up the last block
    return data


def _refuse_bomb(size: int) -> None:
    if size > MAX_UNPACKED:
        raise ValueError(f"unpacks to more than {MAX_UNPACKED} bytes")


def _write_tar(infos: list[tarfile.TarInfo], members: Members) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info in infos:
            if not info.isreg():
                archive.addfile(info)
            elif info.name in members:
                data = members[info.name]
                resized = copy(info)  # `TarInfo.replace` leaves the size alone
                resized.size = len(data)
                archive.addfile(resized, io.BytesIO(data))
    return out.getvalue()


def _write_zip(infos: list[zipfile.ZipInfo], members: Members) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for info in infos:
            if info.is_dir() or info.filename in members:
                fresh = zipfile.ZipInfo(info.filename, info.date_time)
                fresh.compress_type, fresh.external_attr = info.compress_type, info.external_attr
                archive.writestr(fresh, members.get(info.filename, b""))
    return out.getvalue()


def _neighbours(things: Mapping[str, T]) -> Iterator[tuple[str, str]]:
    """Yield each name with the next one, in a circle, that stands for something else; no pair twice."""
    names = list(things)
    seen: set[frozenset[str]] = set()
    for index, name in enumerate(names):
        for other in names[index + 1 :] + names[:index]:
            if things[other] != things[name]:
                if frozenset((name, other)) not in seen:
                    seen.add(frozenset((name, other)))
                    yield name, other
                break


def _constants(request: str) -> list[str]:
    quoted = [next(group for group in match.groups() if group) for match in _QUOTED.finditer(request)]
    return list(dict.fromkeys([*quoted, *_NUMBER.findall(request)]))[:MAX_CONSTANTS]


def _same_text(one: bytes, other: bytes | None) -> bool:
    """Whether two contents differ in nothing but blanks at line ends and empty lines at the end."""
    return other is not None and _bare(one) == _bare(other)


def _bare(content: bytes) -> bytes:
    return _BLANK_ENDS.sub(b"\n", content).rstrip(b"\n")


def _holding(entry: FileEntry, content: bytes) -> FileEntry:
    return replace(entry, kind=EntryKind.FILE, content=content, size=len(content), target=None)


def _without(tree: Tree, path: str) -> dict[str, FileEntry]:
    return {name: entry for name, entry in tree.items() if name != path and not name.startswith(f"{path}/")}


def _laid(initial: Tree, files: Mapping[str, FileEntry], end: Tree) -> dict[str, FileEntry]:
    """Return the start with these files in it, and with the folders that they need, as the right end has them."""
    folders = {folder: end[folder] for path in files for folder in _parents(path) if folder in end}
    return dict(sorted({**initial, **folders, **files}.items()))


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


# -- Proving a task: its oracle scores 1, doing nothing does not pass, both twice; and its gold answers are sound -----
# Then wrong ends of an episode, made from the right one (`tasks/proof.py`), must not pass either.


class Status(StrEnum):
    """What a proof came to."""

    PROVEN = "proven"
    """The oracle scores 1, doing nothing does not pass, and both came out the same twice."""
    UNPROVEN = "unproven"
    """Nothing is wrong, but without an oracle nobody knows whether the task can be solved."""
    UNDECIDED = "undecided"
    """The sandbox failed, twice: that says nothing about the task."""
    FAILED = "failed"
    """The task is broken; the problems say how."""


class Fault(StrEnum):
    """Which part of a proof found something wrong."""

    START = "start"
    """The task cannot begin, or begins differently each time."""
    NOOP = "noop"
    """Doing nothing passes, or cannot be judged."""
    REPEAT = "repeat"
    """The same is judged differently the second time."""
    ANSWERS = "answers"
    """A gold answer does not judge itself."""
    ORACLE = "oracle"
    """The oracle does not pass, or not as an agent could."""
    TURNS = "turns"
    """It can be done in fewer replies than it says."""
    USER = "user"
    """It can be done without its user."""
    MUTANT = "mutant"
    """A damaged result passes."""
    CHEAT = "cheat"
    """Something that does not do the work passes."""
    EXCUSE = "excuse"
    """`may_survive` names what does not pass."""
    TIME = "time"
    """The proof takes longer than it may."""
    JUDGE = "judge"
    """A judge runs the agent's code in its own process."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What running a task showed.

    Attributes:
        task_id: Which task.
        task_hash: Its content hash.
        oracle_rate: Rate after the oracle; None without an oracle, or if an assertion erred.
        noop_rate: Rate of the untouched workspace; None if an assertion erred.
        hashes: Hash of the untouched workspace in each run; all equal for a good task.
        final_hashes: Hash of the workspace after the oracle in each run.
        problems: What is wrong; empty if nothing is.
        notes: What is worth knowing, but not wrong.
        undecided: The sandbox failed, so nothing was found out.
        faults: Which parts of the proof the problems are from, in their order.
    """

    task_id: str
    task_hash: str
    oracle_rate: float | None
    noop_rate: float | None
    hashes: tuple[str, ...]
    final_hashes: tuple[str, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    undecided: bool = False
    faults: tuple[Fault, ...] = ()

    @property
    def status(self) -> Status:
        """What the proof came to."""
        if self.undecided:
            return Status.UNDECIDED
        if self.problems:
            return Status.FAILED
        return Status.PROVEN if self.final_hashes else Status.UNPROVEN


@dataclass(frozen=True, slots=True)
class Run:
    """One episode: hashes of the workspace before and after, the end, its grade, what went wrong with a command.

    Attributes:
        before: Hash of the workspace as it was laid.
        after: Hash of the workspace after the last command.
        outcome: The end.
        grade: Its grade.
        complaints: Commands that failed, wrote to stderr, ran out of time or printed too much, a line each.
        unread: Steps that were shown nothing for a name that they read, or that are for a request nobody has made yet,
            a line each.
        held: Submissions that were not taken, because the user had more to say.
    """

    before: str
    after: str
    outcome: Outcome
    grade: Grade
    complaints: tuple[str, ...]
    unread: tuple[str, ...] = ()
    held: int = 0


_FLOOD = "printed more than the sandbox keeps"


class TooLong(Exception):
    """The proof has used up its time."""


def prove(task: Task, sandbox: Sandbox, network: str | None = None, seconds: float = math.inf) -> Proof:
    """Run a task twice doing nothing, twice with each way of its oracle, each command a turn; then try wrong ends.

    Args:
        task: What is proven.
        sandbox: Where.
        network: The engine's network that verifiers may have which need one.
        seconds: Wall time after which no further command is run and no further end judged: that is a problem then.

    Raises:
        SandboxError: the machinery failed; that says nothing about the task.
    """
    try:
        return _proof(task, sandbox, network, time.monotonic() + seconds)
    except CannotBegin as error:
        problems, fault = tuple(f"{problem.key}: {problem.message}" for problem in error.problems), Fault.START
    except TooLong:
        problems, fault = (f"the proof takes more than {seconds:g} s: fewer commands, files or assertions",), Fault.TIME
    return Proof(task.id, task.content_hash, None, None, (), (), problems, faults=(fault,))


def _in_time(until: float) -> None:
    if time.monotonic() > until:
        raise TooLong


def _proof(task: Task, sandbox: Sandbox, network: str | None, until: float) -> Proof:
    run = partial(play, task, sandbox, network=network, until=until)
    idle = [run(()) for _ in range(2)]
    found = [(Fault.NOOP, _judge_idle(idle[0])), (Fault.REPEAT, _judge_repeats(idle, "doing nothing"))]
    found.append((Fault.ANSWERS, _judge_golds(task)))
    notes: list[str] = []
    ways: list[list[Run]] = []
    for number, commands in enumerate(task.oracle.ways if task.oracle else ()):
        name = f"oracle alternative {number}" if number else "oracle"
        assert task.oracle is not None
        runs = [run(commands, task.oracle.answer, name) for _ in range(2)]
        ways.append(runs)
        found.append((Fault.ORACLE, _judge_oracle(task, runs[0], len(commands), name)))
        found.append((Fault.REPEAT, _judge_repeats(runs, f"the {name}")))
        if runs[0].after != runs[1].after:
            notes.append(
                f"the {name} leaves another workspace each time (clock, random numbers or process ids in a file?)"
            )
    if ways and not any(wrong for _, wrong in found):
        for fault, needed, prove_more in (
            (Fault.TURNS, task.turns is not None, prove_turns),
            (Fault.USER, task.user is not None, prove_user),
        ):
            said, wrong = prove_more(task, run) if needed else ([], [])
            notes += said
            found.append((fault, wrong))
    solved = ways[0] if ways else []
    if solved and not any(wrong for _, wrong in found):
        found += _judge_wrong_ends(task, sandbox, solved[0].outcome, idle[0].grade, network, until)
    hashes = tuple(run.before for runs in (idle, *ways) for run in runs)
    if len(set(hashes)) > 1:
        why = ": what `setup` and services leave there must come out the same (clock, random numbers, process ids?)"
        found.append((Fault.START, ["the workspace differs from one start to the next" + why * prepared(task)]))
    return Proof(
        task_id=task.id,
        task_hash=task.content_hash,
        oracle_rate=solved[0].grade.rate if solved else None,
        noop_rate=idle[0].grade.rate,
        hashes=hashes,
        final_hashes=tuple(run.after for run in solved),
        problems=tuple(dict.fromkeys(problem for _, wrong in found for problem in wrong)),
        notes=tuple(notes),
        faults=tuple(dict.fromkeys(fault for fault, wrong in found if wrong)),
    )


def play(
    task: Task,
    sandbox: Sandbox,
    commands: Sequence[Step],
    answer: str | None = None,
    name: str = "oracle",
    together: Collection[int] = (),
    network: str | None = None,
    until: float = math.inf,
) -> Run:
    """Run commands as an agent would, each a turn, and grade the end.

    Args:
        task: What is done.
        sandbox: Where; its workspace is laid anew.
        commands: Bash texts and messages to the user; each `{{name}}` in them becomes what an earlier one read.
        answer: The submitting reply; likewise.
        name: What complaints call the commands.
        together: Positions of commands that stand in one reply with the one before, and so do not know what the
            commands of that reply print; the number of commands stands for the answer. A message beside a command in
            one reply is not heard.
        network: As in `prove`.
        until: When no further command is run, by `time.monotonic`.

    Raises:
        SandboxError: The machinery failed.
        TooLong: It is later than `until`.
    """
    _in_time(until)
    begin(task, sandbox)
    initial = sandbox.snapshot()
    before = sandbox.snapshot_hash()
    complaints: list[str] = []
    unread: list[str] = []
    known: dict[str, str] = {}
    fresh: dict[str, str] = {}
    transcript: list[dict[str, object]] = [{"role": "user", "content": task.intent}]
    dialogue = Dialogue(task.user, task.intent) if task.user else None
    turn = 0
    for position, step in enumerate(commands):
        _in_time(until)
        what = f"{name} command {position + 1}"
        if position not in together:
            known, fresh = known | fresh, {}
            turn += 1
        text, printed, message = resolve(command_of(step), known), "", None
        if isinstance(step, Saying):
            message = None if {position, position + 1} & {*together} else text
        else:
            result = sandbox.run(text, timeout=task.budget.command_seconds)
            printed = result.stdout_text + result.stderr_text
            if complaint := _complaint(what, result):
                complaints.append(complaint)
        if dialogue is not None:
            if (asked := request_of(step)) is not None and asked not in dialogue.heard:
                unread.append(f"{what} is for '{asked}' before the user has asked for that")
            if position + 1 not in together:  # the user speaks after whole replies
                said = dialogue.after(turn, sandbox.snapshot(), message)
                printed = "\n".join([printed, *(item.text for item in said)])
        transcript.append({"role": "assistant", "content": text})
        transcript.append({"role": "user", "content": printed})
        try:
            fresh |= read(step, printed)
        except (NotRead, TooSlow) as error:
            unread.append(f"{what} {error}")
    if answer is not None:
        answer = resolve(answer, known if len(commands) in together else known | fresh)
        transcript.append({"role": "assistant", "content": answer})
    if task.services:
        sandbox.end_services()
    after = sandbox.snapshot_hash()  # before the grade: what a grader's command leaves is not the agent's
    files = sandbox.snapshot()
    unseen = cut_short(files)
    held = 0
    while dialogue is not None and dialogue.after(turn + held + 1, files, answer, submits=True):
        held += 1
    heard = dialogue.heard if dialogue else frozenset()
    grader = SandboxGrader(sandbox, task, network=network)
    outcome = Outcome(files, initial, answer, tuple(transcript), grader, unseen, heard)
    return Run(before, after, outcome, grade(task, outcome), tuple(complaints), tuple(unread), held)


def _complaint(what: str, result: CommandResult) -> str | None:
    said = result.stderr_text.strip().splitlines()
    last = f": {said[-1][:160]}" if said else ""
    if result.truncated:
        return f"{what} {_FLOOD}{last}"
    if result.timed_out:
        return f"{what} ran out of time after {result.seconds:.1f} s{last}"
    if result.exit_code != 0:
        return f"{what} ended with exit code {result.exit_code}{last}"
    return f"{what} wrote to stderr{last}" if said else None


def _judge_idle(run: Run) -> list[str]:
    if run.grade.passed:
        return ["doing nothing passes: add an assertion that fails until the work is done"]
    return [f"cannot be judged: {error.name}: {error.detail}" for error in run.grade.errors]


def _judge_golds(task: Task) -> list[str]:
    """Judge gold answers against themselves, and a wrong answer against each: what errs there errs for every agent."""
    return [
        f"{leaf.name or leaf.default_name()}: {problem}"
        for assertion in task.assertions
        for leaf in leaves(assertion)
        if isinstance(leaf, AnswerAssertion)
        for problem in leaf.self_test()
    ]


def _judge_oracle(task: Task, run: Run, commands: int, name: str) -> list[str]:
    problems: list[str] = []
    turns = commands + 1 + run.held
    if turns > task.budget.max_turns:
        problems.append(f"the {name} needs {turns} turns (submitting is one), but max_turns is {task.budget.max_turns}")
    problems += run.unread
    if not run.grade.passed:
        problems += run.complaints
        problems += [
            f"after the {name}: {result.name}: {result.verdict}: {result.detail}"
            for result in run.grade.results
            if result.verdict is not Verdict.PASS
        ]
    else:  # a command may well exit with 1 on the way (grep, diff), but one that was killed proves nothing
        problems += [complaint for complaint in run.complaints if "out of time" in complaint or _FLOOD in complaint]
    return problems


def _judge_repeats(runs: Sequence[Run], what: str) -> list[str]:
    first, second = runs
    if first.grade != second.grade:
        return [f"{what} is judged differently the second time"]
    return []


def _judge_wrong_ends(
    task: Task, sandbox: Sandbox, right: Outcome, idle: Grade, network: str | None, until: float
) -> list[tuple[Fault, list[str]]]:
    """Grade damaged results and cheap cheats: none may pass, but for those that the author allows with a reason."""
    assert task.oracle is not None
    excused = task.oracle.may_survive
    used: set[str] = set()
    mutants: list[str] = []
    cheating: list[str] = []

    def tried(mutant: Mutant, outcome: Outcome, problems: list[str], whole: bool = False) -> Grade:
        _in_time(until)
        found = grade_end(task, sandbox, outcome, whole=whole, network=network)
        reasons = excused.keys() & {mutant.name, mutant.path}
        if found.passed:
            used.update(reasons)
            problems.extend([] if reasons else [f"passes although wrong: {mutant.name} ({_REMEDY})"])
        return found

    for mutant in damaged(right.initial, right.files):
        found = tried(mutant, replace(right, files=mutant.files), mutants)
        mutants += [f"with {mutant.name}, {error.name} cannot be judged: {error.detail}" for error in found.errors]
    for cheat in cheats(task.intent, right.initial, right.files, excused):
        whole = cheat.name == DELETE_ALL and not deletes_something(right.initial, right.files)
        heard = frozenset() if whole else right.heard  # talk is cheap; but doing nothing, which is compared, is silent
        lazy = replace(right, files=cheat.files, final_message=None, transcript=right.transcript[:1], heard=heard)
        found = tried(cheat, lazy, cheating, whole)
        if whole and found.rate is not None and idle.rate is not None and found.rate > idle.rate:
            cheating.append(f"{DELETE_ALL} earns {found.rate:.2f}, more than doing nothing, {idle.rate:.2f}")
    idle_excuses = [f"oracle.may_survive: '{name}' does not pass: remove it" for name in excused if name not in used]
    return [(Fault.MUTANT, mutants), (Fault.CHEAT, cheating), (Fault.EXCUSE, idle_excuses)]


_REMEDY = "make an assertion stricter, or say why under oracle.may_survive"


def grade_end(task: Task, sandbox: Sandbox, end: Outcome, *, whole: bool = False, network: str | None = None) -> Grade:
    """Grade an end that no commands led to. Graders' commands are run only if all else passes, or `whole` is wanted.

    Raises:
        SandboxError: The machinery failed.
    """
    plain = tuple(item for item in task.assertions if item.on_files or item.on_answer)
    known = grade(task.model_copy(update={"assertions": plain}), replace(end, grader=None))
    if len(plain) == len(task.assertions) or (plain and not whole and not known.passed):
        return known
    lay(task, sandbox, _layable(end.files))
    return grade(task, replace(end, grader=SandboxGrader(sandbox, task, network=network)))


def _layable(files: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """Leave out what cannot be laid: fifos and the like, and files too large to be known."""
    return {
        path: entry
        for path, entry in files.items()
        if entry.kind in (EntryKind.DIR, EntryKind.SYMLINK) or entry.content is not None
    }
