"""Instructions to write a table: CSV with certain columns and so many rows."""

from __future__ import annotations

import csv
import io
import re

from tasks.assertions.instructions.ifbench.base import IfbenchInstruction


class CsvCity(IfbenchInstruction):
    """A CSV table of seven rows."""

    id = "custom:csv_city"
    kind = "the CSV table"
    fix = "blank lines and blanks behind commas are allowed"
    _header = ("ID", "Country", "City", "Year", "Count")

    def published(self, text: str) -> bool:
        """Header as written, seven rows of five fields."""
        return self._fits(_rows(text))

    def fixed(self, text: str) -> bool:
        """The same without blank lines."""
        return self._fits([row for row in _rows(text.strip(), skipinitialspace=True) if row])

    def describe(self) -> str:
        """Return the condition in words."""
        return f"is a comma-separated table {', '.join(self._header)} with 7 rows"

    def _fits(self, rows: list[list[str]]) -> bool:
        return len(rows) == 8 and tuple(rows[0]) == self._header and all(len(row) == 5 for row in rows)


class CsvSpecialCharacter(IfbenchInstruction):
    """A CSV table of fourteen rows with a special character in a quoted field."""

    id = "custom:csv_special_character"
    kind = "the CSV table"
    fix = "the rows behind the one with the special character are looked at too; blank lines are allowed"
    _header = ("ProductID", "Category", "Brand", "Price", "Stock")

    def published(self, text: str) -> bool:
        """Look at the rows until one has such a field."""
        if not _header_fits(text, self._header, r",[ \t]*"):
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

    def fixed(self, text: str) -> bool:
        """Look at all rows."""
        lines = "\n".join(line for line in text.strip().split("\n") if line.strip())
        rows = _rows(lines.replace('"', '"""'), skipinitialspace=True)
        complete = len(rows) == 15 and all(len(row) == 5 for row in rows)
        return (
            complete and _header_fits(lines, self._header, r",[ \t]*") and any(any(map(_special, r)) for r in rows[1:])
        )

    def describe(self) -> str:
        """Return the condition in words."""
        return f"is a comma-separated table {', '.join(self._header)} with 14 rows and a quoted special character"


class CsvQuotes(IfbenchInstruction):
    """A table of three rows, tabs between fields, each field in double quotes."""

    id = "custom:csv_quotes"
    kind = "the CSV table"
    fix = "blank lines are allowed"
    _header = ("StudentID", "Subject", "Grade", "Semester", "Score")

    def published(self, text: str) -> bool:
        """Header, then three rows of five quoted fields."""
        if not _header_fits(text, self._header, r"\t *"):
            return False
        rows = _rows(text.replace('"', '"""'), delimiter="\t")
        quoted = all(field.strip()[:1] == '"' == field.strip()[-1:] for row in rows for field in row)
        return len(rows) == 4 and all(len(row) == 5 for row in rows) and quoted

    def fixed(self, text: str) -> bool:
        """The same without blank lines."""
        return self.published("\n".join(line for line in text.strip().split("\n") if line.strip()))

    def describe(self) -> str:
        """Return the condition in words."""
        return f"is a tab-separated table {', '.join(self._header)} with 3 rows, each field in double quotes"


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


ALL: tuple[type[IfbenchInstruction], ...] = (CsvCity, CsvSpecialCharacter, CsvQuotes)
"""The instructions of this module."""
