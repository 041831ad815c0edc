"""`csv_cell` and `csv_rows`: what stands in a CSV table, however its cells are quoted and its lines end."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from tasks.assertions.base import AssertionKind, AssertionResult
from tasks.assertions.on_files import TextAssertion, shorten
from tasks.model import Items, Text, fault
from tasks.outcome import Outcome

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")

Value = str | int | float
"""What a cell is compared with: a text as it is, a number by its value."""


class _Unreadable(Exception):
    """The file holds no such table; the message says why."""


class _Table:
    """The rows of a CSV file, and its columns by name."""

    def __init__(self, rows: list[list[str]], header: bool) -> None:
        self.columns = rows[0] if header and rows else []
        self.rows = rows[1:] if header else rows
        self._places: dict[str, int] = {}
        self._twice: set[str] = set()
        for at, name in enumerate(self.columns):
            if self._places.setdefault(name, at) != at:
                self._twice.add(name)

    def place(self, column: str | int) -> int:
        """Return where a column stands, from 0. Raises _Unreadable."""
        if isinstance(column, int):
            return column - 1
        if column not in self._places:
            raise _Unreadable(f"has no column '{column}' (it has {', '.join(self.columns[:20])[:200]})")
        if column in self._twice:
            raise _Unreadable(f"has more than one column '{column}'")
        return self._places[column]

    def having(self, wanted: dict[str, Value], tolerance: float) -> list[list[str]]:
        """Return the rows that hold the wanted values. Raises _Unreadable."""
        places = {self.place(column): value for column, value in wanted.items()}
        return [
            row
            for row in self.rows
            if all(at < len(row) and _equal(row[at], value, tolerance) for at, value in places.items())
        ]


class TableAssertion(TextAssertion):
    """A check on a CSV file; blank lines in it do not count.

    Attributes:
        delimiter: What separates cells.
        header: Whether the first line names the columns.
        tolerance: How far a number may be off.
    """

    delimiter: str = Field(default=",", min_length=1, max_length=1)
    header: bool = True
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, delimiter: str) -> str:
        if delimiter in '\r\n"':
            raise fault(f"{delimiter!r} cannot separate cells")
        return delimiter

    def check(self, outcome: Outcome) -> AssertionResult:
        """Read the table and judge it."""
        text = self.text(outcome)
        if isinstance(text, AssertionResult):
            return text
        try:
            table = _Table(_read(text, self.delimiter), self.header)
            problem = self.wrong(table)
        except csv.Error as error:
            detail = f"{self.path}: is no CSV: {error}"
            return self.broken(detail) if "limit" in str(error) else self.failed(detail)  # 131,072 characters a cell
        except _Unreadable as error:
            return self.failed(f"{self.path}: {error}")
        return self.failed(f"{self.path}: {problem}") if problem else self.passed()

    def wrong(self, table: _Table) -> str:
        """Return what is wrong with the table; empty if nothing is. Raises _Unreadable."""
        raise NotImplementedError

    def _names_need_a_header(self, names: bool, key: str) -> None:
        if names and not self.header:
            raise fault(f"{key} names columns, but header is false: the table has no names", key)


class CsvCell(TableAssertion):
    """One cell holds the given value. The row is `row`, or that for which `where` holds; several must agree.

    Attributes:
        column: Its name, or its number from 1.
        row: Number from 1; the header does not count.
        where: Column to value.
        equals: Text, compared as it is, or a number, compared by value.
    """

    kind: Literal[AssertionKind.CSV_CELL] = AssertionKind.CSV_CELL
    column: Text | int
    row: int | None = Field(default=None, ge=1)
    where: dict[str, Value] = Field(default_factory=dict)
    equals: Value

    @model_validator(mode="after")
    def _one_row(self) -> CsvCell:
        if (self.row is None) is (not self.where):
            raise fault("needs exactly one of row and where")
        if isinstance(self.column, int) and self.column < 1:
            raise fault("columns are numbered from 1", "column")
        self._names_need_a_header(isinstance(self.column, str), "column")
        self._names_need_a_header(bool(self.where), "where")
        return self

    def wrong(self, table: _Table) -> str:
        """Find the row, then compare the cell."""
        column = table.place(self.column)
        if self.row is not None:
            if self.row > len(table.rows):
                return f"has {len(table.rows)} rows, so there is no row {self.row}"
            row = table.rows[self.row - 1]
        else:
            hits = table.having(self.where, self.tolerance)
            if not hits:
                return f"has no row where {_shown(self.where)}"
            if len({line[column] if column < len(line) else None for line in hits}) > 1:
                return f"has {len(hits)} rows where {_shown(self.where)}, and they do not agree on {self.column}"
            row = hits[0]
        if column >= len(row):
            return f"the row has {len(row)} cells, so there is no column {self.column}"
        if _equal(row[column], self.equals, self.tolerance):
            return ""
        return f"{self._cell()} is {shorten(row[column])} instead of {self.equals!r:.60}"

    def default_name(self) -> str:
        """Return kind, path and cell."""
        return f"{self.kind}:{self.path}:{self._cell()}"[:200]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self._cell()} in {self.path} is {self.equals!r:.60}"

    def _cell(self) -> str:
        return (
            f"{self.column} of row {self.row}" if self.row is not None else f"{self.column} where {_shown(self.where)}"
        )


class CsvRows(TableAssertion):
    """The table is this one, has so many rows, these columns, or rows like these; at least one of the four is asked.

    Attributes:
        equals: The whole table as CSV text, header and order of rows included; cells are compared as they are.
        count: Number of rows; the header does not count.
        columns: Names of all columns, in order.
        rows: For each of these (column to value) there is a row; one row may serve for several.
    """

    kind: Literal[AssertionKind.CSV_ROWS] = AssertionKind.CSV_ROWS
    equals: Text | None = None
    count: int | None = Field(default=None, ge=0)
    columns: Items[str] = ()
    rows: Items[dict[str, Value]] = ()

    @model_validator(mode="after")
    def _asks_something(self) -> CsvRows:
        if self.equals is None and self.count is None and not self.columns and not self.rows:
            raise fault("needs equals, count, columns or rows")
        for number, row in enumerate(self.rows):
            if not row:
                raise fault("asks for nothing: give a column and its value", "rows", number)
        self._names_need_a_header(bool(self.columns), "columns")
        self._names_need_a_header(bool(self.rows), "rows")
        return self

    def wrong(self, table: _Table) -> str:
        """Compare columns, then number, then rows, then the whole."""
        if self.columns and tuple(table.columns) != self.columns:
            return f"the columns are {', '.join(table.columns)[:200]} instead of {', '.join(self.columns)}"
        if self.count is not None and len(table.rows) != self.count:
            return f"has {len(table.rows)} rows instead of {self.count}"
        for wanted in self.rows:
            if not table.having(wanted, self.tolerance):
                return f"has no row where {_shown(wanted)}"
        return self._differs(table) if self.equals is not None else ""

    def _differs(self, table: _Table) -> str:
        """Return the first line that is another one than in `equals`; empty if the tables are the same."""
        wanted = _read(self.equals or "", self.delimiter)
        found = [table.columns, *table.rows] if self.header and table.columns else table.rows
        for number, (line, other) in enumerate(zip(found, wanted, strict=False), start=1):
            if line != other:
                ours, theirs = (shorten(self.delimiter.join(cells)) for cells in (line, other))
                return f"line {number} is {ours} instead of {theirs}"
        return "" if len(found) == len(wanted) else f"has {len(found)} lines instead of {len(wanted)}"

    def describe(self) -> str:
        """Return the condition in words."""
        parts = [
            f"the lines {shorten(self.equals)}" if self.equals is not None else "",
            f"{self.count} rows" if self.count is not None else "",
            f"the columns {', '.join(self.columns)}" if self.columns else "",
            *(f"a row where {_shown(row)}" for row in self.rows),
        ]
        return f"{self.path} has {', '.join(part for part in parts if part)}"


def _read(text: str, delimiter: str) -> list[list[str]]:
    """Return the rows of a CSV text, blank lines left out. Raises csv.Error."""
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=delimiter, strict=True)
    return [row for row in lines if row]


def _equal(cell: str, wanted: Value, tolerance: float) -> bool:
    if isinstance(wanted, str):
        return cell == wanted
    if not _NUMBER.fullmatch(cell.strip()):
        return False
    number = float(cell)
    return math.isfinite(number) and (number == wanted or abs(number - wanted) <= tolerance * (1 + 1e-12))


def _shown(wanted: dict[str, Value]) -> str:
    return " and ".join(f"{column} is {value!r:.40}" for column, value in wanted.items())
