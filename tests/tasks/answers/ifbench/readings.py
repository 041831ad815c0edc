"""What the two readings of an instruction say about a text."""

from __future__ import annotations

from typing import Any

from tasks.answers.instructions import Semantics, make


def readings(id: str, text: str, **kwargs: Any) -> tuple[bool, bool]:
    """Return the verdict as published, then the fixed one."""
    instruction = make(id, kwargs)
    assert instruction.describe()
    return instruction.follows(text, Semantics.REFERENCE), instruction.follows(text, Semantics.FIXED)


BOTH, NEITHER, ONLY_PUBLISHED, ONLY_FIXED = (True, True), (False, False), (True, False), (False, True)
