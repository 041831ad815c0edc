"""What `command` and `script` share: text that runs in the sandbox after the agent has ended, and its files."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from pydantic import Field, field_validator

from sandboxes.sandbox import CommandResult, EntryKind
from tasks.assertions.base import BaseAssertion
from tasks.model import Text, WorkspacePath, fault
from tasks.outcome import GraderHandle, Outcome
from tasks.workspace import looks_like_script

MAX_FILES_CHARACTERS = 4 * 1024 * 1024
"""Text that the files of one grader may hold together."""

_ONE_AT_A_TIME = threading.Lock()
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
        with _ONE_AT_A_TIME:
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
            with handle.beside() as fresh:
                found = judged(self._run(fresh, idle))
            while len(_UNTOUCHED) >= _REMEMBERED:
                _UNTOUCHED.pop(next(iter(_UNTOUCHED)), None)
            _UNTOUCHED[key] = found
        return _UNTOUCHED[key]

    def _run(self, handle: GraderHandle, outcome: Outcome) -> CommandResult:
        return handle.run(self.command, self.files, self.timeout)

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
