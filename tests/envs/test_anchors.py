from __future__ import annotations

from envs.rewards import ObservationClass, anchor, workspace_hash
from sandboxes.sandbox import CommandResult, EntryKind, FileEntry


def file(content: bytes, mode: int = 0o644) -> FileEntry:
    return FileEntry(content=content, mode=mode, size=len(content))


def test_equal_workspaces_have_equal_hashes() -> None:
    a = {"a": file(b"1"), "b": file(b"2")}
    b = {"b": file(b"2"), "a": file(b"1")}
    assert workspace_hash(a) == workspace_hash(b)


def test_every_difference_counts() -> None:
    folder = FileEntry(EntryKind.DIR, None, 0o755)
    spaces = [
        {},
        {"a": file(b"")},
        {"a": file(b"x")},
        {"a": file(b"y")},
        {"b": file(b"x")},
        {"a": file(b"x", 0o755)},
        {"a": folder},
        {"a": FileEntry(EntryKind.SYMLINK, None, 0o777, "x")},
        {"a": FileEntry(EntryKind.SYMLINK, None, 0o777, "y")},
        {"a": FileEntry(content=None, size=5_000_000)},
        {"a": FileEntry(content=None, size=5_000_001)},
        {"a": file(b"x"), "b": file(b"")},
        {"ab": file(b"x")},
        {"bad\udcff": file(b"x")},
    ]
    assert len({workspace_hash(files) for files in spaces}) == len(spaces)


def test_boundaries_cannot_be_forged() -> None:
    assert workspace_hash({"ab": file(b"c")}) != workspace_hash({"a": file(b"bc")})
    assert workspace_hash({"a": file(b"1 file 644 0 1 1\nbx")}) != workspace_hash({"a": file(b""), "b": file(b"x")})


def test_classes() -> None:
    assert ObservationClass.of(CommandResult(0, b"", b"")) is ObservationClass.OK
    assert ObservationClass.of(CommandResult(3, b"", b"")) is ObservationClass.FAIL
    assert ObservationClass.of(CommandResult(0, b"", b"", timed_out=True)) is ObservationClass.TIMEOUT


def test_the_class_is_part_of_the_anchor() -> None:
    files = workspace_hash({})
    anchors = {anchor(files, kind) for kind in ObservationClass}
    assert len(anchors) == len(ObservationClass)
    assert all(text.startswith(files) and len(files) == 16 for text in anchors)
