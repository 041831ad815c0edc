"""Finding engines: which setting decides, what is said when none answers, and the ways to reach one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from sandboxes import Limits, SandboxError, SandboxUnavailable, SupervisedSandbox
from sandboxes.docker import engines
from sandboxes.docker.engines import addresses, client, find_engines, forward
from sandboxes.docker.launcher import DockerLauncher
from tests.sandboxes.conftest import PLAIN_USER, REPOSITORY
from tests.sandboxes.relay import Relay


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No setting of this machine, and a home of our own."""
    for name in ("TURNGYM_DOCKER_HOSTS", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / ".docker"))
    return tmp_path


def make_context(home: Path, name: str, host: str, current: bool = True) -> None:
    folder = home / ".docker/contexts/meta" / sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    (folder / "meta.json").write_text(json.dumps(meta))
    (home / ".docker/config.json").write_text(json.dumps({"currentContext": name} if current else {}))


def test_which_setting_decides(nothing_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert [address.url for address in addresses()] == [
        "unix:///var/run/docker.sock",
        f"unix://{nothing_set}/.docker/run/docker.sock",
        "unix:///run/user/7/docker.sock",
        "unix:///run/user/7/podman/podman.sock",
        "unix:///run/podman/podman.sock",
    ]
    make_context(nothing_set, "desk", "unix:///desk.sock")
    (address,) = addresses()
    assert (address.url, address.context) == ("unix:///desk.sock", "desk") and "config.json" in address.source
    make_context(nothing_set, "lab", "tcp://lab:2376", current=False)
    monkeypatch.setenv("DOCKER_CONTEXT", "lab")
    assert addresses()[0].url == "tcp://lab:2376"
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    assert len(addresses()) == 5
    monkeypatch.setenv("DOCKER_HOST", "tcp://one:2375")
    assert [(address.url, address.source) for address in addresses()] == [("tcp://one:2375", "DOCKER_HOST")]
    monkeypatch.setenv("TURNGYM_DOCKER_HOSTS", "ssh://me@two, /three.sock")
    assert [address.url for address in addresses()] == ["ssh://me@two", "unix:///three.sock"]
    assert [address.url for address in addresses(["tcp://four"])] == ["tcp://four"]


@pytest.mark.parametrize("url", ["npipe:////./pipe/docker", "localhost:2375", "ssh://", "tcp://", "ftp://x", ""])
def test_addresses_that_cannot_be(url: str) -> None:
    with pytest.raises(ValueError, match="address of an engine|no host"):
        addresses([url])


def test_a_context_that_is_not_there(nothing_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with pytest.raises(SandboxUnavailable, match="DOCKER_CONTEXT names the docker context 'nowhere'"):
        addresses()
    monkeypatch.delenv("DOCKER_CONTEXT")
    (nothing_set / ".docker").mkdir()
    (nothing_set / ".docker/config.json").write_text("{")
    with pytest.raises(SandboxUnavailable, match="cannot be read as JSON"):
        addresses()


def test_every_failure_is_named(tmp_path: Path) -> None:
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(SandboxUnavailable) as error:
        find_engines([f"{tmp_path}/none.sock", str(dead), f"tcp://127.0.0.1:{port}"])
    assert str(error.value) == (
        "no container engine answers:\n"
        f"    unix://{tmp_path}/none.sock (hosts): no such socket\n"
        f"    unix://{dead} (hosts): connection refused: nothing listens there; start the engine\n"
        f"    tcp://127.0.0.1:{port} (hosts): connection refused: nothing listens there; start the engine"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not open the socket")
def test_a_socket_of_others(tmp_path: Path) -> None:
    for path in [tmp_path, *tmp_path.parents][:-2]:
        path.chmod(path.stat().st_mode | 0o055)
    path = tmp_path / "root.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0o600)
        pid = os.fork()
        if not pid:
            os.setgroups([])
            os.setgid(PLAIN_USER)
            os.setuid(PLAIN_USER)
            try:
                find_engines([str(path)])
            except SandboxUnavailable as error:
                os._exit(0 if "permission denied; add yourself to the group docker" in str(error) else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_something_else_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(engines, "REQUEST_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SandboxUnavailable, match="does not answer in time"):
            find_engines([url])


def test_without_an_engine_the_library_is_not_loaded() -> None:
    code = (
        "import sys; from sandboxes import probe\n"
        "found = probe('docker', hosts=['/no/such.sock'])\n"
        "assert not found.ok and 'no such socket' in found.reason, found\n"
        "assert not {'docker', 'requests'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with pytest.raises(SandboxUnavailable, match="package docker is missing.*pip install docker"):
            find_engines([str(path)])


# --- a real one -----------------------------------------------------------------------------------------------------


def works(*hosts: str) -> None:
    """Run commands, with more than fits into one piece in both directions."""
    with SupervisedSandbox(DockerLauncher(Limits(), hosts=hosts)) as sandbox:
        sandbox.open({"big": os.urandom(3 << 20)})
        big = sandbox.read("big")
        assert len(big) == 3 << 20
        assert sandbox.run("sha256sum < big").stdout_text.split()[0] == sha256(big).hexdigest()
        assert sandbox.run("echo out; echo err >&2; exit 7").exit_code == 7


@pytest.mark.docker
def test_an_engine_is_asked_what_it_is(engine: str) -> None:
    (found,) = find_engines([engine, "unix:///no/such.sock"])
    assert found.kind in ("docker", "podman") and found.version and found.cpus >= 1
    assert client(found) is client(found)
    assert client(found).ping()
    mine = client(found)  # held, so that its address is not taken again
    pid = os.fork()
    if not pid:
        os._exit(0 if client(found) is not mine and client(found).ping() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.docker
def test_over_tcp(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Relay(engine) as relay:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        works(relay.url)
        assert relay.connections


@pytest.mark.docker
def test_through_a_context(engine: str, nothing_set: Path) -> None:
    make_context(nothing_set, "desk", engine)
    (found,) = find_engines()
    assert found.url == engine and "desk" in found.source
    assert client(found).ping()


@pytest.mark.docker
def test_over_tls(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("openssl"):
        pytest.skip("the program openssl is not installed")
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout key.pem -out cert.pem"
    extra = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*words.split(), *extra], cwd=tmp_path, check=True, capture_output=True)
    shutil.copy(tmp_path / "cert.pem", tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with Relay(engine, context) as relay:
        with pytest.raises(SandboxUnavailable):  # plain bytes to a TLS port
            find_engines([relay.url])
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
        works(relay.url)
        assert relay.connections


@pytest.fixture
def ssh_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """An ssh server of our own, with keys that live as long as the test, and an ssh that trusts it."""
    sshd, keygen = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), shutil.which("ssh-keygen")
    if sshd is None or keygen is None or shutil.which("ssh") is None:
        pytest.skip("openssh-server and openssh-client are not installed")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it locks itself up
    for name in ("host", "user"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/user.pub\n"
        f"PidFile {tmp_path}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
    )
    (tmp_path / "ssh_config").write_text(
        f"Host *\n IdentityFile {tmp_path}/user\n IdentitiesOnly yes\n IdentityAgent none\n"
        f" UserKnownHostsFile {tmp_path}/known\n StrictHostKeyChecking accept-new\n"
    )
    wrapper = tmp_path / "bin/ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    server = subprocess.Popen([sshd, "-D", "-e", "-f", tmp_path / "sshd_config"], stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 20
    while time.monotonic() < limit and server.poll() is None:
        with socket.socket() as knock:
            if not knock.connect_ex(("127.0.0.1", port)):
                break
        time.sleep(0.05)
    yield port
    server.terminate()
    server.wait()


HOST = """
import sys
from sandboxes.docker.engines import forward
print(forward(sys.argv[1]), flush=True)
sys.stdin.read()
"""


@pytest.mark.docker
def test_over_ssh(engine: str, ssh_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"ssh://127.0.0.1:{ssh_port}{engine.removeprefix('unix://')}"
    works(url)
    path = Path(forward(url).removeprefix("unix://"))
    assert forward(url) == f"unix://{path}", "one for all"
    assert path.parent.stat().st_mode & 0o077 == 0, "nobody else may use it"

    # When its process is killed, ssh ends, too; the next process removes the folder.
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, url],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    left = Path(host.stdout.readline().strip().removeprefix("unix://"))
    children = Path(f"/proc/{host.pid}/task/{host.pid}/children").read_text().split()
    assert left.exists() and children
    host.kill()
    host.communicate()
    limit = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{child}/cmdline").exists() for child in children)

    import sandboxes.docker.engines as module

    module._forwards[url]._process.kill()
    module._forwards[url]._process.wait()
    works(url)  # through a new one
    assert not left.parent.exists() and not path.exists()
    module._forwards.pop(url).end()


def test_ssh_says_why_not(ssh_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "host", tmp_path / "user")  # a key that is not accepted
    with pytest.raises(SandboxError, match="Permission denied"):
        find_engines([f"ssh://127.0.0.1:{ssh_port}"])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match="apt-get install openssh-client"):
        find_engines(["ssh://127.0.0.1"])
