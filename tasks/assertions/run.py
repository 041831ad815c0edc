"""The kinds that run a grader's command after the agent has ended: `command` and `script`, and where it runs."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, field_validator

from sandboxes.boot import WORKSPACE
from sandboxes.sandbox import Backend, CommandResult, EntryKind, FileEntry, Files, Sandbox
from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion, GraderHandle, Outcome, Verdict
from tasks.assertions.on_files import Pattern, TooSlow, as_list, search, shorten
from tasks.judged_in import JudgedIn, Where, mounted
from tasks.model import Items, Problem, Text, WorkspacePath, fault
from tasks.place import CannotBegin, begin, lay, no_network, open_for_judge, start_of, terms_of
from tasks.workspace import looks_like_script

if TYPE_CHECKING:
    from tasks.task import Task


# -- Running a grader's commands on an episode that is over -----------------------------------------------------------
# What the agent wrote must not decide how it is judged. The sandbox keeps the grader's files, processes and verdict
# out of its reach (`Sandbox.judge`). What is decided here is where a command runs: in the sandbox of the episode, or,
# where its outcome leaves a doubt, beside it in a fresh one.

# No cache of compiled code, no site of the user's, and the same order of sets in every run.
_ENV = {"PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0"}
_INSTALLS = {"HOME": "/root", "TMPDIR": "/var/tmp"}
"""For a judge that installs packages: places on the disk, which hold more than those in memory."""


def _installing(workdir: str) -> dict[str, str]:
    """Variables of a judge that installs packages, for itself as well (`pip install --user`).

    Unless what the agent left lies where the user's own packages would.
    """
    home = f"{_INSTALLS['HOME']}/"
    agents = f"{workdir}/"
    return _INSTALLS if agents.startswith(home) or home.startswith(agents) else {**_INSTALLS, "PYTHONNOUSERSITE": ""}


class SandboxGrader:
    """The `GraderHandle` of an open sandbox.

    Args:
        sandbox: Where the agent worked. Its shell state is neither used nor changed.
        task: What the agent worked on; without it there is no untouched workspace to compare with.
        network: The engine's network that judges may have which need one.
        variables: More variables of every command.
        twin: Makes another sandbox of the same kind; the default is `sandbox.twin`.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        task: Task | None = None,
        *,
        network: str | None = None,
        variables: Mapping[str, str] | None = None,
        twin: Callable[[], AbstractContextManager[Sandbox]] | None = None,
    ) -> None:
        self._sandbox, self._task, self._network = sandbox, task, network
        self._variables = {} if variables is None else variables
        self._twin = twin or sandbox.twin

    @property
    def backend(self) -> Backend:
        """See `GraderHandle.backend`."""
        return self._sandbox.backend

    @property
    def task_hash(self) -> str | None:
        """See `GraderHandle.task_hash`."""
        return None if self._task is None else self._task.content_hash

    @property
    def _workdir(self) -> str:
        return WORKSPACE if self._task is None else self._task.workdir or WORKSPACE

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
        return self._sandbox.judge(
            'export WORKSPACE="$PWD"\n' + command,
            files or {},
            timeout=self._sandbox.limits.command_seconds if timeout is None else timeout,
            env={**_ENV, **self._variables, **(env or {})},
            private=private,
        )

    @contextmanager
    def beside(self, files: Files | None = None) -> Iterator[SandboxGrader]:
        """See `GraderHandle.beside`."""
        with self._twin() as twin:
            if files is not None:
                lay(self._task, twin, files)
            else:
                assert self._task is not None
                begin(self._task, twin)
            yield SandboxGrader(twin, self._task)

    @contextmanager
    def fresh(self, judged_in: JudgedIn, files: Files | None = None) -> Iterator[SandboxGrader]:
        """See `GraderHandle.fresh`."""
        if judged_in.network and self._network is None:
            assert self._task is not None
            raise CannotBegin(Problem(no_network(judged_in.network), self._task.id))
        if files is None:
            assert self._task is not None
            files = start_of(self._task, self._sandbox)
        kept = {path: self._read(path, entry) for path, entry in files.items()}
        network = self._network if judged_in.network else None
        terms = replace(terms_of(self._task), folders=mounted(judged_in, self.backend), network=network)
        with self._twin() as twin:
            open_for_judge(self._task, twin, terms)
            twin.put({path: entry for path, entry in kept.items() if entry is not None})
            yield SandboxGrader(twin, self._task, variables=_installing(self._workdir) if terms.network else {})

    def _read(self, path: str, entry: FileEntry | bytes | str) -> FileEntry | bytes | str | None:
        """What is laid for a judge in another sandbox; None for fifos and the like."""
        if not isinstance(entry, FileEntry) or entry.kind is not EntryKind.FILE or entry.content is not None:
            return None if isinstance(entry, FileEntry) and entry.kind is EntryKind.OTHER else entry
        return replace(entry, content=self._sandbox.read(path))


# -- What `command` and `script` share: text that runs in the sandbox after the agent has ended, and its files --------

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


# -- `command`: a command of the grader, judged by its exit code and what it prints -----------------------------------


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


# -- `script`: a grader's program prints sub-scores, and each becomes a result of its own -----------------------------

NOT_LOADED = "not loaded: "
"""How a script that has a network begins the line on stderr which says what did not come."""
PAYLOAD = "payload.json"
"""Name of the file, in the folder of the grader, that tells a script what was said."""
MAX_SCORES = 1000
"""Sub-scores that one script may print."""
_NAME_LENGTH = 200
_WORKS = "works"

# Whatever a script imports comes from the interpreter or from its own folder, also without `python3 -I`.
_BEFORE = "export PYTHONSAFEPATH=1\n"


class ScriptMode(StrEnum):
    """What a script prints."""

    JSON = "json"
    """One JSON value and nothing else: an object of named sub-scores, or a number."""
    LAST_FLOAT = "last_float"
    """Anything; the last line is a number."""
    REWARD = "reward"
    """As `json`; where a sub-score is named `reward`, it decides alone, and the others are shown."""


class OnFailure(StrEnum):
    """What it means that a script fails itself."""

    ERROR = "error"
    """No grade, unless the script comes to a verdict on the untouched workspace: then it is the agent's doing."""
    FAIL = "fail"
    """The script runs what the agent made, which can bring it down: the agent's doing."""


class _Bad(Exception):
    """What was printed is no set of scores."""


class NotLoaded(Exception):
    """What a script loads from the network did not come."""

    def __init__(self, line: str) -> None:
        super().__init__(
            f"what the script installs did not come ({line}); remedy: a verifier_network that reaches where it comes "
            "from, or put it into the task's image"
        )


def _not_loaded(result: CommandResult) -> str:
    """The line that says what of a script's installing failed, as the script found it; empty where nothing did."""
    found = re.search(rf"^{NOT_LOADED}(.*)$", result.stderr_text, re.MULTILINE)
    return re.sub(r" object at 0x[0-9a-f]+", "", found[1])[:200] if found else ""


class CannotBeCarried(Exception):
    """The agent left more than another sandbox can be given: a fail, as `tasks.assertions.base.judge` makes of it."""


class Script(GraderAssertion):
    """A program of the grader prints scores in [0, 1], which become one result each, `<name>.<sub-score>`.

    The weight is shared out evenly, so that the scores of a script count together as its `weight` says, and the rate of
    a task with one script is their mean. An empty object is one score of 0. A script that ends with another exit code
    than 0, runs out of time, or prints what is no score comes to no verdict. If it comes to one on the untouched
    workspace, that is the agent's doing, and a fail; else it is the task's, and an error, unless `on_failure` says that
    it is always the agent's.

    Attributes:
        mode: What it prints.
        on_failure: What it means that the script fails itself.
        payload: With it, a file `payload.json` lies beside `files`: these keys, `final_message` and `transcript`.
        judged_in: In which sandbox it runs.
    """

    kind: Literal[AssertionKind.SCRIPT] = AssertionKind.SCRIPT
    mode: Annotated[ScriptMode, Field(strict=False)] = ScriptMode.JSON
    on_failure: Annotated[OnFailure, Field(strict=False)] = OnFailure.ERROR
    payload: dict[str, JsonValue] | None = None
    judged_in: JudgedIn = Field(default_factory=JudgedIn)

    def run(self, outcome: Outcome) -> CommandResult:
        """Run the script in the sandbox that it asks for.

        Raises:
            NoSandbox: The outcome has no handle.
            CannotBeCarried: The workspace holds too much for a fresh sandbox.
            SandboxError: The machinery failed.
        """
        handle = self._handle(outcome)
        if self.judged_in.sandbox is Where.SHARED:  # once: what it asks has ended with a time-out
            return self._run(handle, outcome)
        if self.judged_in.sandbox is Where.AGENT:
            return super().run(outcome)
        if outcome.cut_short:
            raise CannotBeCarried("the workspace holds more files than a judge in another sandbox is given")
        with self._elsewhere(handle, outcome.files) as fresh:
            result = self._run(fresh, outcome)
        if not self._network_failed(outcome, result) and not result.timed_out:
            return result
        with _ONE_AT_A_TIME, self._elsewhere(handle, outcome.files) as fresh:
            return self._run(fresh, outcome)

    def _network_failed(self, outcome: Outcome, result: CommandResult) -> bool:
        """Whether no verdict, or a low one, may have been the network's doing, which is well now.

        The untouched workspace tells: nothing of the agent's is there.

        Raises:
            NotLoaded: What the script loads does not come there, either: no verdict is one.
        """
        if not self.judged_in.network or self._is_full(result):
            return False
        if _not_loaded(result):
            if there := self.on_untouched(outcome, _not_loaded):
                raise NotLoaded(there)
            return True
        return self._comes_to_scores(result) != _WORKS and self.on_untouched(outcome, self._comes_to_scores) == _WORKS

    def _is_full(self, result: CommandResult) -> bool:
        try:
            found = self._read(result)
        except _Bad:
            return False
        if isinstance(found, dict):
            found = [found[name] for name in self._deciding(found)]
        return all(value == 1 for value in (found if isinstance(found, list) else [found]))

    def _elsewhere(self, handle: GraderHandle, files: Files | None = None) -> AbstractContextManager[GraderHandle]:
        if self.judged_in.sandbox is Where.FRESH:
            return handle.fresh(self.judged_in, files)
        return super()._elsewhere(handle, files)

    def _remembers(self) -> bool:
        return not self.judged_in.network

    def check(self, outcome: Outcome) -> AssertionResult:
        """Judge all sub-scores as one: their mean; an error if one of them is."""
        results = self.check_each(outcome)
        if len(results) == 1 and results[0].name == (self.name or self.default_name()):
            return results[0]
        results = tuple(result for result in results if result.weight or not self.weight)
        errors = [result for result in results if result.verdict is Verdict.ERROR]
        if errors:
            return self.erred("; ".join(f"{error.name}: {error.detail}" for error in errors)[:1000])
        mean = sum(result.score or 0.0 for result in results) / len(results)
        low = [result.name for result in results if result.verdict is not Verdict.PASS]
        return self._scored(mean, f"below 1: {', '.join(low)}"[:1000] if low else "")

    def check_each(self, outcome: Outcome) -> tuple[AssertionResult, ...]:
        """Run the script: one result per sub-score, or one for all where it prints a number or fails."""
        try:
            found = self._read(self.run(outcome))
        except (NoSandbox, NotLoaded) as error:
            return (self.erred(str(error)),)
        except _Bad as error:
            return (self._bad(outcome, str(error)),)
        if not isinstance(found, dict):
            return (self._judge(outcome, found),)
        if not found:
            return (self.failed("the script printed no sub-score"),)
        name = self.name or self.default_name()
        deciding = self._deciding(found)
        share = self.weight / len(deciding)
        return tuple(
            replace(
                self._judge(outcome, value),
                name=f"{name}.{key[:_NAME_LENGTH]}",
                weight=share if key in deciding else 0.0,
            )
            for key, value in found.items()
        )

    def _deciding(self, found: Mapping[str, Any]) -> set[str]:
        """Names of the sub-scores that count."""
        return {"reward"} if self.mode is ScriptMode.REWARD and "reward" in found else set(found)

    def describe(self) -> str:
        """Return the condition in words."""
        return f"the script prints 1 for everything: {shorten(self.command)}"

    def _run(self, handle: GraderHandle, outcome: Outcome) -> CommandResult:
        files = self.files
        if self.payload is not None:
            said = {"final_message": outcome.final_message, "transcript": [dict(item) for item in outcome.transcript]}
            # ASCII only: the agent's text may hold NUL or half a surrogate pair
            files = {**files, PAYLOAD: json.dumps({**self.payload, **said})}
        env = {}
        if self.judged_in.sandbox is not Where.AGENT:
            env["GRADER_FOLDERS"] = ":".join(mounted(self.judged_in, handle.backend))
        return handle.run(_BEFORE + self.command, files, self.timeout, private=True, env=env)

    def _read(self, result: CommandResult) -> Any:
        """What the script printed: an object of named scores, or one score; no score was looked at.

        Raises:
            _Bad: It is not what a script may print.
        """
        if result.timed_out:
            raise _Bad(f"the script ran out of time ({self.timeout:g} s)")
        if result.exit_code != 0:
            raise _Bad(f"the script ended with exit code {result.exit_code}{last_words(result)}")
        if result.truncated:
            raise _Bad("the script printed more than the sandbox keeps")
        text = result.stdout_text.strip()
        if not text:
            raise _Bad(f"the script printed nothing{last_words(result)}")
        if self.mode is ScriptMode.LAST_FLOAT:
            return _number(text.splitlines()[-1])
        found = _parse(text)
        if isinstance(found, dict) and len(found) > MAX_SCORES:
            raise _Bad(f"the script printed {len(found)} sub-scores; at most {MAX_SCORES} are taken")
        if not isinstance(found, dict) and (isinstance(found, bool) or not isinstance(found, int | float)):
            raise _Bad(f"the script printed neither an object of sub-scores nor a number: {shorten(text)}")
        return found

    def _judge(self, outcome: Outcome, value: Any) -> AssertionResult:
        try:
            return self._scored(_score(value), "")
        except _Bad as error:
            return self._bad(outcome, str(error))

    def _bad(self, outcome: Outcome, detail: str) -> AssertionResult:
        """Judge what is no score: the agent's doing if on the untouched workspace the script comes to scores."""
        if self.on_failure is OnFailure.FAIL:
            return self.broken(detail)
        if self.on_untouched(outcome, self._comes_to_scores) == _WORKS:
            return self.broken(f"{detail} (on the untouched workspace it comes to a verdict)")
        return self.erred(detail)

    def _comes_to_scores(self, result: CommandResult) -> str:
        try:
            found = self._read(result)
            for value in found.values() if isinstance(found, dict) else [found]:
                _score(value)
        except _Bad as error:
            return str(error)
        return _WORKS

    def _scored(self, score: float, detail: str) -> AssertionResult:
        if score == 1.0:
            return self.passed()
        return replace(self.failed(detail or f"score {score:.4g}"), score=score)


def judges_reply(leaf: BaseAssertion) -> bool:
    """Whether it may look at what was said. Of other packages' kinds only those on files are known not to."""
    if isinstance(leaf, GraderAssertion):
        return isinstance(leaf, Script) and leaf.payload is not None
    return not leaf.on_files


def _score(value: Any) -> float:
    """One score. True and false count as 1 and 0."""
    if not isinstance(value, int | float):
        raise _Bad(f"the score is no number: {shorten(json.dumps(value))}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Bad(f"the score is {value}")
    if not 0 <= value <= 1:
        raise _Bad(f"the score {value!s:.40} is not in [0, 1]")
    return float(value)


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise _Bad(f"the script did not print JSON ({error}): {shorten(text)}") from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key[:_NAME_LENGTH] in found:
            raise _Bad(f"the script printed the sub-score {shorten(key)} twice")
        found[key[:_NAME_LENGTH]] = value
    return found


def _number(line: str) -> float:
    try:
        return float(line)
    except ValueError:
        raise _Bad(f"the last line that the script printed is no number: {shorten(line)}") from None
