"""Proving a task: its oracle scores 1, doing nothing does not pass, both twice; and its gold answers are sound.

Then wrong ends of an episode, made from the right one (`tasks/mutants.py`), must not pass either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sandboxes.sandbox import CommandResult, EntryKind, FileEntry, Sandbox
from tasks.assertions.base import Verdict, leaves
from tasks.assertions.grade import Grade, grade
from tasks.assertions.on_answers import AnswerAssertion
from tasks.grader import SandboxGrader
from tasks.mutants import DELETE_ALL, Mutant, cheats, damaged, deletes_something
from tasks.outcome import Outcome, cut_short
from tasks.task import Task


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
    """

    before: str
    after: str
    outcome: Outcome
    grade: Grade
    complaints: tuple[str, ...]


_FLOOD = "printed more than the sandbox keeps"


def prove(task: Task, sandbox: Sandbox) -> Proof:
    """Run a task twice doing nothing, twice with each way of its oracle, each command a turn; then try wrong ends.

    Raises:
        SandboxError: the machinery failed; that says nothing about the task.
    """
    idle = [play(task, sandbox, ()) for _ in range(2)]
    problems = [*_judge_idle(idle[0]), *_judge_repeats(idle, "doing nothing"), *_judge_golds(task)]
    notes: list[str] = []
    ways: list[list[Run]] = []
    for number, commands in enumerate(task.oracle.ways if task.oracle else ()):
        name = f"oracle alternative {number}" if number else "oracle"
        assert task.oracle is not None
        runs = [play(task, sandbox, commands, task.oracle.answer, name) for _ in range(2)]
        ways.append(runs)
        problems += _judge_oracle(task, runs[0], len(commands), name)
        problems += _judge_repeats(runs, f"the {name}")
        if runs[0].after != runs[1].after:
            notes.append(
                f"the {name} leaves another workspace each time (clock, random numbers or process ids in a file?)"
            )
    solved = ways[0] if ways else []
    if solved and not problems:
        problems += _judge_wrong_ends(task, sandbox, solved[0].outcome, idle[0].grade)
    hashes = tuple(run.before for runs in (idle, *ways) for run in runs)
    if len(set(hashes)) > 1:
        problems.append("the workspace differs from one start to the next")
    return Proof(
        task_id=task.id,
        task_hash=task.content_hash,
        oracle_rate=solved[0].grade.rate if solved else None,
        noop_rate=idle[0].grade.rate,
        hashes=hashes,
        final_hashes=tuple(run.after for run in solved),
        problems=tuple(dict.fromkeys(problems)),
        notes=tuple(notes),
    )


def play(task: Task, sandbox: Sandbox, commands: Sequence[str], answer: str | None = None, name: str = "oracle") -> Run:
    """Run commands as an agent would, each a turn, and grade the end.

    Args:
        task: What is done.
        sandbox: Where; its workspace is laid anew.
        commands: Bash texts.
        answer: The submitting reply.
        name: What complaints call the commands.

    Raises:
        SandboxError: The machinery failed.
    """
    sandbox.open(task.files(), workdir=task.workdir)
    initial = sandbox.snapshot()
    before = sandbox.snapshot_hash()
    complaints: list[str] = []
    transcript: list[dict[str, object]] = [{"role": "user", "content": task.intent}]
    for number, command in enumerate(commands, start=1):
        result = sandbox.run(command, timeout=task.budget.command_seconds)
        transcript.append({"role": "assistant", "content": command})
        transcript.append({"role": "user", "content": result.stdout_text + result.stderr_text})
        complaint = _complaint(f"{name} command {number}", result)
        if complaint:
            complaints.append(complaint)
    if answer is not None:
        transcript.append({"role": "assistant", "content": answer})
    after = sandbox.snapshot_hash()  # before the grade: what a grader's command leaves is not the agent's
    files = sandbox.snapshot()
    unseen = cut_short(files)
    outcome = Outcome(files, initial, answer, tuple(transcript), SandboxGrader(sandbox, task), unseen)
    return Run(before, after, outcome, grade(task, outcome), tuple(complaints))


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
    turns = commands + 1
    if turns > task.budget.max_turns:
        problems.append(f"the {name} needs {turns} turns (submitting is one), but max_turns is {task.budget.max_turns}")
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


def _judge_wrong_ends(task: Task, sandbox: Sandbox, right: Outcome, idle: Grade) -> list[str]:
    """Grade damaged results and cheap cheats: none may pass, but for those that the author allows with a reason."""
    assert task.oracle is not None
    excused = task.oracle.may_survive
    used: set[str] = set()
    problems: list[str] = []

    def tried(mutant: Mutant, outcome: Outcome, whole: bool = False) -> Grade:
        found = grade_end(task, sandbox, outcome, whole=whole)
        reasons = excused.keys() & {mutant.name, mutant.path}
        if found.passed:
            used.update(reasons)
            problems.extend([] if reasons else [f"passes although wrong: {mutant.name} ({_REMEDY})"])
        return found

    for mutant in damaged(right.initial, right.files):
        found = tried(mutant, replace(right, files=mutant.files))
        problems += [f"with {mutant.name}, {error.name} cannot be judged: {error.detail}" for error in found.errors]
    for cheat in cheats(task.intent, right.initial, right.files, excused):
        whole = cheat.name == DELETE_ALL and not deletes_something(right.initial, right.files)
        lazy = replace(right, files=cheat.files, final_message=None, transcript=right.transcript[:1])
        found = tried(cheat, lazy, whole)
        if whole and found.rate is not None and idle.rate is not None and found.rate > idle.rate:
            problems.append(f"{DELETE_ALL} earns {found.rate:.2f}, more than doing nothing, {idle.rate:.2f}")
    return problems + [f"oracle.may_survive: '{name}' does not pass: remove it" for name in excused if name not in used]


_REMEDY = "make an assertion stricter, or say why under oracle.may_survive"


def grade_end(task: Task, sandbox: Sandbox, end: Outcome, *, whole: bool = False) -> Grade:
    """Grade an end that no commands led to. Graders' commands are run only if all else passes, or `whole` is wanted.

    Raises:
        SandboxError: The machinery failed.
    """
    plain = tuple(item for item in task.assertions if item.on_files or item.on_answer)
    known = grade(task.model_copy(update={"assertions": plain}), replace(end, grader=None))
    if len(plain) == len(task.assertions) or (plain and not whole and not known.passed):
        return known
    sandbox.open(_layable(end.files), workdir=task.workdir)
    return grade(task, replace(end, grader=SandboxGrader(sandbox, task)))


def _layable(files: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """Leave out what cannot be laid: fifos and the like, and files too large to be known."""
    return {
        path: entry
        for path, entry in files.items()
        if entry.kind in (EntryKind.DIR, EntryKind.SYMLINK) or entry.content is not None
    }
