"""Families that bring tables together or into another shape."""

from __future__ import annotations

from random import Random

from tasks.assertions.tables import CsvCell, CsvRows
from tasks.families.office.parts import Draft, OfficeFamily, csv_table, equals, kept, rows, write
from tasks.families.office.pools import CITIES, PEOPLE, cents, dates, money, say, topics


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
