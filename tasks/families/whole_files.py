"""Families about whole files: copy, rename, delete, write, join."""

from __future__ import annotations

from random import Random

from tasks.families.draw import names, pairs, some_text
from tasks.families.parts import Family, TaskParts, contains, exactly, gone, kept


def _copy(rng: Random) -> TaskParts:
    source, target, other = names(rng, 3)
    body = some_text(rng)
    intent = rng.choice(("copy {0} to {1}", "make a copy of {0} named {1}", "duplicate {0} as {1}"))
    return TaskParts(
        intent.format(source, target),
        {source: body, other: some_text(rng)},
        (f"cp {source} {target}",),
        (exactly(target, body), kept(source), kept(other)),
    )


def _rename(rng: Random) -> TaskParts:
    source, target, other = names(rng, 3)
    body = some_text(rng)
    intent = rng.choice(("rename {0} to {1}", "change the name of {0} to {1}", "give {0} the new name {1}"))
    return TaskParts(
        intent.format(source, target),
        {source: body, other: some_text(rng)},
        (f"mv {source} {target}",),
        (exactly(target, body), gone(source), kept(other)),
    )


def _delete(rng: Random) -> TaskParts:
    victim, *others = names(rng, 3)
    intent = rng.choice(("delete {0}", "remove the file {0}", "get rid of {0}"))
    return TaskParts(
        intent.format(victim),
        {name: some_text(rng) for name in (victim, *others)},
        (f"rm {victim}",),
        (gone(victim), *(kept(name) for name in others)),
    )


def _write(rng: Random) -> TaskParts:
    target, other = names(rng, 2)
    (line,) = pairs(rng, 1)
    intent = rng.choice(("create {0} with the line {1}", "write the line {1} to the new file {0}"))
    return TaskParts(
        intent.format(target, line),
        {other: some_text(rng)},
        (f"echo {line} > {target}",),
        (exactly(target, line), contains(target, *line.split()), kept(other)),
    )


def _join(rng: Random) -> TaskParts:
    first, second, target = names(rng, 3)
    a, b = some_text(rng, 2, 3), some_text(rng, 2, 3)
    intent = rng.choice(("join {0} and {1} into {2}", "put {0} followed by {1} into {2}"))
    return TaskParts(
        intent.format(first, second, target),
        {first: a, second: b},
        (f"cat {first} {second} > {target}",),
        (exactly(target, a + b), kept(first), kept(second)),
    )


WHOLE_FILES_FAMILIES = (
    Family("copy", "copy a file and keep the source", _copy),
    Family("rename", "give a file another name", _rename),
    Family("delete", "delete one file and no other", _delete),
    Family("write", "create a file that holds one given line", _write),
    Family("join", "put two files one after the other into a third", _join),
)
