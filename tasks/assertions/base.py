"""What every assertion shares: what it looks at, its verdict, and the record of one check."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from pydantic import Field

from sandboxes.sandbox import Backend, CommandResult, FileEntry, Files, SandboxError, Snapshot
from tasks.judged_in import JudgedIn
from tasks.model import StrictModel, Text

# ---------------------------------------------------------------------------------------------------------------------
# What an assertion may look at: the workspace before and after, what was said, and a way to run a grader's command.


class GraderHandle(Protocol):
    """Runs commands of a grader where the agent worked, after the agent has ended. Never given to a turn's grade."""

    @property
    def backend(self) -> Backend:
        """Of the sandbox."""

    @property
    def task_hash(self) -> str | None:
        """Content hash of the task; None where the task is not known, and so no untouched workspace."""

    def run(
        self,
        command: str,
        files: Mapping[str, str] | None = None,
        timeout: float | None = None,
        *,
        private: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run one command in clean state, in the workspace, out of reach of what the agent wrote.

        Args:
            command: Bash text.
            files: Path to text. They are laid in a folder that `$GRADER` names for the command, which programs of the
                agent's can neither read nor write, and are gone when this returns.
            timeout: Seconds that count (waiting for a busy machine does not); the default is the sandbox's own.
            private: What is printed is a verdict: programs of the agent's print nothing to it.
            env: Variables beside those of a new shell.

        Raises:
            SandboxError: The machinery failed. Never a verdict.
        """

    def beside(self, files: Files | None = None) -> AbstractContextManager[GraderHandle]:
        """A handle on a fresh sandbox of the same kind, with these files; the default is what the task lays.

        Raises:
            SandboxError: It could not be opened.
        """

    def fresh(self, judged_in: JudgedIn, files: Files | None = None) -> AbstractContextManager[GraderHandle]:
        """As `beside`, in a sandbox as a script asks for it. Files too large for a snapshot are read where they are.

        Raises:
            SandboxError: It could not be opened.
        """


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an episode (or the state after a turn), as plain data taken out of the sandbox.

    Attributes:
        files: Snapshot of the workspace now.
        initial: Snapshot of the workspace as the task laid it, before the agent's first turn.
        final_message: The agent's submitting reply; `None` where it never submitted.
        transcript: The conversation so far, records of `role` (`user` or `assistant`) and `content`.
        grader: Runs commands of graders; `None` while the agent still works.
        cut_short: `files` may lack paths, because there were too many: nothing can be said to be absent.
        heard: Names of the rules of a task's user that have spoken.
    """

    files: Mapping[str, FileEntry]
    initial: Mapping[str, FileEntry]
    final_message: str | None = None
    transcript: tuple[Mapping[str, object], ...] = ()
    grader: GraderHandle | None = None
    cut_short: bool = False
    heard: frozenset[str] = frozenset()


def cut_short(files: Mapping[str, FileEntry]) -> bool:
    """Whether a snapshot lacks paths, as who took it says (`Snapshot.cut`). A plain mapping lacks none."""
    return isinstance(files, Snapshot) and files.cut


# -- What every assertion shares: its name and weight, its verdict, and the record of one check -----------------------


class AssertionKind(StrEnum):
    """The kinds of assertion, as written under `kind:` in a task file."""

    FILE_EXISTS = "file_exists"
    """Something stands at the path (a file or a folder)."""
    FILE_NOT_EXISTS = "file_not_exists"
    """Nothing stands at the path, not even a broken link."""
    FILE_CONTAINS = "file_contains"
    """The file's text holds each of the given texts."""
    FILE_MATCHES = "file_matches"
    """A regular expression is found in the file's text."""
    FILE_UNCHANGED = "file_unchanged"
    """What stands at the path is, byte for byte, what the task laid there."""
    FILE_EQUALS = "file_equals"
    """The file's text is the given one."""
    DIR_EXISTS = "dir_exists"
    """A folder stands at the path."""
    FILE_COUNT = "file_count"
    """So many files match a glob."""
    FILE_MODE = "file_mode"
    """The permission bits are the given ones."""
    LINE_COUNT = "line_count"
    """The file has so many lines."""
    SHA256 = "sha256"
    """The file's bytes have the given SHA-256."""
    JSON_VALUE = "json_value"
    """The value at a path in a JSON file is the given one."""
    YAML_VALUE = "yaml_value"
    """The value at a path in a YAML file is the given one."""
    CSV_CELL = "csv_cell"
    """One cell of a CSV table holds the given text or number."""
    CSV_ROWS = "csv_rows"
    """A CSV table has so many rows, these columns, or rows like these."""
    COMMAND = "command"
    """A command, run after the agent has ended, ends and prints as it should."""
    SCRIPT = "script"
    """A grader's script, run after the agent has ended, prints sub-scores."""
    NUMBER_EQUALS = "number_equals"
    """The answer's final number is the given one."""
    NUMBER_FORMAT = "number_format"
    """The answer marks its final number."""
    MATH_EQUIVALENT = "math_equivalent"
    """The answer is mathematically the given one."""
    MATH_FORMAT = "math_format"
    """The answer stands in a closed box."""
    INSTRUCTION = "instruction"
    """The answer follows one instruction on its form, such as "has at least 20 words"."""
    HEARD = "heard"
    """The task's user has said what a rule of theirs says."""
    ANY_OF = "any_of"
    """At least one of several assertions holds."""
    ALL_OF = "all_of"
    """Each of several assertions holds."""
    NOT = "not"
    """An assertion does not hold."""


class Verdict(StrEnum):
    """What a check found out."""

    PASS = "pass"
    """It holds."""
    FAIL = "fail"
    """It does not hold: the agent's doing."""
    ERROR = "error"
    """It could not be decided. Never a score of 0, and never a reward."""


@dataclass(frozen=True, slots=True)
class AssertionResult:
    """The record of one check.

    Attributes:
        name: Name of the assertion, unique in its task.
        kind: Which kind of assertion it was: an `AssertionKind`, or a name that another package brought.
        verdict: Pass, fail or error.
        score: 1.0 or 0.0 (or between, for kinds that give part credit); None for an error.
        detail: Why, in one line; empty for a plain pass.
        weight: Weight of the score in the rate of the grade; 0 for what is only shown.
        broke: The check could not be carried out because of what the agent made (it crashed, ran out of time, was left
            no room). That is a fail; people who study such cases may count it as an error (`agent_errors`).
    """

    name: str
    kind: str
    verdict: Verdict
    score: float | None
    detail: str = ""
    weight: float = 1.0
    broke: bool = False

    def record(self) -> dict[str, str | float | bool | None]:
        """Return the result as JSON-able values; `broke` only where it is true."""
        found: dict[str, str | float | bool | None] = {
            "name": self.name,
            "kind": str(self.kind),
            "verdict": self.verdict.value,
            "score": self.score,
            "detail": self.detail,
            "weight": self.weight,
        }
        return {**found, "broke": True} if self.broke else found


class BaseAssertion(StrictModel):
    """One named check on the outcome of an episode.

    Attributes:
        kind: Which check; narrowed to one value by each subclass.
        name: Name in reports; `<kind>:<path>` where the task gives none.
        weight: Weight in the mean score. With 0 the result is shown, but decides nothing.
    """

    kind: str
    name: Text | None = None
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)

    @property
    def on_files(self) -> bool:
        """Whether snapshots alone decide it, so that it may be judged after any turn."""
        return False

    @property
    def on_answer(self) -> bool:
        """Whether the final message alone decides it, so that it needs no workspace."""
        return bool(self.inner) and all(item.on_answer for item in self.inner)

    @property
    def inner(self) -> tuple[BaseAssertion, ...]:
        """The assertions that this one is made of; none for most kinds."""
        return ()

    @abstractmethod
    def check(self, outcome: Outcome) -> AssertionResult:
        """Judge the outcome. Reads nothing but the outcome."""

    def check_each(self, outcome: Outcome) -> tuple[AssertionResult, ...]:
        """Judge the outcome: one result, except for kinds that find several named scores."""
        return (self.check(outcome),)

    def untouched(self, outcome: Outcome) -> Outcome:
        """Return the outcome of an agent that has done nothing: a check that breaks there too is itself at fault."""
        return replace(
            outcome,
            files=outcome.initial,
            final_message=None,
            transcript=outcome.transcript[:1],
            grader=None,
            cut_short=False,
            heard=frozenset(),
        )

    @abstractmethod
    def default_name(self) -> str:
        """Return the name used where the task gives none."""

    def describe(self) -> str:
        """Return the condition in a few words, for people."""
        return self.default_name()

    def canonical(self) -> dict[str, Any]:
        """Return what defines this assertion, JSON-able, defaults left out."""
        return {"kind": str(self.kind), **self.model_dump(mode="json", exclude={"kind"}, exclude_defaults=True)}

    def passed(self) -> AssertionResult:
        """Return a result with verdict pass."""
        return self._result(Verdict.PASS, 1.0, "")

    def failed(self, detail: str) -> AssertionResult:
        """Return a result with verdict fail."""
        return self._result(Verdict.FAIL, 0.0, detail)

    def broken(self, detail: str) -> AssertionResult:
        """Return a fail, because what the agent made kept the check from being carried out. Never a way out of it."""
        return replace(self.failed(detail), broke=True)

    def erred(self, detail: str) -> AssertionResult:
        """Return a result with verdict error, which has no score. Only the machinery or the task may cause it."""
        return self._result(Verdict.ERROR, None, detail)

    def _result(self, verdict: Verdict, score: float | None, detail: str) -> AssertionResult:
        if not detail.isascii():
            detail = detail.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair cannot be written down
        return AssertionResult(self.name or self.default_name(), self.kind, verdict, score, detail, self.weight)


def judge(assertion: BaseAssertion, outcome: Outcome, *, apart: bool = False) -> tuple[AssertionResult, ...]:
    """Check an assertion. An exception is a fail (`broke`) where the agent caused it, and an error where it did not.

    Args:
        assertion: What is to hold.
        outcome: What it looks at.
        apart: One result for each named score (`check_each`), not one in all.

    Raises:
        SandboxError: the machinery failed, and whoever runs the episode must learn of it.
    """
    try:
        return assertion.check_each(outcome) if apart else (assertion.check(outcome),)
    except SandboxError:
        raise
    except Exception as error:
        detail = f"the check itself failed: {type(error).__name__}: {error}"[:1000]
        return (assertion.erred(detail) if _at_fault(assertion, outcome, error) else assertion.broken(detail),)


def _at_fault(assertion: BaseAssertion, outcome: Outcome, error: Exception) -> bool:
    """Whether a check that raised `error` raises the like where the agent has done nothing."""
    try:
        assertion.check(assertion.untouched(outcome))
    except Exception as again:
        return type(again) is type(error)
    return False


def leaves(assertion: BaseAssertion) -> tuple[BaseAssertion, ...]:
    """Return the assertion, or those inside it, at any depth."""
    inner = assertion.inner
    return (assertion,) if not inner else tuple(leaf for item in inner for leaf in leaves(item))
