"""The kind `script`: a grader's program prints sub-scores, and each becomes a result of its own."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from sandboxes.sandbox import CommandResult, Files
from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion, GraderHandle, Outcome, Verdict
from tasks.assertions.on_files import shorten
from tasks.assertions.run import ONE_AT_A_TIME, GraderAssertion, NoSandbox, last_words
from tasks.judged_in import JudgedIn, Where, mounted

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
        with ONE_AT_A_TIME, self._elsewhere(handle, outcome.files) as fresh:
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
