"""How an episode is judged: named checks, each with a verdict of pass, fail or error."""

from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion, Verdict
from tasks.assertions.command import Command
from tasks.assertions.compose import AllOf, AnyOf, Not
from tasks.assertions.files import (
    FileContains,
    FileExists,
    FileMatches,
    FileNotExists,
    FileUnchanged,
)
from tasks.assertions.grade import Grade, GradeError, grade, grade_files
from tasks.assertions.script import Script, ScriptMode

__all__ = [
    "AllOf",
    "AnyOf",
    "AssertionKind",
    "AssertionResult",
    "BaseAssertion",
    "Command",
    "FileContains",
    "FileExists",
    "FileMatches",
    "FileNotExists",
    "FileUnchanged",
    "Grade",
    "GradeError",
    "Not",
    "Script",
    "ScriptMode",
    "Verdict",
    "grade",
    "grade_files",
]
