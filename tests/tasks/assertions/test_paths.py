from __future__ import annotations

import unicodedata

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.assertions.on_files import find, same_path, stands_at


def link(target: str) -> FileEntry:
    return FileEntry(kind=EntryKind.SYMLINK, content=None, target=target)


FOLDER = FileEntry(kind=EntryKind.DIR, content=None, mode=0o755)
FILE = FileEntry(content=b"x")
FILES = {
    "d": FOLDER,
    "d/f": FILE,
    "d/up": link("../top"),
    "top": FILE,
    "to-d": link("d"),
    "to-f": link("to-d/f"),
    "broken": link("nowhere"),
    "loop-a": link("loop-b"),
    "loop-b": link("loop-a"),
    "out": link("../secret"),
    "out-far": link("d/../../secret"),
    "abs": link("/etc/passwd"),
    "self": link("."),
}


def test_links_are_followed_inside() -> None:
    assert find(FILES, "to-f").path == "d/f"
    assert find(FILES, "to-d/up").path == "top"
    assert find(FILES, "self/d/f").path == "d/f"
    assert find(FILES, "self").entry is not None


def test_links_that_leave_are_not_followed_and_say_so() -> None:
    for path in ("out", "out-far", "abs"):
        found = find(FILES, path)
        assert found.entry is None
        assert "leave" in found.problem
        assert "not followed" in found.problem


def test_what_leads_nowhere_says_why() -> None:
    assert find(FILES, "missing").problem == "nothing there"
    assert "leads nowhere" in find(FILES, "broken").problem
    assert "circle" in find(FILES, "loop-a").problem
    assert "no folder" in find(FILES, "top/x").problem


def test_the_last_part_can_be_seen_as_the_link_it_is() -> None:
    assert stands_at(FILES, "broken").entry == FILES["broken"]
    assert stands_at(FILES, "to-d/up").entry == FILES["d/up"]
    assert stands_at(FILES, "self/top").entry == FILE
    assert stands_at(FILES, "out/x").entry is None


def test_unicode_in_either_form() -> None:
    decomposed = unicodedata.normalize("NFD", "données/été.csv")
    folder = decomposed.split("/")[0]
    files = {folder: FOLDER, decomposed: FILE}
    assert same_path(files, unicodedata.normalize("NFC", decomposed)) == decomposed
    assert find(files, "données/été.csv").entry == FILE
    assert stands_at(files, "données/été.csv").path == decomposed
    assert same_path(files, "donnees") is None


def test_the_exact_spelling_wins() -> None:
    one, two = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    files = {one: FileEntry(content=b"1"), two: FileEntry(content=b"2")}
    assert find(files, one).entry == files[one]
    assert find(files, two).entry == files[two]
