from __future__ import annotations

import pytest

from sandboxes.boot import PathAlias

ALIAS = PathAlias("/workspace", "/tmp/turngym-1/workspace", (("/tmp", "/tmp/turngym-1/tmp"),))


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        (b"cat /workspace/a", b"cat /tmp/turngym-1/workspace/a"),
        (b"cd /workspace", b"cd /tmp/turngym-1/workspace"),
        (b"PATH=$PATH:/workspace/bin", b"PATH=$PATH:/tmp/turngym-1/workspace/bin"),
        (b"cat '/workspace/a b' >/tmp/x", b"cat '/tmp/turngym-1/workspace/a b' >/tmp/turngym-1/tmp/x"),
        (b"ls /tmp;ls /workspace", b"ls /tmp/turngym-1/tmp;ls /tmp/turngym-1/workspace"),
    ],
)
def test_whole_paths_go_in_and_come_out(shown: bytes, real: bytes) -> None:
    assert ALIAS.inward(shown) == real
    assert ALIAS.outward(real) == shown


@pytest.mark.parametrize(
    "text", [b"/workspaces", b"/workspace-2", b"my/workspace", b"./tmp", b"$HOME/workspace", b"${X}/tmp", b"/tmp.old"]
)
def test_other_names_stay(text: bytes) -> None:
    assert ALIAS.inward(text) == text


def test_same_names_change_nothing() -> None:
    alias = PathAlias("/workspace", "/workspace")
    assert alias.inward(b"/workspace /tmp") == b"/workspace /tmp" == alias.outward(b"/workspace /tmp")
