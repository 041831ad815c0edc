"""The workspace code by itself, on a folder of the host."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import pytest

from sandboxes.inside import files
from sandboxes.inside import files as wiping
from sandboxes.inside.files import BadPath, Tree, path_parts, put, wipe


@pytest.mark.parametrize("path", ["", "/", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/.", "a\0b", "a/../../etc"])
def test_paths_that_leave_the_workspace(path: str) -> None:
    with pytest.raises(BadPath):
        path_parts(path)


def rows(root: Path) -> dict[str, tuple[str, bytes | None]]:
    with Tree(str(root)) as tree:
        found, body = tree.snapshot(1000, 1 << 20, 1 << 24)
    result: dict[str, tuple[str, bytes | None]] = {}
    offset = 0
    for path, kind, _, _, _, length in found:
        result[path] = (kind, body[offset : offset + length] if length >= 0 else None)
        offset += max(0, length)
    return result


def test_put_replaces_whatever_stands_in_the_way(tmp_path: Path) -> None:
    root, outside = tmp_path / "w", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "f").write_text("untouched")
    (root / "link").symlink_to(outside)
    (root / "file").symlink_to(outside / "f")
    (root / "tree" / "a" / "b").mkdir(parents=True)
    (root / "tree" / "a" / "b" / "x").write_text("x")
    os.mkfifo(root / "pipe")
    (root / "shut").mkdir(mode=0o000)
    entries = [
        ["link/f", "file", 0o644, None, 3],
        ["file", "file", 0o600, None, 1],
        ["tree", "file", 0o644, None, 1],
        ["pipe", "file", 0o644, None, 1],
        ["shut/in", "file", 0o644, None, 1],
        ["d", "dir", 0o555, None, 0],
        ["d/e", "file", 0o755, None, 0],
        ["s", "symlink", 0, "d/e", 0],
    ]
    put(str(root), entries, b"newABCD")
    assert (outside / "f").read_text() == "untouched"
    assert not (root / "link").is_symlink()
    found = rows(root)
    assert found["link/f"] == ("file", b"new")
    assert [found[name][1] for name in ("file", "tree", "pipe", "shut/in")] == [b"A", b"B", b"C", b"D"]
    assert found["s"] == ("symlink", None)
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o555
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o600
    assert sorted(found) == ["d", "d/e", "file", "link", "link/f", "pipe", "s", "shut", "shut/in", "tree"]
    (root / "d").chmod(0o755)


def test_traps_are_named_and_not_opened(tmp_path: Path) -> None:
    (tmp_path / "answer.txt").symlink_to("/etc/shadow")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "report.csv")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(30 << 30)
    (tmp_path / "shut").mkdir()
    (tmp_path / "shut" / "f").write_bytes(b"inside")
    (tmp_path / "shut" / "f").chmod(0)
    (tmp_path / "shut").chmod(0)
    (tmp_path / os.fsdecode(b"\xff\xfe")).touch()
    found = rows(tmp_path)
    assert found["answer.txt"] == ("symlink", None)
    assert found["loop"] == ("symlink", None)
    assert found["report.csv"] == ("other", None)
    assert found["sparse"] == ("file", None)
    assert found["shut/f"] == ("file", b"inside")
    assert found["\udcff\udcfe"] == ("file", b"")
    assert stat.S_IMODE((tmp_path / "shut").stat().st_mode) == 0, "the look gives every mode back"
    with Tree(str(tmp_path)) as tree:
        for name in ("answer.txt", "report.csv", "shut"):
            with pytest.raises(BadPath, match="not a regular file"):
                tree.content(name, 10)
        for name in ("nothing", "answer.txt/x", "loop/shut/f"):
            with pytest.raises(FileNotFoundError):
                tree.content(name, 10)
    wipe(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_shallowest_entries_survive_the_cap(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / "aaa" / str(number)).mkdir(parents=True)
    (tmp_path / "answer.txt").write_text("x")
    with Tree(str(tmp_path)) as tree:
        paths = [path for path, _, _ in tree.walk(10)]
    assert "answer.txt" in paths
    assert len(paths) == 10
    assert paths == sorted(paths)


def test_deep_trees_are_walked_and_wiped(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    fd = here
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        deeper = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    with Tree(str(tmp_path)) as tree:
        assert 100 < len(tree.walk(10_000)) < 1500
    put(str(tmp_path), [["d", "file", 0o644, None, 1]], b"x")
    assert rows(tmp_path) == {"d": ("file", b"x")}
    wipe(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_digests_see_content_mode_and_target(tmp_path: Path) -> None:
    def digest() -> list[list[object]]:
        with Tree(str(tmp_path)) as tree:
            found: list[list[object]] = tree.digests(100, 1 << 20, 1 << 20)
        return found

    (tmp_path / "f").write_text("a")
    (tmp_path / "l").symlink_to("f")
    seen = [digest()]
    assert digest() == seen[0]
    (tmp_path / "f").write_text("b")
    seen.append(digest())
    (tmp_path / "f").chmod(0o600)
    seen.append(digest())
    (tmp_path / "l").unlink()
    (tmp_path / "l").symlink_to("g")
    seen.append(digest())
    assert len({str(entry) for entry in seen}) == 4


def test_of_too_many_bytes_only_sizes_count_the_largest_first(tmp_path: Path) -> None:
    def digests(total: int) -> dict[str, str]:
        with Tree(str(tmp_path)) as tree:
            return {row[0]: row[4] for row in tree.digests(100, 1000, total)}

    for name, size in (("a", 900), ("b", 10), ("c", 900), ("d", 1500)):
        (tmp_path / name).write_bytes(b"x" * size)
    first = digests(2000)
    for name in "abcd":
        with open(tmp_path / name, "r+b") as file:
            file.write(b"y")
    second = digests(2000)
    assert [name for name in "abcd" if first[name] != second[name]] == ["a", "b", "c"]
    assert digests(900)["a"] == digests(0)["a"] != digests(2000)["a"], "a changed file that counts by its size"


def test_text_of_paths_and_links_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_TEXT", 3000)
    (tmp_path / "deep" / ("d" * 200)).mkdir(parents=True)
    for number in range(40):
        (tmp_path / "deep" / ("d" * 200) / str(number)).touch()
        (tmp_path / f"link{number:02}").symlink_to("t" * 150)
    (tmp_path / "zz").touch()
    with Tree(str(tmp_path)) as tree:
        paths = [path for path, _, _ in tree.walk(1000)]
        assert tree.cut
    assert paths == ["deep", *(f"link{number:02}" for number in range(15))]
    monkeypatch.setattr(files, "MAX_TEXT", 1 << 20)
    with Tree(str(tmp_path)) as tree:
        assert len(tree.walk(1000)) == 83 and not tree.cut
        assert len(tree.walk(83)) == 83 and not tree.cut
        assert len(tree.walk(82)) == 82 and tree.cut


def test_a_look_that_is_cut_keeps_what_a_whole_one_has_first(tmp_path: Path) -> None:
    dice = random.Random(7)
    folders = [tmp_path]
    for number in range(120):
        folder = dice.choice(folders) / f"{dice.choice('abc.-')}{number}"
        folder.mkdir()
        folders.append(folder)
        (dice.choice(folders) / f"f{number}").touch()
    with Tree(str(tmp_path)) as tree:
        whole = [path for path, _, _ in tree.walk(1000)]
        first = sorted(whole, key=lambda path: (path.count("/"), path))
        for limit in (1, 2, 5, 30, 100, 200, 239):
            assert [path for path, _, _ in tree.walk(limit)] == sorted(first[:limit])


def test_closed_directories_are_read_and_closed_again(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "f").write_text("x")
    (tmp_path / "a" / "b" / "g").write_text("y")
    for path, mode in (("a/b/c", 0), ("a/b", 0o400), ("a", 0o300)):
        (tmp_path / path).chmod(mode)
    found = rows(tmp_path)
    assert (found["a/b/c/f"], found["a/b/g"]) == (("file", b"x"), ("file", b"y"))
    for path, mode in (("a", 0o300), ("a/b", 0o400), ("a/b/c", 0)):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode
        (tmp_path / path).chmod(0o700)


def test_a_wipe_gives_up_in_time_and_never_leaves_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f").touch()
    with pytest.raises(wiping.Unfinished):
        wipe(str(root), seconds=-1)
    assert (root / "a" / "b" / "f").exists()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").touch()
    strip = wiping._strip

    def moved(fd: int, limit: float) -> tuple[list[str], bool]:
        found = strip(fd, limit)
        if not found[0] and (root / "a" / "b").exists():  # somebody moves the directory while it is emptied
            (root / "a" / "b").rename(tmp_path / "outside" / "b")
        return found

    monkeypatch.setattr(wiping, "_strip", moved)
    with pytest.raises(OSError, match="moved while"):
        wipe(str(root))
    assert (tmp_path / "outside" / "f").exists()


def test_letters_that_no_name_can_hold() -> None:
    with pytest.raises(BadPath, match="cannot be the name"):
        path_parts("a/\ud800")
