from __future__ import annotations

import subprocess
import sys

import pytest

from sandboxes import Backend, Probe, SandboxUnavailable, choose, open_sandbox, opening, probe
from sandboxes.__main__ import main
from tests.sandboxes.conftest import REPOSITORY


def test_probe_runs_a_command_and_is_kept() -> None:
    for backend in Backend:
        found = probe(backend)
        assert found.ok or (found.reason and found.remedy), found
        assert probe(backend) is found
    assert probe("bubblewrap") == probe(Backend.BUBBLEWRAP)


def test_auto_is_never_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = {backend: Probe(backend, False, f"no {backend}", f"buy {backend}") for backend in Backend}
    fails[Backend.LOCAL] = Probe(Backend.LOCAL, True, "works")
    monkeypatch.setattr(opening, "probe", lambda backend: fails[backend])
    with pytest.raises(SandboxUnavailable) as error:
        open_sandbox()
    for word in ("no bubblewrap", "buy bubblewrap", "no landlock", "buy landlock"):
        assert word in str(error.value)
    monkeypatch.setattr("sandboxes.__main__.probe", lambda backend: fails[backend])
    assert main(["doctor"]) == 1


def test_auto_takes_the_first_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "probe", lambda backend: Probe(backend, backend is Backend.LANDLOCK, "", ""))
    assert choose() is Backend.LANDLOCK


def test_names() -> None:
    with pytest.raises(ValueError, match="auto, docker, bubblewrap, landlock, local"):
        open_sandbox("jail")
    with pytest.raises(SandboxUnavailable, match="not in this version"):
        open_sandbox("docker")


def test_local_refuses_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.delenv("TURNGYM_LOCAL_AS_ROOT", raising=False)
    with open_sandbox("local") as sandbox, pytest.raises(SandboxUnavailable, match="allow_root=True"):
        sandbox.open({})


def test_missing_bwrap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: None if name == "bwrap" else "/usr/bin/python3")
    found = opening.probe.__wrapped__(Backend.BUBBLEWRAP)
    assert not found.ok
    assert "apt-get install bubblewrap" in found.reason


def test_bwrap_that_cannot_make_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.bubblewrap.BubblewrapLauncher._arguments", lambda *_: ["--no-such-option"])
    found = opening.probe.__wrapped__(Backend.BUBBLEWRAP)
    if probe(Backend.BUBBLEWRAP).ok:
        assert "no-such-option" in found.reason, "the words of bwrap reach the user"
    assert not found.ok


def test_doctor_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandboxes", "doctor"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == (0 if any(probe(backend).ok for backend in opening.AUTO) else 1)
    for backend in Backend:
        assert backend in done.stdout
    assert "remedy" in done.stdout
