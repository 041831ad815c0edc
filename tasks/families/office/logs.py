"""Families that read logs: count, cut out, find the slow and the unfinished."""

from __future__ import annotations

from collections import Counter
from random import Random

from tasks.assertions.tables import CsvCell, CsvRows
from tasks.families.office.parts import Draft, OfficeFamily, csv_table, equals, kept, rows, write
from tasks.families.office.pools import SERVICES, TECHNICAL, dates, say, topics


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
