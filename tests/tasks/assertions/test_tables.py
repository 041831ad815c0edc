from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tasks.assertions.base import Outcome
from tasks.assertions.base import judge as check
from tests.tasks.assertions.build import build, judge, state, verdict

TABLE = 'name,sum,note\nann,2.50,"a, b"\n\nbob,3,\n'


def test_a_cell_by_number_and_by_where() -> None:
    files = {"t": TABLE}
    assert verdict(build("csv_cell", path="t", column="sum", row=1, equals="2.50"), files) == "pass"
    assert verdict(build("csv_cell", path="t", column="sum", row=1, equals=2.5), files) == "pass"
    assert verdict(build("csv_cell", path="t", column="sum", row=1, equals="2.5"), files) == "fail"
    assert verdict(build("csv_cell", path="t", column=3, row=1, equals="a, b"), files) == "pass"
    assert verdict(build("csv_cell", path="t", column="sum", where={"name": "bob"}, equals=3), files) == "pass"
    assert verdict(build("csv_cell", path="t", column="sum", row=2, equals=3.01, tolerance=0.01), files) == "pass"
    assert verdict(build("csv_cell", path="t", column=1, row=1, header=False, equals="name"), files) == "pass"


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"column": "total", "row": 1}, "has no column 'total' (it has name, sum, note)"),
        ({"column": "sum", "row": 3}, "has 2 rows, so there is no row 3"),
        ({"column": 9, "row": 1}, "the row has 3 cells, so there is no column 9"),
        ({"column": "sum", "where": {"name": "cy"}}, "has no row where name is 'cy'"),
        ({"column": "sum", "row": 1}, "sum of row 1 is '2.50' instead of 1"),
    ],
)
def test_a_cell_that_is_not_there(keys: dict[str, object], why: str) -> None:
    assert judge(build("csv_cell", path="t", equals=1, **keys), {"t": TABLE}).detail == f"t: {why}"


def test_numbers_that_are_none() -> None:
    check = build("csv_cell", path="t", column=1, row=1, header=False, equals=1)
    for text in ("nan", "inf", "one", '""'):
        assert verdict(check, {"t": text}) == "fail"


def test_rows() -> None:
    files = {"t": TABLE}
    assert verdict(build("csv_rows", path="t", count=2, columns=["name", "sum", "note"]), files) == "pass"
    assert verdict(build("csv_rows", path="t", rows=[{"name": "ann", "sum": 2.5}, {"name": "bob"}]), files) == "pass"
    assert judge(build("csv_rows", path="t", count=3), files).detail == "t: has 2 rows instead of 3"
    assert "instead of sum, name" in judge(build("csv_rows", path="t", columns=["sum", "name"]), files).detail
    assert (
        "no row where name is 'ann' and sum is 3"
        in judge(build("csv_rows", path="t", rows=[{"name": "ann", "sum": 3}]), files).detail
    )
    assert verdict(build("csv_rows", path="t", count=1, delimiter=";"), {"t": "a;b\n1;2"}) == "pass"
    assert verdict(build("csv_rows", path="t", count=0), {"t": ""}) == "pass"


def test_a_whole_table_however_its_cells_are_quoted_and_its_lines_end() -> None:
    check = build("csv_rows", path="t", equals="name,sum\nann,2.50\nbob,3\n")
    for text in (
        '"name","sum"\r\n"ann",2.50\r\nbob,"3"\r\n',
        "\ufeffname,sum\nann,2.50\nbob,3",
        "name,sum\n\nann,2.50\nbob,3\n\n",
    ):
        assert verdict(check, {"t": text}) == "pass"
    for text, why in (
        ("name,sum\nann,2.5\nbob,3\n", "line 2 is 'ann,2.5' instead of 'ann,2.50'"),  # cells are compared as text
        ("name,sum\nbob,3\nann,2.50\n", "line 2 is 'bob,3' instead of 'ann,2.50'"),
        ("name,sum\nann,2.50\nbob,3\njunk\n", "has 4 lines instead of 3"),
        ("name,sum\nann,2.50\n", "has 2 lines instead of 3"),
        ("sum,name\nann,2.50\nbob,3\n", "line 1 is 'sum,name' instead of 'name,sum'"),
        ("", "has 0 lines instead of 3"),
    ):
        assert judge(check, {"t": text}).detail == f"t: {why}"
    bare = build("csv_rows", path="t", equals="1;2\n3;4\n", header=False, delimiter=";")
    assert verdict(bare, {"t": '"1";2\r\n3;4'}) == "pass"
    assert verdict(bare, {"t": "1;2\n3;5\n"}) == "fail"


def test_what_is_no_csv_fails() -> None:
    for text in ('a,b\n"x', "a\n" + "x" * 200_000, 'a\n"x"y\n'):
        assert "is no CSV" in judge(build("csv_rows", path="t", count=1), {"t": text}).detail


@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "csv_cell", "column": "a", "equals": 1},
        {"kind": "csv_cell", "column": "a", "equals": 1, "row": 1, "where": {"a": 1}},
        {"kind": "csv_cell", "column": 0, "equals": 1, "row": 1},
        {"kind": "csv_cell", "column": "a", "equals": 1, "row": 1, "header": False},
        {"kind": "csv_cell", "column": "a", "equals": True, "row": 1},
        {"kind": "csv_rows"},
        {"kind": "csv_rows", "rows": [{}]},
        {"kind": "csv_rows", "columns": ["a"], "header": False},
        {"kind": "csv_rows", "count": 1, "delimiter": '"'},
    ],
)
def test_checks_that_ask_nothing_or_too_much_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        build(path="t", **keys)  # type: ignore[arg-type]


def test_numbers_are_plain_and_columns_are_unique() -> None:
    for cell in ("1_2", "\u0661\u0662", "0x0c", "nan", "1e99999", ""):
        assert verdict(build("csv_cell", path="t", column="n", row=1, equals=12), {"t": f"n\n{cell}\n\n"}) == "fail", (
            cell
        )
    for cell in ("12", " 12.0 ", "+12", "1.2e1"):
        assert verdict(build("csv_cell", path="t", column="n", row=1, equals=12), {"t": f"n\n{cell}\n"}) == "pass", cell
    twice = judge(build("csv_cell", path="t", column="x", row=1, equals="1"), {"t": "x,x\n1,2\n"})
    assert twice.verdict == "fail" and "more than one column 'x'" in twice.detail


def test_rows_that_contradict_each_other_fail() -> None:
    check = build("csv_cell", path="t", column="v", where={"k": "a"}, equals=1)
    assert verdict(check, {"t": "k,v\na,1\na,1\nb,2\n"}) == "pass"
    both = judge(check, {"t": "k,v\na,1\na,2\n"})
    assert both.verdict == "fail" and "2 rows where k is 'a', and they do not agree on v" in both.detail


def test_a_table_of_many_columns_and_rows_is_judged_in_time() -> None:
    wide = "," * 200_000 + "x\n" + "1\n" * 200_000
    assert verdict(build("csv_rows", path="t", rows=[{"x": "7"}]), {"t": wide}) == "fail"


@pytest.mark.parametrize(
    "text",
    ["a\0,b\n", '"', "a,a\n1,2\n", "x" * 200_000, ",".join("x" * 50_000), "\r\r\n", "\ud800,1", "name\n\u0661\n", ""],
)
def test_no_table_errs(text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    cells: list[dict[str, Any]] = [
        {"column": "name", "row": 1, "equals": 7.5},
        {"column": 99, "where": {"a": 1}, "equals": "x"},
    ]
    for keys in cells:
        (found,) = check(build("csv_cell", path="t", **keys), Outcome(state({"t": content}), {}))
        assert found.verdict == "fail"
    (found,) = check(build("csv_rows", path="t", rows=[{"a": 9}], tolerance=0.5), Outcome(state({"t": content}), {}))
    assert found.verdict == "fail"
    assert found.broke is ("x" * 200_000 in text)  # longer than any cell that is read
