"""Replies of a model that writes tasks: good ones, and every kind of bad one with its reason to be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import yaml

from tasks.families import ALL_FAMILIES, generate
from tasks.sources import load_library
from tasks.synthesis import draft
from tasks.task import Task
from tasks.yaml import dump_task
from tests.agents.policies.fake_endpoint import said


def fenced(text: str) -> str:
    return f"Here is the task.\n\n```yaml\n{text}```\n"


DO = "sed -n 2p in.txt > out.txt"


def task(**changes: Any) -> str:
    """A sound draft, with changes; `None` leaves a key out."""
    content: dict[str, Any] = {
        "id": "draft",
        "intent": "Write the second line of in.txt into out.txt.",
        "workspace": {"files": {"in.txt": "one\ntwo\n"}},
        "assertions": [
            {"kind": "file_equals", "path": "out.txt", "equals": "two\n"},
            {"kind": "file_unchanged", "path": "in.txt"},
        ],
        "oracle": {"commands": [DO]},
        **changes,
    }
    kept = {key: value for key, value in content.items() if value is not None}
    return fenced(yaml.safe_dump(kept, sort_keys=False))


@dataclass(frozen=True, slots=True)
class Bad:
    """A reply that must be refused.

    Attributes:
        name: What is wrong with it.
        reason: Verdict.
        detail: Found in what is said about it.
        text: The reply.
        finish: How it ended.
        walls: Only a real sandbox takes it.
    """

    name: str
    reason: str
    detail: str
    text: str
    finish: str = "stop"
    walls: bool = False


def oracle(*commands: str, **budget: Any) -> str:
    return task(oracle={"commands": list(commands)}, **({"budget": budget} if budget else {}))


BOMB = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*{'a' if n == 0 else f'b{n - 1}'}, *a]\n" for n in range(30))
IMPORTS = "import sys; sys.path.insert(0, '.')\nimport out\nprint(1)\n"
LOADS = {"kind": "script", "name": "s", "files": {"c.py": IMPORTS}, "command": "python3 $GRADER/c.py"}
COMPILES = {"kind": "file_matches", "path": "out.txt", "pattern": "(((a{100}){100}){100}){100}"}
FRESH = LOADS | {"judged_in": {"sandbox": "fresh"}}
MANY = {f"f{n}": "" for n in range(300)} | {"in.txt": ""}
TURNS = {
    "schema_version": 2,
    "turns": 2,
    "oracle": {"commands": [{"run": "cat in.txt", "reads": {"word": r"one\n(\w+)"}}, DO]},
}
USER = {
    "schema_version": 2,
    "user": {"rules": [{"name": "which", "when": {"says": "which"}, "say": "The second."}]},
    "oracle": {"commands": [{"say": "which line?"}, DO]},
}
ONE_LINE = [{"kind": "line_count", "path": "out.txt", "equals": 1}]
ONE_LOOSE = [{"kind": "file_contains", "path": "out.txt", "contains": "two"}]
MOODY = [{"kind": "script", "name": "s", "command": "echo 0.$(date +%N)"}]

BAD = [
    # no draft
    Bad("prose", "reply", "0 blocks", "I would rather write a poem."),
    Bad("two blocks", "reply", "2 blocks", task() + task()),
    Bad("an open block", "reply", "does not end", task().rpartition("```")[0]),
    Bad("nested", "process", "nested", task(assertions=[LOADS | {"command": "( " * 30_000}])),
    Bad("cut", "reply", "cut at its cap", task(), "length"),
    Bad("withheld", "reply", "withheld", "", "content_filter"),
    # no YAML
    Bad("broken", "yaml", "not valid YAML", fenced("id: [draft\nintent: x\n")),
    Bad("a list", "yaml", "no mapping", fenced("- id: draft\n")),
    Bad("deep", "yaml", "not valid YAML", fenced("id: " + "[" * 30_000 + "\n")),
    Bad("alias bomb", "yaml", "anchors", fenced(BOMB)),
    Bad("object", "yaml", "tags", fenced('id: !!python/object/apply:os.system ["true"]\n')),
    # no task
    Bad("no assertions", "schema", "assertions", task(assertions=None)),
    Bad("unknown key", "schema", "unknown key", task(intention="x")),
    Bad("id that climbs", "schema", "no id", task(id="../../../etc/cron.d/job")),
    Bad("path that climbs", "schema", "leaves the workspace", task(workspace={"files": {"../../x": "y"}})),
    Bad("absolute path", "schema", "absolute", task(workspace={"files": {"/etc/passwd": "y"}})),
    Bad("link out", "schema", "leaves the workspace", task(workspace={"files": {"in.txt": {"symlink": "/etc"}}})),
    Bad("fixtures", "schema", "no folder", task(schema_version=2, workspace={"from": "/etc"})),
    # more than a draft may have
    Bad("long", "bounds", "characters", task(intent="x " * 40_000)),
    Bad("large", "bounds", "bytes", task(workspace={"files": {f"f{n}": {"size": 2**24} for n in range(150)}})),
    Bad("deep path", "bounds", "a path has", task(workspace={"files": {"a/" * 9000 + "b": "x"}})),
    Bad("many files", "bounds", "paths of", task(workspace={"files": MANY})),
    Bad("setup", "bounds", "setup", task(schema_version=2, setup=["touch /tmp/x"])),
    Bad("image", "bounds", "image", task(schema_version=2, image="evil/image")),
    Bad("services", "bounds", "services", task(schema_version=2, services=[{"name": "s", "command": "sleep 9"}])),
    Bad("template", "bounds", "parameters", task(schema_version=2, parameters={"n": 10**6, "values": {"a": ["b"]}})),
    Bad("side", "bounds", "split", task(split="held_out")),
    Bad("patience", "bounds", "seconds", task(budget={"command_seconds": 3000.0})),
    Bad("fresh", "bounds", "judged_in", task(schema_version=2, assertions=[FRESH])),
    Bad("excused", "bounds", "excuse", task(oracle={"commands": [DO], "may_survive": {"out.txt": "I say so"}})),
    # not proven
    Bad("no oracle", "oracle", "no oracle", task(oracle=None)),
    Bad("wrong oracle", "oracle", "after the oracle", oracle("cp in.txt out.txt")),
    Bad("oracle that hangs", "oracle", "out of time", oracle(DO, "sleep 60", command_seconds=0.3)),
    Bad("nothing to do", "noop", "doing nothing passes", task(assertions=[{"kind": "file_exists", "path": "in.txt"}])),
    Bad("moody", "repeat", "differently", task(assertions=MOODY)),
    Bad("loose", "mutant", "junk appended", task(assertions=ONE_LOOSE)),
    Bad("cheap", "cheat", "write '2'", task(intent="Write line 2 of in.txt into out.txt.", assertions=ONE_LINE)),
    Bad("turns for show", "turns", "turns: 2", task(**TURNS)),
    Bad("a user for show", "user", "without the user", task(**USER)),
    Bad("judge that loads", "judge", "own process", task(assertions=[LOADS])),
    # like another task
    Bad("copy of the example", "twin", "of the prompt", fenced(dump_task(draft.example()))),
    # what only walls keep
    Bad("pattern bomb", "process", "memory", task(assertions=[COMPILES]), walls=True),
    Bad("fork bomb", "oracle", "oracle command 1", oracle("f() { f | f & }; f; sleep 0.3; exit 7"), walls=True),
    Bad("flood", "oracle", "printed more", oracle(f"{DO}; yes"), walls=True),
    Bad("reaches out", "oracle", "refused", oracle(f"exec 3<>/dev/tcp/127.0.0.1/{{port}} && {DO}"), walls=True),
    Bad("writes outside", "oracle", "No such file", oracle(f"echo two > {{outside}} && {DO}"), walls=True),
    Bad("bomb in an archive", "mutant", "junk appended", task(
        assertions=[{"kind": "file_exists", "path": "a.gz"}, {"kind": "file_unchanged", "path": "in.txt"}],
        oracle={"commands": ["head -c 70M /dev/zero | gzip -1 > a.gz"]},
    ), walls=True),
]  # fmt: skip


# -- A plan: which draft comes when -----------------------------------------------------------------------------------

POOL, HELD_OUT = "library:vat-rates", "library:petty-cash"


@dataclass(frozen=True, slots=True)
class Planned:
    """One answer of the endpoint, and what must become of it."""

    name: str
    reply: dict[str, Any]
    verdict: str
    detail: str = ""


def good() -> Iterator[Planned]:
    """Sound drafts, no two alike: the library, those first that need no grader's command, then one of each family."""
    taken = {"dunning", "calculator", POOL.partition(":")[2], HELD_OUT.partition(":")[2]}  # calculator excuses itself
    for one in sorted(load_library(), key=lambda one: bool(one.judged_in)):
        if one.id not in taken:
            yield Planned(one.id, said(fenced(dump_task(one))), "kept")
    for family in ALL_FAMILIES:
        (one,) = generate(family, 1, seed=0)
        yield Planned(one.id, said(fenced(dump_task(one.model_copy(update={"family": None})))), "kept")


def hostile(**places: object) -> Iterator[Planned]:
    """Drafts that want out of their folder, or all of the machine; `places` are what they would like to reach."""
    for kind in BAD:
        if kind.walls:
            text = kind.text
            for name, value in places.items():
                text = text.replace("{" + name + "}", str(value))
            yield Planned(kind.name, said(text, kind.finish), kind.reason, kind.detail)


def bad() -> Iterator[Planned]:
    """Every other kind of bad draft; the twins of a draft follow the one that they are like."""
    library = {one.id: one for one in load_library()}
    for kind in BAD:
        if not kind.walls:
            yield Planned(kind.name, said(kind.text, kind.finish), kind.reason, kind.detail)
    for spec, where in ((POOL, "of pool"), (HELD_OUT, "of held_out"), ("library:archive-old-logs", "of the drafts")):
        one = library[spec.partition(":")[2]]
        for name, changed in ((f"a copy {where}", one), (f"like one {where}", reworded(one))):
            yield Planned(name, said(fenced(dump_task(changed))), "twin", where)


def reworded(one: Task) -> Task:
    return one.model_copy(update={"intent": f"Please: {one.intent} Thank you.", "id": "draft"})


def planned(n: int) -> list[Planned]:
    """A good draft, then three bad ones, and so on; the bad ones again when all have been."""
    sound, broken = good(), cycle(bad())
    return [next(sound) if number % 4 == 0 else next(broken) for number in range(n)]


def script(plan: Sequence[Planned], seed: int = 0) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An endpoint that answers by the plan, in whatever order it is asked."""
    tables = draft.load_table(draft.PERSONAS, draft.Personas), draft.load_table(draft.SKILLS, draft.Skills)
    every = draft.orders(tables[0].personas, tables[1].skills, seed)
    answers = {order.seed: item.reply for order, item in zip(every, plan, strict=False)}
    return lambda body: answers[body["seed"]]


LITTLE: list[tuple[str, str, list[str]]] = [
    ("sort the names in in.txt into out.txt", "sort in.txt", ["ada", "leo", "mia"]),
    ("what does the file look like upside down", "tac in.txt", ["ada", "leo", "mia"]),
    ("I need capital letters only", "tr a-z A-Z < in.txt", ["MIA", "LEO", "ADA"]),
    ("an x in front of every line, please", "sed s/^/x/ in.txt", ["xmia", "xleo", "xada"]),
]


def few() -> list[Planned]:
    """Four small good drafts, a bad one after each."""
    found = []
    broken = [item for item in bad() if item.name in ("prose", "loose", "copy of the example", "alias bomb")]
    for (intent, command, lines), wrong in zip(LITTLE, broken, strict=True):
        text = task(
            intent=intent,
            workspace={"files": {"in.txt": "mia\nleo\nada\n", "note.txt": intent}},
            assertions=[{"kind": "file_equals", "path": "out.txt", "equals": "\n".join([*lines, ""])}],
            oracle={"commands": [f"{command} > out.txt"]},
        )
        found += [Planned(intent, said(text), "kept"), wrong]
    return found
