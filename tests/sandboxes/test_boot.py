from __future__ import annotations

import importlib.util
import marshal
import subprocess
import sys

import pytest

from sandboxes import Limits, boot
from sandboxes.boot import Settings, bundle, command_line, system_python
from sandboxes.inside.frames import FrameBuffer, pack
from sandboxes.inside.variables import environment


def ping(first: bytes, python: str, tmp: str) -> dict[str, object]:
    settings = Settings(tmp, tmp, tmp, (), Limits(), environment(tmp, tmp), user_processes=100)
    data = first + settings.frame() + pack({"id": 5, "op": "ping"})
    done = subprocess.run(command_line(python), input=data, capture_output=True, timeout=60)
    buffer = FrameBuffer()
    buffer.feed(done.stdout)
    frame = buffer.next()
    assert frame is not None, done.stderr.decode()
    head: dict[str, object] = frame[0]
    return head


@pytest.mark.parametrize("python", ["system", "ours"])
@pytest.mark.parametrize("magic", [None, b"none"])
def test_bootstrap_with_compiled_code_and_from_source(python: str, magic: bytes | None, tmp_path: str) -> None:
    first = bundle()
    if magic is not None:
        data = marshal.dumps((magic, marshal.loads(first[8:])[1]), 2)
        first = b"%08x" % len(data) + data
    reply = ping(first, system_python() if python == "system" else sys.executable, str(tmp_path))
    assert (reply["id"], reply["ok"]) == (5, True)


def test_bundle_names_our_byte_code() -> None:
    magic, modules = marshal.loads(bundle()[8:])
    assert magic == importlib.util.MAGIC_NUMBER
    assert modules[-1][0] == "sandboxes.supervisor"
    assert int(bundle()[:8], 16) == len(bundle()) - 8


def test_settings_hold_every_limit() -> None:
    buffer = FrameBuffer()
    buffer.feed(Settings("/w", "/t", "/g", ("/w",), Limits(processes=7), {}, user_processes=99).frame())
    frame = buffer.next()
    assert frame is not None
    assert frame[0]["memory_mb"] == Limits().memory_mb
    assert (frame[0]["processes"], frame[0]["user_processes"]) == (7, 99)
    assert set(Limits.__slots__) <= set(frame[0])  # type: ignore[attr-defined]


def test_no_python_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr("sys.base_prefix", "/nowhere")
    with pytest.raises(boot.SandboxUnavailable, match="install the system's python3"):
        system_python.__wrapped__()
