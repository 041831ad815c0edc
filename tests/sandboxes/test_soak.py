"""Episodes over many threads while somebody kills sandboxes from outside: a loss is an error, never a wrong result.

Each episode computes what is known beforehand: outputs, exit codes, every path of the snapshot. It is repeated until it
comes to its end; what was lost on the way must have been a `SandboxError`, at most one for each kill. Then nothing may
be left on the machine. 100 episodes, or 2,000 with TURNGYM_SOAK=1.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import docker
import docker.errors
import pytest

from sandboxes import Backend, CommandResult, EntryKind, SandboxError, SandboxPool, SupervisedSandbox
from tests.sandboxes.leftovers import Watched, arguments, children_of, parent_of

FULL = os.environ.get("TURNGYM_SOAK", "0") not in ("", "0")
EPISODES = 2000 if FULL else 100
THREADS = 8
SANDBOXES = 6  # fewer than threads, so that they change hands
TRIES = 20
SECONDS = 60.0  # of one command: long, so that a busy machine ends none
SETTLE = 30.0  # what an engine or the kernel still takes away after the end

pytestmark = [
    pytest.mark.xdist_group("sandbox stress"),
    pytest.mark.timeout(3600 if FULL else 600),
]


@dataclass
class Soak:
    """What the threads share."""

    pool: SandboxPool
    watched: Watched
    kill: Callable[[random.Random], bool]
    lock: threading.Lock = field(default_factory=threading.Lock)
    next: int = 0
    finished: int = 0
    kills: int = 0
    losses: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def work(self) -> None:
        """Take episodes until none is left."""
        while not self.wrong:
            with self.lock:
                number, self.next = self.next, self.next + 1
            if number >= EPISODES:
                return
            for _ in range(TRIES):
                try:
                    with self.pool.lease(timeout=120) as sandbox:
                        episode(sandbox, number, self.watched)
                    break
                except SandboxError as error:
                    with self.lock:
                        self.losses.append(f"episode {number}: {error}")
                except BaseException as error:
                    with self.lock:
                        self.wrong.append(f"episode {number}: {type(error).__name__}: {error}")
                    return
            else:
                self.wrong.append(f"episode {number} was lost {TRIES} times")
                return
            with self.lock:
                self.finished += 1

    def harass(self) -> None:
        """Kill one sandbox after every few finished episodes, at any moment of what it does."""
        dice = random.Random(3)
        due = 3
        while self.finished < EPISODES and not self.wrong:
            self.watched.look()
            time.sleep(dice.uniform(0, 0.03))
            if self.finished >= due:
                try:
                    hit = self.kill(dice)
                except BaseException as error:
                    self.wrong.append(f"the killer failed: {type(error).__name__}: {error}")
                    return
                if hit:
                    self.kills += 1
                    due = self.finished + dice.randint(2, 14)


def check(number: int, what: str, found: object, wanted: object) -> None:
    """Raise when a result is not the known one."""
    if found != wanted:
        raise AssertionError(f"{what} of episode {number}: {found!r} instead of {wanted!r}")


def episode(sandbox: SupervisedSandbox, number: int, watched: Watched) -> None:
    """One episode. Raises AssertionError when any result differs from what it must be."""
    dice = random.Random(number)
    lines = [f"{dice.randrange(10**6)}\n" for _ in range(dice.randint(5, 60))]
    blob = dice.randbytes(dice.randint(1, 30_000))
    files: dict[str, str | bytes] = {"n.txt": f"{number}\n", "data/lines.txt": "".join(lines), "data/blob": blob}
    ordered = "".join(sorted(lines))
    marker, code = f"{watched.marker}-{number}", number % 97

    def run(what: str, command: str, exit_code: int = 0, out: str = "", err: str = "") -> None:
        result = sandbox.run(command, timeout=SECONDS)
        wanted = CommandResult(exit_code, out.encode(), err.encode(), seconds=result.seconds)
        check(number, what, result, wanted)

    sandbox.open(files)
    run("traces of another episode", "ls -A . $TMPDIR | cat", out=".:\ndata\nn.txt\n\n/tmp:\n")
    run(
        "exit code",
        f"read n < n.txt; sleep 0.0{dice.randint(0, 9)}; echo $((n * n)); echo e$n >&2; exit {code}",
        code,
        f"{number * number}\n",
        f"e{number}\n",
    )
    run("shell state", "echo $n $?; cd data", out=f"{number} {code}\n")
    # What a command leaves behind: a daemon, a segment, files in the two other writable folders.
    daemon = f"(exec -a {marker} setsid -f sleep 7000) >/dev/null 2>&1"
    files_left = f": >$TMPDIR/{marker}; {{ : >/dev/shm/{marker}; }} 2>/dev/null || :"
    run("what is left behind", f"{daemon}; ipcmk -M {watched.segment} &>/dev/null; {files_left}")
    nap = dice.randint(0, 9)
    run("pipe", f"LC_ALL=C sort lines.txt | tee ../sorted.txt | sha256sum; sleep 0.0{nap}", out=_sum(ordered))
    if number % 3 == 0:
        run("the command's own kill", "echo so; kill -9 $$", 137, "so\n")
    result, snapshot = sandbox.run_and_snapshot("cksum blob | cut -d' ' -f2; mv blob ../moved; false", timeout=SECONDS)
    check(number, "command with snapshot", (result.exit_code, result.stdout), (1, f"{len(blob)}\n".encode()))
    wanted = {
        "data": None,
        "data/lines.txt": "".join(lines).encode(),
        "moved": blob,
        "n.txt": f"{number}\n".encode(),
        "sorted.txt": ordered.encode(),
    }
    found = {path: entry.content if entry.kind is EntryKind.FILE else None for path, entry in snapshot.items()}
    check(number, "snapshot", found, wanted)
    check(number, "read", sandbox.read("sorted.txt"), ordered.encode())
    check(number, "listing", sandbox.listing(), ["data/", *list(wanted)[1:]])


def _sum(text: str) -> str:
    return f"{hashlib.sha256(text.encode()).hexdigest()}  -\n"


def kill_process(watched: Watched, backend: Backend) -> Callable[[random.Random], bool]:
    """A killer of the processes that make up a sandbox: what confines it, or the supervisor itself."""

    def kill(dice: random.Random) -> bool:
        parent = os.getpid()
        found = [
            pid for pid in set(children_of(parent)) - watched.children if b"sandboxes.supervisor" in arguments(pid)
        ]
        if found and backend is Backend.BUBBLEWRAP and dice.random() < 0.7:
            parent = dice.choice(found)
            found = children_of(parent)
        if not found:
            return False
        pid = dice.choice(found)
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if parent_of(pid) != parent:  # the number was given to somebody else meanwhile
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    return kill


def containers(client: docker.DockerClient, run: str) -> list[str]:
    """Ids of all containers of this run, also of those that never started or have ended."""
    return [found["Id"] for found in client.api.containers(all=True, filters={"label": f"turngym.run={run}"})]


def kill_container(watched: Watched, client: docker.DockerClient, run: str) -> Callable[[random.Random], bool]:
    """A killer of containers, through the engine."""

    def kill(dice: random.Random) -> bool:
        found = containers(client, run)
        if not found:
            return False
        try:
            for name in set(found) - set(watched.containers):
                data = client.api.inspect_container(name).get("GraphDriver", {}).get("Data") or {}
                watched.containers[name] = data.get("MergedDir", "")
            name = dice.choice(found)
            if dice.random() < 0.5:
                client.api.kill(name)
            else:
                client.api.remove_container(name, force=True)
        except docker.errors.APIError as error:
            if error.status_code in (404, 409):  # it ended meanwhile, is not running yet, or is being removed
                return False
            raise
        return True

    return kill


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """What is there before; from here on temporary files go to a folder of the test."""
    # Not `tmp_path`: each start of pytest, also another one, closes the folder of all of them to other users.
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    folder.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield Watched(marker=f"soak-{secrets.token_hex(6)}", segment=1_000_003 + os.getpid(), folder=folder)
    shutil.rmtree(folder)


def soak(pool: SandboxPool, watched: Watched, kill: Callable[[random.Random], bool]) -> str:
    """Run all episodes; returns one line about them. The pool is closed at the end."""
    state = Soak(pool, watched, kill)
    with pool:
        threads = [threading.Thread(target=state.work, name=f"soak-{number}") for number in range(THREADS)]
        threads.append(threading.Thread(target=state.harass, name="soak-killer"))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lost, kills, replaced = state.losses, state.kills, pool.replaced
    summary = f"{pool.backend}: {state.finished} episodes, {kills} kills, {len(lost)} losses, {replaced} replaced"
    assert state.wrong == [], "\n".join([summary, *lost[:10], *state.wrong])
    assert state.finished == EPISODES
    assert kills >= EPISODES // 20, summary
    assert 0 < len(lost) <= kills, f"{summary}\n" + "\n".join(lost)
    limit = time.monotonic() + SETTLE
    while (left := watched.left()) and time.monotonic() < limit:
        time.sleep(0.1)
    assert left == [], "\n".join([summary, *left])
    return summary


def test_a_loss_is_an_error_and_nothing_is_left(
    safe_backend: Backend,
    watched: Watched,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = watched.marker
    monkeypatch.setenv("TURNGYM_RUN_ID", run)
    with contextlib.ExitStack() as stack:
        kill = kill_process(watched, safe_backend)
        if safe_backend is Backend.DOCKER:
            client = stack.enter_context(
                contextlib.closing(docker.DockerClient(base_url=request.getfixturevalue("engine")))
            )
            watched.more = lambda: [f"container {name}" for name in containers(client, run)]
            kill = kill_container(watched, client, run)
        summary = soak(SandboxPool(safe_backend, size=SANDBOXES), watched, kill)
    assert safe_backend is not Backend.DOCKER or len(watched.containers) > SANDBOXES, "the labels lead to no container"
    with capsys.disabled():
        print(f"\n{summary}")
