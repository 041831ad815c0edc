"""What commands of the safe backends cannot reach."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import SupervisedSandbox, open_sandbox
from tests.sandboxes.conftest import SAFE_BACKENDS, engine_for, require

# Fork bombs and floods of one module must not starve the start of another: one worker runs them in turn.
pytestmark = pytest.mark.xdist_group("sandbox stress")


@pytest.fixture(scope="module", params=SAFE_BACKENDS, ids=str)
def sandbox(request: pytest.FixtureRequest) -> Iterator[SupervisedSandbox]:
    with engine_for(request.param):
        require(request.param)
        with open_sandbox(request.param) as opened:
            opened.open({})
            yield opened


def test_no_files_of_the_host(sandbox: SupervisedSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host secret")
    for path in [tmp_path, *tmp_path.parents][:-2]:
        path.chmod(path.stat().st_mode | 0o055)
    secret.chmod(0o666)
    for path in (str(secret), "/etc/shadow", str(Path.home() / ".bashrc"), __file__):
        result = sandbox.run(f'p={path.replace("/tmp", "/tmp")}; cat "$p"; echo more >> "$p"')
        assert result.stdout == b"", path
    assert secret.read_text() == "host secret"
    of_the_image = b"/home:\n" if sandbox.backend == "docker" else b""
    assert sandbox.run("ls /home /root").stdout == of_the_image


def _stands(path: Path) -> bool:
    """Whether there is something; not in a folder that is closed to us, and so to what we start."""
    return os.access(path.parent, os.X_OK) and path.exists()


def test_no_writing_outside(sandbox: SupervisedSandbox) -> None:
    places = "/etc /usr /usr/bin / /run /var /var/lib /root /home /sys /opt /boot /proc /dev /srv /mnt"
    result = sandbox.run(f'for d in {places}; do (echo 1 > $d/turngym-test) 2>/dev/null && echo "WROTE $d"; done; :')
    assert result.stdout == b""
    assert not any(_stands(Path(place, "turngym-test")) for place in places.split())
    assert sandbox.run("echo 1 > /proc/sys/kernel/hostname").exit_code != 0


def test_no_network(sandbox: SupervisedSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert sandbox.run(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo CONNECTED").stdout == b""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(0.3)
        port = udp.getsockname()[1]
        sandbox.run(f"echo leak > /dev/udp/127.0.0.1/{port}")
        with pytest.raises(TimeoutError):
            udp.recv(10)


def test_no_unix_sockets_of_the_host(sandbox: SupervisedSandbox, tmp_path: Path) -> None:
    for path in [tmp_path, *tmp_path.parents][:-2]:
        path.chmod(path.stat().st_mode | 0o055)
    for name in (str(tmp_path / "s"), "\0turngym-test"):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
            if not name.startswith("\0"):
                os.chmod(name, 0o777)
            server.listen()
            code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r}); print('CONNECTED')"
            result = sandbox.run(f'python3 -c "{code}"')
            assert result.stdout == b""
            assert result.exit_code == 1


def test_no_harm_to_processes(sandbox: SupervisedSandbox) -> None:
    own = os.getpid()
    sandbox.run(f"kill -9 {own}; kill -STOP {own}; kill -9 -1; kill -9 1; kill -9 $PPID; kill -STOP $PPID")
    result = sandbox.run(
        "cat /proc/$PPID/environ /proc/$PPID/mem; ls /proc/$PPID/fd; echo 1000 > /proc/$PPID/oom_score_adj"
    )
    assert result.stdout == b""
    result = sandbox.run(
        "prlimit --pid $PPID --nofile=10:10 || renice 19 -p $PPID || taskset -p 1 $PPID || chrt -i -p 0 $PPID"
    )
    assert result.exit_code != 0
    assert sandbox.run("echo alive").stdout == b"alive\n"


def test_no_new_privileges(sandbox: SupervisedSandbox) -> None:
    result = sandbox.run("grep -E '^(NoNewPrivs|CapEff|Seccomp):' /proc/self/status")
    assert result.stdout.split() == [b"CapEff:", b"0000000000000000", b"NoNewPrivs:", b"1", b"Seccomp:", b"2"]
    assert sandbox.run("id -u").stdout != b"0\n"
    assert sandbox.run("unshare -Ur true || mount -t tmpfs x /tmp || mknod n c 1 3 || chroot / true").exit_code != 0


def test_keyrings_do_not_carry_secrets_over(sandbox: SupervisedSandbox) -> None:
    code = "import ctypes; print(ctypes.CDLL(None).syscall(%d, b'user', b'k', b'v', 1, -4))"
    number = {"x86_64": 248, "aarch64": 217}.get(os.uname().machine)
    if number is None:
        pytest.skip("system call numbers of this machine are not known here")
    assert sandbox.run(f'python3 -c "{code % number}"').stdout == b"-1\n"


def test_two_sandboxes_do_not_meet(sandbox: SupervisedSandbox) -> None:
    with open_sandbox(sandbox.backend) as other:
        other.open({"mine": "secret"})
        real = other._alias.real.removeprefix("/tmp")
        # The path is put together at run time, so that it is not taken for a path of this sandbox.
        reached = sandbox.run(f'p=/t; p="${{p}}mp{real}"; cat "$p/mine"; ls "$p"; echo x > "$p/theirs"')
        assert b"secret" not in reached.stdout
        assert b"mine" not in reached.stdout
        sandbox.run("kill -9 -1; pkill -9 python3; :(){ :|:& };:", timeout=2)
        assert other.run("cat mine; ls").stdout == b"secretmine\n"
