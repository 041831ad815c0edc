"""Families on programs and their logs."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from tasks.assertions.files import FileExists, FileMatches
from tasks.assertions.grade import AllOf, Not
from tasks.assertions.run import Command
from tasks.assertions.tables import CsvCell, CsvRows
from tasks.families.office.parts import (
    CITIES,
    PEOPLE,
    SERVICES,
    TECHNICAL,
    Draft,
    OfficeFamily,
    contains,
    csv_table,
    dates,
    equals,
    gone,
    kept,
    rows,
    say,
    topics,
    write,
)
from tasks.task import Assertion

# -- Families on small programs: imports after a move, changes by patch, a diff, a licence header ---------------------


def _does_not_import(path: str, module: str) -> Assertion:
    """The file is there and no line of it imports the module; how it imports another one is left to the agent."""
    imports = FileMatches(path=path, pattern=rf"(?m)^\s*(from|import)\b.*\b{module}\b")
    return AllOf(of=(FileExists(path=path), Not(of=imports)), name=f"{path} does not import {module}")


_APPLIES = """\
import re
import sys

old, new, patch = (open(path, newline="").read() for path in sys.argv[1:])
have = old.splitlines(keepends=True)
lines = [line + "\\n" for line in patch.splitlines()]
out, at, i = [], 0, 0
while i < len(lines) and not lines[i].startswith("@@"):
    i += 1
while i < len(lines):
    head = re.match(r"@@ -(\\d+)(?:,(\\d+))? [+]\\d+(?:,(\\d+))? @@", lines[i])
    if not head and lines[i].strip():
        sys.exit("neither a hunk nor the end: " + lines[i].strip())
    if not head:
        i += 1
        continue
    start, takes, gives = int(head[1]), int(head[2] or 1), int(head[3] or 1)
    first = start - 1 if takes else start
    out += have[at:first]
    at, i = first, i + 1
    while takes or gives:
        sign, text = lines[i][:1], lines[i][1:]
        if sign in " -\\n":
            if (text if sign != "\\n" else sign) != have[at]:
                sys.exit("does not fit the old file: " + lines[i].strip())
            at, takes = at + 1, takes - 1
        if sign in " +\\n":
            out.append(text if sign != "\\n" else sign)
            gives -= 1
        if sign not in " -+\\n":
            sys.exit("is no line of a hunk: " + lines[i].strip())
        i += 1
if "".join(out + have[at:]) != new:
    sys.exit("the result is not the new file")
"""
"""Applies a unified diff of one file, without fuzz; ends with an error where that does not give the new file."""


def _imports(rng: Random, level: int) -> Draft:
    package, old, new, value, helper = topics(rng, 5)
    number = rng.randint(2, 90)
    files: dict[str, Any] = {
        f"{package}/__init__.py": "",
        f"{package}/{new}.py": f"{value.upper()} = {number}\n\n\ndef double():\n    return 2 * {value.upper()}\n",
        f"{package}/{helper}.py": (
            f'from {package}.{old} import double\n\n\ndef show():\n    return f"{old}: {{double()}}"\n'
        ),
        "main.py": f"from {package}.{helper} import show\n\nprint(show())\n",
    }
    if level > 1:
        files["main.py"] = (
            f"import {package}.{old}\nfrom {package}.{helper} import show\n\n"
            f"print(show(), {package}.{old}.{value.upper()})\n"
        )
    if level == 3:
        files[f"{package}/extra.py"] = f"from .{old} import {value.upper()}\n\n{old}_size = {value.upper()} + 1\n"
        files["main.py"] += f"from {package}.extra import {old}_size\n\nprint({old}_size)\n"
    after = {}
    for path, text in files.items():
        changed = text.replace(f"{package}.{old}", f"{package}.{new}").replace(f"from .{old} ", f"from .{new} ")
        if changed != text:
            after[path] = changed

    def prints(value: int) -> str:
        first = f"{old}: {2 * value}" + (f" {value}" if level > 1 else "")
        return first + (f"\n{value + 1}" if level == 3 else "")

    intent = say(
        rng,
        "The module {package}/{old}.py is now called {package}/{new}.py, but the imports were forgotten, so python3 "
        "main.py fails. Correct all uses of the old module in main.py and in {package}/; what the program prints must "
        "stay the same.",
        "Somebody renamed {package}.{old} to {package}.{new} and broke main.py. Please fix the imports (and the other "
        "references to the module) in main.py and {package}/*.py. Texts and variables named {old} are not meant.",
        "python3 main.py ends with a ModuleNotFoundError, because {package}/{old}.py has become {package}/{new}.py. "
        "Repair the .py files so that it works again, without bringing the old module back and without changing the "
        "output.",
        package=package,
        old=old,
        new=new,
    )
    sed = (
        f"sed -i 's/{package}\\.{old}\\b/{package}.{new}/g; s/from \\.{old} import/from .{new} import/' "
        f"main.py {package}/*.py"
    )
    return Draft(
        intent,
        files,
        [
            Command(
                command="PYTHONDONTWRITEBYTECODE=1 python3 main.py",
                stdout=prints(number),
                name="main.py works",
                weight=2.0,
            ),
            Command(  # a program that prints what it should without the package would pass the one above
                command=f'd=$(mktemp -d) && cp -r main.py {package} "$d" && cd "$d" && '
                f"sed -i 's/= {number}$/= {number + 7}/' {package}/{new}.py && "
                "PYTHONDONTWRITEBYTECODE=1 python3 main.py",
                stdout=prints(number + 7),
                name="main.py works with another value",
            ),
            *(_does_not_import(path, old) for path in after),
            gone(f"{package}/{old}.py"),
            *kept(f"{package}/{new}.py"),
        ],
        ["grep -rn " + old + " .", sed],
        [write(path, text) for path, text in after.items()],
        ("developer", "student"),
    )


def _patches(rng: Random, level: int) -> Draft:
    names = topics(rng, 1 + level)
    keys = topics(rng, 6)
    before = {f"conf/{name}.txt": [f"{key} = {rng.randint(1, 99)}" for key in keys] for name in names}
    files: dict[str, Any] = {path: "".join(f"{line}\n" for line in lines) for path, lines in before.items()}
    after = {path: list(lines) for path, lines in before.items()}
    commands, order = [], []
    for number, path in enumerate([*before, next(iter(before))][: 1 + level]):
        at = (1, 4, 1, 4)[number]
        old = after[path][at]
        new = f"{keys[at]} = {rng.randint(100, 999)}"
        lines = after[path]
        first, last = max(at - 1, 0), min(at + 2, 6)
        hunk = (
            [f" {line}" for line in lines[first:at]] + [f"-{old}", f"+{new}"] + [f" {x}" for x in lines[at + 1 : last]]
        )
        name = f"{rng.choice(('raise', 'limit', 'tune'))}-{keys[at]}-{number}.patch"
        files[f"patches/{name}"] = (
            "\n".join(
                (
                    f"--- a/{path}",
                    f"+++ b/{path}",
                    f"@@ -{first + 1},{last - first} +{first + 1},{last - first} @@",
                    *hunk,
                )
            )
            + "\n"
        )
        after[path][at] = new
        order.append(name)
        commands.append(f"sed -i '{at + 1}s/.*/{new}/' {path}")
    listed = order
    if level > 1:  # a patch that is not in the series
        name = f"draft-{keys[0]}.patch"
        files[f"patches/{name}"] = f"--- a/conf/{names[0]}.txt\n+++ b/conf/{names[0]}.txt\n@@ -1 +1 @@\n-none\n+some\n"
    files["patches/series"] = "".join(f"{name}\n" for name in listed)
    done = {path: "".join(f"{line}\n" for line in lines) for path, lines in after.items()}
    changed = {path: text for path, text in done.items() if text != files[path]}
    intent = say(
        rng,
        "Apply the patches that patches/series names, in this order, to the files in conf/. The paths in the patches "
        "start with a/ and b/. Then write 'applied N' with the number of patches into patches/STATUS. Patches that "
        "are not in the series do not count.",
        "patches/series lists unified diffs in patches/ in the order in which they belong applied to conf/. Please "
        "bring conf/ to that state and note 'applied N' (N is how many) in patches/STATUS. Leave no .orig or .rej "
        "files behind.",
        "Bring conf/ up to date with the series in patches/ (file patches/series, one patch a line, top first; strip "
        "the first part of the paths). After that patches/STATUS should say 'applied N', N being the number of "
        "patches.",
    )
    status = f"applied {len(listed)}"
    return Draft(
        intent,
        files,
        [
            *(equals(path, text) for path, text in changed.items()),
            equals("patches/STATUS", status),
            *kept("patches/series", *(path for path in done if path not in changed)),
        ],
        [*commands, f"echo {status} > patches/STATUS"],
        [*(write(path, text) for path, text in changed.items()), write("patches/STATUS", status)],
        TECHNICAL,
    )


def _diff(rng: Random, level: int) -> Draft:
    lines = [f"{topic}: {rng.choice(CITIES)}" for topic in topics(rng, 8)]
    new = list(lines)
    changed = rng.sample(range(8), 1 + level)
    for at in changed:
        new[at] = f"{lines[at].split(':')[0]}: {rng.choice(PEOPLE)}"
    before, after = ("".join(f"{line}\n" for line in part) for part in (lines, new))
    number = len(changed)
    intent = say(
        rng,
        "Make a unified diff that leads from old/plan.txt to new/plan.txt, called plan.patch, and write the number of "
        "lines that it takes out into removed.txt. Both versions stay.",
        "I want to mail my changes: put the unified diff (diff -u) between old/plan.txt and new/plan.txt into "
        "plan.patch. How many lines are removed by it? Just the number, in removed.txt.",
        "Compare old/plan.txt with new/plan.txt. plan.patch should be a patch in unified format from the old to the "
        "new one, removed.txt the number of its '-' lines (without the header).",
    )
    hunk = "\n".join(f"-{a}\n+{b}" if a != b else f" {a}" for a, b in zip(lines, new, strict=True))
    patch = f"--- old/plan.txt\n+++ new/plan.txt\n@@ -1,8 +1,8 @@\n{hunk}\n"
    gone_lines = [f"-{lines[at]}" for at in sorted(changed)]
    new_lines = [f"+{new[at]}" for at in sorted(changed)]
    return Draft(
        intent,
        {"old/plan.txt": before, "new/plan.txt": after},
        [
            contains("plan.patch", *gone_lines),
            contains("plan.patch", *new_lines),
            FileMatches(path="plan.patch", pattern=r"(?m)^--- [\s\S]*^\+\+\+ [\s\S]*^@@ -\d+(,\d+)? \+\d+(,\d+)? @@"),
            Command(
                command='python3 -I "$GRADER/applies.py" old/plan.txt new/plan.txt plan.patch',
                files={"applies.py": _APPLIES},
                name="plan.patch leads from the old to the new version",
            ),
            equals("removed.txt", str(number)),
            *kept("old/plan.txt", "new/plan.txt"),
        ],
        [
            "diff -u --label old/plan.txt --label new/plan.txt old/plan.txt new/plan.txt > plan.patch; test $? = 1",
            "grep -c '^-[^-]' plan.patch > removed.txt",
        ],
        [write("plan.patch", patch), write("removed.txt", str(number))],
        ("developer", "student", "writer"),
    )


def _header(rng: Random, level: int) -> Draft:
    names = topics(rng, 3 + level)
    owner, year = rng.choice(PEOPLE), rng.randint(2018, 2025)
    line = f"# Copyright {year} {owner}"
    files: dict[str, Any] = {}
    after = {}
    for i, name in enumerate(names):
        body = f"{name} = {rng.randint(1, 99)}\n"
        path = f"app/{'tools/' if i % 2 else ''}{name}.py"
        script = level > 1 and i == 1
        if i == 0:
            files[path] = f"{line}\n{body}"
            continue
        if level == 3 and i == 2:  # another owner's file
            files[path] = f"# Copyright 2011 Somebody\n{body}"
            continue
        files[path] = f"#!/usr/bin/env python3\n{body}" if script else body
        after[path] = f"#!/usr/bin/env python3\n{line}\n{body}" if script else f"{line}\n{body}"
    files["app/data.txt"] = "no code\n"
    listed = "".join(f"{path}\n" for path in sorted(after))
    shebang = " Where a file starts with #!, the line goes below it." if level > 1 else ""
    intent = say(
        rng,
        "Each .py file in app/ and below needs a copyright line. Put '{line}' at the top of those that have no line "
        "starting with '# Copyright' yet.{shebang} Write the paths of the changed files (app/...) into headers.txt, "
        "sorted.",
        "Please add the line '{line}' as first line to all Python files under app/ that lack a line beginning with '# "
        "Copyright', whoever is named there.{shebang} headers.txt gets the sorted list of files you changed, as "
        "app/x.py.",
        "Licence check: find the .py files in app/, subfolders included, without a '# Copyright' line, list them "
        "sorted in headers.txt (app/...), and give each '{line}' as its first line.{shebang} Others stay as they are.",
        line=line,
        shebang=shebang,
    )
    insert = (
        f"while read -r f; do if head -n 1 $f | grep -q '^#!'; then sed -i '1a {line}' $f; "
        f"else sed -i '1i {line}' $f; fi; done < headers.txt"
    )
    return Draft(
        intent,
        files,
        [
            equals("headers.txt", listed),
            *(equals(path, text) for path, text in after.items()),
            *kept(*(path for path in files if path not in after)),
        ],
        ["grep -rL --include=*.py '^# Copyright' app | LC_ALL=C sort > headers.txt", insert],
        [write("headers.txt", listed), *(write(path, text) for path, text in after.items())],
        ("developer", "student"),
    )


CODE_FAMILIES = (
    OfficeFamily("fix_imports", "repair the imports of a package after a rename", _imports),
    OfficeFamily("apply_series", "apply patches in their order", _patches),
    OfficeFamily("make_diff", "write the difference of two files as a patch", _diff),
    OfficeFamily("licence_header", "add a line to the files that lack it", _header),
)


# -- Families that read logs: count, cut out, find the slow and the unfinished ----------------------------------------


def _clock(rng: Random, count: int, first: int = 0, last: int = 86399) -> list[str]:
    """Return `count` different times of day between two seconds, sorted."""
    times = sorted(rng.sample(range(first, last), count))
    return [f"{t // 3600:02}:{t // 60 % 60:02}:{t % 60:02}" for t in times]


def _errors(rng: Random, level: int) -> Draft:
    services = sorted(rng.sample(SERVICES, 2 + level))
    day = dates(rng, 1)[0]
    lines, found = [], Counter[str]()
    for number, time in enumerate(_clock(rng, 8 + 4 * level)):
        service = services[number] if number < len(services) else rng.choice(services)
        grade = "ERROR" if number < len(services) - 1 else rng.choice(("INFO", "WARN", "ERROR"))
        found[service] += grade == "ERROR"
        word = "retry after ERROR" if level > 1 and grade == "INFO" else rng.choice(("done", "timeout", "request"))
        lines.append(f"{day} {time} {grade} [{service}] {word} {rng.randint(1, 99)}")
    half = len(lines) // 2 if level == 3 else 0
    files = {"logs/app.log": "".join(f"{line}\n" for line in lines[half:])}
    if half:
        files["logs/app.log.1"] = "".join(f"{line}\n" for line in lines[:half])
    table = [(service, number) for service, number in sorted(found.items()) if number]
    where = "logs/app.log and the older logs/app.log.1 together" if half else "logs/app.log"
    intent = say(
        rng,
        "How many errors did each service log? Count the entries of level ERROR in {where} (the level is the third "
        "word, the service stands in brackets) and write errors.csv with the header service,errors, one line for each "
        "service that had any, sorted by service.",
        "Make errors.csv out of {where}: columns service and errors, the number of entries with level ERROR (third "
        "word) per service in brackets. Only services that have some, in alphabetical order.",
        "Triage, please: per service (the name in brackets) the number of ERROR entries of {where}. Mind that other "
        "levels may mention errors, too. The result goes to errors.csv, header service,errors, sorted by service; no "
        "zeros.",
        where=where,
    )
    text = rows(("service", "errors"), *table)
    count = (
        'cat logs/* | awk \'$3=="ERROR" {gsub(/[][]/,"",$4); n[$4]++} END {for (s in n) print s "," n[s]}\' '
        "| LC_ALL=C sort >> errors.csv"
    )
    return Draft(
        intent,
        files,
        [
            csv_table("errors.csv", text),
            CsvRows(path="errors.csv", count=len(table)),
            CsvCell(path="errors.csv", column="errors", where={"service": table[0][0]}, equals=table[0][1]),
            *kept("logs"),
        ],
        ["echo service,errors > errors.csv", count],
        [write("errors.csv", text)],
        TECHNICAL,
    )


def _window(rng: Random, level: int) -> Draft:
    start = rng.randint(8, 15)
    day = dates(rng, 1)[0]
    times = sorted(
        {
            *_clock(rng, 3, (start - 2) * 3600, start * 3600 - 1),
            f"{start:02}:00:00",
            *_clock(rng, 2 + level, start * 3600 + 1, start * 3600 + 1799),
            f"{start:02}:30:00",
            *_clock(rng, 3, start * 3600 + 1801, (start + 3) * 3600),
        }
    )
    text, cut, warnings = "", "", 0
    for number, time in enumerate(times):
        inside = f"{start:02}:00:00" <= time < f"{start:02}:30:00"
        grade = "WARN" if time == f"{start:02}:00:00" else rng.choice(("INFO", "WARN"))
        entry = f"{day} {time} {grade} {rng.choice(SERVICES)}: {rng.choice(('slow answer', 'queue full', 'ok'))}\n"
        if level > 1 and number % 3 == 0:
            entry += "    at worker line 12\n" + ("    WARN is part of this detail\n" if level == 3 else "")
        text += entry
        if inside:
            cut += entry
            warnings += grade == "WARN"
    details = " Lines that begin with blanks belong to the entry above them." if level > 1 else ""
    intent = say(
        rng,
        "Cut the incident out of server.log: all entries from {a} on and before {b}, as they are, go to incident.log. "
        "warnings.txt gets one number, how many of these entries have the level WARN.{details}",
        "I need incident.log: the part of server.log with the entries of {a} up to, but not including, {b}. Write the "
        "number of its WARN entries (the level, not the word) into warnings.txt.{details}",
        "Something happened between {a} (inclusive) and {b} (exclusive). Copy the entries of that time from "
        "server.log to incident.log, unchanged, and count those of level WARN in warnings.txt.{details}",
        a=f"{start:02}:00:00",
        b=f"{start:02}:30:00",
        details=details,
    )
    cut_out = (
        f'awk \'/^[0-9]/ {{keep = ($2 >= "{start:02}:00:00" && $2 < "{start:02}:30:00")}} keep\' '
        "server.log > incident.log"
    )
    return Draft(
        intent,
        {"server.log": text},
        [equals("incident.log", cut), equals("warnings.txt", str(warnings)), *kept("server.log")],
        [cut_out, "awk '/^[0-9]/ && $3 == \"WARN\"' incident.log | wc -l > warnings.txt"],
        [write("incident.log", cut), write("warnings.txt", str(warnings))],
        TECHNICAL,
    )


def _slow(rng: Random, level: int) -> Draft:
    paths = [f"/{name}" for name in topics(rng, 3 + level)]
    limit = rng.choice((300, 400, 500))
    peaks = rng.sample(range(limit + 1, limit + 400), 2) + rng.sample(range(60, limit), len(paths) - 3) + [limit]
    lines = []
    for path, peak in zip(paths, peaks, strict=True):
        takes = [peak, *(rng.randint(9, peak - 1) for _ in range(level))]
        for took in takes:
            query = f"?page={rng.randint(1, 9)}" if level > 1 else ""
            lines.append(f"{rng.choice(('GET', 'POST'))} {path}{query} {rng.choice((200, 304))} {took}ms")
    if level == 3:  # failed requests do not count
        lines.append(f"GET {paths[-2]} 500 {limit + 900}ms")
    rng.shuffle(lines)
    table = sorted(
        ((path, peak) for path, peak in zip(paths, peaks, strict=True) if peak >= limit), key=lambda x: -x[1]
    )
    text = rows(("path", "max_ms"), *table)
    notes = (" What follows a ? is no part of the path." if level > 1 else "") + (
        " Requests with status 500 do not count." if level == 3 else ""
    )
    intent = say(
        rng,
        "Which pages are slow? access.log has method, path, status and duration. Write slow.csv with the header "
        "path,max_ms: the paths whose longest request took {limit} ms or more, with that duration (number only), "
        "longest first.{notes}",
        "Find the slow paths in access.log, those with at least one request of {limit} ms or longer. In slow.csv list "
        "path and max_ms (header path,max_ms; plain numbers), sorted by max_ms from high to low.{notes}",
        "From access.log make slow.csv (header path,max_ms). For each path take the maximum duration, leave out paths "
        "whose maximum is below {limit}ms, sort descending, and write the numbers without ms.{notes}",
        limit=limit,
        notes=notes,
    )
    find = (
        'awk \'$3 != 500 {split($2,p,"?"); d=$4+0; if (d>m[p[1]]) m[p[1]]=d} END {for (k in m) if (m[k]>='
        f'{limit}) print k "," m[k]}}\' access.log | sort -t, -k2,2nr >> slow.csv'
    )
    return Draft(
        intent,
        {"access.log": "".join(f"{line}\n" for line in lines)},
        [
            csv_table("slow.csv", text),
            CsvCell(path="slow.csv", row=1, column="path", equals=table[0][0]),
            *kept("access.log"),
        ],
        ["echo path,max_ms > slow.csv", find],
        [write("slow.csv", text)],
        TECHNICAL,
    )


def _unfinished(rng: Random, level: int) -> Draft:
    jobs = [f"job-{number}" for number in rng.sample(range(100, 999), 5 + 2 * level)]
    open_jobs = set(rng.sample(jobs, 1 + level))
    runs: list[list[str]] = []
    for job in jobs:
        steps = ["started"] if job in open_jobs else ["started", rng.choice(("finished", "finished", "failed"))]
        if level > 1 and rng.random() < 0.5:  # ran before, to the end
            steps = ["started", "finished", *steps]
        runs.append([f"{job} {step}" for step in steps])
    events = []
    while any(runs):
        run = rng.choice([run for run in runs if run])
        events.append(run.pop(0))
    times = _clock(rng, len(events))
    lines = [f"{time} {event}" for time, event in zip(times, events, strict=True)]
    half = len(lines) // 2
    files = {"jobs/morning.log": lines[:half], "jobs/noon.log": lines[half:]} if level == 3 else {"jobs/all.log": lines}
    laid = {path: "".join(f"{line}\n" for line in part) for path, part in files.items()}
    result = "".join(f"{job}\n" for job in sorted(open_jobs))
    where = "jobs/morning.log and then jobs/noon.log" if level == 3 else "jobs/all.log"
    number = str(len(jobs) - len(open_jobs))
    intent = say(
        rng,
        "Find the jobs that hang: in {where} the last thing said about them is 'started'. List their names in "
        "hanging.txt, one a line, sorted, and write the number of all the other jobs into ended.txt.",
        "Read {where}. A job whose last entry is 'started' is still running: put its name into hanging.txt (sorted, "
        "one per line). ended.txt gets just the number of jobs whose last entry is 'finished' or 'failed'.",
        "Which jobs of {where} were started and neither finished nor failed since? Jobs may run several times. Names "
        "go to hanging.txt, sorted; the number of all the other jobs goes to ended.txt.",
        where=where,
    )
    last = f"cat {' '.join(laid)} | awk '{{last[$2]=$3}} END {{for (j in last) print last[j], j}}' > last.tmp"
    return Draft(
        intent,
        laid,
        [equals("hanging.txt", result), equals("ended.txt", number), *kept("jobs")],
        [
            last,
            "awk '$1 == \"started\" {print $2}' last.tmp | sort > hanging.txt",
            "grep -vc '^started' last.tmp > ended.txt; rm last.tmp",
        ],
        [write("hanging.txt", result), write("ended.txt", number)],
        TECHNICAL,
    )


LOGS_FAMILIES = (
    OfficeFamily("count_errors", "count log entries per service", _errors),
    OfficeFamily("log_window", "cut a stretch of time out of a log", _window),
    OfficeFamily("slow_requests", "find the slow paths of an access log", _slow),
    OfficeFamily("hanging_jobs", "find jobs that began and did not end", _unfinished),
)
