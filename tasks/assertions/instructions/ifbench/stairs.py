"""What the published check of indented lines is left with, in linear time."""

from __future__ import annotations

from collections import Counter


def indents_after_removal(lines: list[str]) -> list[int]:
    """Return the indents, in spaces, of the lines that are left after the published removal of blank ones.

    The evaluator walks over a list while it removes from it. So the line after each removal is never looked at; and
    what is removed is the first line equal to the blank one at hand, which may be one that was passed over before.
    """
    kept: list[str] = []
    removed: Counter[str] = Counter()  # how many of the first equal lines are to be dropped in the end
    passed: Counter[str] = Counter()  # equal blank lines that are kept so far and not marked for removal
    skip = False
    for line in lines:
        if skip or line.strip():
            skip = False
            kept.append(line)
            if not line.strip():
                passed[line] += 1
            continue
        if passed[line]:  # an earlier one goes, this one stays
            removed[line] += 1
            kept.append(line)
        skip = True
    left: list[int] = []
    for line in kept:
        if removed[line]:
            removed[line] -= 1
        else:
            left.append(len(line) - len(line.lstrip(" ")))
    return left
