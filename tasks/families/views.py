"""Families that write something seen in one file into another: matching lines, sorted lines, counts, ends."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tasks.families.draw import marked, names, pairs, singles, some_text, text
from tasks.families.parts import Family, TaskParts, contains, exactly, exists, kept


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
