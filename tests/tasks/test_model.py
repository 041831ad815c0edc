from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from tasks.model import clean_path, nearest, unknown_key


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("a.txt", "a.txt"),
        ("./a.txt", "a.txt"),
        ("a//b/", "a/b"),
        ("a/./b", "a/b"),
        ("with space/ü", "with space/ü"),
        (".hidden", ".hidden"),
        ("a..b/...", "a..b/..."),
    ],
)
def test_paths_have_one_spelling(path: str, clean: str) -> None:
    assert clean_path(path) == clean


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("/etc/passwd", "absolute"),
        ("../a", "leaves the workspace"),
        ("a/../../b", "leaves the workspace"),
        ("a/..", "leaves the workspace"),
        (".", "workspace itself"),
        ("~/a", "home folder"),
        ("a\nb", "control character"),
        ("a\0b", "control character"),
    ],
)
def test_paths_out_of_the_workspace_are_refused(path: str, words: str) -> None:
    with pytest.raises(PydanticCustomError, match=words):
        clean_path(path)


def test_the_nearest_name_is_offered() -> None:
    assert nearest("intnt", ["intent", "id"]) == "intent"
    assert nearest("contain", ["file_contains", "file_exists"]) == "file_contains"
    assert nearest("zzz", ["intent", "id"]) is None
    assert unknown_key("patern", ["path", "pattern"]) == (
        "unknown key 'patern': did you mean 'pattern'? (valid: path, pattern)"
    )
    assert unknown_key("zzz", ["path"], "family") == "unknown family 'zzz': (valid: path)"
