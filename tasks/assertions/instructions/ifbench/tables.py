"""Instructions to write a table: CSV with certain columns and so many rows."""

from __future__ import annotations

import csv
import io
import re

from tasks.assertions.instructions.ifbench.base import ifbench

_CITIES = ("ID", "Country", "City", "Year", "Count")
_PRODUCTS = ("ProductID", "Category", "Brand", "Price", "Stock")
_STUDENTS = ("StudentID", "Subject", "Grade", "Semester", "Score")


@ifbench.add(
    "custom:csv_city",
    kind="the CSV table",
    says=f"is a comma-separated table {', '.join(_CITIES)} with 7 rows",
    fix="blank lines and blanks behind commas are allowed",
)
def custom_csv_city(text: str) -> bool:
    """A CSV table of seven rows.

    Blank lines do not count.
    """
    return _cities([row for row in _rows(text.strip(), skipinitialspace=True) if row])


@custom_csv_city.published
def _(text: str) -> bool:
    """Header as written, seven rows of five fields."""
    return _cities(_rows(text))


@ifbench.add(
    "custom:csv_special_character",
    kind="the CSV table",
    says=f"is a comma-separated table {', '.join(_PRODUCTS)} with 14 rows and a quoted special character",
    fix="the rows behind the one with the special character are looked at too; blank lines are allowed",
)
def custom_csv_special_character(text: str) -> bool:
    """A CSV table of fourteen rows with a special character in a quoted field.

    Look at all rows.
    """
    lines = "\n".join(line for line in text.strip().split("\n") if line.strip())
    rows = _rows(lines.replace('"', '"""'), skipinitialspace=True)
    complete = len(rows) == 15 and all(len(row) == 5 for row in rows)
    return complete and _header_fits(lines, _PRODUCTS, r",[ \t]*") and any(any(map(_special, r)) for r in rows[1:])


@custom_csv_special_character.published
def _(text: str) -> bool:
    """Look at the rows until one has such a field."""
    if not _header_fits(text, _PRODUCTS, r",[ \t]*"):
        return False
    rows = _rows(text.replace('"', '"""'))
    if len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(map(_special, row)):
            return True
    return False


@ifbench.add(
    "custom:csv_quotes",
    kind="the CSV table",
    says=f"is a tab-separated table {', '.join(_STUDENTS)} with 3 rows, each field in double quotes",
    fix="blank lines are allowed",
)
def custom_csv_quotes(text: str) -> bool:
    """A table of three rows, tabs between fields, each field in double quotes.

    Blank lines do not count.
    """
    return _students("\n".join(line for line in text.strip().split("\n") if line.strip()))


@custom_csv_quotes.published
def _students(text: str) -> bool:
    """Header, then three rows of five quoted fields."""
    if not _header_fits(text, _STUDENTS, r"\t *"):
        return False
    rows = _rows(text.replace('"', '"""'), delimiter="\t")
    quoted = all(field.strip()[:1] == '"' == field.strip()[-1:] for row in rows for field in row)
    return len(rows) == 4 and all(len(row) == 5 for row in rows) and quoted


def _cities(rows: list[list[str]]) -> bool:
    return len(rows) == 8 and tuple(rows[0]) == _CITIES and all(len(row) == 5 for row in rows)


def _rows(text: str, delimiter: str = ",", skipinitialspace: bool = False) -> list[list[str]]:
    """Read a table; none where it is no CSV."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=skipinitialspace))
    except csv.Error:
        return []


def _header_fits(text: str, names: tuple[str, ...], between: str) -> bool:
    """Whether the first line has the names, each with or without quotes."""
    pattern = between.join(f'(?:{name}|"{name}")' for name in names)
    return re.fullmatch(pattern, text.split("\n", 1)[0].strip()) is not None


def _special(field: str) -> bool:
    """Whether a field is in quotes that hold something other than letters, digits, underscores and blanks."""
    line = field.split("\n", 1)[0]
    return line.startswith('"') and re.search(r"[^\w\s]", line[1 : line.rfind('"')]) is not None
