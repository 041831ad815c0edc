"""Families in which a program names one setting, file or table after the other that must be put right."""

from __future__ import annotations

import json
from random import Random

from tasks.assertions.files import FileNotExists
from tasks.assertions.tables import JsonFileValue
from tasks.families.office.parts import PEOPLE, SERVICES, TECHNICAL, TOPICS, json_text, rows, say
from tasks.families.turns.parts import Chain, Draft, TurnFamily, csv_table, equals, gone, page, swapped

# -- Tickets: one at a time, in prose; each asks for one value in one of several files --------------------------------

_KEYS = {"port": (2000, 9000), "workers": (2, 60), "timeout": (3, 90), "retries": (1, 9), "cache_mb": (16, 900)}

_TICKETS = (
    "Ticket {ticket}, from {person}:\nThe trouble is with {service}, whatever the others say. Set its {key} to "
    "{value}, "
    "please. ({other} stays at {wrong}.)",
    "#{ticket} {person} wrote: '{other} is fine at {wrong}, leave it. But in the settings of {service} the line {key} "
    "ought to read {value}.'",
    "Next in the queue is {ticket}.\n{person} asked for {wrong} first and took that back an hour later. What "
    "counts now: "
    "{key} becomes {value} in {service}; nothing for {other}.",
    "{ticket} | opened by {person} | was assigned to {other} by mistake (there {wrong} is right)\n"
    "wanted: {value} as {key} of {service}",
)


def _help_desk(rng: Random, level: int) -> Draft:
    names = rng.sample(SERVICES, 4 + level)
    values = {name: {key: rng.randint(*_KEYS[key]) for key in _KEYS} for name in names}
    files = {
        f"conf/{name}.ini": f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in of.items())
        for name, of in values.items()
    }
    chain = Chain("desk", "The help desk: shows the first ticket that is still open.", files)
    rules: list[str] = []
    steps = names[: 1 + level + rng.randint(0, 1)]
    for number, service in enumerate(steps, start=1):
        key = rng.choice(list(_KEYS))
        old = values[service][key]
        value = rng.choice([number for number in range(*_KEYS[key]) if number != old])
        told = page(
            rng,
            number,
            _TICKETS,
            {"service": service, "key": key, "value": value},
            ticket=rng.randint(1000, 9999),
            person=rng.choice(PEOPLE),
            other=rng.choice([name for name in names if name != service]),
            wrong=rng.randint(*_KEYS[key]),
        )
        chain.tell(told, *rules)
        path = f"conf/{service}.ini"
        new = swapped(files[path], f"\n{key} = {old}\n", f"\n{key} = {value}\n")
        chain.act(
            f"sed -i 's/^{told['key']} = .*/{told['key']} = {told['value']}/' conf/{told['service']}.ini",
            {path: new},
            equals(path, new),
        )
        rules = [f"value|{path}|{key}"]
    chain.tell("No open tickets.", *rules)
    intent = say(
        rng,
        "Please work through the help desk: ./desk shows the first open ticket, and the next one only when that is "
        "done. Each asks for one change in the files of conf/. Keep the form of the lines (key = value), change "
        "nothing else there, and stop when no ticket is open.",
        "There are tickets for you. Run ./desk to read the oldest; when what it asks for stands in conf/, ./desk shows "
        "the one after it. Go on until it has none left. Touch only the values that are asked for and write them as "
        "the files do, as in 'port = 80'.",
        "Do all tickets of ./desk, which gives out one at a time and looks into conf/ whether it is done. Every ticket "
        "is about one value of one file; the rest of conf/ must stay byte for byte.",
    )
    rest = tuple(f"conf/{name}.ini" for name in names if name not in steps)
    return Draft(intent, chain, rest, TECHNICAL)


# -- A linter that stops at the first finding and names a policy; what the policy wants stands in a document ----------

_FINDINGS = (
    "service.json: finding 1 of several\n  place: {key}\n  now: {old}\n  see {policy} in policies.md, not {decoy}",
    "[{decoy}] passed. [next] '{key}' (is {old}) breaks {policy} of policies.md. Checking stopped here.",
    "I stopped at {key}. It holds {old}; the rule for it is {policy}, although the name looks like {decoy}.",
    "violation\n    value {old} under {key}\n    policy={policy} (supersedes {decoy})",
)

_PARTS = ("listen", "upstream", "storage", "session", "limits", "backup")
_LEAVES = ("seconds", "entries", "clients", "attempts", "days", "megabytes")


def _config_lint(rng: Random, level: int) -> Draft:
    steps = 2 + level + rng.randint(0, 1)
    parts = rng.sample(_PARTS, 5)
    config = {part: {leaf: rng.randint(10, 99) for leaf in rng.sample(_LEAVES, 3)} for part in parts}
    places = [(part, leaf) for part in parts for leaf in config[part]]
    numbers = rng.sample(range(10, 99), len(places) + 3)
    wanted = {f"P{number}": rng.randint(100, 999) for number in numbers}
    lines = [
        say(
            rng,
            "{code}: the value must be {v}",
            "{code}: since the audit, {v}",
            "{code}: agreed on is {v}",
            code=code,
            v=v,
        )
        for code, v in wanted.items()
    ]
    rng.shuffle(lines)
    files = {"service.json": json_text(config), "policies.md": "# Policies\n\n" + "\n".join(lines) + "\n"}
    chain = Chain("lint", "Checks service.json and stops at the first finding.", files)
    rules: list[str] = []
    for number, (place, policy) in enumerate(zip(rng.sample(places, steps), wanted, strict=False), start=1):
        part, leaf = place
        decoy = list(wanted)[-1 - number % 3]
        told = page(
            rng,
            number,
            _FINDINGS,
            {"key": f"{part}.{leaf}", "policy": policy},
            old=config[part][leaf],
            decoy=decoy,
        )
        chain.tell(told, *rules)
        config[part][leaf] = wanted[policy]
        command = (
            f"v=$(sed -n 's/^{told['policy']}: .* //p' policies.md) && python3 -c \"import json; "
            f"d = json.load(open('service.json')); a, b = '{told['key']}'.split('.'); d[a][b] = $v; "
            "open('service.json', 'w').write(json.dumps(d, indent=2) + chr(10))\""
        )
        check = JsonFileValue(path="service.json", at=f"{part}.{leaf}", equals=wanted[policy])
        chain.act(command, {"service.json": json_text(config)}, check)
        rules = [f"json|service.json|{part}.{leaf}"]
    chain.tell("service.json: no findings.", *rules)
    chain.checks += [JsonFileValue(path="service.json", at="", equals=json.loads(json.dumps(config)))]
    intent = say(
        rng,
        "Make service.json pass ./lint. It stops at the first finding and names a policy; policies.md says which "
        "number a policy wants. Change only what it finds, number for number, until it finds nothing more.",
        "./lint checks service.json, one finding at a time: it says which place breaks which policy. The number to put "
        "there is in policies.md. Please go on until there are no findings; all other values stay.",
        "Our linter ./lint rejects service.json. Look up in policies.md what the policy it names asks for, put that "
        "number in, and lint again until it is clean. No other value of service.json may change.",
    )
    return Draft(intent, chain, ("policies.md",), TECHNICAL)


# -- A release gate: each run names one thing, of another kind each time, that still stands in the way ----------------

_GATE = {
    "version": (
        "The index already has {decoy}. This release is therefore {value}; VERSION must hold that and nothing else.",
        "VERSION is refused: not {decoy}, which somebody published on Monday; we agreed on {value} instead.",
        "Number of this release: {value} (the tag {decoy} was withdrawn). Put it into VERSION.",
    ),
    "remove": (
        "A file of build/ must not be shipped: delete {value}.txt, but keep {decoy}.txt, which the installer reads.",
        "build/ holds something private. It is not {decoy}.txt, it is {value}.txt: remove it.",
        "Legal asks that build/{value}.txt goes away. They withdrew what they said about {decoy}.txt.",
    ),
    "headline": (
        "CHANGES.md needs a first line. Marketing wants it to read: Release {value}\n(They dropped '{decoy}'.)",
        "The code name is no longer {decoy}. Put above all else in CHANGES.md this line: Release {value}",
        "No heading in CHANGES.md: its new first line is to be: Release {value}\nThat is all, no {decoy}.",
    ),
    "owner": (
        "OWNERS lacks whoever signs this release, which is not {decoy} but {value}. Add the name as the last line.",
        "{decoy} is away. Signing is up to {value}: append that name to OWNERS.",
        "Add a line to OWNERS: {value} (not {decoy}, who signed the last one).",
    ),
    "rename": (
        "Manual pages go by topic: docs/page.md is to be called docs/{value}.md, since {decoy} is taken elsewhere.",
        "docs/page.md has a poor name. The editors chose docs/{value}.md over {decoy}.",
        "Rename docs/page.md: they decided for docs/{value}.md (earlier drafts said {decoy}).",
    ),
}


def _release_gate(rng: Random, level: int) -> Draft:
    words = rng.sample(TOPICS, 12)
    version = f"{rng.randint(1, 9)}.{rng.randint(0, 20)}"
    files = {
        "VERSION": f"{version}.0\n",
        "CHANGES.md": f"* {words[0]} is faster\n* {words[1]} no longer fails\n",
        "OWNERS": "\n".join(rng.sample(PEOPLE, 2)) + "\n",
        "docs/page.md": f"# {words[2]}\n",
        **{f"build/{word}.txt": f"{word} {rng.randint(1, 99)}\n" for word in words[3:7]},
    }
    chain = Chain("gate", "The release gate: names the first thing that is in the way of this release.", files)
    rules: list[str] = []
    removed = ""
    for number, kind in enumerate(rng.sample(list(_GATE), 1 + level + rng.randint(0, 1)), start=1):
        people = [name for name in PEOPLE if name not in files["OWNERS"].split()]
        value, decoy = {
            "version": (f"{version}.{rng.randint(2, 40)}", f"{version}.1"),
            "remove": (words[3], words[4]),
            "headline": (words[7], words[8]),
            "owner": tuple(rng.sample(people, 2)),
            "rename": (words[9], words[10]),
        }[kind]
        told = page(rng, number, _GATE[kind], {"value": value}, decoy=decoy)
        chain.tell(told, *rules)
        got = told["value"]
        match kind:
            case "version":
                chain.act(f"echo {got} > VERSION", {"VERSION": f"{value}\n"}, equals("VERSION", value))
                rules = ["text|VERSION"]
            case "remove":
                removed = f"build/{value}.txt"
                chain.act(f"rm build/{got}.txt", {removed: None}, FileNotExists(path=removed))
                rules = ["text|build/"]
            case "headline":
                new = f"Release {value}\n{files['CHANGES.md']}"
                chain.act(f"sed -i '1i Release {got}' CHANGES.md", {"CHANGES.md": new}, equals("CHANGES.md", new))
                rules = ["text|CHANGES.md"]
            case "owner":
                new = f"{files['OWNERS']}{value}\n"
                chain.act(f"echo {got} >> OWNERS", {"OWNERS": new}, equals("OWNERS", new))
                rules = ["text|OWNERS"]
            case _:
                path, old = f"docs/{value}.md", files["docs/page.md"]
                changes = {path: old, "docs/page.md": None}
                chain.act(f"mv docs/page.md docs/{got}.md", changes, equals(path, old), gone("docs/page.md"))
                rules = ["text|docs/"]
    chain.tell("The gate is open.", *rules)
    intent = say(
        rng,
        "Get this release through ./gate. Each run names one thing that is in the way; put it right and run it again, "
        "until it says that the gate is open. Leave everything that it does not name as it is.",
        "./gate keeps us from releasing and tells only one reason at a time. Please clear them one after the other, as "
        "it asks, and do nothing beyond that.",
        "We want to release, but ./gate has objections. It shows the next one when the last is settled. Settle all of "
        "them exactly as it says; nothing else may change.",
    )
    rest = tuple(path for path in files if path.startswith("build/") and path != removed)
    untouched = tuple(path for path in ("VERSION", "CHANGES.md", "OWNERS", "docs/page.md") if path in _same(chain))
    return Draft(intent, chain, (*rest, *untouched), TECHNICAL)


def _same(chain: Chain) -> set[str]:
    """Return the paths that the oracle leaves as they were."""
    return {path for path, text in chain.files.items() if chain.now.get(path) == text}


# -- A migration of tables that stops at the first fault: a row, a column name, or an empty cell ----------------------

_FAULTS = {
    "drop": (
        "copying data/{table}.csv ... failed: id {id} is a test entry of {person} and must not travel. ({keep} "
        "is real.)",
        "{person} says about data/{table}.csv: take out the row with the id {id}, not {keep}.",
        "stopped in data/{table}.csv. Row {keep} looked odd but is in order; delete id {id}, it was never paid.",
    ),
    "header": (
        "data/{table}.csv has a column called {old}. The new system knows it as {id}; {keep} is something else there.",
        "unknown column {old} in data/{table}.csv. After a talk with {person}: its name is {id} now, and not {keep}.",
        "the header of data/{table}.csv does not fit: for {old} write {id} (an earlier plan had {keep}).",
    ),
}


def _migration(rng: Random, level: int) -> Draft:
    tables = rng.sample(TOPICS, 3 + level)
    files: dict[str, str] = {}
    for table in tables:
        numbers = rng.sample(range(100, 999), 4)
        records = [(number, rng.choice(PEOPLE), rng.randint(1, 500)) for number in numbers]
        files[f"data/{table}.csv"] = rows(("id", "name", "amount"), *records)
    chain = Chain("migrate", "Copies the tables of data/ to the new system and stops at the first fault.", files)
    rules: list[str] = []
    steps = tables[: 2 + level]
    for number, table in enumerate(steps, start=1):
        path = f"data/{table}.csv"
        kind = "drop" if number % 2 == (level % 2) else rng.choice(list(_FAULTS))
        lines = files[path].splitlines()
        if kind == "drop":
            ids = rng.sample([line.split(",")[0] for line in lines[1:]], 2)
            told = page(
                rng, number, _FAULTS[kind], {"table": table, "id": ids[0]}, keep=ids[1], person=rng.choice(PEOPLE)
            )
            new = "".join(f"{line}\n" for line in lines if not line.startswith(f"{ids[0]},"))
            command = f"sed -i '/^{told['id']},/d' data/{told['table']}.csv"
        else:
            old = rng.choice(("name", "amount"))
            fresh, keep = rng.sample(("client", "payer", "total", "sum_due", "holder", "balance"), 2)
            told = page(
                rng,
                number,
                _FAULTS[kind],
                {"table": table, "old": old, "id": fresh},
                keep=keep,
                person=rng.choice(PEOPLE),
            )
            new = files[path].replace(old, fresh, 1)
            command = f"sed -i '1s/{told['old']}/{told['id']}/' data/{told['table']}.csv"
        chain.tell(told, *rules)
        chain.act(command, {path: new}, csv_table(path, new))
        rules = [f"text|{path}"]
    chain.tell("All tables copied.", *rules)
    intent = say(
        rng,
        "./migrate copies the tables in data/, but stops at the first fault. Repair the table as it says, run "
        "it again, "
        "and so on until all tables are copied. Keep the order of rows and columns.",
        "Our tables in data/ must go to the new system. Run ./migrate: it reports one fault at a time, and what to do "
        "about it. Correct the CSV files until it runs through; rows that it does not mention stay as they are.",
        "Please get ./migrate to run to its end. What it complains about is in the CSV files of data/ and is to be "
        "fixed there, fault by fault, without touching anything else.",
    )
    return Draft(intent, chain, tuple(f"data/{table}.csv" for table in tables if table not in steps))


SETTINGS_FAMILIES = (
    TurnFamily(
        "help_desk",
        "work through tickets about settings",
        "./desk prints the next ticket (which file, which key, which value) once the last one is done",
        _help_desk,
    ),
    TurnFamily(
        "config_lint",
        "make a configuration pass a linter",
        "./lint prints the next place and its policy once the last finding is fixed; policies.md has the number",
        _config_lint,
    ),
    TurnFamily(
        "release_gate",
        "clear what stands in the way of a release",
        "./gate prints the next obstacle, of another kind each time, once the last is out of the way",
        _release_gate,
    ),
    TurnFamily(
        "migration",
        "repair tables until a migration runs through",
        "./migrate prints the next fault (which table, which row or column) once the last is repaired",
        _migration,
    ),
)
