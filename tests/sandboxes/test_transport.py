from __future__ import annotations

import gc
import json
import multiprocessing
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxes import Backend, Limits, SandboxError, SupervisedSandbox, open_sandbox
from sandboxes.bubblewrap import NOBODY
from sandboxes.inside.kernel import landlock_abi
from sandboxes.inside.processes import process_state
from sandboxes.opening import launcher
from sandboxes.starting import launch
from sandboxes.transport import DeadlinePassed, PipeTransport, TransportClosed
from tests.sandboxes.conftest import require


def start(command: str) -> PipeTransport:
    return launch(["/bin/sh", "-c", command], Limits(), user=None)


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def test_bytes_both_ways_and_last_words() -> None:
    transport = start("head -c 3; echo broken >&2")
    transport.send(b"abc", soon())
    assert transport.receive(soon()) == b"abc"
    with pytest.raises(TransportClosed):
        transport.receive(soon())
    assert transport.diagnosis() == "broken"
    transport.close()
    transport.close()
    assert transport.diagnosis() == ""


def test_deadlines() -> None:
    transport = start("sleep 600")
    with pytest.raises(DeadlinePassed, match="answer"):
        transport.receive(soon(0.05))
    with pytest.raises(DeadlinePassed, match="read"):
        transport.send(bytes(1 << 20), soon(0.05))
    pid = transport.pid
    transport.close(patience=0.0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_was_closed_writes_and_reads_nowhere() -> None:
    """Another thread may close it, and its descriptors' numbers then belong to whatever is opened next."""
    transport = start("read line")
    transport.close()
    pipes = [os.pipe() for _ in range(8)]
    try:
        os.write(pipes[0][1], b"another's")
        for call in (lambda: transport.send(b"stray", soon()), lambda: transport.receive(soon(0.2))):
            with pytest.raises((TransportClosed, DeadlinePassed)):
                call()
        assert os.read(pipes[0][0], 99) == b"another's"
        for reader, _ in pipes:
            os.set_blocking(reader, False)
            with pytest.raises(BlockingIOError):
                os.read(reader, 99)
    finally:
        for pair in pipes:
            for fd in pair:
                os.close(fd)


ORPHANED = {
    # Its child waits for a user map, which only bwrap itself can allow; it dies with bwrap only later on.
    "bubblewrap": "exec bwrap --unshare-user --unshare-pid --die-with-parent --new-session --ro-bind / / "
    "--info-fd 4 --userns-block-fd 3 sleep 600",
    "a process below": """sleep 600 <&3 & echo '{"child-pid":' $!}; read line""",
}


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "forgotten"])
@pytest.mark.parametrize("kind", ORPHANED)
def test_what_a_killed_child_leaves_in_its_group_ends(kind: str, closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.transport.LOOK_SECONDS", 0.01)
    if kind == "bubblewrap":
        require(Backend.BUBBLEWRAP)
    user = NOBODY if os.geteuid() == 0 else None
    transport = launch(["/bin/sh", "-c", f"exec 3<&0 4>&1; {ORPHANED[kind]}"], Limits(), user=user)
    said = b""
    while b"}" not in said:
        said += transport.receive(soon())
    orphan = json.loads(said)["child-pid"]
    os.kill(transport.pid, signal.SIGKILL)
    with pytest.raises(TransportClosed, match="it ended"):
        transport.receive(soon())
    with pytest.raises(TransportClosed, match="it ended"):
        transport.send(bytes(1 << 20), soon())
    if closed:
        transport.close()
    else:
        ring: list[object] = [transport]
        ring.append(ring)
        del transport, ring
        gc.collect()
    limit = soon()
    while process_state(orphan) not in "ZX":  # its end of the pipe closes a moment before
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_the_group_of_a_child_that_another_reaped_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another's by then."""
    transport = start("true")
    os.waitpid(transport.pid, 0)
    ended: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda group, number: ended.append(group))
        transport.close()
    assert ended == []


def _use_in_child(sandbox: SupervisedSandbox, answers: multiprocessing.SimpleQueue[str]) -> None:
    try:
        sandbox.run("echo x")
        answers.put("ran in the sandbox of the parent")
    except SandboxError:
        sandbox.open({"b": "2"})
        answers.put(sandbox.run("cat b").stdout_text)
        sandbox.close()


def test_a_forked_copy_does_not_touch_the_sandbox(safe_backend: Backend) -> None:
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    with open_sandbox(safe_backend) as sandbox:
        sandbox.open({"a": "1"})
        child = context.Process(target=_use_in_child, args=(sandbox, answers))
        child.start()
        child.join(60)
        assert answers.get() == "2"
        assert sandbox.run("cat a").stdout == b"1"


def test_close_from_another_thread_ends_a_waiting_run(safe_backend: Backend) -> None:
    sandbox = SupervisedSandbox(launcher(safe_backend, Limits()))
    sandbox.open({})
    errors: list[BaseException] = []

    def work() -> None:
        try:
            sandbox.run("sleep 60", timeout=70)
        except SandboxError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.3)
    sandbox.close()
    thread.join(20)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_no_descriptor_leaks(safe_backend: Backend) -> None:
    with open_sandbox(safe_backend) as sandbox:
        sandbox.open({})
    before = len(list(Path("/proc/self/fd").iterdir()))
    rounds = 4
    for _ in range(rounds):
        with open_sandbox(safe_backend) as sandbox:
            sandbox.open({"a": "1"})
            sandbox.run("echo x", timeout=20)
    # A connection kept open for the next call may come or go; what leaks, leaks with every sandbox.
    assert len(list(Path("/proc/self/fd").iterdir())) < before + rounds


KILLS = """
import contextlib, os, random, signal, sys, threading, time
from pathlib import Path
from sandboxes import SandboxError, open_sandbox

count, mark, dice = int(sys.argv[1]), sys.argv[2], random.Random(5)

def marked():
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            ours = path.name.isdigit() and int(path.name) != os.getpid()
            if ours and mark.encode() in (path / "cmdline").read_bytes():
                found.append(path.name)
    return found

COMMANDS = (
    f"for i in 1 2 3 4 5 6 7 8; do (exec -a {mark} setsid -f sleep 7000); done; sleep 20",
    f"while :; do (exec -a {mark} sleep 7000) & sleep 0.01; done",
    "cd /; exec -a x setsid -f env -i /bin/bash -c '"
    f"cd /; while :; do (exec -a {mark} sleep 700) & sleep 0.005; done'; sleep 20",
)

def work(sandbox, command):
    with contextlib.suppress(SandboxError):
        sandbox.run(command, timeout=60)

for number in range(count):
    sandbox = open_sandbox("landlock")
    sandbox.open({})
    pid = sandbox._transport.pid
    thread = threading.Thread(target=work, args=(sandbox, COMMANDS[number % len(COMMANDS)]))
    thread.start()
    time.sleep(dice.uniform(0, 0.25))
    os.kill(pid, signal.SIGKILL)
    thread.join()
    sandbox.close()
    limit = time.monotonic() + 10
    while (left := marked()) and time.monotonic() < limit:
        time.sleep(0.01)
    if left:
        print("after kill", number, len(left), "processes are left")
        for one in left:
            with contextlib.suppress(OSError):
                os.kill(int(one), signal.SIGKILL)
print("over")
"""


@pytest.mark.parametrize("count", [15, pytest.param(150, marks=pytest.mark.whole)])
@pytest.mark.parametrize("starter", ["start_here", "start_plain"])
def test_no_process_outlives_a_supervisor_that_is_killed(
    request: pytest.FixtureRequest, starter: str, count: int
) -> None:
    require(Backend.LANDLOCK)
    if landlock_abi() < 6 and starter == "start_plain":
        pytest.skip("before ABI 6 of Landlock nothing tells the processes of a plain user's sandbox")
    start: Callable[..., subprocess.Popen[str]] = request.getfixturevalue(starter)
    out, err = start("-c", KILLS, str(count), f"mark-{secrets.token_hex(6)}").communicate(timeout=250)
    assert out == "over\n", out + err
