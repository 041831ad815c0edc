"""Families that change a file in place: append a line, replace a word, drop lines."""

from __future__ import annotations

from random import Random

from tasks.families.draw import marked, names, pairs, some_text, text
from tasks.families.parts import Family, TaskParts, contains, exactly, kept
from tasks.families.words import WORDS


def _append(rng: Random) -> TaskParts:
    target, other = names(rng, 2)
    *lines, new = pairs(rng, rng.randint(3, 5))
    intent = rng.choice(("add the line {1} to {0}", "append the line {1} to {0}", "put the line {1} at the end of {0}"))
    return TaskParts(
        intent.format(target, new),
        {target: text(lines), other: some_text(rng)},
        (f"echo {new} >> {target}",),
        (contains(target, new), exactly(target, text([*lines, new])), kept(other)),
    )


def _replace(rng: Random) -> TaskParts:
    target, other = names(rng, 2)
    lines, _, old = marked(rng, rng.randint(3, 4), rng.randint(1, 2))
    used = set(" ".join(lines).split())
    new = rng.choice(WORDS)
    while new in used:
        new = rng.choice(WORDS)
    intent = rng.choice(("replace {0} with {1} in {2}", "change the word {0} to {1} in {2}"))
    return TaskParts(
        intent.format(old, new, target),
        {target: text(lines), other: some_text(rng)},
        (f"sed -i s/{old}/{new}/ {target}",),
        (contains(target, new), exactly(target, text(lines).replace(old, new)), kept(other)),
    )


def _drop(rng: Random) -> TaskParts:
    target, other = names(rng, 2)
    lines, hit, key = marked(rng, 4, rng.randint(1, 2))
    rest = [line for line, has_key in zip(lines, hit, strict=True) if not has_key]
    intent = rng.choice(("remove the lines with {0} from {1}", "drop every line that has {0} from {1}"))
    return TaskParts(
        intent.format(key, target),
        {target: text(lines), other: some_text(rng)},
        (f"sed -i /{key}/d {target}",),
        (exactly(target, text(rest)), kept(other)),
    )


EDITS_FAMILIES = (
    Family("append", "add a line to the end of a file", _append),
    Family("replace", "replace a word in a file", _replace),
    Family("drop", "remove the lines that hold a word", _drop),
)
