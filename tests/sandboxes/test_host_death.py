"""Nothing stays behind when the host ends, however it ends."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxes import Backend
from sandboxes.docker.containers import RUN
from sandboxes.docker.engines import client, find_engines
from tests.sandboxes.leftovers import GROUPS

# Fork bombs and floods of one module must not starve the start of another: one worker runs them in turn.
pytestmark = pytest.mark.xdist_group("sandbox stress")

PROGRAM = """
import sys, threading, time
from sandboxes import SandboxPool
pool = SandboxPool(sys.argv[1], size=2)
def work():
    with pool.lease() as sandbox:
        sandbox.open({})
        share = "python3 -c 'import ctypes; ctypes.CDLL(None).shmget(0, 76543, 0o1666)'"
        share += "; echo x > /dev/shm/" + sys.argv[3]
        sandbox.run(share + "; (setsid sleep 7654 >/dev/null 2>&1 &); sleep 7654", timeout=100)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
limit, started = time.monotonic() + 60, []
while (pool.starts < 2 or len(started) < 2) and time.monotonic() < limit:
    time.sleep(0.05)
    # One that was lost meanwhile has no process for a moment.
    started = [found for sandbox in list(pool._served) if (found := sandbox._transport) is not None]
print("ready", *[transport.pid for transport in started], flush=True)
how = sys.argv[2]
if how == "exit":
    sys.exit(3)
if how == "raise":
    raise RuntimeError("on purpose")
time.sleep(60)
"""


def processes() -> dict[int, tuple[int, str]]:
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(path.name)] = (parent, (path / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


def family(root: int) -> set[int]:
    table = processes()
    found, todo = set(), {root}
    while todo:
        found |= todo
        todo = {pid for pid, (parent, _) in table.items() if parent in todo} - found
    return found


def left_outside(run: str, folder: Path) -> list[str]:
    """What the kernel still holds of a run, apart from processes."""
    segments = Path("/proc/sysvipc/shm")
    rows = segments.read_text().splitlines()[1:] if segments.exists() else []
    return [
        *(path for path, _, _ in os.walk(GROUPS) if path.endswith(f"+{run}")),
        *(str(path) for path in Path("/dev/shm").glob(f"*{run}*")),
        *(line for line in rows if line.split()[3] == "76543"),
        *(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line),
    ]


@pytest.mark.parametrize("how", ["exit", "raise", "SIGINT", "SIGTERM", "SIGKILL"])
def test_nothing_stays(
    safe_backend: Backend, how: str, start_here: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    for path in [tmp_path, *tmp_path.parents][:-2]:
        path.chmod(path.stat().st_mode | 0o011)
    run = f"death-{secrets.token_hex(6)}"
    host = start_here("-c", PROGRAM, safe_backend, how, run, TMPDIR=str(tmp_path), TURNGYM_RUN_ID=run)
    assert host.stdout is not None
    line = host.stdout.readline()
    assert line.startswith("ready"), host.communicate()[1]
    roots = [int(word) for word in line.split()[1:]]
    before: set[int] = set()
    if how.startswith("SIG"):
        limit = time.monotonic() + 30
        while len(before) < 9 and time.monotonic() < limit:
            before = set().union(*(family(pid) for pid in (host.pid, *roots)))  # an engine's are not below the host
        if len(before) < 9:  # the host, and two sandboxes with a supervisor, a bash and two sleeps each
            host.kill()
            pytest.fail(f"only {len(before)} processes run; the host said: {host.communicate()[1]}")
        host.send_signal(getattr(signal, how))
    assert host.wait(60) != 0
    host.communicate()
    limit = time.monotonic() + 30
    while (left := (before | set(roots)) & set(processes())) and time.monotonic() < limit:
        time.sleep(0.05)
    assert left == set()
    contents = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "owner"]
    assert contents == []
    if how not in ("exit", "raise", "SIGINT"):  # nobody was there to clean up: the next host does
        limit = time.monotonic() + 120
        while True:
            sweeper = start_here("-c", "from sandboxes.opening import sweep; sweep()", TMPDIR=str(tmp_path))
            assert sweeper.wait(60) == 0, sweeper.communicate()[1]
            sweeper.communicate()
            # A test beside this one may use the user ids of the dead by now: while it does, their folders stay.
            if not list(tmp_path.iterdir()) or time.monotonic() > limit:
                break
    assert list(tmp_path.iterdir()) == []
    assert left_outside(run, tmp_path) == []
    assert os.getpid() in processes()
    if safe_backend is Backend.DOCKER:
        (engine,) = find_engines()
        rows = {"filters": {"label": [f"{RUN}={run}"]}, "all": True}
        limit = time.monotonic() + 30
        while (containers := client(engine).api.containers(**rows)) and time.monotonic() < limit:
            time.sleep(0.05)
        assert containers == []
