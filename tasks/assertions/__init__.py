"""How an episode is judged: named checks, each with a verdict of pass, fail or error."""

from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion, Verdict
from tasks.assertions.files import (
    FileContains,
    FileExists,
    FileMatches,
    FileNotExists,
    FileUnchanged,
)
from tasks.assertions.grade import AllOf, AnyOf, Grade, GradeError, Not, grade, grade_files
from tasks.assertions.run import Command
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
