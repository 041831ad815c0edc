"""Tasks that need turns in the words of the quickstart policy: `./ask` says one short request after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random

from tasks.families.quickstart import EDITS_FAMILIES, FILE_NAMES, WHOLE_FILES_FAMILIES, WORDS, TaskParts
from tasks.families.turns.parts import Chain, Draft, TurnFamily, equals, gone, page

PROGRAM = "ask"
DONE = "done"
"""What the program says when nothing is left to do."""

INTENTS = (
    "do what ./ask says until it says done",
    "run ./ask and do each thing that it says until it says done",
    "do all that ./ask wants one thing at a time until it says done",
)

_ACTS = tuple(
    family
    for family in (*WHOLE_FILES_FAMILIES, *EDITS_FAMILIES)
    if family.name in ("copy", "rename", "delete", "write", "append")
)
_NAMES = frozenset(FILE_NAMES)
_VOCABULARY = _NAMES | frozenset(WORDS)


@dataclass(frozen=True, slots=True)
class Request:
    """One request of `./ask`.

    Attributes:
        family: Of the quickstart families, the one that it is like.
        parts: The task that it would be alone.
        after: What stands at the paths that it names when it is done; None: nothing.
    """

    family: str
    parts: TaskParts
    after: dict[str, str | None]

    @property
    def command(self) -> str:
        """How it is done."""
        return self.parts.commands[0]


def requests(rng: Random, count: int) -> list[Request]:
    """Draw so many requests, of which no two name the same file."""
    drawn: list[Request] = []
    taken: set[str] = set()
    while len(drawn) < count:
        family = rng.choice(_ACTS)
        parts = family.make(rng)
        words = parts.commands[0].split()
        paths = {word for word in words if word in _NAMES} | set(parts.files)
        if not paths & taken and family.name not in {request.family for request in drawn}:
            taken |= paths
            drawn.append(Request(family.name, parts, _after(words, parts.files)))
    return drawn


def _after(words: list[str], files: dict[str, str]) -> dict[str, str | None]:
    """Return what stands at the paths of a command after it."""
    program, *rest = words
    match program:
        case "cp":
            return {rest[0]: files[rest[0]], rest[1]: files[rest[0]]}
        case "mv":
            return {rest[0]: None, rest[1]: files[rest[0]]}
        case "rm":
            return {rest[0]: None}
        case _:  # echo WORDS > FILE, or >>
            target, line = rest[-1], " ".join(rest[:-2])
            return {target: (files[target] if rest[-2] == ">>" else "") + line + "\n"}


def _asked(count: int, rng: Random, level: int) -> Draft:
    drawn = requests(rng, count)
    files = {path: text for request in drawn for path, text in request.parts.files.items()}
    chain = Chain(PROGRAM, "Says what is to be done next.", files)
    rules: list[str] = []
    for number, request in enumerate(drawn, start=1):
        words = [word for word in dict.fromkeys(request.command.split()) if word in _VOCABULARY]
        names = {word: f"word_{index}" for index, word in enumerate(words)}
        template = " ".join(f"{{{names[word]}}}" if word in names else word for word in request.parts.intent.split())
        told = page(rng, number, [template], {name: word for word, name in names.items()})
        chain.tell(told, *rules)
        command = " ".join(told[names[word]] if word in names else word for word in request.command.split())
        changed = {path: text for path, text in request.after.items() if request.parts.files.get(path) != text}
        checks = [equals(path, text) if text is not None else gone(path) for path, text in changed.items()]
        chain.act(command, request.after, *checks)
        rules = [f"text|{path}" for path in request.after]
    chain.tell(DONE, *rules)
    untouched = tuple(path for path, text in files.items() if chain.now.get(path) == text)
    return Draft(rng.choice(INTENTS), chain, untouched)


SMALL_FAMILIES = (
    TurnFamily(
        "ask_twice",
        "do two things, the second asked for after the first",
        "./ask prints the next short request once the last is done",
        partial(_asked, 2),
    ),
    TurnFamily(
        "ask_thrice",
        "do three things, each asked for after the one before",
        "./ask prints the next of three short requests once the last is done",
        partial(_asked, 3),
    ),
)
