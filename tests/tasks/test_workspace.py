from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.workspace import Workspace, looks_like_script


def workspace(**content: Any) -> Workspace:
    return Workspace.model_validate(content)


def test_every_form_of_file_becomes_its_entry() -> None:
    entries = workspace(
        files={
            "a.txt": "héllo\n",
            "bin/run": {"text": "#!/bin/sh\n", "mode": "755"},
            "b.bin": {"base64": "AP/+\nAQ=="},
            "zeros": {"size": 3},
            "empty": {"text": ""},
            "link": {"symlink": "bin/run"},
        },
        dirs=["out/"],
    ).entries()
    assert entries == {
        "a.txt": FileEntry(content="héllo\n".encode(), size=7),
        "b.bin": FileEntry(content=b"\x00\xff\xfe\x01", size=4),
        "bin": FileEntry(kind=EntryKind.DIR, content=None, mode=0o755),
        "bin/run": FileEntry(content=b"#!/bin/sh\n", mode=0o755, size=10),
        "empty": FileEntry(content=b"", size=0),
        "link": FileEntry(kind=EntryKind.SYMLINK, content=None, mode=0o777, target="bin/run"),
        "out": FileEntry(kind=EntryKind.DIR, content=None, mode=0o755),
        "zeros": FileEntry(content=b"\0\0\0", size=3),
    }
    assert list(entries) == sorted(entries)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"files": {"a": {}}}, "exactly one of text, base64, size or symlink, but has nothing"),
        ({"files": {"a": {"text": "x", "size": 1}}}, "but has text and size"),
        ({"files": {"a": {"base64": "!!"}}}, "not valid base64"),
        ({"files": {"a": {"text": "x", "mode": "rwx"}}}, "not three octal digits"),
        ({"files": {"a": {"text": "x", "mode": "0999"}}}, "not three octal digits"),
        ({"files": {"a": {"text": "x", "mode": 493}}}, "valid string"),
        ({"files": {"a": {"size": -1}}}, "greater than or equal to 0"),
        ({"files": {"a": {"size": 10**9}}}, "less than or equal to"),
        ({"files": {"a": "x", "a/b": "y"}}, "'a' is a file, so 'a/b' cannot be in it"),
        ({"files": {"a": "x"}, "dirs": ["a/b"]}, "'a' is a file, so 'a/b' cannot be in it"),
        ({"files": {"a": "x"}, "dirs": ["a"]}, "as a file and as a folder"),
        ({"files": {"a": "x", "./a": "y"}}, "'a' and './a' are the same path"),
        ({"files": {"/a": "x"}}, "absolute"),
        ({"dirs": ["../out"]}, "leaves the workspace"),
        ({"files": {"l": {"symlink": "/etc/passwd"}}}, "the link 'l' leaves the workspace"),
        ({"files": {"d/l": {"symlink": "../../x"}}}, "the link 'd/l' leaves the workspace"),
        ({"files": {"l": {"symlink": ".."}}}, "leaves the workspace"),
        ({"files": {"s.sh": "set -e\r\nls\r\n"}}, r"'s.sh' is a script with CRLF line endings \(its line 1\)"),
        ({"files": {"s": "#!/bin/sh\necho\r\n"}}, r"CRLF line endings \(its line 2\)"),
        ({"files": {"s": {"text": "ls\r\n", "mode": "0755"}}}, "CRLF"),
    ],
)
def test_what_cannot_be_laid_is_refused(content: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        workspace(**content)


def test_crlf_is_allowed_where_no_shell_reads_it() -> None:
    entries = workspace(
        files={"list.csv": "a\r\n", "s.sh": {"base64": "bHMNCg=="}, "d/l": {"symlink": "../list.csv"}}
    ).entries()
    assert entries["list.csv"].content == b"a\r\n"
    assert entries["s.sh"].content == b"ls\r\n"


def test_scripts_are_told_by_shebang_suffix_or_mode() -> None:
    assert looks_like_script("a", "#!/bin/sh")
    assert looks_like_script("a.py", "")
    assert looks_like_script("a", "", "0755")
    assert not looks_like_script("a.csv", "x")


def test_links_through_links_stay_inside_too() -> None:
    inside = {"a/b/up": {"symlink": "../.."}, "c/l": {"symlink": "../a/b/up/x"}, "loop": {"symlink": "loop"}}
    assert set(workspace(files=inside).entries()) >= set(inside)
    with pytest.raises(ValidationError, match="the link 'c/l' leaves the workspace"):
        workspace(files={**inside, "c/l": {"symlink": "../a/b/up/../x"}})


@pytest.mark.parametrize(
    ("link", "words"),
    [({"symlink": "a\0b"}, "NUL"), ({"symlink": "a", "mode": "0755"}, "a link has no mode of its own")],
)
def test_links_that_cannot_be_laid(link: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        workspace(files={"l": link})
