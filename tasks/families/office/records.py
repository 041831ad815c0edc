"""Families that work on JSON files."""

from __future__ import annotations

from random import Random
from typing import Any

from tasks.assertions.tables import CsvRows
from tasks.assertions.values import JsonFileValue
from tasks.families.office.parts import (
    Draft,
    OfficeFamily,
    csv_table,
    json_text,
    kept,
    python,
    python_lines,
    rows,
    write,
)
from tasks.families.office.pools import CITIES, PEOPLE, SERVICES, TECHNICAL, say, topics


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
