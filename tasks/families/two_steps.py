"""Families that need two commands, one after the other: here it matters which turn earned what."""

from __future__ import annotations

from random import Random

from tasks.families.draw import marked, names, pairs, singles, some_text, text
from tasks.families.parts import Family, TaskParts, contains, exactly, gone, kept
from tasks.families.words import FOLDERS


def _stow(rng: Random) -> TaskParts:
    moved, other = names(rng, 2)
    folder = rng.choice(FOLDERS)
    body = some_text(rng)
    intent = rng.choice(("make the folder {1} and move {0} into it", "move {0} into a new folder named {1}"))
    return TaskParts(
        intent.format(moved, folder),
        {moved: body, other: some_text(rng)},
        (f"mkdir -p {folder}", f"mv {moved} {folder}"),
        (exactly(f"{folder}/{moved}", body), gone(moved), kept(other)),
    )


def _backup_append(rng: Random) -> TaskParts:
    source, target = names(rng, 2)
    *lines, new = pairs(rng, rng.randint(3, 4))
    intent = rng.choice(
        ("back up {0} as {1} and then add the line {2} to {0}", "copy {0} to {1} then append the line {2} to {0}")
    )
    return TaskParts(
        intent.format(source, target, new),
        {source: text(lines)},
        (f"cp {source} {target}", f"echo {new} >> {source}"),
        (exactly(target, text(lines)), contains(source, new), exactly(source, text([*lines, new]))),
    )


def _rename_append(rng: Random) -> TaskParts:
    source, target = names(rng, 2)
    *lines, new = pairs(rng, rng.randint(3, 4))
    intent = rng.choice(
        ("rename {0} to {1} and then add the line {2} to {1}", "rename {0} to {1} then append the line {2} to {1}")
    )
    return TaskParts(
        intent.format(source, target, new),
        {source: text(lines)},
        (f"mv {source} {target}", f"echo {new} >> {target}"),
        (contains(target, *lines), exactly(target, text([*lines, new])), gone(source)),
    )


def _sort_remove(rng: Random) -> TaskParts:
    source, target = names(rng, 2)
    lines = singles(rng, rng.randint(3, 5))
    intent = rng.choice(("sort {0} into {1} and then delete {0}", "write {0} sorted to {1} then remove {0}"))
    return TaskParts(
        intent.format(source, target),
        {source: text(lines)},
        (f"sort {source} > {target}", f"rm {source}"),
        (exactly(target, text(sorted(lines))), gone(source)),
    )


def _find_count(rng: Random) -> TaskParts:
    source, target, number = names(rng, 3)
    lines, hit, key = marked(rng, 4, rng.randint(1, 3))
    found = [line for line, has_key in zip(lines, hit, strict=True) if has_key]
    intent = rng.choice(
        (
            "save the lines of {1} with {0} in {2} and count them into {3}",
            "find {0} in {1} and write those lines to {2} and their number to {3}",
        )
    )
    return TaskParts(
        intent.format(key, source, target, number),
        {source: text(lines)},
        (f"grep {key} {source} > {target}", f"wc -l < {target} > {number}"),
        (exactly(target, text(found)), exactly(number, str(len(found))), kept(source)),
    )


TWO_STEPS_FAMILIES = (
    Family("stow", "make a folder and move a file into it", _stow),
    Family("backup_append", "copy a file, then add a line to the original", _backup_append),
    Family("rename_append", "rename a file, then add a line to it", _rename_append),
    Family("sort_remove", "write the sorted lines to another file, then delete the first", _sort_remove),
    Family("find_count", "write the matching lines to one file and their number to another", _find_count),
)
