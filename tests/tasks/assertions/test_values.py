from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.assertions import on_files as patterns
from tasks.assertions.base import Outcome
from tasks.assertions.base import judge as check
from tests.tasks.assertions.build import build, judge, state, verdict

DATA = {"a": {"b": [1, {"odd.key": None}, "text"], "0": True}, "n": 2.5, "list": [1, 2]}


@pytest.mark.parametrize(
    ("at", "value"),
    [
        ("n", 2.5),
        ("a.b[0]", 1),
        ("a.b[0]", 1.0),
        ("a.b[-1]", "text"),
        ('a.b[1]["odd.key"]', None),
        ("$.a.0", True),
        ('["n"]', 2.5),
        ("$", DATA),
        ("", DATA),
        ("list", [1, 2]),
    ],
)
@pytest.mark.parametrize("kind", ["json_value", "yaml_value"])
def test_paths(kind: str, at: str, value: Any) -> None:
    assert verdict(build(kind, path="x", at=at, equals=value), {"x": json.dumps(DATA)}) == "pass"


@pytest.mark.parametrize(("at", "value"), [("list", [2, 1]), ("a.0", 1), ("a.b[0]", True), ("n", "2.5"), ("n", None)])
def test_other_values_and_other_types_fail(at: str, value: Any) -> None:
    assert verdict(build("json_value", path="x", at=at, equals=value), {"x": json.dumps(DATA)}) == "fail"


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("a.c", "a has no key 'c'"),
        ("a.b[3]", "a.b has 3 items, so there is no [3]"),
        ("n.x", "n is no mapping, so it has no key 'x'"),
        ("a[0]", "a is no list, so it has no [0]"),
        ("list.0", "list is no mapping, so it has no key '0'"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(at: str, why: str) -> None:
    assert judge(build("json_value", path="x", at=at, equals=1), {"x": json.dumps(DATA)}).detail == f"x: {why}"


@pytest.mark.parametrize("at", ["a..b", ".a", "a[", "a[x]", "a[*]", "a.", "a[1:2]", '["a]', "a['b']", '["\\q"]'])
def test_paths_that_are_none_are_refused(at: str) -> None:
    with pytest.raises(ValidationError, match=r"is no path|starts with a dot|no JSON text"):
        build("json_value", path="x", at=at, equals=1)


def test_exactly_one_condition_and_null_is_one() -> None:
    null = build("json_value", path="x", at="a", equals=None)
    assert null.canonical()["equals"] is None
    assert verdict(null, {"x": '{"a": null}'}) == "pass" and verdict(null, {"x": '{"a": 0}'}) == "fail"
    for keys in ({}, {"equals": 1, "length": 1}, {"equals": None, "matches": "x"}):
        with pytest.raises(ValidationError, match="exactly one of equals, matches or length"):
            build("json_value", path="x", at="a", **keys)


def test_tolerance_length_and_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"x": '{"n": [0.1, 2], "t": "abc", "b": true}'}
    assert verdict(build("json_value", path="x", at="n", equals=[0.11, 2], tolerance=0.02), files) == "pass"
    assert verdict(build("json_value", path="x", at="n", equals=[0.11, 2]), files) == "fail"
    assert verdict(build("json_value", path="x", at="n", length=2), files) == "pass"
    assert verdict(build("json_value", path="x", at="b", length=1), files) == "fail"
    assert verdict(build("json_value", path="x", at="t", matches="^a.c$"), files) == "pass"
    assert verdict(build("json_value", path="x", at="n[1]", matches="^2$"), files) == "pass"
    assert verdict(build("json_value", path="x", at="b", matches="."), files) == "fail"
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    slow = build("json_value", path="x", at="t", matches="(a|aa)+$")
    assert verdict(slow, {"x": json.dumps({"t": "a" * 60 + "b"})}) == "fail"


@pytest.mark.parametrize(
    "text",
    [
        'a: !!int ""',
        'a: !!int "_"',
        "a: !!bool maybe",
        "a: !!timestamp x",
        "a: 1" + ":10" * 120 + ".5",
        "a: 0x" + "f" * 300,
        "a: 0x" + "f" * 20_000,
        "a: 1" + ":1" * 400_000,
    ],
    ids=["int", "underscore", "bool", "timestamp", "sexagesimal", "hex", "long hex", "long sexagesimal"],
)
def test_odd_scalars_fail_and_are_no_way_out_of_a_grade(text: str) -> None:
    for condition in ({"equals": 2.5, "tolerance": 0.1}, {"matches": "^x$"}, {"length": 3}):
        assert verdict(build("yaml_value", path="x", at="a", **condition), {"x": text}) == "fail"


def test_a_whole_number_that_no_float_holds_is_another_one() -> None:
    files = {"x": '{"a": ' + "9" * 400 + "}"}
    assert verdict(build("json_value", path="x", at="a", equals=2.5, tolerance=0.1), files) == "fail"
    assert verdict(build("json_value", path="x", at="a", equals=int("9" * 400)), files) == "pass"


@pytest.mark.parametrize(
    "text", ["", "{", "{} {}", "NaN", "[Infinity]", "'a'", "[" * 100_000, "1" * 10_000, "\0", '{"a": 1,}']
)
def test_what_is_no_json_fails_and_says_so(text: str) -> None:
    result = judge(build("json_value", path="x", at="$", equals=1), {"x": text})
    assert result.verdict == "fail" and ("is no JSON" in result.detail or "instead of" in result.detail)


def test_json_may_start_with_a_byte_order_mark() -> None:
    assert verdict(build("json_value", path="x", at="a", equals=1), {"x": b'\xef\xbb\xbf{"a": 1}'}) == "pass"


def test_yaml_reads_keys_dates_aliases_and_merges() -> None:
    text = "base: &b {a: 1, c: 2}\n8080: open\nday: 2024-05-01\nweb:\n  <<: *b\n  a: 3\nsame: *b\nno: off\n"
    for at, value in (("8080", "open"), ("day", "2024-05-01"), ("web", {"a": 3, "c": 2}), ("same.a", 1), ("no", False)):
        assert verdict(build("yaml_value", path="x", at=at, equals=value), {"x": text}) == "pass", at


BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}], k{i}: {i}}}\n" for i in range(1, 12)
)
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: 1\n---\nb: 2",
        "!!python/object/apply:os.system ['true']",
        "&a [*a]",
        "&a {<<: *a}",
        "? [a]\n: 1",
        "a: 2024-99-99",
        "<<: 1",
        BOMB,
        LAUGHS,
        "[" * 100_000,
        "- " * 20_000,
        "\0",
    ],
)
def test_what_is_no_yaml_fails_in_time(text: str) -> None:
    assert verdict(build("yaml_value", path="x", at="$", equals=1), {"x": text}) == "fail"


HOSTILE_JSON = (
    "[" * 100_000, '{"a":' * 50_000, "NaN", '{"t": Infinity}', '{"t": 1e99999}', '{"t": ' + "9" * 5000 + "}",
    "\ufeff\ufeff{}", '{"t": "\\ud800"}', "\0", "{}{}", '{"t": {"t": []}}', "[null]", '"t"', "true", "",
    '{"t": -0.0}', '{"t": 1, "t": []}',
)  # fmt: skip
HOSTILE_YAML = (
    "[" * 1000, "a: " * 1000, "&a [*a]", "&a {t: *a}", "t: !!python/object:os.system x", "<<: 5",
    "t: " + "1:" * 300 + "1",
    "t: 2024-99-99", "t: !!float x", "t: !!int ''", "t: .nan", "? [a]\n: b", "a\0b", "\x07", "t: !!binary '*'",
    "---\n---\n",
    "&a [" + "*a, " * 10 + "]", "\n".join(f"l{n}: &l{n} [{f'*l{n - 1}, ' * 9 if n else 1}]" for n in range(9)),
    "t: !!timestamp 2001-01-01T99:00:00Z", "t: 0b" + "1" * 399, "t: 1e999", "t: &b\n  <<: *b", "%YAML 9.9\n---\nt: 1",
    "- " * 2000, "t: !!set {a, b}", "!!map [1]", "t: 0x", "t: 0o9", "t: 1_", "\t- x", "t: '\\ud800'", 't: "\\ud800"',
)  # fmt: skip


@pytest.mark.parametrize(
    "condition", [{"equals": [1, {"a": 2.5}]}, {"matches": "(a|aa)+$"}, {"length": 2}, {"equals": 5}]
)
def test_no_file_errs(condition: dict[str, Any]) -> None:
    for at in ("$", "t", "t[0].t", "[-1]"):
        for kind, files in (("json_value", HOSTILE_JSON), ("yaml_value", HOSTILE_YAML + HOSTILE_JSON)):
            for text in files:
                for content in (text.encode("utf-8", "surrogatepass"), text.encode("utf-16", "surrogatepass")):
                    (found,) = check(build(kind, path="x", at=at, **condition), Outcome(state({"x": content}), {}))
                    assert found.verdict != "error" and "check itself" not in found.detail, (at, text[:80], found)


def test_what_is_too_much_to_read_is_a_broken_fail() -> None:
    for kind, text in (("json_value", "[" * 100_000), ("json_value", "9" * 5000), ("yaml_value", "[" * 1000)):
        assert judge(build(kind, path="x", at="$", equals=5), {"x": text}).broke
        assert verdict(build("not", of={"kind": kind, "path": "x", "at": "$", "equals": 5}), {"x": text}) == "fail"
    assert not judge(build("json_value", path="x", at="$", equals=5), {"x": "NaN"}).broke
