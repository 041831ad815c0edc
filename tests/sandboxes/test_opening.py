from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes import Backend, Probe, SandboxUnavailable, choose, open_sandbox, opening, probe
from sandboxes.__main__ import main
from tests.sandboxes.conftest import REPOSITORY, require


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
    for word in ("no docker", "buy docker", "no bubblewrap", "buy bubblewrap", "no landlock", "buy landlock"):
        assert word in str(error.value)
    monkeypatch.setattr("sandboxes.cli.probe", lambda backend: fails[backend])
    assert main(["doctor"]) == 1


def test_auto_takes_the_first_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "probe", lambda backend: Probe(backend, backend is Backend.LANDLOCK, "", ""))
    assert choose() is Backend.LANDLOCK


def test_names() -> None:
    with pytest.raises(ValueError, match="auto, docker, bubblewrap, landlock, local"):
        open_sandbox("jail")


def test_local_refuses_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.delenv("TURNGYM_LOCAL_AS_ROOT", raising=False)
    with open_sandbox("local") as sandbox, pytest.raises(SandboxUnavailable, match="allow_root=True"):
        sandbox.open({})


def test_missing_bwrap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: None if name == "bwrap" else "/usr/bin/python3")
    found = opening._probe(Backend.BUBBLEWRAP, {})
    assert not found.ok
    assert "apt-get install bubblewrap" in found.remedy


def test_bwrap_that_cannot_make_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.bubblewrap.BubblewrapLauncher._arguments", lambda *_: ["--no-such-option"])
    found = opening._probe(Backend.BUBBLEWRAP, {})
    if probe(Backend.BUBBLEWRAP).ok:
        assert "no-such-option" in found.reason, "the words of bwrap reach the user"
    assert not found.ok


def test_a_probe_is_of_its_options_and_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = probe("docker", hosts=[f"{tmp_path}/one.sock"])
    assert "one.sock" in first.reason
    assert "two.sock" in probe("docker", hosts=[f"{tmp_path}/two.sock"]).reason
    assert probe("docker", hosts=[f"{tmp_path}/one.sock"]) is first
    monkeypatch.setenv("TURNGYM_DOCKER_HOSTS", f"{tmp_path}/three.sock")
    assert "three.sock" in probe("docker").reason
    monkeypatch.setenv("TURNGYM_DOCKER_HOSTS", "nonsense")
    found = probe("docker")
    assert not found.ok and "'nonsense' is no address" in found.reason and "unset it" in found.remedy
    with pytest.raises(ValueError, match="no address"):
        monkeypatch.delenv("TURNGYM_DOCKER_HOSTS")
        open_sandbox("docker", hosts=["nonsense"])


NO_ENGINE = (
    "  remedy: start an engine (sudo systemctl start docker, or rootless Docker or Podman) or name one with "
    "DOCKER_HOST; without one, use bubblewrap or landlock"
)


def test_a_machine_without_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TURNGYM_DOCKER_HOSTS", "DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # the probe of these paths is not kept for others
    monkeypatch.setattr("sandboxes.docker.engines._usual_sockets", lambda: [f"{tmp_path}/a.sock", f"{tmp_path}/b.sock"])
    with pytest.raises(SandboxUnavailable) as error:
        open_sandbox("docker")
    assert str(error.value) == (
        "docker: no container engine answers:\n"
        f"    unix://{tmp_path}/a.sock (usual socket): no such socket\n"
        f"    unix://{tmp_path}/b.sock (usual socket): no such socket\n" + NO_ENGINE
    )
    if any(probe(backend).ok for backend in (Backend.BUBBLEWRAP, Backend.LANDLOCK)):
        assert choose() in (Backend.BUBBLEWRAP, Backend.LANDLOCK)


@pytest.mark.docker
def test_docker_without_the_image(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNGYM_IMAGE", raising=False)
    monkeypatch.setattr("sandboxes.docker.launcher.IMAGE", "turngym-shell:never-built")
    monkeypatch.setenv("TURNGYM_DOCKER_HOSTS", f"{engine}")
    monkeypatch.setattr(opening, "_probes", {})
    with pytest.raises(SandboxUnavailable) as error:
        open_sandbox("docker")
    assert str(error.value) == (
        "docker: the image 'turngym-shell:never-built' is not on this engine\n  remedy: python -m sandboxes build"
    )
    if any(probe(backend).ok for backend in (Backend.BUBBLEWRAP, Backend.LANDLOCK)):
        assert choose() in (Backend.BUBBLEWRAP, Backend.LANDLOCK)


# A user namespace in which no further one may be made, as a machine that refuses them looks from inside.
REFUSED = """
import ctypes, os, sys
ready, go = os.pipe(), os.pipe()
child = os.fork()
if not child:
    if ctypes.CDLL(None).unshare(0x10000000):
        os._exit(77)
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    from sandboxes import SandboxUnavailable, open_sandbox
    try:
        open_sandbox("bubblewrap")
    except SandboxUnavailable as error:
        sys.stdout.write(str(error))
        sys.stdout.flush()
        os._exit(0)
    os._exit(1)
os.close(ready[1])
if os.read(ready[0], 1):
    user = os.geteuid()
    if user:
        with open(f"/proc/{child}/setgroups", "w") as file:
            file.write("deny")
    for kind, identity in (("uid", user), ("gid", os.getegid())):
        with open(f"/proc/{child}/{kind}_map", "w") as file:
            file.write(f"{identity} {identity} 1" if user else "0 0 4294967295")
    os.write(go[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.bubblewrap
def test_user_namespaces_are_refused() -> None:
    require(Backend.BUBBLEWRAP)
    done = subprocess.run([sys.executable, "-c", REFUSED], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    if done.returncode == 77:
        pytest.skip("no user namespace can be made to refuse others in")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "bubblewrap: user namespaces are refused here (bwrap: Creating new namespace failed: nesting depth or "
        "/proc/sys/user/max_*_namespaces exceeded (ENOSPC))\n"
        "  remedy: allow unprivileged user namespaces: sysctl user.max_user_namespaces=10000 and, on Debian, "
        "kernel.unprivileged_userns_clone=1, on Ubuntu 24.04 kernel.apparmor_restrict_unprivileged_userns=0; "
        "inside a container that takes --privileged, so use landlock there"
    )


def test_doctor_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandboxes", "doctor"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == (0 if any(probe(backend).ok for backend in opening.AUTO) else 1)
    for backend in Backend:
        assert backend in done.stdout
    assert "remedy" in done.stdout
