"""What only the docker backend has: the container's flags, the engine's failures, and that no container is left."""

from __future__ import annotations

import _thread
import io
import os
import secrets
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sandboxes import Limits, SandboxError, SandboxPool, SandboxUnavailable, SupervisedSandbox, open_sandbox
from sandboxes.docker import containers as module
from sandboxes.docker import launcher as docker_module
from sandboxes.docker.containers import MACHINE, OWNER, RUN, machine, sweep_containers
from sandboxes.docker.engines import Engine, client, find_engines
from sandboxes.docker.launcher import DockerLauncher
from sandboxes.owner import owner
from tests.sandboxes.conftest import REPOSITORY
from tests.sandboxes.relay import Relay

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("sandbox stress")]
IMAGE = os.environ.get("TURNGYM_IMAGE") or "turngym-shell:bookworm"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of this test alone, so that its containers can be told from those of others."""
    name = f"test-{secrets.token_hex(6)}"
    monkeypatch.setenv("TURNGYM_RUN_ID", name)
    return name


@pytest.fixture
def found(engine: str) -> Engine:
    return find_engines([engine])[0]


@pytest.fixture
def relay(engine: str) -> Iterator[Relay]:
    with Relay(engine) as relay:
        yield relay
    with module._doubtful_lock:  # its address is gone for good: at the end of the process nobody answers there
        for key in [key for key in module._doubtful if key[0].url == relay.url]:
            del module._doubtful[key]


def sandbox_on(*hosts: str, limits: Limits | None = None, **options: Any) -> SupervisedSandbox:
    """A sandbox without the probe, which would make a container of its own."""
    return SupervisedSandbox(DockerLauncher(limits or Limits(), hosts=hosts, **options))


def of_run(found: Engine, run: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client(found).api.containers(all=True, filters={"label": [f"{RUN}={run}"]})
    return rows


def none_left(found: Engine, run: str, seconds: float = 30.0) -> bool:
    limit = time.monotonic() + seconds
    while rows := of_run(found, run):
        if time.monotonic() > limit:
            print([(row["Names"], row["State"]) for row in rows])
            return False
        time.sleep(0.05)
    return True


# --- confinement ----------------------------------------------------------------------------------------------------


def test_a_workspace_below_the_home_of_root(found: Engine) -> None:
    """Upstream tasks have theirs at /root/.openclaw/workspace."""
    with sandbox_on(found.url) as sandbox:
        sandbox.open({"a": "x"}, workdir="/root/.openclaw/workspace")
        assert sandbox.run("pwd; cat a; touch ../b ../../b 2>/dev/null; ls -A ..").stdout == (
            b"/root/.openclaw/workspace\nxworkspace\n"
        )


def test_the_flags(found: Engine, run: str) -> None:
    if found.kind == "podman":
        pytest.skip("Podman shows its settings in other words")
    limits = Limits(memory_mb=100, processes=50, workspace_mb=20, tmp_mb=8, file_mb=5, open_files=300)
    with sandbox_on(found.url, limits=limits) as sandbox:
        sandbox.open({}, workdir="/data/project")
        (row,) = of_run(found, run)
        facts = client(found).api.inspect_container(row["Id"])
    host, config = facts["HostConfig"], facts["Config"]
    assert host["NetworkMode"] == "none" and config["NetworkDisabled"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] and not host["Binds"] and not host["Devices"] and not config["Volumes"]
    assert [mount for mount in facts["Mounts"] if mount["Type"] != "tmpfs"] == []
    assert host["PidsLimit"] == 50 + module.SUPERVISOR_TASKS and host["NanoCpus"] == 10**9
    assert (
        host["Memory"]
        == host["MemorySwap"]
        == (100 + 20 + 8 + module.SHM_MB + module.GRADER_MB + module.SUPERVISOR_MB) << 20
    )
    assert host["IpcMode"] == "private" and host["PidMode"] == "" and host["UTSMode"] == ""
    assert host["LogConfig"]["Type"] == "none" and host["AutoRemove"]
    bounds = {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]}
    assert bounds == {"core": 0, "fsize": 5 << 20, "nofile": 300}
    assert set(host["Tmpfs"]) == {"/data/project", "/tmp", "/dev/shm", module.GRADER}
    assert all({"nosuid", "nodev"} <= set(options.split(",")) for options in host["Tmpfs"].values())
    assert config["User"] == "1000:1000" and config["OpenStdin"] and config["StdinOnce"] and not config["Tty"]
    assert config["Labels"] | {OWNER: owner(), RUN: run, MACHINE: machine()} == config["Labels"]
    assert none_left(found, run)


def test_what_a_command_finds(found: Engine) -> None:
    with sandbox_on(found.url) as sandbox:
        sandbox.open({})
        assert sandbox.run("hostname; cat /proc/net/dev | wc -l").stdout == b"sandbox\n3\n", "nothing but a loopback"
        assert sandbox.run("printf '#!/bin/sh\necho works' > p; chmod +x p; ./p").stdout == b"works\n"
        assert sandbox.run("stat -c '%a %u' /workspace /tmp /dev/shm").stdout == b"755 1000\n1777 1000\n1777 1000\n"
        many = sandbox.run("for i in {1..40000}; do : > f$i || break; done", timeout=30)
        if found.kind == "docker":
            assert many.stderr.count(b"No space left") == 1, "files are counted, also empty ones"
        sandbox.reset()
        assert sandbox.listing() == []


def test_limits_of_the_container_hold(found: Engine) -> None:
    with sandbox_on(found.url, limits=Limits(processes=20, memory_mb=64)) as sandbox:
        sandbox.open({"big": b"x" * (60 << 20)})
        hog = sandbox.run("""python3 -c 'x = b"x" * (200 << 20); print("survived")'""")
        assert hog.stdout == b"" and hog.exit_code == 137
        # Below `memory_mb` all goes well, though the workspace holds 60 MB of the same container's memory.
        assert sandbox.run("""python3 -c 'x = b"x" * (40 << 20); print("survived")'""").stdout == b"survived\n"
        bomb = sandbox.run("for i in {1..50}; do sleep 9 & done; wait", timeout=2)
        assert b"Resource temporarily unavailable" in bomb.stderr or bomb.exit_code == 137
        assert sandbox.run("echo alive").stdout == b"alive\n"
        assert sandbox.starts == 1


def test_nothing_of_an_episode_is_left_for_the_next(found: Engine) -> None:
    with sandbox_on(found.url) as sandbox:
        sandbox.open({})
        make = "import ctypes; print(ctypes.CDLL(None).shmget(77, 4096, 0o1666) >= 0)"
        sandbox.run("echo x > /dev/shm/s; echo x > /tmp/t; mkdir -p a/b; chmod 0 /tmp /dev/shm .; X=1")
        assert sandbox.run(f'python3 -c "{make}"').stdout == b"True\n"
        sandbox.open({})
        result = sandbox.run("ls -A /dev/shm /tmp /dev/mqueue .; echo [$X]; wc -l < /proc/sysvipc/shm; stat -c %a /tmp")
        assert result.stdout == b".:\n\n/dev/mqueue:\n\n/dev/shm:\n\n/tmp:\n[]\n1\n1777\n"


# --- losses ---------------------------------------------------------------------------------------------------------


def lose(sandbox: SupervisedSandbox, action: Any) -> str:
    """Do something while a command runs, which must become an error; returns its text."""
    timer = threading.Timer(0.5, action)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(SandboxError) as error:
        sandbox.run("sleep 40", timeout=50)
    assert time.monotonic() - begin < 40, "told when it happened, not at the deadline"
    timer.join()
    return str(error.value)


def test_killed_through_the_engine(found: Engine, run: str) -> None:
    with sandbox_on(found.url) as sandbox:
        sandbox.open({})
        (row,) = of_run(found, run)
        said = lose(sandbox, lambda: client(found).api.kill(row["Id"]))
        assert "docker sandbox lost" in said and "killed the container through the engine" in said
        sandbox.open({"a": "1"})
        assert sandbox.run("cat a").stdout == b"1"
        (row,) = of_run(found, run)
        lose(sandbox, lambda: client(found).api.remove_container(row["Id"], force=True))
    assert none_left(found, run)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may kill the first process of a container from outside")
def test_killed_behind_the_engine(found: Engine, run: str) -> None:
    with sandbox_on(found.url) as sandbox:
        sandbox.open({})
        transport: Any = sandbox._transport
        pid = transport.pid
        assert os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid")
        said = lose(sandbox, lambda: os.kill(pid, signal.SIGKILL))
        assert "something outside the engine killed" in said
    assert none_left(found, run)


def test_a_supervisor_without_memory_is_told_apart(found: Engine, run: str) -> None:
    if found.kind == "podman":
        pytest.skip("Podman notes no event when memory runs out")
    with sandbox_on(found.url, limits=Limits(memory_mb=24, workspace_mb=4, tmp_mb=1)) as sandbox:
        sandbox.open({})
        with pytest.raises(SandboxError, match="ran out of memory and the kernel killed its supervisor"):
            sandbox.put({"a": b"x" * (200 << 20)})
    assert none_left(found, run)


def test_a_line_that_is_cut(found: Engine, relay: Relay, run: str) -> None:
    with sandbox_on(relay.url) as sandbox:
        sandbox.open({})
        assert sandbox.run("echo there").stdout == b"there\n"
        assert len(of_run(found, run)) == 1
        said = lose(sandbox, relay.cut)
        assert "lost" in said
    assert none_left(found, run), "without its host a container ends by itself"


def test_an_engine_that_falls_silent(found: Engine, relay: Relay, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.client.GRACE", 0.5)
    end = docker_module._end
    monkeypatch.setattr(docker_module, "_end", lambda engine, name, seconds: end(engine, name, min(seconds, 2.0)))
    with sandbox_on(relay.url) as sandbox:
        sandbox.open({})
        relay.silence()
        with pytest.raises(SandboxError, match="does not answer"):
            sandbox.run("echo there", timeout=1)
        assert [key for key in module._doubtful if key[0].url == relay.url], "its removal is still to be confirmed"
        relay.resume()
        sandbox.open({})
        assert sandbox.run("echo there").stdout == b"there\n"
        assert not [key for key in module._doubtful if key[0].url == relay.url]
        assert len(of_run(found, run)) == 1
    assert none_left(found, run)


# --- nothing is left ------------------------------------------------------------------------------------------------


def test_many_at_once(found: Engine, run: str) -> None:
    def work(number: int) -> bytes:
        with sandbox_on(found.url) as sandbox:
            sandbox.open({"n": str(number)})
            return sandbox.run("cat n").stdout

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(work, range(12))) == [str(number).encode() for number in range(12)]
    assert none_left(found, run)


def test_a_pool_of_containers(engine: str, found: Engine, run: str) -> None:
    with SandboxPool("docker", size=3, hosts=[engine]) as pool:
        for _ in range(4):
            with pool.lease() as sandbox:
                sandbox.open({"a": "1"})
                assert sandbox.run("cat a; pwd").stdout == b"1/workspace\n"
    assert none_left(found, run)


def test_an_outage_of_the_engine_costs_only_the_episodes_that_were_open(found: Engine, relay: Relay, run: str) -> None:
    lost: list[str] = []
    done: list[int] = []
    down = threading.Event()

    def work(number: int) -> None:
        try:
            with pool.lease(timeout=120) as sandbox:
                sandbox.open({"n": str(number)})
                if number < 3:
                    down.wait(60)
                assert sandbox.run("cat n").stdout == b"%d" % number
                done.append(number)
        except SandboxError as error:
            lost.append(f"{number}: {error}")

    with SandboxPool("docker", size=3, hosts=[relay.url]) as pool, ThreadPoolExecutor(6) as threads:
        jobs = [threads.submit(work, number) for number in range(30)]
        while len(pool._lent) < 3:
            time.sleep(0.01)
        relay.cut()
        down.set()
        time.sleep(3)
        relay.mend()
        for job in jobs:
            job.result()
    assert len(lost) <= 3, lost
    assert len(done) == 30 - len(lost)
    assert none_left(found, run)


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.1, 0.2, 0.3, 0.5])
def test_an_interrupt_while_it_starts(found: Engine, run: str, delay: float) -> None:
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(delay, _thread.interrupt_main).start()
        for _ in range(50):  # it comes in the middle of one of these
            with sandbox_on(found.url) as sandbox:
                sandbox.open({})
    assert none_left(found, run)


def test_a_start_that_fails_in_the_middle(found: Engine, run: str) -> None:
    if found.kind == "podman":
        pytest.skip("Podman imports under another name")
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("nothing"))
    tag = f"turngym-test-{run}:empty"
    client(found).api.import_image_from_data(tar.getvalue(), repository=f"turngym-test-{run}", tag="empty")
    try:
        with sandbox_on(found.url, image=tag) as sandbox, pytest.raises(SandboxUnavailable, match="has no python3"):
            sandbox.open({})
        assert none_left(found, run)
    finally:
        client(found).api.remove_image(tag, force=True)


def test_the_image_is_missing(engine: str) -> None:
    with pytest.raises(SandboxUnavailable) as error:
        open_sandbox("docker", hosts=[engine], image="turngym-shell:no-such-tag")
    assert str(error.value) == (
        "docker: the image 'turngym-shell:no-such-tag' is not on this engine\n"
        "  remedy: build or load it there, or unset TURNGYM_IMAGE and run python -m sandboxes build"
    )


STRAY = """
import os, sys
from sandboxes.docker.containers import configuration, new_name
from sandboxes.docker.engines import client, find_engines
from sandboxes.sandbox import Limits
engine = find_engines([sys.argv[1]])[0]
api = client(engine).api
for start in (False, True):
    name = new_name()
    api.create_container_from_config(configuration(engine, sys.argv[2], "/workspace", Limits()), name)
    if start:
        stream = api.attach_socket(name, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        api.start(name)
print("made", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_is_swept(engine: str, found: Engine, run: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STRAY, engine, IMAGE],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"made\n"
    assert sorted(row["State"] for row in of_run(found, run)) == ["created", "running"]
    sweep_containers(hosts=[engine])
    assert len(of_run(found, run)) == 2, "their process lives"
    process.kill()
    process.communicate()
    limit = time.monotonic() + 30
    while len(of_run(found, run)) > 1 and time.monotonic() < limit:
        time.sleep(0.05)
    # Any process that opens its first container sweeps: one of a test beside this one may have been first.
    assert [row["State"] for row in of_run(found, run)] in (["created"], []), "the one that ran has ended by itself"
    sweep_containers(hosts=[engine])
    assert of_run(found, run) == []


def test_sweep_leaves_what_it_cannot_judge(
    engine: str, found: Engine, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = f"999999999-1-{'0' * 8}-1"
    names = {}
    for token, label in ((dead, "elsewhere"), (dead, machine()), ("nonsense", machine())):
        config = module.configuration(found, IMAGE, "/workspace", Limits())
        config["Labels"] |= {OWNER: token, MACHINE: label}
        name = module.new_name()
        client(found).api.create_container_from_config(config, name)
        names[f"/{name}"] = (token, label)
    sweep_containers(hosts=[engine])
    left = [names[row["Names"][0]] for row in of_run(found, run)]
    assert sorted(left) == sorted([(dead, "elsewhere"), ("nonsense", machine())]), (
        "an earlier boot of this machine only"
    )
    assert sweep_containers(f"other-{run}", hosts=[engine]) == 0
    assert sweep_containers(run, hosts=[engine]) == 2, "by the name of the run whatever is there goes"
    assert of_run(found, run) == []


def test_sweep_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.docker.engines._usual_sockets", lambda: ["/no/such.sock"])
    for name in ("TURNGYM_DOCKER_HOSTS", "DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    assert sweep_containers() == 0
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    with pytest.raises(SandboxUnavailable, match="no such socket"):
        sweep_containers()


def test_a_container_nobody_speaks_to_ends(found: Engine, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT", module._WAIT.replace("[],60)", "[],0.3)"))
    name = module.new_name()
    api = client(found).api
    api.create_container_from_config(module.configuration(found, IMAGE, "/workspace", Limits()), name)
    api.start(name)
    assert none_left(found, run)


# --- several engines ------------------------------------------------------------------------------------------------


def test_spread_by_load_and_past_a_dead_engine(engine: str, found: Engine, relay: Relay, run: str) -> None:
    def address_of(sandbox: SupervisedSandbox) -> str:
        transport: Any = sandbox._transport
        return "relay" if transport._socket.family.name == "AF_INET" else "direct"

    made = [sandbox_on(engine, relay.url) for _ in range(7)]
    try:
        for sandbox in made[:4]:
            sandbox.open({})
        assert sorted(address_of(sandbox) for sandbox in made[:4]) == ["direct"] * 2 + ["relay"] * 2
        for sandbox in made[:4]:
            if address_of(sandbox) == "direct":
                sandbox.close()
        for sandbox in made[4:6]:
            sandbox.open({})
            assert address_of(sandbox) == "direct", "where fewer are"
        relay.cut()
        made[6].open({})
        assert address_of(made[6]) == "direct"
        assert made[6].run("echo works").stdout == b"works\n"
        dead = sandbox_on(relay.url, "unix:///no/such.sock")
        with pytest.raises(SandboxError) as error:
            dead.open({})
        assert "connection refused" in str(error.value) and "unix:///no/such.sock" in str(error.value)
    finally:
        for sandbox in made:
            sandbox.close()
    assert none_left(found, run)


def test_podman(run: str) -> None:
    url = os.environ.get("TURNGYM_TEST_PODMAN")
    if not url:
        pytest.skip("TURNGYM_TEST_PODMAN names no Podman service with the image")
    (podman,) = find_engines([url])
    assert podman.kind == "podman"
    with sandbox_on(url) as sandbox:
        sandbox.open({"a": "1"})
        sandbox.run("echo x > /tmp/t; echo x > /dev/shm/s; echo x > /var/tmp/v; echo x > /run/r")
        sandbox.open({"b": "2"})
        assert sandbox.run("ls -A . /tmp /dev/shm /var/tmp").stdout == b".:\nb\n\n/dev/shm:\n\n/tmp:\n\n/var/tmp:\n"
        said = lose(sandbox, lambda: client(podman).api.kill(of_run(podman, run)[0]["Id"]))
        assert "lost" in said
    assert none_left(podman, run)
