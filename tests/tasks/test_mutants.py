from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest

from sandboxes.sandbox import EntryKind, FileEntry
from tasks import mutants
from tasks.families import generate
from tasks.mutants import DELETE_ALL, JUNK, cheats, damaged, deletes_something
from tasks.sources import load_library


def file(text: str | bytes, mode: int = 0o644) -> FileEntry:
    content = text.encode() if isinstance(text, str) else text
    return FileEntry(content=content, size=len(content), mode=mode)


FOLDER = FileEntry(kind=EntryKind.DIR, content=None, mode=0o755)


def link(target: str) -> FileEntry:
    return FileEntry(kind=EntryKind.SYMLINK, content=None, mode=0o777, target=target)


def names(initial: dict[str, FileEntry], end: dict[str, FileEntry]) -> set[str]:
    return {mutant.name for mutant in damaged(initial, end)}


def test_what_was_made_or_changed_is_damaged_in_every_way_and_nothing_else() -> None:
    initial = {"kept.txt": file("same\n"), "changed.txt": file("old\n")}
    end = {**initial, "changed.txt": file("new\n"), "made.txt": file("made\n")}
    assert names(initial, end) == {
        "changed.txt: deleted", "changed.txt: emptied", "changed.txt: junk appended", "changed.txt: left as it was",
        "changed.txt: swapped with made.txt",
        "made.txt: deleted", "made.txt: emptied", "made.txt: junk appended",
    }  # fmt: skip
    found = {mutant.name: mutant.files for mutant in damaged(initial, end)}
    assert found["made.txt: emptied"] == {**end, "made.txt": file("")}
    assert found["made.txt: junk appended"]["made.txt"].content == b"made\n" + JUNK
    assert "made.txt" not in found["made.txt: deleted"]
    assert found["changed.txt: swapped with made.txt"]["changed.txt"].content == b"made\n"
    assert found["changed.txt: left as it was"]["changed.txt"].content == b"old\n"


def test_what_was_deleted_comes_back_with_the_folders_it_needs() -> None:
    initial = {"tmp": FOLDER, "tmp/a": FOLDER, "tmp/a/old.txt": file("x\n")}
    (mutant,) = damaged(initial, {})
    assert mutant.name == "tmp/a/old.txt: left as it was"
    assert mutant.files == initial


def test_a_mode_that_was_changed_is_taken_back() -> None:
    initial, end = {"run.sh": file("x", 0o644)}, {"run.sh": file("x", 0o755)}
    (mutant,) = damaged(initial, end)
    assert (mutant.name, mutant.files) == ("run.sh: left as it was", initial)


def test_links_and_empty_folders() -> None:
    end = {"current": link("v2"), "empty": FOLDER, "full": FOLDER, "full/a": file("a\n"), "latest": link("v3")}
    assert names({}, end) == {
        "current: deleted", "current: leads nowhere", "current: swapped with latest", "empty: deleted",
        "full/a: deleted", "full/a: emptied", "full/a: junk appended", "latest: deleted", "latest: leads nowhere",
    }  # fmt: skip


def test_equal_contents_are_not_swapped_and_empty_files_not_emptied() -> None:
    end = {"a": file(""), "b": file("")}
    assert names({}, end) == {"a: deleted", "a: junk appended", "b: deleted", "b: junk appended"}


def tar(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        folder = tarfile.TarInfo("p")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in members.items():
            info = tarfile.TarInfo(f"p/{name}")
            info.size, info.mode, info.mtime = len(data), 0o600, 7
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"p/{name}", data)
    return out.getvalue()


def read_tar(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getmember("p").isdir()
        files = [member for member in archive.getmembers() if member.isreg()]
        assert all((member.mode, member.mtime) == (0o600, 7) for member in files)
        found = {member.name.removeprefix("p/"): archive.extractfile(member) for member in files}
        return {name: file.read() for name, file in found.items() if file is not None}


def read_zip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.removeprefix("p/"): archive.read(name) for name in archive.namelist()}


def in_streams(pack, content: bytes) -> bytes:  # type: ignore[no-untyped-def]
    """A packed file of two streams, one behind the other, as parallel packers write it."""
    return pack(content[:700]) + pack(content[700:])


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (tar, read_tar),
        (lambda **m: gzip.compress(tar(**m)), read_tar),
        *((lambda pack=pack, **m: in_streams(pack, tar(**m)), read_tar) for pack in (gzip.compress, bz2.compress)),
        (lambda **m: in_streams(lzma.compress, tar(**m)), read_tar),
        (lambda **m: gzip.compress(tar(**m)) + bytes(512), read_tar),
        (lambda **m: bz2.compress(tar(**m)) + b"no stream", read_tar),
        (zipped, read_zip),
    ],
)
def test_members_of_archives_are_damaged_each(make, read) -> None:  # type: ignore[no-untyped-def]
    whole = {"one": b"1\n", "two": b"2\n"}
    end = {"p.archive": file(make(**whole))}
    inside = {
        mutant.name.removeprefix("p.archive: "): read(mutant.files["p.archive"].content)
        for mutant in damaged({}, end)
        if mutant.name.endswith("in it")
    }
    assert inside == {
        "p/one deleted in it": {"two": b"2\n"},
        "p/one emptied in it": {"one": b"", "two": b"2\n"},
        "junk appended to p/one in it": {"one": b"1\n" + JUNK, "two": b"2\n"},
        "p/two deleted in it": {"one": b"1\n"},
        "p/two emptied in it": {"one": b"1\n", "two": b""},
        "junk appended to p/two in it": {"one": b"1\n", "two": b"2\n" + JUNK},
        "p/one swapped with p/two in it": {"one": b"2\n", "two": b"1\n"},
    }


@pytest.mark.parametrize("content", [b"\x1f\x8bno gzip", b"PK\x03\x04", tar(a=b"x")[:600], b"BZh9", b"\xfd7zXZ\x00"])
def test_what_only_looks_like_an_archive_is_a_file_like_others(content: bytes) -> None:
    assert names({}, {"a": file(content)}) == {"a: deleted", "a: emptied", "a: junk appended"}


def zipped_with(method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("a", b"x" * (20_000 if method == zipfile.ZIP_DEFLATED else 10))
    return out.getvalue()


def sparse() -> bytes:
    """An old GNU sparse member: a few bytes that stand for many."""
    info = tarfile.TarInfo("a")
    info.size = 512
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"%011o\0%011o\0" % (0, 512)
    header[483:495] = b"%011o\0" % 32_768
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + sum(header[156:512]) + 8 * 32)
    return bytes(header) + b"x" * 512 + bytes(1024)


@pytest.mark.parametrize(
    "content",
    [
        *(pack(tar(a=b"x" * 20_000)) for pack in (gzip.compress, bz2.compress, lzma.compress)),
        *(zipped_with(method) for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
        sparse(),
    ],
    ids=("tar_gz", "tar_bz2", "tar_xz", "zip_deflated", "zip_bz2", "zip_lzma", "tar_sparse"),
)
def test_an_archive_that_unpacks_to_too_much_is_a_file_like_others(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"a: deleted", "a: emptied", "a: junk appended"}
    packed = content.startswith(b"PK") and content[8] not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    assert (names({}, {"a": file(content)}) == plain) == packed
    monkeypatch.setattr(mutants, "MAX_UNPACKED", 10_240)
    assert names({}, {"a": file(content)}) == plain


def test_cheats_know_the_names_of_the_files_and_the_words_of_the_request() -> None:
    initial = {"in.txt": file("3\n1\n2\n")}
    end = {**initial, "out": FOLDER, "out/sorted.txt": file("1\n2\n3\n")}
    found = {cheat.name: cheat.files for cheat in cheats("sort 'in.txt' into out/sorted.txt, 3 lines", initial, end)}
    assert set(found) == {
        DELETE_ALL, "touch the files", "copy in.txt", "copy in.txt, all else done", "write 'in.txt'",
        "write 'in.txt', all else done", "write '3'", "write '3', all else done",
    }  # fmt: skip
    assert found[DELETE_ALL] == {}
    assert found["touch the files"] == {**initial, "out": FOLDER, "out/sorted.txt": FileEntry()}
    assert found["copy in.txt"]["out/sorted.txt"].content == b"3\n1\n2\n"
    assert found["write '3'"]["out/sorted.txt"].content == b"3\n"


@pytest.mark.parametrize("made", ["", "hello", "hello  \n\n"])
def test_what_comes_to_the_work_itself_is_no_cheat(made: str) -> None:
    found = {cheat.name for cheat in cheats("write 'hello' into a, or nothing", {}, {"a": file(made)})}
    assert not found & {"write 'hello'" if made else "touch the files"}


def test_whether_something_is_to_be_deleted() -> None:
    assert deletes_something({"a": file("")}, {"b": file("")})
    assert not deletes_something({"a": file("")}, {"a": file("x"), "b": file("")})


def test_few_words_excuse_a_survivor_in_all_that_ships() -> None:
    shipped = [*load_library(), *generate("all", 200, seed=0)]
    assert sum(len(task.oracle.may_survive) for task in shipped if task.oracle) <= 10


def test_no_constant_is_often_the_right_count() -> None:
    tasks = generate("count", 400, seed=0)
    patterns = [
        assertion.pattern for task in tasks for assertion in task.assertions if assertion.kind == "file_matches"
    ]  # type: ignore[union-attr]
    assert len(patterns) == 400
    assert max(map(patterns.count, patterns)) < 0.18 * 400
