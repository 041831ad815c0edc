"""`command`: a command of the grader, judged by its exit code and what it prints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tasks.assertions.base import AssertionKind, AssertionResult
from tasks.assertions.graders import GraderAssertion, NoSandbox, last_words, missing_tool
from tasks.assertions.on_files import as_list, shorten
from tasks.assertions.patterns import Pattern, TooSlow, search
from tasks.model import Items, Text
from tasks.outcome import Outcome


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
    timeout: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 10.0
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
