from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sandboxes.sandbox import EntryKind, FileEntry, Snapshot
from tasks.assertions import (
    AssertionKind,
    AssertionResult,
    FileContains,
    FileExists,
    FileMatches,
    FileNotExists,
    FileUnchanged,
    Verdict,
)
from tasks.assertions import on_files as patterns
from tasks.assertions.base import Outcome, cut_short
from tests.tasks.assertions.build import build

FOLDER = FileEntry(kind=EntryKind.DIR, content=None, mode=0o755)
BIG = FileEntry(content=None, size=5_000_000)


def link(target: str) -> FileEntry:
    return FileEntry(kind=EntryKind.SYMLINK, content=None, target=target)


def outcome(files: Mapping[str, FileEntry | bytes], initial: Mapping[str, FileEntry | bytes] | None = None) -> Outcome:
    def lay(given: Mapping[str, FileEntry | bytes]) -> dict[str, FileEntry]:
        return {
            path: entry if isinstance(entry, FileEntry) else FileEntry(content=entry) for path, entry in given.items()
        }

    return Outcome(files=lay(files), initial=lay(initial or {}))


def verdict(result: AssertionResult) -> str:
    assert (result.score is None) == (result.verdict is Verdict.ERROR)
    assert (result.score == 1.0) == (result.verdict is Verdict.PASS)
    assert bool(result.detail) == (result.verdict is not Verdict.PASS)
    return result.verdict.value


def test_exists() -> None:
    files = {"f": b"", "d": FOLDER, "l": link("f"), "broken": link("x"), "out": link("../x")}
    found = {path: verdict(FileExists(path=path).check(outcome(files))) for path in (*files, "none")}
    assert found == {"f": "pass", "d": "pass", "l": "pass", "broken": "fail", "out": "fail", "none": "fail"}
    assert "not followed" in FileExists(path="out").check(outcome(files)).detail


def test_not_exists_sees_links_that_lead_nowhere() -> None:
    files = {"f": b"", "d": FOLDER, "broken": link("x")}
    found = {
        path: verdict(FileNotExists(path=path).check(outcome(files))) for path in (*files, "none", "d/none", "f/none")
    }
    assert found == {"f": "fail", "d": "fail", "broken": "fail", "none": "pass", "d/none": "pass", "f/none": "pass"}


def test_contains_wants_every_text() -> None:
    files = {"f": "héllo\nworld\n".encode(), "d": FOLDER, "l": link("f"), "big": BIG}

    def check(path: str, *texts: str) -> str:
        return verdict(FileContains(path=path, contains=texts).check(outcome(files)))

    assert check("f", "hé", "world\n") == "pass"
    assert check("l", "hé") == "pass"
    assert check("f", "hé", "zzz") == "fail"
    assert check("f", "HÉ") == "fail"
    assert check("d", "x") == "fail"
    assert check("none", "x") == "fail"
    assert check("big", "x") == "fail"


def test_contains_names_what_is_missing_and_points_at_crlf() -> None:
    files = {"f": b"a\r\nb\r\n"}
    result = FileContains(path="f", contains=("a", "zzz", "a\nb")).check(outcome(files))
    assert "'zzz'" in result.detail and "'a'" not in result.detail
    assert "CRLF" in result.detail
    assert verdict(FileContains(path="f", contains=("a\r\nb",)).check(outcome(files))) == "pass"


def test_bytes_that_are_no_text_are_replaced() -> None:
    files = {"f": b"\xff\xfeabc\x00"}
    assert verdict(FileContains(path="f", contains=("abc",)).check(outcome(files))) == "pass"
    assert verdict(FileMatches(path="f", pattern="^\ufffd\ufffdabc").check(outcome(files))) == "pass"


def test_matches_searches_without_flags() -> None:
    files = {"f": b"one\ntwo\n", "empty": b"", "big": BIG, "d": FOLDER}

    def check(path: str, pattern: str) -> str:
        return verdict(FileMatches(path=path, pattern=pattern).check(outcome(files)))

    assert check("f", "tw") == "pass"
    assert check("f", "^two") == "fail"
    assert check("f", "(?m)^two$") == "pass"
    assert check("f", "one.two") == "fail"
    assert check("f", "(?s)one.two") == "pass"
    assert check("empty", r"\A\Z") == "pass"
    assert check("none", r"\A\Z") == "fail"
    assert check("d", "x") == "fail"
    assert check("big", "x") == "fail"


def test_a_file_that_the_agent_blew_up_fails_and_one_laid_that_large_is_an_error() -> None:
    """An error leaves an episode without a reward, so it must not be in the agent's reach."""
    for check in (FileContains(path="f", contains=("x",)).check, FileMatches(path="f", pattern="x").check):
        assert verdict(check(outcome({"f": BIG}, {"f": FileEntry(content=b"x")}))) == "fail"
        assert verdict(check(outcome({"f": BIG}, {}))) == "fail"
        assert verdict(check(outcome({"f": BIG}, {"f": BIG}))) == "error"
        assert "over the cap" in check(outcome({"f": BIG}, {})).detail


def test_a_search_without_end_is_the_agents_doing_unless_the_task_laid_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    files = {"f": b"a" * 5000 + b"b"}
    check = FileMatches(path="f", pattern=r"(a*)*(a*)*c?\Z(?<=c)|(.*)*x")
    padded, laid = check.check(outcome(files)), check.check(outcome(files, files))
    assert (verdict(padded), verdict(laid)) == ("fail", "error")
    assert "took longer" in padded.detail and "took longer" in laid.detail


def test_absence_cannot_be_seen_in_a_snapshot_that_was_cut_short() -> None:
    files = laid = {"d": FOLDER, "d/kept": b"x"}

    def check(kind: str, cut: bool, **keys: Any) -> str:
        seen = outcome(files, laid)
        return verdict(build(kind, **keys).check(replace(seen, cut_short=cut)))

    for kind, keys in (
        ("file_not_exists", {"path": "z/secret"}),
        ("file_count", {"glob": "z/*", "equals": 0}),
        ("file_unchanged", {"path": "d"}),
        ("not", {"of": {"kind": "file_exists", "path": "z/secret"}}),
    ):
        assert (check(kind, False, **keys), check(kind, True, **keys)) == ("pass", "fail"), kind
    assert check("file_exists", True, path="d/kept") == "pass"


def test_a_snapshot_says_itself_that_it_is_cut_short() -> None:
    few = outcome({"a": b"", "b/c": b""}).files
    assert not cut_short(few) and not cut_short(Snapshot(few)) and cut_short(Snapshot(few, cut=True))


def test_unchanged_compares_bytes() -> None:
    initial = {"f": b"\xff\x00\n", "g": b"x", "e": b""}

    def check(path: str, files: Mapping[str, FileEntry | bytes]) -> str:
        return verdict(FileUnchanged(path=path).check(outcome(files, initial)))

    assert check("f", initial) == "pass"
    assert check("f", {"f": FileEntry(content=b"\xff\x00\n", mode=0o600)}) == "pass"
    assert check("e", initial) == "pass"
    assert check("f", {"f": b"\xfe\x00\n"}) == "fail"  # equal as replaced text, but not as bytes
    assert check("g", {"g": b"x\n"}) == "fail"
    assert check("g", {}) == "fail"
    assert check("g", {"g": FOLDER}) == "fail"
    assert check("g", {"g": link("h"), "h": b"x"}) == "fail"
    assert check("other", {"other": b"x"}) == "error"


def test_unchanged_compares_links_by_target() -> None:
    initial = {"l": link("a"), "a": b"1"}
    check = FileUnchanged(path="l").check
    assert verdict(check(outcome({"l": link("a"), "a": b"2"}, initial))) == "pass"
    assert verdict(check(outcome({"l": link("b"), "a": b"1"}, initial))) == "fail"
    assert verdict(check(outcome({"l": b"1", "a": b"1"}, initial))) == "fail"


def test_unchanged_looks_into_folders() -> None:
    initial = {"d": FOLDER, "d/a": b"1", "d/e": FOLDER, "dd": b"x"}

    def check(files: Mapping[str, FileEntry | bytes]) -> AssertionResult:
        return FileUnchanged(path="d").check(outcome(files, initial))

    assert verdict(check({**initial, "dd": b"y", "d2": b""})) == "pass"
    assert "d/a: changed" in check({**initial, "d/a": b"2"}).detail
    assert "d/new: added" in check({**initial, "d/new": b""}).detail
    assert "d/e: gone" in check({"d": FOLDER, "d/a": b"1"}).detail


def test_files_over_the_cap_are_an_error_unless_the_size_tells() -> None:
    def check(before: FileEntry, after: FileEntry) -> str:
        return verdict(FileUnchanged(path="f").check(outcome({"f": after}, {"f": before})))

    assert check(BIG, BIG) == "error"
    assert check(BIG, FileEntry(content=None, size=6_000_000)) == "fail"
    assert check(FileEntry(content=b"x"), BIG) == "fail"
    assert check(FileEntry(content=b"x"), FileEntry(content=None, size=None)) == "fail"  # what the agent left is unseen


def test_results_are_json_able_and_carry_the_weight() -> None:
    result = FileExists(path="f", name="there", weight=3).check(outcome({"f": b""}))
    assert result.record() == {
        "name": "there",
        "kind": "file_exists",
        "verdict": "pass",
        "score": 1.0,
        "detail": "",
        "weight": 3.0,
    }
    assert result.kind is AssertionKind.FILE_EXISTS


def test_conditions_are_told_in_words() -> None:
    assert FileExists(path="f").describe() == "f exists"
    assert FileNotExists(path="f").describe() == "f does not exist"
    assert FileContains(path="f", contains=("a", "b")).describe() == "f contains 'a', 'b'"
    assert FileMatches(path="f", pattern="^a").describe() == "f matches '^a'"
    assert FileUnchanged(path="f").describe() == "f is as it was"
    assert FileMatches(path="f", pattern="a" * 100).describe().endswith("...'")
