"""How an episode is judged: named checks, each with a verdict of pass, fail or error."""

from tasks.assertions.base import AssertionKind, AssertionResult, Verdict
from tasks.assertions.files import (
    Assertion,
    FileContains,
    FileExists,
    FileMatches,
    FileNotExists,
    FileUnchanged,
)
from tasks.assertions.grade import Grade, GradeError, grade, grade_files

__all__ = [
    "Assertion",
    "AssertionKind",
    "AssertionResult",
    "FileContains",
    "FileExists",
    "FileMatches",
    "FileNotExists",
    "FileUnchanged",
    "Grade",
    "GradeError",
    "Verdict",
    "grade",
    "grade_files",
]
