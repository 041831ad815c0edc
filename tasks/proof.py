"""Proving a task: its oracle scores 1, doing nothing does not pass, and no wrong end made from the right one does."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from sandboxes.sandbox import CommandResult, EntryKind, FileEntry, Sandbox
from tasks.answers import AnswerAssertion
from tasks.assertions.base import Outcome, Verdict, cut_short, leaves
from tasks.assertions.grade import Grade, grade
from tasks.assertions.grader import SandboxGrader
from tasks.assertions.on_files import TooSlow
from tasks.mutants import DELETE_ALL, Mutant, cheats, damaged, deletes_something
from tasks.oracle import NotRead, Saying, Step, command_of, read, request_of, resolve
from tasks.place import CannotBegin, begin, lay, prepared
from tasks.task import Task
from tasks.turns import prove_turns, prove_user
from tasks.user import Dialogue

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
