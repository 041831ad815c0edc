"""Isolation: two episodes never see each other, one after the other in one sandbox, nor at the same time in two."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sandboxes.client import SupervisedSandbox
from sandboxes.conformance.check import SECONDS, Group, Trial, brief, holders, must, must_find_nothing, python, without
from sandboxes.sandbox import Backend, CommandResult

GROUP = Group("isolation")

_OPEN = without(Backend.LOCAL, reason="no confinement: sandboxes of one user see what that user sees")
_SEES = {**_OPEN, Backend.LANDLOCK: "/proc shows the host's processes and their command lines"}
_LOCKS = {
    **_OPEN,
    Backend.LANDLOCK: "the system's files are those of the host: a lock on one of them is felt by others",
    Backend.BUBBLEWRAP: "the system's files are those of the host: a lock on one of them is felt by others",
}

_SPREAD = (
    "import os, sys\n"
    "tops = '/ /dev /tmp /var /run /etc /home /root /opt /srv /mnt /media /workspace /usr/local /proc /sys "
    "/usr/share'.split()\n"
    "seen, todo = [], [(top, 3 if top not in ('/', '/proc', '/sys', '/usr/share', '/etc') else 1) for top in tops]\n"
    "while todo:\n"
    "    path, depth = todo.pop()\n"
    "    try: entries = list(os.scandir(path))\n"
    "    except OSError: entries = []\n"
    "    if sys.argv[1] == 'write':\n"
    "        try: open(path + '/' + sys.argv[2], 'w').write('x'); print('wrote', path)\n"
    "        except OSError: pass\n"
    "    for entry in entries:\n"
    "        if entry.name == sys.argv[2]: print('found', entry.path)\n"
    "        if depth > 1 and entry.is_dir(follow_symlinks=False): todo.append((entry.path, depth - 1))\n"
)
_SYSV = (
    "import ctypes, sys\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "flag = 0o1666 if sys.argv[1] == 'make' else 0\n"
    "key = int(sys.argv[2])\n"
    "for name, ident in (('shm', libc.shmget(key, 4096 if flag else 0, flag)), ('sem', libc.semget(key, 1 if flag "
    "else 0, flag)), "
    "('msg', libc.msgget(key, flag))):\n"
    "    if ident >= 0: print(name)\n"
)
_QUEUE = (
    "import ctypes, os, sys\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "try: libc.mq_open\n"
    "except AttributeError: libc = ctypes.CDLL('librt.so.1', use_errno=True)\n"
    "name = b'/' + sys.argv[2].encode()\n"
    "queue = libc.mq_open(name, os.O_RDWR | os.O_CREAT, 0o666, None) if sys.argv[1] == 'make' else "
    "libc.mq_open(name, os.O_RDWR)\n"
    "print('queue') if queue >= 0 else None\n"
    "print('listed') if os.path.exists('/dev/mqueue' + name.decode()) else None\n"
)


def _key(trial: Trial) -> str:
    return str(int(trial.token[2:9], 16) + 1)


def _beside(trial: Trial, first: str, second: str, judge: Callable[[CommandResult, SupervisedSandbox], Any]) -> None:
    """Run `first` here, and `second` next door while it runs."""
    other = trial.neighbour()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(trial.run, first, timeout=SECONDS)
        seen = other.run(second, timeout=SECONDS)
        judge(seen, other)
        here = running.result()
    must(b"ready" in here.stdout, f"the first sandbox did not get ready: {brief(here)}")


def _unseen(what: str) -> Callable[[CommandResult, SupervisedSandbox], None]:
    """Judges a search next door that must print nothing."""

    def judge(seen: CommandResult, other: SupervisedSandbox) -> None:
        must(seen.stdout == b"", f"{what}: {brief(seen)}")

    return judge


# --- one after the other --------------------------------------------------------------------------------------------


@GROUP.check(unsafe=True)
def files_do_not_reach_the_next_episode(trial: Trial) -> None:
    """A file is written wherever one can be written, and looked for everywhere in the next episode."""
    made = trial.python(_SPREAD, "write", trial.token)
    must(b"wrote" in made.stdout, brief(made))
    trial.again()
    seen = trial.python(_SPREAD, "look", trial.token)
    must(seen.exit_code == 0 and seen.stdout == b"", brief(seen))


@GROUP.check()
def shell_state_does_not_reach_the_next_episode(trial: Trial) -> None:
    """Variables, functions, aliases, options, directory, umask, exit code, traps, hash table."""
    trial.run(
        "export V=1; readonly R=2; declare -a A=(x); f() { :; }; alias a=b; set -u -f; shopt -s nullglob; umask 0; "
        "cd /tmp; "
        "trap 'echo no' EXIT; hash -p /workspace/x ls; enable -n test; set -- one two; PATH=/nowhere; HOME=/x; (exit 9)"
    )
    trial.again()
    seen = trial.out(
        "echo $?; pwd; echo ${V-none} ${R-none} ${A-none} $# $HOME; declare -F; alias; umask; echo $-; echo z*; ls"
    )
    must(seen == "0\n/workspace\nnone none none 0 /workspace\n0022\nhBc\nz*\n", f"seen {seen!r}")


@GROUP.check()
def processes_do_not_reach_the_next_episode(trial: Trial) -> None:
    """Process numbers may go on, processes may not: after a time-out in the middle of a storm of daemons."""
    trial.run(
        "for i in 1 2 3 4 5; do (setsid nohup bash -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done' "
        f"{trial.token} >/dev/null 2>&1 &); done; sleep 100",
        timeout=0.7,
    )
    trial.again()
    seen = trial.run(holders("/proc/[0-9]*/cmdline", trial.token))
    must(seen.stdout == b"" and seen.exit_code != 0, f"processes of the last episode are seen: {brief(seen)}")


@GROUP.check(unsafe=True)
def system_v_objects_do_not_reach_the_next_episode(trial: Trial) -> None:
    """Shared memory, semaphores and message queues under a known key."""
    trial.python(_SYSV, "make", _key(trial))
    trial.again()
    seen = trial.python(_SYSV, "look", _key(trial))
    must(seen.exit_code == 0 and seen.stdout == b"", brief(seen))
    if trial.backend in (Backend.BUBBLEWRAP, Backend.DOCKER):
        left = trial.out("tail -qn +2 /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg")
        must(left == "", f"objects are left: {left!r}")


@GROUP.check(unsafe=True)
def shared_memory_objects_do_not_reach_the_next_episode(trial: Trial) -> None:
    """A POSIX shared memory object, by name."""
    trial.run(f"echo x > /dev/shm/{trial.token}")
    trial.again()
    must(trial.run(f"cat /dev/shm/{trial.token}").stdout == b"", "it is seen")


@GROUP.check(unsafe=True)
def message_queues_do_not_reach_the_next_episode(trial: Trial) -> None:
    """A POSIX message queue, by name and in /dev/mqueue."""
    trial.python(_QUEUE, "make", trial.token)
    trial.again()
    seen = trial.python(_QUEUE, "look", trial.token)
    must(seen.exit_code == 0 and seen.stdout == b"", brief(seen))


@GROUP.check()
def resource_limits_do_not_reach_the_next_episode(trial: Trial) -> None:
    """A full workspace and a full /tmp are empty again, and hold as much as before."""
    trial.run("head -c 30M /dev/zero > a; head -c 8M /dev/zero > /tmp/b; ulimit -f 1 -n 10")
    trial.again()
    seen = trial.out("head -c 30M /dev/zero > a && head -c 8M /dev/zero > /tmp/b && stat -c %s a /tmp/b; ulimit -n")
    must(seen == f"{30 << 20}\n{8 << 20}\n{trial.limits.open_files}\n", f"seen {seen!r}")


# --- at the same time -----------------------------------------------------------------------------------------------


@GROUP.check(unsafe=True)
def files_do_not_reach_a_neighbour(trial: Trial) -> None:
    """A file is written wherever one can be written, and looked for everywhere next door."""
    other = trial.neighbour()
    made = trial.python(_SPREAD, "write", trial.token)
    must(b"wrote" in made.stdout, brief(made))
    seen = other.run(python(_SPREAD, "look", trial.token), timeout=SECONDS)
    must(seen.exit_code == 0 and seen.stdout == b"", brief(seen))


@GROUP.check(exceptions=_OPEN)
def workspace_of_a_neighbour_is_closed_by_its_real_path(trial: Trial) -> None:
    """The real folder of another sandbox, where it has one: read, listed, written, linked to."""
    other = trial.neighbour()
    other.put({"mine": trial.token})
    real = other._alias.real
    # Put together at run time, so that it is not taken for a path of this sandbox.
    result = trial.run(
        f'p="{real[:2]}"; p="${{p}}{real[2:]}"; [ "$p" = "$PWD" ] && exit; cat "$p/mine"; ls "$p"; echo x > '
        f'"$p/theirs"; ln -s "$p/mine" l; cat l'
    )
    must(trial.token not in result.stdout_text and b"mine" not in result.stdout, brief(result))
    must(other.listing() == ["mine"], f"it now holds {other.listing()}")


@GROUP.check(exceptions=_SEES)
def processes_do_not_reach_a_neighbour(trial: Trial) -> None:
    """A running process, looked for next door."""
    _beside(
        trial,
        f"bash -c 'echo ready; sleep 0.8; :' {trial.token}",
        "sleep 0.3; " + holders("/proc/[0-9]*/cmdline", trial.token),
        _unseen("its command line is seen"),
    )


@GROUP.check(exceptions=_OPEN)
def environment_does_not_reach_a_neighbour(trial: Trial) -> None:
    """A running process with a secret in its environment and in its memory."""
    _beside(
        trial,
        f"SECRET={trial.token} bash -c 'echo ready; sleep 0.8'",
        "sleep 0.3; " + holders("/proc/[0-9]*/environ", trial.token),
        _unseen("it is read in /proc"),
    )


@GROUP.check(unsafe=True)
def signals_do_not_reach_a_neighbour(trial: Trial) -> None:
    """`kill -9 -1` and signals to every number next door."""

    def judge(seen: CommandResult, other: SupervisedSandbox) -> None:
        must(other.run("/bin/echo ok", timeout=SECONDS).stdout == b"ok\n", "the neighbour harmed itself")

    _beside(
        trial,
        "sleep 0.8; echo ready",
        "sleep 0.2; for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || kill -9 ${p#/proc/}; done 2>/dev/null; kill "
        "-9 -1",
        judge,
    )


@GROUP.check(unsafe=True)
def system_v_objects_do_not_reach_a_neighbour(trial: Trial) -> None:
    """Shared memory, semaphores and message queues under a known key."""
    other = trial.neighbour()
    trial.python(_SYSV, "make", _key(trial))
    seen = other.run(python(_SYSV, "look", _key(trial)), timeout=SECONDS)
    must(seen.exit_code == 0 and seen.stdout == b"", brief(seen))


@GROUP.check(unsafe=True)
def shared_memory_objects_do_not_reach_a_neighbour(trial: Trial) -> None:
    """A POSIX shared memory object and a message queue, by name."""
    other = trial.neighbour()
    trial.run(f"echo x > /dev/shm/{trial.token}; {python(_QUEUE, 'make', trial.token)}")
    seen = other.run(f"cat /dev/shm/{trial.token} 2>/dev/null; {python(_QUEUE, 'look', trial.token)}", timeout=SECONDS)
    must(seen.exit_code == 0 and seen.stdout == b"", brief(seen))


@GROUP.check(exceptions=_OPEN)
def abstract_sockets_do_not_reach_a_neighbour(trial: Trial) -> None:
    """A server on an abstract name, and one on a port of the loopback."""

    def judge(seen: CommandResult, other: SupervisedSandbox) -> None:
        must(b"CONNECTED" not in seen.stdout, brief(seen))

    port = 20_000 + int(trial.token[2:6], 16) % 20_000
    serve = (
        "import socket, sys, time\n"
        "kept = []\n"
        "for family, address in ((socket.AF_UNIX, '\\0' + sys.argv[1]), (socket.AF_INET, ('127.0.0.1', "
        "int(sys.argv[2])))):\n"
        "    try:\n"
        "        kept.append(socket.socket(family)); kept[-1].bind(address); kept[-1].listen()\n"
        "    except OSError: pass\n"
        "print('ready', flush=True); time.sleep(1.2)\n"
    )
    call = (
        "import socket, sys, time\n"
        "time.sleep(0.4)\n"
        "for family, address in ((socket.AF_UNIX, '\\0' + sys.argv[1]), (socket.AF_INET, ('127.0.0.1', "
        "int(sys.argv[2])))):\n"
        "    try: socket.socket(family).connect(address); print('CONNECTED', address)\n"
        "    except OSError: pass\n"
    )
    _beside(trial, python(serve, trial.token, str(port)), python(call, trial.token, str(port)), judge)


def _lock(paths: str, seconds: str) -> str:
    return python(
        "import fcntl, sys, time\n"
        "kept = []\n"
        "for path in sys.argv[1].split():\n"
        "    for mode in ('a', 'r'):\n"
        "        try: kept.append(open(path, mode)); break\n"
        "        except OSError: continue\n"
        "    try: fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    except OSError: print('LOCKED', path)\n"
        "print('ready', flush=True); time.sleep(float(sys.argv[2]))\n",
        paths,
        seconds,
    )


def _locks(trial: Trial, paths: str) -> None:
    def judge(seen: CommandResult, other: SupervisedSandbox) -> None:
        must(b"LOCKED" not in seen.stdout, f"a lock is felt: {brief(seen)}")

    _beside(trial, _lock(paths, "1.2"), f"sleep 0.4; {_lock(paths, '0')}", judge)


@GROUP.check()
def locks_on_own_files_do_not_reach_a_neighbour(trial: Trial) -> None:
    """Locks on files of the same name in the workspace and in /tmp."""
    _locks(trial, "/workspace/lock /tmp/lock")


@GROUP.check(exceptions=_LOCKS)
def locks_on_system_files_do_not_reach_a_neighbour(trial: Trial) -> None:
    """Locks on a program and on a file of /etc."""
    _locks(trial, "/usr/bin/env /etc/passwd")


@GROUP.check(unsafe=True)
def keyrings_do_not_reach_a_neighbour_or_the_next_episode(trial: Trial) -> None:
    """A key in the rings of the user and of the session, searched for by name."""
    code = (
        "import ctypes, platform, sys\n"
        "call = ctypes.CDLL(None, use_errno=True).syscall\n"
        "add, key = {'x86_64': (248, 250), 'aarch64': (217, 219)}.get(platform.machine(), (None, None))\n"
        "if add is None: sys.exit(0)\n"
        "name = sys.argv[2].encode()\n"
        "for ring in (-3, -4, -5):\n"
        "    if sys.argv[1] == 'make': call(add, b'user', name, b'secret', 6, ring)\n"
        "    elif call(key, 10, ring, b'user', name, 0) >= 0: print('found', ring)\n"
    )
    other = trial.neighbour()
    trial.python(code, "make", trial.token)
    seen = other.run(python(code, "look", trial.token), timeout=SECONDS)
    must_find_nothing(seen, "next door")
    trial.again()
    seen = trial.python(code, "look", trial.token)
    must_find_nothing(seen, "in the next episode")
