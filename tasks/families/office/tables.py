"""Families on tables: brought together, reshaped, summed up."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from tasks.assertions.tables import CsvCell, CsvRows
from tasks.families.office.parts import (
    CITIES,
    PEOPLE,
    Draft,
    OfficeFamily,
    cents,
    csv_table,
    dates,
    equals,
    kept,
    money,
    rows,
    say,
    topics,
    write,
)

# -- Families that bring tables together or into another shape --------------------------------------------------------


def _join(rng: Random, level: int) -> Draft:
    people = rng.sample(PEOPLE, 3 + level)
    numbers = rng.sample(range(10, 99), len(people) + 1)
    known = list(zip(numbers, people, (rng.choice(CITIES) for _ in people), strict=False))
    lines = [
        (order, rng.choice(numbers[:-1]), rng.choice(topics(rng, 5)))
        for order in rng.sample(range(500, 999), 4 + 2 * level)
    ]
    lost = []
    if level > 1:
        lost = [str(order) for order in rng.sample(range(100, 499), level - 1)]
        lines += [(int(order), numbers[-1], "lamp") for order in lost]
    rng.shuffle(lines)
    rng.shuffle(known)
    who = {number: (name, city) for number, name, city in known}
    joined = [(order, *who[number], item) for order, number, item in sorted(lines) if number in who]
    text = rows(("order", "name", "city", "item"), *joined)
    unknown = "".join(f"{order}\n" for order in sorted(lost))
    rest = " Numbers of orders whose customer is unknown go to unknown.txt instead, one a line, sorted." if lost else ""
    intent = say(
        rng,
        "Join the two tables: orders.csv has the number of the customer, customers.csv has name and city. Write "
        "shipping.csv with the header order,name,city,item, sorted by order number.{rest}",
        "The packers need shipping.csv, columns order,name,city,item in this order, sorted by order. Items are in "
        "orders.csv, names and cities in customers.csv; the customer number links them.{rest}",
        "Look up each order of orders.csv in customers.csv (by customer number) and list order,name,city,item in "
        "shipping.csv, header included, lowest order number first.{rest}",
        rest=rest,
    )
    look = (
        'awk -F, \'FNR == 1 {next} NR == FNR {who[$1]=$2 "," $3; next} $2 in who {print $1 "," who[$2] "," $3}\' '
        "customers.csv orders.csv | sort -n >> shipping.csv"
    )
    miss = (
        "awk -F, 'FNR == 1 {next} NR == FNR {w[$1]; next} !($2 in w) {print $1}' customers.csv orders.csv | sort > "
        "unknown.txt"
    )
    return Draft(
        intent,
        {
            "orders.csv": rows(("order", "customer", "item"), *lines),
            "customers.csv": rows(("customer", "name", "city"), *known),
        },
        [
            csv_table("shipping.csv", text),
            CsvRows(path="shipping.csv", count=len(joined)),
            *([equals("unknown.txt", unknown)] if lost else []),
            *kept("orders.csv", "customers.csv"),
        ],
        ["echo order,name,city,item > shipping.csv", look, *([miss] if lost else [])],
        [write("shipping.csv", text), *([write("unknown.txt", unknown)] if lost else [])],
    )


def _reshape(rng: Random, level: int) -> Draft:
    items = topics(rng, 3 + level)
    days = dates(rng, len(items))
    prices = [money(rng, 50) for _ in items]
    stock = [rng.randint(1, 60) for _ in items]
    german = level == 3
    old = "Artikel;Bestand;Preis;Datum\n" + "".join(
        f"{item};{number};{cents(price).replace('.', ',') if level > 1 else cents(price)};"
        f"{'.'.join(day.split('-')[::-1]) if german else day}\n"
        for item, number, price, day in zip(items, stock, prices, days, strict=True)
    )
    new = rows(
        ("date", "item", "price"),
        *((day, item, cents(price)) for item, price, day in zip(items, prices, days, strict=True)),
    )
    notes = (" Prices get a decimal point instead of the comma." if level > 1 else "") + (
        " Dates like 09.03.2024 become 2024-03-09." if german else ""
    )
    intent = say(
        rng,
        "export.csv comes from another program and uses semicolons. Write items.csv with commas and just the columns "
        "date,item,price (these names, this order); the originals are called Datum, Artikel and Preis. Keep the order "
        "of the rows.{notes}",
        "Please convert export.csv (separated by ;) to items.csv (separated by ,): header date,item,price, from the "
        "columns Datum, Artikel, Preis. Drop Bestand. Rows stay in their order.{notes}",
        "The web shop imports tables with the header date,item,price. Make such a file, items.csv, out of export.csv, "
        "where they are named Datum, Artikel and Preis; leave the rest out and do not reorder the rows.{notes}",
        notes=notes,
    )
    date = 'split($4,d,"."); $4=d[3] "-" d[2] "-" d[1]; ' if german else ""
    turn = f'awk -F\';\' \'NR > 1 {{sub(/,/,".",$3); {date}print $4 "," $1 "," $3}}\' export.csv >> items.csv'
    return Draft(
        intent,
        {"export.csv": old},
        [
            csv_table("items.csv", new),
            CsvRows(path="items.csv", columns=("date", "item", "price"), count=len(items)),
            CsvCell(path="items.csv", column="price", where={"item": items[0]}, equals=cents(prices[0])),
            *kept("export.csv"),
        ],
        ["echo date,item,price > items.csv", turn],
        [write("items.csv", new)],
    )


def _reconcile(rng: Random, level: int) -> Draft:
    refs = [f"R{number}" for number in rng.sample(range(100, 999), 7 + 2 * level)]
    amounts = {ref: money(rng) for ref in refs}
    only_bank, only_book, differ = refs[:level], refs[level : level + 2], sorted(refs[level + 2 : level + 4])
    book = {ref: amounts[ref] for ref in refs if ref not in only_bank}
    bank = {ref: amounts[ref] for ref in refs if ref not in only_book}
    for ref in differ:
        bank[ref] += rng.choice((-90, 100, 1000, 1))
    left, right = list(book.items()), list(bank.items())
    rng.shuffle(left)
    rng.shuffle(right)
    files = {
        "book.csv": rows(("ref", "amount"), *((ref, cents(many)) for ref, many in left)),
        "bank.csv": rows(("ref", "amount"), *((ref, cents(many)) for ref, many in right)),
    }
    results = {
        "not_in_book.txt": "".join(f"{ref}\n" for ref in sorted(only_bank)),
        "not_in_bank.txt": "".join(f"{ref}\n" for ref in sorted(only_book)),
        "differ.csv": rows(("ref", "book", "bank"), *((ref, cents(book[ref]), cents(bank[ref])) for ref in differ)),
    }
    intent = say(
        rng,
        "Compare book.csv with bank.csv by ref. References that only the bank has go to not_in_book.txt, those that "
        "only the book has to not_in_bank.txt (one a line, sorted). Where both have one but the amounts differ, add a "
        "line to differ.csv, header ref,book,bank, sorted by ref.",
        "Please reconcile book.csv and bank.csv. I need three files: not_in_book.txt and not_in_bank.txt with the "
        "references the respective file lacks, sorted, and differ.csv (ref,book,bank, sorted) with both amounts where "
        "they disagree.",
        "The books do not match the bank. List in not_in_bank.txt which refs of book.csv are not in bank.csv, in "
        "not_in_book.txt the other way round, and in differ.csv (header ref,book,bank) those with unequal amounts. "
        "Sort all by ref.",
    )
    names = {"not_in_book.txt": ("book", "bank"), "not_in_bank.txt": ("bank", "book")}
    commands = [
        f"awk -F, 'NR == FNR {{w[$1]; next}} !($1 in w) {{print $1}}' {a}.csv {b}.csv | sort > {path}"
        for path, (a, b) in names.items()
    ]
    commands.append(
        "(echo ref,book,bank; awk -F, 'NR == FNR {w[$1]=$2; next} FNR > 1 && ($1 in w) && w[$1] != $2 "
        '{print $1 "," w[$1] "," $2}\' book.csv bank.csv | sort) > differ.csv'
    )
    return Draft(
        intent,
        files,
        [
            *((csv_table if path.endswith(".csv") else equals)(path, text) for path, text in results.items()),
            *kept(*files),
        ],
        commands,
        [write(path, text) for path, text in results.items()],
        ("bookkeeper", "shop keeper", "office assistant"),
    )


TABLES_FAMILIES = (
    OfficeFamily("join_tables", "look up the rows of one table in another", _join),
    OfficeFamily("reshape_columns", "convert a table to other columns and notations", _reshape),
    OfficeFamily("reconcile", "compare two tables and list the differences", _reconcile),
)


# -- Families that boil a table down: sums, a ranking, the newest rows, pairs counted ---------------------------------


def _totals(rng: Random, level: int) -> Draft:
    cities = sorted(rng.sample(CITIES, 2 + level))
    sums = Counter[str]()
    lines = []
    for number in range(6 + 4 * level):
        city = cities[number % len(cities)] if number < len(cities) else rng.choice(cities)
        state = "paid" if number < len(cities) else rng.choice(("paid", "open", "refunded"))
        amount = money(rng)
        sums[city] += amount if state == "paid" else 0
        lines.append((f"{1000 + number}", city, state, cents(amount)))
    rng.shuffle(lines)
    head = ("number", "branch", "state", "amount")
    half = len(lines) // 2
    files = (
        {"sales/part-1.csv": rows(head, *lines[:half]), "sales/part-2.csv": rows(head, *lines[half:])}
        if level == 3
        else {"sales.csv": rows(head, *lines)}
    )
    where = "sales/part-1.csv and sales/part-2.csv" if level == 3 else "sales.csv"
    total = sum(sums.values())
    table = rows(("branch", "total"), *((city, cents(sums[city])) for city in cities))
    table += f"all,{cents(total)}\n" if level > 1 else ""
    last = " The last line is the sum of all branches, under the name all." if level > 1 else ""
    intent = say(
        rng,
        "Add up the paid sales of {where} per branch. Write totals.csv with the header branch,total, the branches in "
        "alphabetical order, amounts with two decimals. Open and refunded sales do not count.{last}",
        "What did each branch take in? Sum the amounts with state paid in {where} and put them into totals.csv: "
        "header branch,total, one line a branch, sorted by name, two decimals.{last}",
        "Please make totals.csv (branch,total) out of {where}: only rows whose state is paid, one total per branch "
        "with exactly two decimals, ordered by branch.{last}",
        where=where,
        last=last,
    )
    add = (
        f'awk -F, \'$3 == "paid" {{t[$2]+=$4}} END {{for (b in t) printf "%s,%.2f\\n", b, t[b]}}\' '
        f"{' '.join(files)} | sort >> totals.csv"
    )
    commands = ["echo branch,total > totals.csv", add]
    if level > 1:
        commands.append(
            "awk -F, 'NR > 1 {s+=$2} END {printf \"all,%.2f\\n\", s}' totals.csv > sum.tmp; "
            "cat sum.tmp >> totals.csv; rm sum.tmp"
        )
    return Draft(
        intent,
        files,
        [
            csv_table("totals.csv", table),
            CsvRows(path="totals.csv", columns=("branch", "total")),
            *(
                CsvCell(
                    path="totals.csv", column="total", where={"branch": city}, equals=sums[city] / 100, tolerance=0.001
                )
                for city in cities[:2]
            ),
            *kept(*files),
        ],
        commands,
        [write("totals.csv", table)],
    )


def _ranking(rng: Random, level: int) -> Draft:
    names = rng.sample(PEOPLE, 5 + 2 * level)
    points = rng.sample(range(2, 120) if level > 1 else range(20, 99), len(names) - 1)
    limit = sorted(points)[len(points) // 2]
    points.append(limit - 1 if limit - 1 not in points else limit)
    people = list(zip(names, (rng.choice(CITIES) for _ in names), points, strict=False))
    table = sorted(people, key=lambda row: (-row[2], row[0]))
    best = [row for row in table if row[2] >= limit]
    below = [row for row in people if row[2] < limit]
    head = ("name", "city", "points")
    if level == 3:
        best = best[:3]
        below = []
    extra = (
        " Only the best three."
        if level == 3
        else " Those below go to retry.csv, same header, in the order they have now."
    )
    good, rest = rows(head, *best), rows(head, *below)
    intent = say(
        rng,
        "From scores.csv make passed.csv: everybody with {limit} points or more, most points first (equal points: by "
        "name), with the header of scores.csv.{extra}",
        "{limit} points are enough to pass. Please write the rows of scores.csv that pass into passed.csv, header "
        "included, sorted by points from high to low and, for equal points, by name.{extra}",
        "Filter scores.csv: points of at least {limit}. The result, passed.csv, keeps the header and is sorted by "
        "points, highest on top, then name.{extra}",
        limit=limit,
        extra=extra,
    )
    cut = " | head -n 3" if level == 3 else ""
    commands = [
        "head -n 1 scores.csv | tee passed.csv > retry.csv" if level < 3 else "head -n 1 scores.csv > passed.csv",
        f"awk -F, 'NR > 1 && $3 >= {limit}' scores.csv | LC_ALL=C sort -t, -k3,3nr -k1,1{cut} >> passed.csv",
    ]
    other = [write("passed.csv", good)]
    checks = [csv_table("passed.csv", good), CsvCell(path="passed.csv", row=1, column="name", equals=best[0][0])]
    if level < 3:
        commands.append(f"awk -F, 'NR > 1 && $3 < {limit}' scores.csv >> retry.csv")
        other.append(write("retry.csv", rest))
        checks.append(csv_table("retry.csv", rest))
    return Draft(intent, {"scores.csv": rows(head, *people)}, [*checks, *kept("scores.csv")], commands, other)


def _latest(rng: Random, level: int) -> Draft:
    items = sorted(topics(rng, 3 + level))
    days = dates(rng, 4 * len(items), *((2024,) if level < 3 else (2023, 2024)))
    lines = []
    newest: dict[str, tuple[str, str]] = {}
    for number, day in enumerate(days[: len(items) * (1 + level)]):
        item, price = items[number % len(items)], cents(money(rng, 90))
        lines.append((day, item, price))
        newest[item] = max(newest.get(item, ("", "")), (day, price))
    lines.sort(key=lambda row: row[0] if level == 1 else row[2])
    text = rows(("item", "price", "since"), *((item, newest[item][1], newest[item][0]) for item in items))
    intent = say(
        rng,
        "prices.csv lists every price change. Write current.csv, header item,price,since: for each item the price of "
        "its latest date and that date, sorted by item.",
        "Make a list of today's prices out of the history in prices.csv: current.csv with item,price,since, one line "
        "an item (alphabetical), taking the entry with the newest date.",
        "Per item only the newest row of prices.csv counts. Put those into current.csv as item,price,since (since is "
        "the date), ordered by item, with header. The rows of the history are in no reliable order.",
    )
    pick = (
        'awk -F, \'NR > 1 && $1 > d[$2] {d[$2]=$1; p[$2]=$3} END {for (i in d) print i "," p[i] "," d[i]}\' '
        "prices.csv | sort >> current.csv"
    )
    return Draft(
        intent,
        {"prices.csv": rows(("date", "item", "price"), *lines)},
        [
            csv_table("current.csv", text),
            CsvRows(path="current.csv", count=len(items)),
            CsvCell(path="current.csv", column="since", where={"item": items[0]}, equals=newest[items[0]][0]),
            *kept("prices.csv"),
        ],
        ["echo item,price,since > current.csv", pick],
        [write("current.csv", text)],
    )


def _crosstab(rng: Random, level: int) -> Draft:
    people, kinds = sorted(rng.sample(PEOPLE, 2 + level)), sorted(topics(rng, 2 + (level > 1)))
    number = Counter((rng.choice(people), rng.choice(kinds)) for _ in range(8 + 4 * level))
    lines = [pair for pair, many in number.items() for _ in range(many)]
    rng.shuffle(lines)
    present = sorted({name for name, _ in lines})
    columns = sorted({kind for _, kind in lines})
    table: list[list[Any]] = [[name, *(number[name, kind] for kind in columns)] for name in present]
    if level == 3:
        table = [[*row, sum(row[1:])] for row in table]
    head = ["name", *columns, *(["sum"] if level == 3 else [])]
    text = rows(head, *table)
    last = " Add a last column sum." if level == 3 else ""
    intent = say(
        rng,
        "visits.csv has one row a visit. Cross it: table.csv gets one row per name and one column per workshop, in "
        "the cells how often the person came (0 if never). Names and workshops in alphabetical order, the header "
        "starts with name.{last}",
        "Count who went to which workshop how often. Turn visits.csv into table.csv: first column name, then a column "
        "for each workshop, both sorted from A to Z, with 0 where there was no visit.{last}",
        "I would like a pivot table of visits.csv in table.csv: rows are names, columns are workshops (both sorted), "
        "values are the numbers of visits, never empty. Top left says name.{last}",
        last=last,
    )
    cross = (
        'awk -F, \'NR > 1 {n[$1 "," $2]++; p[$1]} END {for (a in p) {s=0; l=a; k=split("'
        + " ".join(columns)
        + '",w," "); for (i=1; i<=k; i++) {c=n[a "," w[i]]+0; l=l "," c; s+=c} print l'
        + (' "," s' if level == 3 else "")
        + "}}' visits.csv | sort >> table.csv"
    )
    return Draft(
        intent,
        {"visits.csv": rows(("name", "workshop"), *lines)},
        [
            csv_table("table.csv", text),
            CsvRows(path="table.csv", columns=tuple(head), count=len(present)),
            CsvCell(path="table.csv", column=columns[0], where={"name": present[0]}, equals=table[0][1]),
            *kept("visits.csv"),
        ],
        [f"echo {','.join(head)} > table.csv", cross],
        [write("table.csv", text)],
    )


TOTALS_FAMILIES = (
    OfficeFamily("branch_totals", "add up a table per group", _totals),
    OfficeFamily("ranking", "filter and sort a table", _ranking),
    OfficeFamily("latest_price", "keep the newest row of each item", _latest),
    OfficeFamily("cross_table", "count pairs into a table of rows and columns", _crosstab),
)
