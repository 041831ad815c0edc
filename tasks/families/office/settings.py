"""Families that work on settings: YAML, INI, environment files."""

from __future__ import annotations

from random import Random
from typing import Any

from tasks.assertions.values import JsonFileValue, YamlFileValue
from tasks.families.office.parts import (
    Draft,
    OfficeFamily,
    contains,
    equals,
    gone,
    json_text,
    kept,
    python,
    rows,
    write,
)
from tasks.families.office.pools import CITIES, SERVICES, TECHNICAL, say, topics


def _edit_yaml(rng: Random, level: int) -> Draft:
    names = rng.sample(SERVICES, 1 + level)
    copies = [rng.randint(1, 4) for _ in names]
    tags = [f"{rng.randint(1, 3)}.{rng.randint(0, 9)}" for _ in names]
    new = f"4.{rng.randint(0, 9)}"
    at = rng.randrange(len(names))
    wanted = copies[at] + rng.randint(1, 4)
    path = rng.choice(("deploy/services.yaml", "stack.yaml", "ops/cluster.yaml"))

    def render(tags: list[str], copies: list[int]) -> str:
        text = "# Ask before you scale above 8.\nservices:\n"
        for name, tag, number in zip(names, tags, copies, strict=True):
            text += f"  {name}:\n    image: registry/{name}:{tag}\n    replicas: {number}  # {name} only\n"
        return text + "zone: north\n"

    before = render(tags, copies)
    tags[at], copies[at] = new, wanted
    after = render(tags, copies)
    name = names[at]
    intent = say(
        rng,
        "In {path}, let the service {name} use the image registry/{name}:{new} and run {wanted} replicas. Nothing "
        "else may change, and the comments must stay.",
        "Please update {name} in {path}: version {new} of its image and {wanted} replicas. Keep comments and the "
        "other services exactly as they are.",
        "Scale {name} to {wanted} replicas and set its image tag to {new}, in {path}. I compare the files afterwards: "
        "only these two values may differ.",
        path=path,
        name=name,
        new=new,
        wanted=wanted,
    )
    edits = [
        f"sed -i 's|image: registry/{name}:.*|image: registry/{name}:{new}|' {path}",
        f"sed -i '/^  {name}:/,/replicas/ s/replicas: [0-9]*/replicas: {wanted}/' {path}",
    ]
    return Draft(
        intent,
        {path: before},
        [
            YamlFileValue(path=path, at=f"services.{name}.replicas", equals=wanted),
            YamlFileValue(path=path, at=f"services.{name}.image", equals=f"registry/{name}:{new}"),
            contains(path, "# Ask before you scale above 8.", f"# {name} only"),
            equals(path, after),
        ],
        edits,
        [write(path, after)],
        TECHNICAL,
    )


def _migrate(rng: Random, level: int) -> Draft:
    service = rng.choice(SERVICES)
    keys = topics(rng, 4 + level)
    values = [rng.choice((str(rng.randint(2, 900)), rng.choice(CITIES), f"/var/{rng.choice(SERVICES)}")) for _ in keys]
    new = [f"{key}{rng.choice(('_name', '_value', '_path'))}" for key in keys]
    dropped = keys[-1] if level > 1 else ""
    old = f"[{service}]\n" + "".join(
        f"{key}{' = ' if level > 1 and i % 2 else '='}{value}\n" + ("; set by hand\n" if level == 3 and i == 1 else "")
        for i, (key, value) in enumerate(zip(keys, values, strict=True))
    )
    table = [(key, "-" if key == dropped else name) for key, name in zip(keys, new, strict=True)]
    rng.shuffle(table)
    data: dict[str, Any] = {name: value for key, name, value in zip(keys, new, values, strict=True) if key != dropped}
    notes = " Keys whose new name is - are dropped." if dropped else ""
    intent = say(
        rng,
        "{service}.ini must move to the new format. Write {service}.json, one flat object: the keys under their new "
        "names from renames.csv (old,new), the values as text.{notes} Then delete {service}.ini.",
        "Migrate the configuration {service}.ini to {service}.json (a flat JSON object with text values). renames.csv "
        "tells what each key is called now.{notes} The .ini file is to be removed afterwards.",
        "Version 2 reads {service}.json instead of {service}.ini. Convert it: each key gets the name in the column "
        "new of renames.csv, each value stays the same text.{notes} Remove {service}.ini once that is done.",
        service=service,
        notes=notes,
    )
    code = (
        f'import configparser, csv, json; c=configparser.ConfigParser(); c.read("{service}.ini"); '
        'm={r["old"]: r["new"] for r in csv.DictReader(open("renames.csv"))}; '
        f'json.dump({{m[k]: v for k, v in c["{service}"].items() if m[k] != "-"}}, '
        f'open("{service}.json", "w"), indent=2)'
    )
    first = next(iter(data))
    return Draft(
        intent,
        {f"{service}.ini": old, "renames.csv": rows(("old", "new"), *table)},
        [
            JsonFileValue(path=f"{service}.json", at="$", equals=data, name="all keys"),
            JsonFileValue(path=f"{service}.json", at=first, equals=data[first]),
            JsonFileValue(path=f"{service}.json", at="$", length=len(data), name="number of keys"),
            gone(f"{service}.ini"),
            *kept("renames.csv"),
        ],
        [python(code), f"rm {service}.ini"],
        [write(f"{service}.json", json_text(data)), f"rm {service}.ini"],
        TECHNICAL,
    )


def _sync_env(rng: Random, level: int) -> Draft:
    keys = [topic.upper() for topic in topics(rng, 5 + level)]
    example = [(key, str(rng.randint(1, 99))) for key in keys]
    rng.shuffle(example)
    own = [(key, rng.choice(CITIES).lower()) for key in rng.sample(keys, 2 + level)]
    have = {key for key, _ in own}
    added = [(key, value) for key, value in example if key not in have]
    if level == 3:  # a key whose name is the beginning of another one
        own.append((f"{added[0][0]}_URL", "http://localhost"))
    head = "# local values, not for others\n" if level > 1 else ""
    before = head + "".join(f"{key}={value}\n" for key, value in own)
    after = before + "".join(f"{key}={value}\n" for key, value in added)
    names = "".join(f"{key}\n" for key, _ in added)
    files = {".env": before, ".env.example": "# copy to .env\n" + "".join(f"{k}={v}\n" for k, v in example)}
    intent = say(
        rng,
        "My .env is out of date. Append each variable that .env.example has and .env lacks, with the value of the "
        "example, in the order of the example. What .env has stays as it is. Write the names you added into "
        "added.txt, one a line.",
        "Bring .env up to date with .env.example: variables that are missing are added at the end (same order, same "
        "value as in the example), present ones keep their own value. added.txt lists the new names in that order.",
        "Compare .env with .env.example and add the missing lines to the end of .env, as they stand in the example. "
        "Comments need not be copied. List the added names in added.txt, one per line, in order.",
    )
    find = "awk -F= '/^#/ {next} NR == FNR {h[$1]; next} !($1 in h)' .env .env.example > new.tmp"
    return Draft(
        intent,
        files,
        [
            contains(".env", *(f"{key}={value}" for key, value in added)),
            equals(".env", after),
            equals("added.txt", names),
            *kept(".env.example"),
        ],
        [find, "cut -d= -f1 new.tmp > added.txt", "cat new.tmp >> .env && rm new.tmp"],
        [
            "cat >> .env <<'EOF'\n" + "\n".join(f"{key}={value}" for key, value in added) + "\nEOF",
            write("added.txt", names),
        ],
        TECHNICAL,
    )


SETTINGS_FAMILIES = (
    OfficeFamily("edit_yaml", "change two values of a YAML file and keep its comments", _edit_yaml),
    OfficeFamily("migrate_config", "move settings from INI to JSON with new names", _migrate),
    OfficeFamily("sync_env", "add the variables that an environment file lacks", _sync_env),
)
