"""The kinds on structured files: cells and rows of CSV, values in JSON and YAML."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import re
import reprlib
from typing import Annotated, Any, Literal

import regex
import yaml
from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from tasks.assertions.base import AssertionKind, AssertionResult, Outcome
from tasks.assertions.on_files import Pattern, TextAssertion, TooSlow, search, shorten
from tasks.model import BAD_SCALAR, MAX_NUMBER, Items, Text, fault

# -- `csv_cell` and `csv_rows`: what stands in a CSV table, however its cells are quoted and its lines end ------------

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


# -- `json_value` and `yaml_value`: one value inside a structured file ------------------------------------------------

MAX_NODES = 100_000
"""Values that a YAML file may hold, those that aliases and merge keys repeat counted each time."""
MAX_NESTING = 500
"""How deep brackets may stand in one another in YAML: the parser recurses."""

_STEP = regex.compile(r"""\.?([^.\[\]"']+)|\[(-?\d+)\]|\[("(?:[^"\\]|\\.)*")\]""")

_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxlist, _BRIEF.maxdict, _BRIEF.maxother = 2, 60, 4, 4, 60


class _Malformed(Exception):
    """The file is not what it should be; the message says how."""


class _Beyond(_Malformed):
    """The file may be what it should be, but is more than anybody would write, and is not read."""


def _steps(at: str) -> list[str | int]:
    """Split `a.b[0]["odd.key"]` into keys and positions."""
    steps: list[str | int] = []
    rest = at.removeprefix("$")
    if at.startswith("."):
        raise fault(f"'{at}' starts with a dot: write '{at.lstrip('.')}'")
    while rest:
        match = _STEP.match(rest)
        if match is None:
            raise fault(f"'{at}' is no path: write keys with dots, positions as [0], odd keys as [\"a.b\"]")
        key, position, quoted = match.groups()
        steps.append(int(position) if position is not None else json.loads(quoted) if quoted is not None else key)
        rest = rest[match.end() :]
    return steps


def _path(at: str) -> str:
    try:
        _steps(at)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise fault(f"'{at}' holds a key in quotes that is no JSON text: {error}") from error
        raise
    return at


class ValueAssertion(TextAssertion):
    """The value at a path in a file is the given one. Exactly one of `equals`, `matches` and `length` is given.

    Attributes:
        at: Keys with dots, positions from 0 as `[0]` (from the end: `[-1]`), odd keys as `["a.b"]`; a leading `$` is
            allowed. `$` or nothing is the whole file. No wildcards, filters or slices.
        equals: The value. 1 and 1.0 are equal, 1 and true are not; the order of keys does not count, of lists it does.
        tolerance: How far a number may be off, at any depth of `equals`.
        matches: A regular expression that is found in the value, which must be text (or a number, as it is written).
        length: How many items or keys the value has; for text, characters.
    """

    at: Annotated[str, AfterValidator(_path)]
    equals: JsonValue = None
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    matches: Pattern | None = None
    length: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_condition(self) -> ValueAssertion:
        given = [key for key in ("equals", "matches", "length") if key in self.model_fields_set]
        if len(given) != 1:
            what = "nothing" if not given else " and ".join(given)
            raise fault(f"needs exactly one of equals, matches or length, but has {what}")
        return self

    @model_serializer(mode="wrap")
    def _keep_null(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        if "equals" in self.model_fields_set:
            found["equals"] = self.equals  # `equals: null` is a condition, though null is the default
        return found

    def check(self, outcome: Outcome) -> AssertionResult:
        """Read the file, go to the value, compare."""
        text = self.text(outcome)
        if isinstance(text, AssertionResult):
            return text
        where = f"{self.path}: {self.at or '$'}"
        try:
            value = _follow(self.read(text.removeprefix("\ufeff")), _steps(self.at))
            problem = self._wrong(value)
        except _Beyond as error:
            return self.broken(f"{self.path}: {error}")
        except _Malformed as error:
            return self.failed(f"{self.path}: {error}")
        except TooSlow as error:
            return self.too_slow(outcome, str(error))
        return self.failed(f"{where}: {problem}") if problem else self.passed()

    def read(self, text: str) -> Any:
        """Return the file as plain data. Raises _Malformed."""
        raise NotImplementedError

    def default_name(self) -> str:
        """Return kind, path and place."""
        return f"{self.kind}:{self.path}:{self.at or '$'}"

    def describe(self) -> str:
        """Return the condition in words."""
        if self.matches is not None:
            return f"{self.at or '$'} in {self.path} matches {self.matches!r:.60}"
        if self.length is not None:
            return f"{self.at or '$'} in {self.path} has {self.length} items"
        return f"{self.at or '$'} in {self.path} is {_value_shown(self.equals)}"

    def _wrong(self, value: Any) -> str:
        """Return what is wrong with the value; empty if nothing is."""
        if self.matches is not None:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                return f"is {_value_shown(value)}, which is no text"
            return "" if search(self.matches, _written(value)) else f"is {_value_shown(value)}: no match"
        if self.length is not None:
            if not isinstance(value, str | list | dict):
                return f"is {_value_shown(value)}, which has no length"
            return "" if len(value) == self.length else f"has {len(value)} items instead of {self.length}"
        if _same_value(value, self.equals, self.tolerance):
            return ""
        return f"is {_value_shown(value)} instead of {_value_shown(self.equals)}"


class JsonFileValue(ValueAssertion):
    """A value in a JSON file."""

    kind: Literal[AssertionKind.JSON_VALUE] = AssertionKind.JSON_VALUE

    def read(self, text: str) -> Any:
        """Parse strictly: no NaN, nothing after the value."""
        try:
            return json.loads(text, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise _Malformed(f"is no JSON: {error}") from None
        except (ValueError, RecursionError) as error:  # Python reads no numbers of more than 4,300 digits
            raise (_Malformed if isinstance(error, _NoNumber) else _Beyond)(f"is no JSON: {error}") from None


class YamlFileValue(ValueAssertion):
    """A value in a YAML file (one document). Keys are compared as text, dates are read as text."""

    kind: Literal[AssertionKind.YAML_VALUE] = AssertionKind.YAML_VALUE

    def read(self, text: str) -> Any:
        """Parse without tags of any kind; aliases and merge keys are followed as far as `MAX_NODES` allows."""
        depth = deepest = 0
        for letter in text:
            depth += (letter in "[{") - (letter in "]}")
            deepest = max(deepest, depth)
        if deepest > MAX_NESTING:
            raise _Beyond(f"is nested more than {MAX_NESTING} deep")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        try:
            root = loader.get_single_node()
            return None if root is None else _Plain(loader).value(root, 0)
        except RecursionError:
            raise _Beyond(f"is nested more than {MAX_NESTING} deep") from None
        except (yaml.YAMLError, *BAD_SCALAR) as error:
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise _Malformed(f"is no YAML: {why}") from None
        finally:
            loader.dispose()


class _Plain:
    """Turns YAML nodes into plain data, counting."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._left = MAX_NODES

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_NESTING:
            raise _Beyond(f"holds more than {MAX_NODES} values, or is nested more than {MAX_NESTING} deep")
        if isinstance(node, yaml.ScalarNode):
            if len(node.value) > MAX_NUMBER and not node.tag.endswith(":str"):
                raise _Beyond(f"holds a number of {len(node.value)} characters")  # slow to read, and in no file
            found = node.value if node.tag.endswith(":value") else self._loader.construct_object(node)
            return found.isoformat() if isinstance(found, datetime.date) else found
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, item in node.value:
            if key.tag.endswith(":merge"):
                found = self.value(item, depth + 1)
                for part in reversed(found if isinstance(found, list) else [found]):
                    if not isinstance(part, dict):
                        raise _Malformed("merges (`<<`) what is no mapping")
                    merged.update(part)
            elif not isinstance(key, yaml.ScalarNode):
                raise _Malformed("has a key that is a list or a mapping")
            else:
                own[key.value] = self.value(item, depth + 1)
        return {**merged, **own}


def _value_shown(value: Any) -> str:
    try:
        return _BRIEF.repr(value)
    except ValueError:  # Python writes no numbers of more than 4,300 digits
        return "a number of thousands of digits"


def _written(value: str | float) -> str:
    try:
        return str(value)
    except ValueError as error:
        raise _Beyond("holds a number of thousands of digits") from error


class _NoNumber(ValueError):
    """`NaN` and the like."""


def _no_constant(word: str) -> None:
    raise _NoNumber(f"{word} is no JSON number")


def _follow(value: Any, steps: list[str | int]) -> Any:
    for number, step in enumerate(steps):
        here = (
            "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in steps[:number]).lstrip(".") or "$"
        )
        if isinstance(step, int):
            if not isinstance(value, list):
                raise _Malformed(f"{here} is no list, so it has no [{step}]")
            if not -len(value) <= step < len(value):
                raise _Malformed(f"{here} has {len(value)} items, so there is no [{step}]")
        elif not isinstance(value, dict):
            raise _Malformed(f"{here} is no mapping, so it has no key '{step}'")
        elif step not in value:
            raise _Malformed(f"{here} has no key '{step}'")
        value = value[step]
    return value


def _near(value: float, wanted: float, tolerance: float) -> bool:
    try:
        return abs(value - wanted) <= tolerance * (1 + 1e-12)
    except OverflowError:  # a whole number that no float can hold
        return False


def _same_value(value: Any, wanted: Any, tolerance: float) -> bool:
    """Compare as JSON does. As deep as `wanted`, so a value that contains itself ends."""
    if isinstance(wanted, bool) or isinstance(value, bool) or wanted is None or value is None:
        return type(value) is type(wanted) and value == wanted
    if isinstance(wanted, int | float) and isinstance(value, int | float):
        return value == wanted or (tolerance > 0 and _near(value, wanted, tolerance))
    if isinstance(wanted, list) and isinstance(value, list):
        return len(value) == len(wanted) and all(map(lambda a, b: _same_value(a, b, tolerance), value, wanted))
    if isinstance(wanted, dict) and isinstance(value, dict):
        return value.keys() == wanted.keys() and all(_same_value(value[key], wanted[key], tolerance) for key in wanted)
    return type(value) is type(wanted) and bool(value == wanted)
