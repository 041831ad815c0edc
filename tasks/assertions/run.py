"""The kinds that run a grader's command after the agent has ended: what they share, and `command`."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from sandboxes.sandbox import CommandResult, EntryKind, Files
from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion, GraderHandle, Outcome
from tasks.assertions.on_files import Pattern, TooSlow, as_list, search, shorten
from tasks.model import Items, Text, WorkspacePath, fault
from tasks.workspace import looks_like_script

MAX_FILES_CHARACTERS = 4 * 1024 * 1024
"""Text that the files of one grader may hold together."""

ONE_AT_A_TIME = threading.Lock()
"""Held while a judge that ran out of time is run once more."""
_UNTOUCHED: dict[tuple[str, ...], str] = {}
_REMEMBERED = 4096
_NOT_FOUND = re.compile(r"^(?:\S+: )?(?:line \d+: )?([\w.+-]+): command not found$", re.MULTILINE)
_NO_MODULE = re.compile(
    r"No module named '?(pytest|nose2?|tox|coverage|hypothesis|mypy|ruff|black|flake8|pylint|numpy|pandas|scipy|yaml|"
    r"requests|jsonschema|lxml|bs4|openpyxl|docx|PIL|matplotlib|cryptography)\b"
)

Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
"""Time of a command."""


class NoSandbox(Exception):
    """There is no sandbox to run the command in: the agent still works, or the outcome is only data."""


class GraderAssertion(BaseAssertion):
    """A check that runs a command of the grader.

    Attributes:
        command: Bash text, run in the workspace in clean state; `$GRADER` is the folder of `files`.
        files: Path to text; laid after the agent has ended, removed after the command.
        timeout: Seconds that count: the time that a busy machine lets the command wait does not.
    """

    command: Text
    files: dict[WorkspacePath, str] = Field(default_factory=dict)
    timeout: Seconds = 60.0

    @field_validator("command")
    @classmethod
    def _plain_lines(cls, command: str) -> str:
        if "\r" in command:
            raise fault("the command holds a carriage return: bash would take it as text")
        if "\0" in command:
            raise fault("the command holds a NUL character")
        if not command.strip():
            raise fault("the command is blank")
        return command

    @field_validator("files")
    @classmethod
    def _can_be_laid(cls, files: dict[str, str]) -> dict[str, str]:
        if sum(map(len, files.values())) > MAX_FILES_CHARACTERS:
            raise fault(f"the files hold more than {MAX_FILES_CHARACTERS} characters together")
        for path, text in files.items():
            if "\0" in text:
                raise fault(f"'{path}' holds a NUL character: files of a grader are text", path)
            if "\r\n" in text and not path.endswith(".py") and looks_like_script(path, text):
                raise fault(f"'{path}' is a script with CRLF line endings, which bash takes as text", path)
            if any(path.startswith(f"{other}/") for other in files):
                raise fault(f"'{path}' lies in what is itself a file", path)
        return files

    def run(self, outcome: Outcome) -> CommandResult:
        """Run the command where the agent worked. If it runs out of time, run it once more, in a sandbox of its own.

        A second try, with no other judge beside it, tells a judge that the agent's work holds up from one that met a
        bad moment.

        Raises:
            NoSandbox: The outcome has no handle.
            SandboxError: The machinery failed.
        """
        handle = self._handle(outcome)
        result = self._run(handle, outcome)
        if not result.timed_out:
            return result
        with ONE_AT_A_TIME:
            if any(entry.kind is EntryKind.FILE and entry.content is None for entry in outcome.files.values()):
                return self._run(handle, outcome)  # too large for the snapshot, so there is no other copy
            kept = {path: entry for path, entry in outcome.files.items() if entry.kind is not EntryKind.OTHER}
            with handle.beside(kept) as fresh:
                return self._run(fresh, outcome)

    def on_untouched(self, outcome: Outcome, judged: Callable[[CommandResult], str]) -> str:
        """Run the command on the workspace as the task laid it, and return what `judged` makes of that.

        What a grader does there is the task's doing, and what it does only after the agent is the agent's. Run once
        for each task and grader, and remembered. Empty where there is no such workspace.

        Raises:
            SandboxError: The machinery failed.
        """
        handle = self._handle(outcome)
        if handle.task_hash is None:
            return ""
        key = handle.task_hash, self.name or self.default_name(), self.command, judged.__qualname__
        if key not in _UNTOUCHED:
            idle = replace(outcome, files=outcome.initial, final_message=None, transcript=())
            with self._elsewhere(handle) as fresh:
                found = judged(self._run(fresh, idle))
            if not self._remembers():
                return found
            while len(_UNTOUCHED) >= _REMEMBERED:
                _UNTOUCHED.pop(next(iter(_UNTOUCHED)), None)
            _UNTOUCHED[key] = found
        return _UNTOUCHED[key]

    def _run(self, handle: GraderHandle, outcome: Outcome) -> CommandResult:
        return handle.run(self.command, self.files, self.timeout)

    def _elsewhere(self, handle: GraderHandle, files: Files | None = None) -> AbstractContextManager[GraderHandle]:
        """A sandbox beside the agent's, with these files; the default is the untouched workspace."""
        return handle.beside(files)

    def _remembers(self) -> bool:
        """Whether what comes out on the untouched workspace is so every time."""
        return True

    @staticmethod
    def _handle(outcome: Outcome) -> GraderHandle:
        if outcome.grader is None:
            raise NoSandbox("needs a sandbox to run in, which there is only after the agent has ended")
        return outcome.grader

    def default_name(self) -> str:
        """Return the kind."""
        return str(self.kind)


def missing_tool(result: CommandResult) -> str:
    """Name a program or package that a grader's own command needs and this sandbox lacks; empty if there is none.

    Only what no agent is asked to make counts: a program by its bare name, and the packages that tests are run with.
    The agent's programs can print the same words, so whoever asks compares with the untouched workspace.
    """
    said = result.stderr_text + result.stdout_text
    if result.exit_code == 127:
        found = _NOT_FOUND.search(said)
        if found:
            return found[1]
    found = _NO_MODULE.search(said)
    return found[1] if found and result.exit_code else ""


def last_words(result: CommandResult) -> str:
    """Return the last line that a command wrote to stderr, for a detail; empty if there is none."""
    said = result.stderr_text.strip().splitlines()
    return f": {said[-1][:200]}" if said else ""


class Command(GraderAssertion):
    """A command, run after the agent has ended, ends with the exit code and prints what is asked for.

    It usually runs what the agent made, so running out of time or printing without end is a fail, not an error. That
    the sandbox lacks a program which the command names is an error.

    Attributes:
        exit_code: What it must end with.
        stdout: All that it must print; line ends at the end do not count.
        stdout_contains: Texts that it must print, among others.
        stdout_matches: A regular expression that must be found in what it prints.
    """

    kind: Literal[AssertionKind.COMMAND] = AssertionKind.COMMAND
    timeout: Seconds = 10.0
    exit_code: int = Field(default=0, ge=0, le=255)
    stdout: str | None = None
    stdout_contains: Annotated[Items[Text], BeforeValidator(as_list)] = ()
    stdout_matches: Pattern | None = None

    def check(self, outcome: Outcome) -> AssertionResult:
        """Run it and compare."""
        try:
            result = self.run(outcome)
            if result.timed_out:
                return self.failed(f"{self._shown()} ran out of time ({self.timeout:g} s)")
            tool = missing_tool(result) if result.exit_code != self.exit_code else ""
            if tool and self.on_untouched(outcome, missing_tool) == tool:
                return self.erred(f"{self._shown()} needs {tool}, which this sandbox lacks")
            if result.exit_code != self.exit_code:
                wanted = f"exit code {result.exit_code} instead of {self.exit_code}"
                return self.failed(f"{self._shown()} ended with {wanted}{last_words(result)}")
            problem = self._wrong(result.stdout_text, result.truncated)
        except TooSlow as error:
            return self.broken(str(error))
        except NoSandbox as error:
            return self.erred(str(error))
        return self.failed(f"{self._shown()} {problem}") if problem else self.passed()

    def default_name(self) -> str:
        """Return the kind and the start of the command."""
        return f"{self.kind}:{self.command.strip().splitlines()[0][:40]}"

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self._shown()} ends with {self.exit_code}" + (
            " and prints what it should"
            if self.stdout is not None or self.stdout_contains or self.stdout_matches
            else ""
        )

    def _wrong(self, printed: str, truncated: bool) -> str:
        """Return what is wrong with what was printed; empty if nothing is."""
        if self.stdout is not None and (truncated or printed.rstrip("\r\n") != self.stdout.rstrip("\r\n")):
            return f"printed {shorten(printed)} instead of {shorten(self.stdout)}"
        missing = [text for text in self.stdout_contains if text not in printed]
        if missing:
            return f"did not print {', '.join(map(shorten, missing))}"
        if self.stdout_matches is not None and not search(self.stdout_matches, printed):
            return f"printed nothing that matches {shorten(self.stdout_matches)}"
        return ""

    def _shown(self) -> str:
        return f"the command {shorten(self.command.strip())}"
