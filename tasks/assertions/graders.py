"""What `command` and `script` share: text that runs in the sandbox after the agent has ended, and its files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from sandboxes.sandbox import CommandResult
from tasks.assertions.base import BaseAssertion
from tasks.model import Text, WorkspacePath, fault
from tasks.outcome import GraderHandle, Outcome
from tasks.workspace import looks_like_script

MAX_FILES_CHARACTERS = 4 * 1024 * 1024
"""Text that the files of one grader may hold together."""

Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
"""Wall time of a command."""


class NoSandbox(Exception):
    """There is no sandbox to run the command in: the agent still works, or the outcome is only data."""


class GraderAssertion(BaseAssertion):
    """A check that runs a command of the grader.

    Attributes:
        command: Bash text, run in the workspace in clean state; `$GRADER` is the folder of `files`.
        files: Path to text; laid after the agent has ended, removed after the command.
        timeout: Wall time in seconds.
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

    def run(self, outcome: Outcome, files: dict[str, str] | None = None, before: str = "") -> CommandResult:
        """Run the command.

        Args:
            outcome: Holds the handle.
            files: The files to lay; `self.files` by default.
            before: Bash text put before the command.

        Raises:
            NoSandbox: The outcome has no handle.
            NoRoom: The agent left no room for the files.
            SandboxError: The machinery failed.
        """
        handle: GraderHandle | None = outcome.grader
        if handle is None:
            raise NoSandbox("needs a sandbox to run in, which there is only after the agent has ended")
        return handle.run(before + self.command, self.files if files is None else files, self.timeout)

    def default_name(self) -> str:
        """Return the kind."""
        return str(self.kind)


def last_words(result: CommandResult) -> str:
    """Return the last line that a command wrote to stderr, for a detail; empty if there is none."""
    said = result.stderr_text.strip().splitlines()
    return f": {said[-1][:200]}" if said else ""
