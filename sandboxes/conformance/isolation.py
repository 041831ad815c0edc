"""Isolation: two episodes never see each other, one after the other in one sandbox, nor at the same time in two."""

from __future__ import annotations

from typing import Any

from sandboxes.conformance.check import (
    OPEN,
    SEES,
    Group,
    Run,
    Trial,
    again,
    brief,
    check,
    gone,
    meet,
    must,
    python,
    without,
)
from sandboxes.sandbox import Backend

ISOLATION = Group("isolation")

_LOCKS = {
    **OPEN,
    **without(
        Backend.LANDLOCK,
        Backend.BUBBLEWRAP,
        reason="the system's files are those of the host: a lock on one of them is felt by others",
    ),
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


_SERVE = """
import socket, sys, time
kept = []
for family, address in ((socket.AF_UNIX, '\\0' + sys.argv[1]), (socket.AF_INET, ('127.0.0.1', int(sys.argv[2])))):
    try:
        kept.append(socket.socket(family)); kept[-1].bind(address); kept[-1].listen()
    except OSError: pass
print('ready', flush=True); time.sleep(1.2)
"""
_CALL = """
import socket, sys, time
time.sleep(0.4)
for family, address in ((socket.AF_UNIX, '\\0' + sys.argv[1]), (socket.AF_INET, ('127.0.0.1', int(sys.argv[2])))):
    try: socket.socket(family).connect(address); print('CONNECTED', address)
    except OSError: pass
"""
_LOCK = """
import fcntl, sys, time
kept = []
for path in sys.argv[1].split():
    for mode in ('a', 'r'):
        try: kept.append(open(path, mode)); break
        except OSError: continue
    try: fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: print('LOCKED', path)
print('ready', flush=True); time.sleep(float(sys.argv[2]))
"""
_KEYS = """
import ctypes, platform, sys
call = ctypes.CDLL(None, use_errno=True).syscall
add, key = {'x86_64': (248, 250), 'aarch64': (217, 219)}.get(platform.machine(), (None, None))
if add is None: sys.exit(0)
name = sys.argv[2].encode()
for ring in (-3, -4, -5):
    if sys.argv[1] == 'make': call(add, b'user', name, b'secret', 6, ring)
    elif call(key, 10, ring, b'user', name, 0) >= 0: print('found', ring)
"""


def _with_key(verb: str, next_door: bool = False) -> Run:
    """A step: make System V objects under a key of this trial, or look for them."""
    found: dict[str, Any] = {"code": 0, "out": b""} if verb == "look" else {}
    return Run(lambda trial: python(_SYSV, verb, str(int(trial.token[2:9], 16) + 1)), **found, next_door=next_door)


def _found_nothing(code: str, next_door: bool = False) -> Run:
    """A step: a program that looks for the token finds nothing."""
    return Run(python(code, "look", "@token@"), code=0, out=b"", next_door=next_door)


def _clean_proc(trial: Trial) -> None:
    """A step: the kernel's lists of System V objects are empty, where the sandbox has them for itself."""
    if trial.backend in (Backend.BUBBLEWRAP, Backend.DOCKER):
        left = trial.out("tail -qn +2 /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg")
        must(left == "", f"objects are left: {left!r}")


# --- one after the other --------------------------------------------------------------------------------------------

ISOLATION.table(
    check(
        "files-do-not-reach-the-next-episode",
        "A file is written wherever one can be written, and looked for everywhere in the next episode.",
        Run(python(_SPREAD, "write", "@token@"), has=b"wrote"),
        again,
        _found_nothing(_SPREAD),
        unsafe=True,
    ),
    check(
        "shell-state-does-not-reach-the-next-episode",
        "Variables, functions, aliases, options, directory, umask, exit code, traps, hash table.",
        Run(
            "export V=1; readonly R=2; declare -a A=(x); f() { :; }; alias a=b; set -u -f; shopt -s nullglob; umask 0; "
            "cd /tmp; trap 'echo no' EXIT; hash -p /workspace/x ls; enable -n test; set -- one two; PATH=/nowhere; "
            "HOME=/x; (exit 9)"
        ),
        again,
        Run(
            "echo $?; pwd; echo ${V-none} ${R-none} ${A-none} $# $HOME; declare -F; alias; umask; echo $-; echo z*; ls",
            code=0,
            out=b"0\n/workspace\nnone none none 0 /workspace\n0022\nhBc\nz*\n",
        ),
    ),
    check(
        "processes-do-not-reach-the-next-episode",
        "Process numbers may go on, processes may not: after a time-out in the middle of a storm of daemons.",
        Run(
            "for i in 1 2 3 4 5; do (setsid nohup bash -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done' "
            "@token@ >/dev/null 2>&1 &); done; sleep 100",
            timeout=0.7,
            timed_out=True,
        ),
        again,
        gone(),
    ),
    check(
        "system-v-objects-do-not-reach-the-next-episode",
        "Shared memory, semaphores and message queues under a known key.",
        _with_key("make"),
        again,
        _with_key("look"),
        _clean_proc,
        unsafe=True,
    ),
    check(
        "shared-memory-objects-do-not-reach-the-next-episode",
        "A POSIX shared memory object, by name.",
        Run("echo x > /dev/shm/@token@"),
        again,
        Run("cat /dev/shm/@token@", out=b""),
        unsafe=True,
    ),
    check(
        "message-queues-do-not-reach-the-next-episode",
        "A POSIX message queue, by name and in /dev/mqueue.",
        Run(python(_QUEUE, "make", "@token@")),
        again,
        _found_nothing(_QUEUE),
        unsafe=True,
    ),
    check(
        "resource-limits-do-not-reach-the-next-episode",
        "A full workspace and a full /tmp are empty again, and hold as much as before.",
        Run("head -c 30M /dev/zero > a; head -c 8M /dev/zero > /tmp/b; ulimit -f 1 -n 10"),
        again,
        Run(
            "head -c 30M /dev/zero > a && head -c 8M /dev/zero > /tmp/b && stat -c %s a /tmp/b; ulimit -n",
            code=0,
            out=f"{30 << 20}\n{8 << 20}\n@open_files@\n".encode(),
        ),
    ),
)

# --- at the same time -----------------------------------------------------------------------------------------------


def _port(trial: Trial) -> str:
    return str(20_000 + int(trial.token[2:6], 16) % 20_000)


def _lock(paths: str, seconds: str) -> str:
    return python(_LOCK, paths, seconds)


@ISOLATION.check(exceptions=OPEN)
def workspace_of_a_neighbour_is_closed_by_its_real_path(trial: Trial) -> None:
    """The real folder of another sandbox, where it has one: read, listed, written, linked to."""
    trial.neighbour.put({"mine": trial.token})
    real = trial.neighbour._alias.real
    # Put together at run time, so that it is not taken for a path of this sandbox.
    result = trial.run(
        f'p="{real[:2]}"; p="${{p}}{real[2:]}"; [ "$p" = "$PWD" ] && exit; cat "$p/mine"; ls "$p"; echo x > '
        f'"$p/theirs"; ln -s "$p/mine" l; cat l'
    )
    must(trial.token not in result.stdout_text and b"mine" not in result.stdout, brief(result))
    must(trial.neighbour.listing() == ["mine"], f"it now holds {trial.neighbour.listing()}")


ISOLATION.table(
    check(
        "files-do-not-reach-a-neighbour",
        "A file is written wherever one can be written, and looked for everywhere next door.",
        meet,
        Run(python(_SPREAD, "write", "@token@"), has=b"wrote"),
        _found_nothing(_SPREAD, next_door=True),
        unsafe=True,
    ),
    check(
        "processes-do-not-reach-a-neighbour",
        "A running process, looked for next door.",
        gone(before="sleep 0.3; ", next_door=True, beside="bash -c 'echo ready; sleep 0.8; :' @token@"),
        exceptions=SEES,
    ),
    check(
        "environment-does-not-reach-a-neighbour",
        "A running process with a secret in its environment and in its memory.",
        gone(
            before="sleep 0.3; ",
            files="/proc/[0-9]*/environ",
            next_door=True,
            beside="SECRET=@token@ bash -c 'echo ready; sleep 0.8'",
        ),
        exceptions=OPEN,
    ),
    check(
        "signals-do-not-reach-a-neighbour",
        "`kill -9 -1` and signals to every number next door.",
        Run(
            "sleep 0.2; for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || kill -9 ${p#/proc/}; done 2>/dev/null; "
            "kill -9 -1",
            timed_out=None,
            next_door=True,
            beside="sleep 0.8; echo ready",
        ),
        Run("/bin/echo ok", out=b"ok\n", next_door=True),
        unsafe=True,
    ),
    check(
        "system-v-objects-do-not-reach-a-neighbour",
        "Shared memory, semaphores and message queues under a known key.",
        meet,
        _with_key("make"),
        _with_key("look", next_door=True),
        unsafe=True,
    ),
    check(
        "shared-memory-objects-do-not-reach-a-neighbour",
        "A POSIX shared memory object and a message queue, by name.",
        meet,
        Run(f"echo x > /dev/shm/@token@; {python(_QUEUE, 'make', '@token@')}"),
        Run(f"cat /dev/shm/@token@ 2>/dev/null; {python(_QUEUE, 'look', '@token@')}", code=0, out=b"", next_door=True),
        unsafe=True,
    ),
    check(
        "abstract-sockets-do-not-reach-a-neighbour",
        "A server on an abstract name, and one on a port of the loopback.",
        Run(
            lambda trial: python(_CALL, trial.token, _port(trial)),
            lacks=(b"CONNECTED",),
            next_door=True,
            beside=lambda trial: python(_SERVE, trial.token, _port(trial)),
        ),
        exceptions=OPEN,
    ),
    check(
        "locks-on-own-files-do-not-reach-a-neighbour",
        "Locks on files of the same name in the workspace and in /tmp.",
        Run(
            "sleep 0.4; " + _lock("/workspace/lock /tmp/lock", "0"),
            lacks=(b"LOCKED",),
            next_door=True,
            beside=_lock("/workspace/lock /tmp/lock", "1.2"),
        ),
    ),
    check(
        "locks-on-system-files-do-not-reach-a-neighbour",
        "Locks on a program and on a file of /etc.",
        Run(
            "sleep 0.4; " + _lock("/usr/bin/env /etc/passwd", "0"),
            lacks=(b"LOCKED",),
            next_door=True,
            beside=_lock("/usr/bin/env /etc/passwd", "1.2"),
        ),
        exceptions=_LOCKS,
    ),
    check(
        "keyrings-do-not-reach-a-neighbour-or-the-next-episode",
        "A key in the rings of the user and of the session, searched for by name.",
        meet,
        Run(python(_KEYS, "make", "@token@")),
        _found_nothing(_KEYS, next_door=True),
        again,
        _found_nothing(_KEYS),
        unsafe=True,
    ),
)
