"""Answers that nobody would give, refused as wrong before anything parses them."""

from __future__ import annotations

import re

MAX_LENGTH = 1000
"""Characters of an answer; a longer gold answer may be met by one of twice its length."""
MAX_NESTING = 64
"""How deep brackets of all kinds may stand in each other."""
MAX_TOWER = 3
"""How many exponents may stand in each other: `9^{9^{9^{9}}}` has three."""

_BRACKET = re.compile(r"\\.|\^\s*(?:\\left\s*)?[{(]|[\^{}()\[\]]", re.DOTALL)


def refusal(gold: str, answer: str) -> str | None:
    """Return why an answer is refused, or None. What the gold answer itself needs is never refused."""
    allowed = max(MAX_LENGTH, 2 * len(gold))
    if len(answer) > allowed:
        return f"the answer is {len(answer)} characters long; at most {allowed} are read"
    nesting, tower = depths(answer)
    if nesting > MAX_NESTING or tower > MAX_TOWER:
        gold_nesting, gold_tower = depths(gold)
        if nesting > max(MAX_NESTING, gold_nesting):
            return f"the answer has brackets {nesting} deep; at most {MAX_NESTING} are read"
        if tower > max(MAX_TOWER, gold_tower):
            return f"the answer has exponents {tower} deep; at most {MAX_TOWER} are computed"
    return None


def depths(text: str) -> tuple[int, int]:
    """Return how deep brackets stand in each other, and how deep exponents do. Linear."""
    stack: list[bool] = []  # of each open bracket, whether it opens an exponent
    nesting = tower = raised = 0
    for match in _BRACKET.finditer(text):
        token = match.group()
        if token == "^":
            tower = max(tower, raised + 1)
        elif token[0] == "^" or token in "{([":
            stack.append(token[0] == "^")
            raised += stack[-1]
            nesting, tower = max(nesting, len(stack)), max(tower, raised)
        elif token in "})]" and stack:
            raised -= stack.pop()
    return nesting, tower
