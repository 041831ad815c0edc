from __future__ import annotations

import importlib.util
import marshal
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes import Limits, SupervisedSandbox, boot, local
from sandboxes.boot import Settings, bundle, command_line, environment, system_python, with_image
from sandboxes.inside.frames import FrameBuffer, pack
from sandboxes.inside.shell import graders_part
from sandboxes.sandbox import Terms


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


OWN = environment("/workspace", "/tmp")
REST = "/usr/local/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([], {}),
        ([f"{name}={value}" for name, value in OWN.items()], {}),
        (["APP_MODE=a=b", "LANG=de_DE.UTF-8", "EMPTY="], {"APP_MODE": "a=b", "LANG": "de_DE.UTF-8", "EMPTY": ""}),
        (["PATH=/opt/x/bin:/usr/bin::bin"], {"PATH": f"/opt/x/bin:/usr/bin:bin:{REST}"}),
        (["HOME=/root", "TMPDIR=/x", "LC_CTYPE=C", "PWD=/x", "GRADER=/x", "BASH_ENV=/x", "BASHOPTS=x", "_tg_s=x"], {}),
        (["UID=0", "SHELLOPTS=xtrace", "npm_config.x=1", "A-B=1", "=x", "n\u00e4me=1"], {}),
        (["LD_PRELOAD=/opt/a.so", "PYTHONPATH=/opt/lib"], {"LD_PRELOAD": "/opt/a.so", "PYTHONPATH": "/opt/lib"}),
    ],
    ids=["nothing", "ours", "plain", "path", "the sandbox's", "not a shell's", "loading code"],
)
def test_what_an_image_sets_is_taken_where_it_is_not_ours(told: list[str], found: dict[str, str]) -> None:
    assert with_image(OWN, told) == {**OWN, **found}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("PATH", "/opt/bin:/usr/bin", "/opt/bin:/usr/bin"),
        ("PATH", "@W/bin:/opt/bin:bin:@W:@L:/proc/self/cwd:/dev/fd/3:@W/../w/x:/proc/self/cwd/bin", "/opt/bin"),
        ("PYTHONPATH", "/opt/lib:", "/opt/lib"),
        ("PYTHONPATH", "@W", None),
        ("PYTHONPATH", "/", None),
        ("PYTHONPATH", "@W/..", None),
        ("LD_PRELOAD", "/opt/a.so @W/b.so", "/opt/a.so"),
        ("LD_LIBRARY_PATH", "/opt/x;@W;$ORIGIN/lib", "/opt/x"),
        ("LD_BIND_NOW", "1", None),
        ("NODE_OPTIONS", "--require @W/x.js", None),
        ("PYTHONPYCACHEPREFIX", "@W/x", None),
        ("APP_HOME", "@W", "@W"),
        ("EMPTY", "", ""),
    ],
)
def test_graders_get_no_place_that_the_agent_writes_to(name: str, value: str, kept: str | None, tmp_path: Path) -> None:
    place = tmp_path / "w"
    place.mkdir()
    (tmp_path / "link").symlink_to(place / "bin")
    value, kept = (text and text.replace("@W", str(place)).replace("@L", f"{tmp_path}/link") for text in (value, kept))
    assert graders_part({name: value}, [str(place)]) == ({} if kept is None else {name: kept})


def test_a_shell_has_what_an_image_sets_and_its_judges_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    told = ["MODE=it's", "PYTHONPATH=lib", "ENV=x", "PYTHONSTARTUP=/opt/s"]

    def of_image(workspace: str, tmp: str) -> dict[str, str]:
        return with_image(environment(workspace, tmp), [*told, f"PATH={workspace}/bin:/opt/x/bin"])

    monkeypatch.setattr(local, "environment", of_image)
    shown = (
        'echo "$MODE|${PYTHONPATH-}|${ENV-}|$PYTHONSTARTUP|$ZONE"; tool 2>/dev/null; unset PATH; echo "${PATH-none}"'
    )
    with SupervisedSandbox(local.LocalLauncher(Limits(), allow_root=True)) as sandbox:
        sandbox.open({"lib/os.py": "raise SystemExit(9)\n"}, terms=Terms(environment={"MODE": "task", "ZONE": "z"}))
        sandbox.run("mkdir bin; echo 'echo agent' >bin/tool; chmod +x bin/tool")
        theirs = sandbox.run(shown)
        clean = sandbox.run(shown, state="clean")
        judged = sandbox.judge(f"python3 -c 'import os' && {shown}", {}, timeout=9, env={"ZONE": "own"}, private=False)
    assert theirs.stdout == b"task|lib|x|/opt/s|z\nagent\nnone\n"
    assert clean.stdout == b"task|||/opt/s|z\nnone\n"
    assert judged.stdout == b"task|||/opt/s|own\nnone\n"
