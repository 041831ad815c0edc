from __future__ import annotations

import hashlib
from typing import Any

import pytest
from pydantic import ValidationError

from sandboxes.sandbox import EntryKind, FileEntry
from tests.tasks.assertions.build import build, judge, verdict


def test_equals_is_exact_and_names_the_first_difference() -> None:
    check = build("file_equals", path="a", equals="one\ntwo\n")
    assert verdict(check, {"a": "one\ntwo\n"}) == "pass"
    assert judge(check, {"a": "one\n2\n"}).detail == "a: line 2 is '2' instead of 'two'"
    assert judge(check, {"a": "one\ntwo"}).detail == "a: differs in the line end after the last line"
    assert verdict(check, {"a": "one\r\ntwo\r\n"}) == "fail"
    assert verdict(build("file_equals", path="a", equals=""), {"a": ""}) == "pass"


def test_a_loose_comparison_overlooks_blanks_at_the_ends() -> None:
    check = build("file_equals", path="a", equals="one\ntwo\n", loose=True)
    assert verdict(check, {"a": "one  \r\ntwo\n\n\n"}) == "pass"
    assert verdict(check, {"a": " one\ntwo"}) == "fail"
    assert judge(check, {"a": "one\n"}).detail == "a: has 1 lines instead of 2"


def test_a_folder_exists_through_a_link_inside_but_not_outside() -> None:
    check = build("dir_exists", path="d")
    assert verdict(check, {"d": None}) == "pass"
    assert verdict(check, {"d": "->e", "e": None}) == "pass"
    assert verdict(check, {"d": "file"}) == "fail"
    outside = judge(check, {"d": "->../etc"})
    assert outside.verdict == "fail" and "leaves the workspace and is not followed" in outside.detail
    assert "absolute links leave the workspace" in judge(check, {"d": "->/etc"}).detail


def test_a_folder_may_have_to_be_empty() -> None:
    empty, full = build("dir_exists", path="d", empty=True), build("dir_exists", path="d", empty=False)
    for files, result in (({"d": None}, "pass"), ({"d": None, "d/x": ""}, "fail"), ({"d": None, "dx": ""}, "pass")):
        assert verdict(empty, files) == result
        assert verdict(full, files) != result


@pytest.mark.parametrize(
    ("glob", "count"),
    [
        ("*.txt", 1),
        ("**/*.txt", 4),
        ("docs/*.txt", 2),
        ("docs/**", 3),
        ("docs/**/c.txt", 1),
        ("**", 5),
        ("?.txt", 1),
        ("[ab].txt", 1),
        ("**/sub/**/*.txt", 1),
        ("*", 2),
        ("docs", 0),
    ],
)
def test_globs(glob: str, count: int) -> None:
    files = {
        "a.txt": "",
        ".hidden": "",
        "docs": None,
        "docs/a.txt": "",
        "docs/b.txt": "",
        "docs/sub": None,
        "docs/sub/c.txt": "",
        "link.txt": "->a.txt",
    }
    assert verdict(build("file_count", glob=glob, equals=count), files) == "pass"
    assert verdict(build("file_count", glob=glob, equals=count + 1), files) == "fail"


def test_a_glob_takes_no_longer_than_the_path() -> None:
    check = build("file_count", glob="/".join(["**", "*a*a*a*a*"] * 20), equals=0)
    assert verdict(check, {"/".join(["a" * 200] * 18) + "/b": ""}) == "pass"


def test_counts_have_bounds() -> None:
    check = build("file_count", glob="*", min=1, max=2)
    assert verdict(check, {"a": ""}) == "pass"
    assert judge(check, {}).detail == "*: 0 files instead of at least 1 and at most 2"
    for keys in ({}, {"equals": 1, "min": 1}, {"min": 3, "max": 2}, {"equals": -1}, {"equals": True}):
        with pytest.raises(ValidationError):
            build("file_count", glob="*", **keys)
    with pytest.raises(ValidationError, match="whole part"):
        build("file_count", glob="a**/b", equals=1)
    with pytest.raises(ValidationError, match="leaves the workspace"):
        build("file_count", glob="../*", equals=1)


def test_modes() -> None:
    entry = FileEntry(content=b"", mode=0o755)
    assert verdict(build("file_mode", path="a", mode="0755"), {"a": entry}) == "pass"
    assert judge(build("file_mode", path="a", mode="644"), {"a": entry}).detail == "a: mode 0755 instead of 0644"
    with pytest.raises(ValidationError, match="three octal digits"):
        build("file_mode", path="a", mode="u+x")


@pytest.mark.parametrize(("text", "count"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)])
def test_lines(text: str, count: int) -> None:
    assert verdict(build("line_count", path="a", equals=count), {"a": text}) == "pass"
    assert verdict(build("line_count", path="a", equals=count + 1), {"a": text}) == "fail"


def test_loose_lines_do_not_count_empty_ones_at_the_end() -> None:
    check = build("line_count", path="a", equals=2, loose=True)
    for text in ("x\ny", "x\ny\n", "x\ny\n\n \n", "\ny\n"):
        assert verdict(check, {"a": text}) == "pass"
    for text in ("", "x\n\n", "x\ny\nz", "x\n\ny\n"):
        assert verdict(check, {"a": text}) == "fail"


def test_sha256() -> None:
    digest = hashlib.sha256(b"\xff\0").hexdigest()
    assert verdict(build("sha256", path="a", sha256=digest.upper()), {"a": b"\xff\0"}) == "pass"
    assert verdict(build("sha256", path="a", sha256=digest), {"a": b""}) == "fail"
    with pytest.raises(ValidationError, match="64 hexadecimal digits"):
        build("sha256", path="a", sha256="abc")


@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "file_equals", "equals": "x"},
        {"kind": "line_count", "equals": 0},
        {"kind": "sha256", "sha256": "0" * 64},
        {"kind": "json_value", "at": "$", "equals": 1},
        {"kind": "yaml_value", "at": "$", "equals": 1},
        {"kind": "csv_rows", "count": 0},
        {"kind": "csv_cell", "column": 1, "row": 1, "equals": "x", "header": False},
    ],
    ids=lambda keys: keys["kind"],
)
def test_what_is_no_file_to_read_fails(keys: dict[str, Any]) -> None:
    check = build(path="a", **keys)
    assert judge(check, {}).detail == "a: nothing there"
    assert judge(check, {"a": None}).detail == "a: is a folder, not a file"
    assert judge(check, {"a": FileEntry(EntryKind.OTHER, None)}).detail == "a: is a special file, not a file"
    assert "not followed" in judge(check, {"a": "->../../etc/passwd"}).detail
    large = judge(check, {"a": FileEntry(content=None, size=5_000_000)})
    assert large.verdict == "fail" and "over the cap" in large.detail
    assert check.on_files
