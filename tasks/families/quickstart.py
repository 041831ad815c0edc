"""The quickstart families: tiny tasks of a closed vocabulary that a small policy can learn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

# -- The closed vocabulary of the generated tasks ---------------------------------------------------------------------
# A policy of a million parameters can only work with words it has seen often, so every name and every content word of
# the procedural families comes from these lists. All are lower-case ASCII. Within `FILE_NAMES + FOLDERS` and within
# `WORDS` no entry is a prefix of another, and no content word is part of another: the order of `ls` and `sort` is then
# the same in every locale, and `grep red` finds the word and nothing else.

_TXT = """notes letter recipe poem story speech outline summary draft quote memo essay address answer lesson script
    riddle motto verse fable theme topic label legend"""
_MD = """readme guide manual agenda plan review minutes journal roadmap tutorial chapter report proposal diary handbook
    glossary itinerary brochure charter thesis preface digest leaflet rulebook"""
_CSV = """budget ledger invoice prices stock orders survey grades scores contacts members inventory expenses payroll
    schedule results sales roster census receipts cities colours parts rates"""
_LOG = """server access audit build install traffic kernel errors events startup session network mailer router sensor
    worker crawler monitor deploy uptime battery engine turbine modem"""
_FOLDERS = """archive vault shelf drawer locker cabinet attic cellar depot library garage storage closet basket bucket
    crate pantry hangar warehouse satchel"""
_WORDS = """red blue green amber violet white black coral indigo scarlet
    fox otter heron lynx badger zebra camel eagle tiger panda
    apple mango plum grape lemon cherry peach olive fig quince
    oslo lima cairo paris delhi tokyo quito dakar turin zagreb
    anna boris clara david elena frank greta hugo ivan judith
    iron silver copper marble cotton velvet linen granite
    rain snow storm cloud breeze thunder"""

FILE_NAMES: tuple[str, ...] = tuple(
    f"{stem}.{extension}"
    for extension, stems in (("txt", _TXT), ("md", _MD), ("csv", _CSV), ("log", _LOG))
    for stem in stems.split()
)
"""Whole file names; each stem has one extension, so a name is one word for a tokenizer that wants it so."""

FOLDERS: tuple[str, ...] = tuple(_FOLDERS.split())
"""Folder names."""

WORDS: tuple[str, ...] = tuple(_WORDS.split())
"""Words that stand in files: colours, animals, fruit, cities, first names, materials, weather."""

NUMBERS: tuple[str, ...] = tuple("123456789")
"""Small numbers as they stand in commands."""

ALL_WORDS: tuple[str, ...] = FILE_NAMES + FOLDERS + WORDS + NUMBERS
"""Everything a tokenizer should hold as one token each, with and without a leading space."""


# -- Small draws that the families share: names, lines, texts ---------------------------------------------------------


def names(rng: Random, count: int) -> list[str]:
    """Return `count` different file names."""
    return rng.sample(FILE_NAMES, count)


def pairs(rng: Random, count: int) -> list[str]:
    """Return `count` lines of two words; no word stands twice in them."""
    drawn = rng.sample(WORDS, 2 * count)
    return [f"{drawn[2 * i]} {drawn[2 * i + 1]}" for i in range(count)]


def singles(rng: Random, count: int) -> list[str]:
    """Return `count` lines of one word, all different."""
    return rng.sample(WORDS, count)


def text(lines: list[str]) -> str:
    """Return the lines as a text file holds them."""
    return "\n".join(lines) + "\n"


def some_text(rng: Random, least: int = 2, most: int = 4) -> str:
    """Return a file's text of `least` to `most` lines of two words."""
    return text(pairs(rng, rng.randint(least, most)))


def marked(rng: Random, lines: int, hits: int) -> tuple[list[str], list[bool], str]:
    """Draw lines of which some hold a key word.

    Returns:
        The lines (two words each), for each whether it holds the key word, and the key word.
    """
    key, *drawn = rng.sample(WORDS, 2 * lines + 1)
    chosen = set(rng.sample(range(lines), hits))
    out = []
    for i in range(lines):
        first, second = drawn[2 * i], drawn[2 * i + 1]
        if i in chosen:
            first, second = rng.choice(((key, second), (first, key)))
        out.append(f"{first} {second}")
    return out, [i in chosen for i in range(lines)], key


# -- What a family makes: the parts of a task before it becomes one, and short constructors for its checks ------------

CheckKind = Literal["file_exists", "file_not_exists", "file_contains", "file_matches", "file_unchanged"]


@dataclass(frozen=True, slots=True)
class Check:
    """One assertion to be: its kind, the path it looks at, and the texts or the pattern that it wants there."""

    kind: CheckKind
    path: str
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskParts:
    """One generated task, as plain values.

    Attributes:
        intent: What the agent is asked to do: one lower-case sentence that names every file it needs.
        files: Path to text, what the workspace holds at the start.
        commands: The oracle: one short line a turn.
        checks: What must hold at the end. At least one fails at the start, all hold after the oracle.
    """

    intent: str
    files: dict[str, str]
    commands: tuple[str, ...]
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A procedural family: tasks that ask for the same thing with other names, words and contents.

    Attributes:
        name: How sources, ids and reports call it.
        summary: What must be done, in a few words.
        make: Draws one task; takes all its randomness from the generator given.
    """

    name: str
    summary: str
    make: Callable[[Random], TaskParts]


def exists(path: str) -> Check:
    """A file stands at `path`."""
    return Check("file_exists", path)


def gone(path: str) -> Check:
    """Nothing stands at `path`."""
    return Check("file_not_exists", path)


def kept(path: str) -> Check:
    """The file at `path` is as it was at the start."""
    return Check("file_unchanged", path)


def contains(path: str, *texts: str) -> Check:
    """The file at `path` holds each of `texts`."""
    return Check("file_contains", path, texts)


def exactly(path: str, text: str) -> Check:
    """The file at `path` holds `text` and nothing else (the last newline may be missing)."""
    lines = [re.escape(line).replace("\\ ", " ") for line in text.removesuffix("\n").split("\n")]
    return Check("file_matches", path, (r"\A" + r"\n".join(lines) + r"\n?\Z",))


# -- Families about whole files: copy, rename, delete, write, join ----------------------------------------------------


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


# -- Families that change a file in place: append a line, replace a word, drop lines ----------------------------------


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


# -- Families that write something seen in one file into another: matching lines, sorted lines, counts, ends ----------


def _find(rng: Random) -> TaskParts:
    source, target = names(rng, 2)
    lines, hit, key = marked(rng, 4, rng.randint(1, 3))
    found = [line for line, has_key in zip(lines, hit, strict=True) if has_key]
    intent = rng.choice(("save the lines of {1} with {0} in {2}", "find {0} in {1} and write those lines to {2}"))
    return TaskParts(
        intent.format(key, source, target),
        {source: text(lines)},
        (f"grep {key} {source} > {target}",),
        (contains(target, key), exactly(target, text(found)), kept(source)),
    )


def _count(rng: Random) -> TaskParts:
    source, target, other = names(rng, 3)
    drawn = pairs(rng, rng.randint(2, 6))
    # Two to nine lines, so that no constant is often right; from a generator of their own, so that the tasks that come
    # after this one in a mix are what they were when it was two to six.
    own = Random(" ".join(drawn))
    lines = pairs(own, own.randint(2, 9))
    intent = rng.choice(("count the lines of {0} into {1}", "write the number of lines in {0} to {1}"))
    return TaskParts(
        intent.format(source, target),
        {source: text(lines), other: some_text(rng)},
        (f"wc -l < {source} > {target}",),
        (exists(target), exactly(target, str(len(lines))), kept(source)),
    )


def _head(rng: Random) -> TaskParts:
    return _end(rng, "head", ("write the first {0} lines of {1} to {2}", "save the top {0} lines of {1} in {2}"))


def _tail(rng: Random) -> TaskParts:
    return _end(rng, "tail", ("write the last {0} lines of {1} to {2}", "save the bottom {0} lines of {1} in {2}"))


def _end(rng: Random, program: str, intents: tuple[str, ...]) -> TaskParts:
    source, target = names(rng, 2)
    count = rng.randint(2, 3)
    lines = pairs(rng, rng.randint(count + 2, 6))
    wanted = lines[:count] if program == "head" else lines[-count:]
    return TaskParts(
        rng.choice(intents).format(count, source, target),
        {source: text(lines)},
        (f"{program} -n {count} {source} > {target}",),
        (exists(target), exactly(target, text(wanted)), kept(source)),
    )


def _backwards(rng: Random) -> TaskParts:
    lines = singles(rng, rng.randint(3, 5))
    while lines == sorted(lines, reverse=True):
        rng.shuffle(lines)
    intents = ("sort {0} from z to a into {1}", "write the lines of {0} in descending order to {1}")
    return _filtered(rng, lines, intents, "sort -r", lambda lines: sorted(lines, reverse=True))


def _unique(rng: Random) -> TaskParts:
    lines = singles(rng, rng.randint(2, 3))
    lines += rng.sample(lines, rng.randint(1, 2))
    rng.shuffle(lines)
    intents = ("sort {0} without duplicates into {1}", "write the sorted lines of {0} to {1} each only once")
    return _filtered(rng, lines, intents, "sort -u", lambda lines: sorted(set(lines)))


def _upper(rng: Random) -> TaskParts:
    intents = ("write {0} in capitals to {1}", "save {0} in upper case as {1}")
    lines = pairs(rng, rng.randint(2, 3))
    return _filtered(rng, lines, intents, "tr a-z A-Z <", lambda lines: [line.upper() for line in lines])


def _filtered(
    rng: Random, lines: list[str], intents: tuple[str, ...], program: str, see: Callable[[list[str]], list[str]]
) -> TaskParts:
    source, target = names(rng, 2)
    return TaskParts(
        rng.choice(intents).format(source, target),
        {source: text(lines)},
        (f"{program} {source} > {target}",),
        (exists(target), exactly(target, text(see(lines))), kept(source)),
    )


VIEWS_FAMILIES = (
    Family("find", "write the lines that hold a word to another file", _find),
    Family("count", "write the number of lines to another file", _count),
    Family("head", "write the first lines to another file", _head),
    Family("tail", "write the last lines to another file", _tail),
    Family("backwards", "write the lines sorted in descending order to another file", _backwards),
    Family("unique", "write the sorted lines without duplicates to another file", _unique),
    Family("upper", "write the text in capitals to another file", _upper),
)


# -- Families that need two commands, one after the other: here it matters which turn earned what ---------------------


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
