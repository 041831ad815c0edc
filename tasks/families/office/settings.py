"""Families on settings and records: JSON, YAML, INI, environment files."""

from __future__ import annotations

from random import Random
from typing import Any

from tasks.assertions.tables import CsvRows, JsonFileValue, YamlFileValue
from tasks.families.office.parts import (
    CITIES,
    PEOPLE,
    SERVICES,
    TECHNICAL,
    Draft,
    OfficeFamily,
    contains,
    csv_table,
    equals,
    gone,
    json_text,
    kept,
    python,
    python_lines,
    rows,
    say,
    topics,
    write,
)

# -- Families that work on JSON files ---------------------------------------------------------------------------------


def _edit_json(rng: Random, level: int) -> Draft:
    service, name = rng.choice(SERVICES), rng.choice(topics(rng, 3))
    ports = rng.sample(range(3000, 9999), 3)
    data: dict[str, Any] = {
        "name": name,
        "server": {"host": "localhost", "port": ports[0], "timeout": rng.choice((5, 10, 20))},
        "admin": {"host": "localhost", "port": ports[1], "enabled": True},
        "features": sorted(topics(rng, 3)),
    }
    path = f"config/{service}.json"
    text = json_text(data)
    wanted: list[tuple[str, Any]] = [("server.port", ports[2]), ("server.host", "0.0.0.0")]
    asks = [f"server.port becomes {ports[2]}", "server.host becomes the text 0.0.0.0"]
    code = f'd["server"]["port"]={ports[2]}; d["server"]["host"]="0.0.0.0"'
    data["server"] |= {"port": ports[2], "host": "0.0.0.0"}
    if level > 1:
        wanted.append(("admin.enabled", False))
        asks.append("admin.enabled becomes false")
        data["admin"]["enabled"] = False
        code += '; d["admin"]["enabled"]=False'
    if level == 3:
        extra = rng.choice(("reports", "dark-mode", "export"))
        asks.append(f"{extra} is added at the end of the list features")
        data["features"] = [*data["features"], extra]
        wanted.append(("features[-1]", extra))
        code += f'; d["features"].append("{extra}")'
    intent = say(
        rng,
        "In {path} some settings must change: {asks}. All else stays, and the file must remain valid JSON.",
        "Please edit {path}: {asks}. Do not touch any other setting; note that names such as port occur twice.",
        "Change the settings in {path} as follows: {asks}. The rest of the JSON keeps its values.",
        path=path,
        asks=", ".join(asks),
    )
    code = f'import json; p="{path}"; d=json.load(open(p)); {code}; json.dump(d, open(p, "w"), indent=2)'
    checks = [JsonFileValue(path=path, at=at, equals=value) for at, value in wanted]
    return Draft(
        intent,
        {path: text, "config/README": "One file per service.\n"},
        [*checks, JsonFileValue(path=path, at="$", equals=data, name="the whole file"), *kept("config/README")],
        [python(code)],
        [write(path, json_text(data))],
        TECHNICAL,
    )


def _json_to_csv(rng: Random, level: int) -> Draft:
    records = []
    for number, name in enumerate(rng.sample(PEOPLE, 3 + level)):
        person: dict[str, Any] = {
            "id": rng.randint(100, 999),
            "name": name,
            "active": number == 0 or rng.random() < 0.6,
            "address": {"city": rng.choice(CITIES), "zip": f"{rng.randint(1000, 9999)}"},
        }
        if level > 1 and number % 2:
            del person["address"]["city"]
        records.append(person)
    data: Any = {"total": len(records), "members": records} if level == 3 else records
    active = sorted((record for record in records if record["active"]), key=lambda record: str(record["name"]))
    text = rows(
        ("name", "city", "zip"), *((r["name"], r["address"].get("city", ""), r["address"]["zip"]) for r in active)
    )
    notes = " Where there is no city, the cell stays empty." if level > 1 else ""
    intent = say(
        rng,
        "members.json holds our members. Write active.csv with the header name,city,zip: those whose active is true, "
        "sorted by name.{notes}",
        "Export the active members of members.json to active.csv, columns name, city and zip (a header line, then one "
        "line each, in alphabetical order of the names).{notes}",
        "I need a mailing list in active.csv (header name,city,zip) from members.json. Leave out inactive members and "
        "sort by name.{notes}",
        notes=notes,
    )
    get = '["members"]' if level == 3 else ""
    code = (
        f'import json; m=json.load(open("members.json")){get}; print("name,city,zip"); '
        '[print(r["name"], r["address"].get("city", ""), r["address"]["zip"], sep=",") '
        'for r in sorted(m, key=lambda r: r["name"]) if r["active"]]'
    )
    return Draft(
        intent,
        {"members.json": json_text(data)},
        [
            csv_table("active.csv", text),
            CsvRows(path="active.csv", columns=("name", "city", "zip"), count=len(active)),
            *kept("members.json"),
        ],
        [python(code) + " > active.csv"],
        [write("active.csv", text)],
    )


def _overlay(rng: Random, level: int) -> Draft:
    keys = topics(rng, 6)
    base: dict[str, Any] = {key: rng.randint(1, 90) for key in keys[:4]}
    over: dict[str, Any] = {keys[0]: 100 + rng.randint(1, 90), keys[4]: rng.choice(CITIES)}
    merged = {**base, **over}
    notes = ""
    if level > 1:
        base["limits"] = {"cpu": rng.randint(1, 4), "memory": 512, "disk": rng.randint(10, 90)}
        over["limits"] = {"memory": rng.choice((1024, 2048))}
        merged["limits"] = {**base["limits"], **over["limits"]}
        notes = " Objects are merged key by key (limits keeps what the site does not set)."
    if level == 3:
        over[keys[1]] = None
        del merged[keys[1]]
        notes += " A null in site.json removes the key."
    intent = say(
        rng,
        "Work out the settings that apply: defaults.json overlaid by site.json, where site.json wins. Write them to "
        "effective.json.{notes} Leave both inputs alone.",
        "Merge defaults.json and site.json into effective.json. Values of site.json take precedence, keys of either "
        "file are kept.{notes}",
        "effective.json should hold what the program sees when it reads defaults.json first and site.json on top of "
        "it.{notes} Please create it; do not edit the two files.",
        notes=notes,
    )
    merge = (
        "import json\n\ndef merge(a, b):\n    out = dict(a)\n    for key, value in b.items():\n"
        "        if value is None:\n            out.pop(key, None)\n"
        "        elif isinstance(value, dict) and isinstance(a.get(key), dict):\n"
        "            out[key] = merge(a[key], value)\n        else:\n            out[key] = value\n    return out\n\n"
        "read = lambda name: json.load(open(name))\n"
        "json.dump(merge(read('defaults.json'), read('site.json')), open('effective.json', 'w'), indent=2)"
    )
    line = (
        "import json; f=lambda a, b: {k: f(a.get(k) or {}, v) if isinstance(v, dict) else v "
        "for k, v in {**a, **b}.items() if v is not None}; "
        'a=json.load(open("defaults.json")); b=json.load(open("site.json")); '
        'json.dump(f(a, b), open("effective.json", "w"), indent=2)'
    )
    checks = [JsonFileValue(path="effective.json", at=key, equals=merged[key]) for key in (keys[0], keys[2])]
    return Draft(
        intent,
        {"defaults.json": json_text(base), "site.json": json_text(over)},
        [
            *checks,
            JsonFileValue(path="effective.json", at="$", equals=merged, name="all settings"),
            *kept("defaults.json", "site.json"),
        ],
        [python(line)],
        [python_lines(merge)],
        TECHNICAL,
    )


RECORDS_FAMILIES = (
    OfficeFamily("edit_json", "change some values of a JSON file", _edit_json),
    OfficeFamily("json_to_csv", "export JSON records as a table", _json_to_csv),
    OfficeFamily("overlay_settings", "merge default and local settings", _overlay),
)


# -- Families that work on settings: YAML, INI, environment files -----------------------------------------------------


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
