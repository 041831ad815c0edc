"""One call removes what killed hosts left, of every kind, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxes import Backend, SandboxError, cgroup, open_sandbox
from sandboxes.boot import command_line, system_python
from sandboxes.docker.containers import OWNER
from sandboxes.docker.engines import HOSTS_VARIABLE, client, find_engines
from sandboxes.docker.launcher import IMAGE
from sandboxes.inside.processes import process_state
from sandboxes.opening import Swept, sweep
from sandboxes.owner import owner
from tests.sandboxes.conftest import require
from tests.sandboxes.leftovers import GROUPS

pytestmark = pytest.mark.xdist_group("sandbox stress")

# A host that is killed between making its things and using them.
HOST = """
import os, signal
from sandboxes import Limits
from sandboxes.cgroup import make_group
from sandboxes.local import make_folder
made = make_folder(own_user=False)
make_group(Limits())
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in [tmp_path, *tmp_path.parents][:-2]:  # users of sandboxes go through
        path.chmod(path.stat().st_mode | 0o011)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_host_left(base: Path, start_here: Callable[..., subprocess.Popen[str]]) -> None:
    run = f"killed-{secrets.token_hex(6)}"
    host = start_here("-c", HOST, TMPDIR=str(base), TURNGYM_RUN_ID=run)
    assert host.wait(60) == -signal.SIGKILL, host.communicate()[1]
    host.communicate()
    assert len(list(base.iterdir())) == 1
    assert sweep().folders == 1
    # Not how many: a process that starts beside this one may have swept the group before.
    assert [path for path, _, _ in os.walk(GROUPS) if path.endswith(f"+{run}")] == []
    assert list(base.iterdir()) == []
    assert sweep(run) == Swept()


def test_what_waits_for_a_killed_bwrap() -> None:
    require(Backend.BUBBLEWRAP)
    words = ["bwrap", "--unshare-user", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/", "--info-fd", "1"]
    words += ["--userns-block-fd", "0", *command_line(system_python())]  # it lets its child go on when we write

    def start() -> tuple[subprocess.Popen[bytes], int]:
        made = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert made.stdout is not None
        return made, json.loads(made.stdout.read())["child-pid"]

    killed, orphan = start()
    living, child = start()
    with killed, living:
        try:
            killed.kill()
            killed.wait()
            sweep()  # not how many: a process beside this one may have swept it before
            limit = time.monotonic() + 20
            while process_state(orphan) not in "ZX":
                assert time.monotonic() < limit
                time.sleep(0.001)
            assert process_state(child) == "S"
            assert living.poll() is None
        finally:
            for pid in (orphan, child):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_a_living_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    require(Backend.LANDLOCK)
    run = f"living-{secrets.token_hex(6)}"
    with open_sandbox(Backend.LANDLOCK) as other, monkeypatch.context() as patch:
        other.open({})
        patch.setenv("TURNGYM_RUN_ID", run)
        with open_sandbox(Backend.LANDLOCK) as sandbox:
            sandbox.open({})
            swept = sweep(run)
            assert swept.folders == 1
            with pytest.raises(SandboxError):
                sandbox.run("true")
            assert swept.cgroups == (0 if cgroup.explain().startswith("no ") else 1)
        assert other.run("echo alive").stdout == b"alive\n"


@pytest.mark.docker
def test_containers_that_were_never_started(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, engine)
    child = subprocess.Popen(["true"])
    child.wait()
    pid, *rest = owner().split("-")
    containers = client(find_engines()[0]).containers
    dead = containers.create(IMAGE, "true", labels={OWNER: "-".join([str(child.pid), *rest])})
    living = containers.create(IMAGE, "true", labels={OWNER: owner()})
    try:
        sweep()
        names = [container.id for container in containers.list(all=True)]
        assert dead.id not in names
        assert living.id in names
    finally:
        living.remove(force=True)
