"""Conformance of confinement: no way to the host's files, secrets, network, processes or privileges."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandboxes.conformance.check import (
    OPEN,
    SEES,
    Attack,
    Group,
    Run,
    Trial,
    attack,
    brief,
    check,
    gone,
    holders,
    must,
    python,
    without,
)
from sandboxes.sandbox import Backend

# ---------------------------------------------------------------------------------------------------------------------
# Bait on the host's side: files, sockets and processes that no command may reach. All of it ends with its `with`.


@contextlib.contextmanager
def bait_folder() -> Iterator[Path]:
    """A folder that everybody on the host may read and write."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


@contextlib.contextmanager
def bait_file(content: str) -> Iterator[Path]:
    """A file that everybody on the host may read and write."""
    with bait_folder() as folder:
        path = folder / "bait"
        path.write_text(content)
        path.chmod(0o666)
        yield path


@contextlib.contextmanager
def bait_process(word: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that sleeps, with a word in its arguments and another (`word` reversed) in its environment."""
    command = [sys.executable, "-S", "-c", "import sys; print(flush=True); sys.stdin.read()", word]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env={"BAIT": word[::-1]}) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # a program that only begins has no arguments yet, and nobody finds it
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def bait_server(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[socket.socket]:
    """A listening stream socket of the host."""
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)
        if family is socket.AF_UNIX and isinstance(address, str) and not address.startswith("\0"):
            os.chmod(address, 0o777)
        server.listen()
        yield server


@contextlib.contextmanager
def bait_receiver() -> Iterator[socket.socket]:
    """A UDP socket of the host, on every address, that does not block."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 0))
        receiver.setblocking(False)
        yield receiver


def addresses() -> list[str]:
    """Addresses that lead to this host: the loopback, and the one it would use to reach others (nothing is sent)."""
    found = ["127.0.0.1"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # no route: only the loopback is tried
        found.append(probe.getsockname()[0])
    return found


# -- Confinement: no way to the host's files, secrets, network, processes or privileges -------------------------------

CONFINEMENT = Group("confinement")

_NAMED = {**OPEN, Backend.LANDLOCK: "no host name of its own"}
_MODES = {**OPEN, Backend.LANDLOCK: "as a plain user, modes and times of that user's files can be changed by name"}
_ROOT = {**OPEN, Backend.LANDLOCK: "the root directory of the host is not listed"}


def _apart(path: Path | str) -> str:
    """Shell words that put a path into $p at run time, so that no name in it is rewritten on its way in."""
    text = str(path)
    return f"a='{text[:2]}'; b='{text[2:]}'; p=\"$a$b\""


# --- files ----------------------------------------------------------------------------------------------------------


@CONFINEMENT.check(exceptions=OPEN)
def files_of_the_host_are_unreadable(trial: Trial) -> None:
    """A file that everybody on the host may read, by its path and through /proc/*/root and /proc/*/cwd."""
    with bait_file(trial.token) as path:
        result = trial.attack(
            f'{_apart(path)}; cat "$p"; head -1 < "$p"; cp "$p" copy && cat copy; ln "$p" hard && cat hard; '
            'for d in /proc/1/root /proc/$PPID/root /proc/1/cwd; do cat "$d$p"; done; '
            f'python3 -c "import sys; print(open(sys.argv[1]).read())" "$p"; tac "$p"; . "$p"'
        )
        must(trial.token not in result.stdout_text + result.stderr_text, brief(result))


@CONFINEMENT.check(unsafe=True)
def files_of_the_host_are_unwritable(trial: Trial) -> None:
    """A file and a folder that everybody on the host may change: append, truncate, replace, remove, rename, link."""
    with bait_file(trial.token) as path:
        trial.attack(
            f'{_apart(path)}; echo more >> "$p"; truncate -s 0 "$p"; echo new > x; mv x "$p"; cp x "$p"; rm -f "$p"; '
            'mv "$p" "$p.moved"; ln -s x "${p%/*}/link"; mkdir "${p%/*}/dir"; touch "${p%/*}/file"; :'
        )
        must(path.read_text() == trial.token, "its content was changed")
        must(sorted(os.listdir(path.parent)) == ["bait"], f"the folder now holds {sorted(os.listdir(path.parent))}")


@CONFINEMENT.check(unsafe=True, exceptions=_MODES)
def modes_and_times_of_host_files_stay(trial: Trial) -> None:
    """`chmod` and `touch` on a file of the host, by its path."""
    with bait_file(trial.token) as path:
        before = path.stat()
        trial.attack(f'{_apart(path)}; chmod 4777 "$p"; touch -d 2001-01-01 "$p"; setfattr -n user.x -v y "$p"; :')
        after = path.stat()
        must((before.st_mode, before.st_mtime) == (after.st_mode, after.st_mtime), "they were changed")


CONFINEMENT.table(
    attack(
        "nothing-can-be-written-outside",
        "for d in / /etc /usr /usr/bin /usr/local /bin /lib /run /var /var/lib /var/log /root /home /sys "
        "/sys/fs/cgroup /opt /boot /proc /dev /srv /mnt /media; do (echo 1 > $d/conformance-x) 2>/dev/null && "
        "echo WROTE $d; mkdir $d/conformance-y 2>/dev/null && echo MADE $d; done; "
        "for f in /etc/passwd /etc/hosts /usr/bin/env /proc/sys/kernel/hostname /proc/sys/kernel/core_pattern "
        "/proc/sysrq-trigger /proc/sys/vm/drop_caches /proc/1/oom_score_adj /sys/kernel/uevent_helper; do "
        "(: >> $f) 2>/dev/null && echo OPENED $f; done; echo w",
        out=b"w\n",
        unsafe=True,
    ),
    check(
        "removing-everything-removes-nothing-of-the-system",
        "`rm -rf --no-preserve-root /`, for some seconds, then folder by folder.",
        Attack(
            "timeout 4 rm -rf --no-preserve-root / 2>/dev/null; "
            "timeout 4 rm -rf /etc /var /root /home /opt /boot /run /bin /lib /usr/bin /usr/sbin 2>/dev/null; "
            "ls / >/dev/null && echo ls-works; head -c 1 /etc/passwd",
            timeout=30,
            where="/workspace",
            out=b"ls-works\nr",
        ),
        stress=True,
        unsafe=True,
        exceptions=_ROOT,
    ),
    check(
        "secrets-of-the-host-are-unreadable",
        "Password hashes, keys, and the files of the host user's home.",
        Attack(
            "cat /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh/ssh_host_*_key /root/.bash_history /root/.ssh/* "
            "/home/*/.ssh/* /run/secrets/* /var/run/secrets/*/*/* /proc/kcore 2>/dev/null | head -c 100; :",
            out=b"",
        ),
    ),
)


@CONFINEMENT.check(exceptions=OPEN)
def home_of_the_host_user_is_unreadable(trial: Trial) -> None:
    """Whatever stands in the home of the user that runs this."""
    home = Path.home()
    for path in sorted(home.iterdir())[:40] if home != home.parent and os.access(home, os.R_OK) else ():
        if path.is_file() and 0 < path.stat().st_size < 50_000 and os.access(path, os.R_OK):
            seen = trial.run(f'{_apart(path)}; cat "$p"')
            must(seen.stdout != path.read_bytes(), f"{path} was read")
        elif path.is_dir() and os.access(path, os.R_OK) and (names := sorted(os.listdir(path))):
            seen = trial.run(f'{_apart(path)}; ls -A "$p"')
            must(sorted(seen.stdout_text.split("\n")[:-1]) != names, f"{path} was listed")


@CONFINEMENT.check()
def environment_is_ours_and_nothing_else(trial: Trial) -> None:
    """Only variables that the documentation names; no value of the host's environment."""
    words = "PATH HOME TMPDIR LC_CTYPE TERM USER LOGNAME SHELL PAGER HISTFILE PYTHONDONTWRITEBYTECODE"
    known = {*words.split(), "PWD", "OLDPWD", "SHLVL", "_"}
    names = {line.partition("=")[0] for line in trial.out("/usr/bin/env").splitlines()}
    must(names <= known, f"unknown variables {sorted(names - known)}")
    shown = trial.out("env; cat /proc/1/environ /proc/$PPID/environ 2>/dev/null; set")
    for name, value in os.environ.items():
        if name not in known and len(value) >= 12:
            must(value not in shown, f"the host's variable {name} is seen")


@CONFINEMENT.check(exceptions=OPEN)
def environment_of_host_processes_is_unreadable(trial: Trial) -> None:
    """A process of the same host user with a secret in its environment: /proc/*/environ, mem and fd."""
    with bait_process(trial.token) as process:
        seen = trial.run(holders("/proc/[0-9]*/environ", trial.token[::-1]))
        must(seen.stdout == b"", f"the secret was read: {brief(seen)}")
        itself = trial.run(holders(f"/proc/{process.pid}/cmdline", trial.token))
        if itself.exit_code == 0:  # the number is that of the bait in here, too
            result = trial.run(
                f"for f in environ maps fd/0 cwd/. root/etc/passwd; do p=/proc/{process.pid}/$f; "
                "timeout 1 head -c 1 $p >/dev/null 2>&1 && echo READ $f; done"
            )
            must(result.stdout == b"", brief(result))


# --- processes ------------------------------------------------------------------------------------------------------


@CONFINEMENT.check(exceptions=SEES)
def processes_of_the_host_are_invisible(trial: Trial) -> None:
    """A process of the host with a word in its arguments."""
    with bait_process(trial.token):
        gone()(trial)


@CONFINEMENT.check(unsafe=True)
def processes_of_the_host_cannot_be_signalled(trial: Trial) -> None:
    """Signals to a process of the host: by number, by name, by user, and to everything."""
    with bait_process(trial.token) as process:
        trial.attack(
            f"kill -9 {process.pid}; kill -STOP {process.pid}; kill -9 -- -{process.pid}; kill -9 {os.getpid()}; :"
        )
        trial.attack(
            "(pkill -9 -f conformance-bait; pkill -9 -u $(id -u) -f sys.stdin.read; kill -9 -1) 2>/dev/null; :"
        )
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        must(process.poll() is None and state in "SR", f"it is in state {state!r}")


@CONFINEMENT.check(exceptions=_NAMED)
def name_of_the_host_is_hidden(trial: Trial) -> None:
    """The host name, in every place that tells it."""
    name = socket.gethostname()
    seen = trial.out("uname -n; cat /proc/sys/kernel/hostname /etc/hostname 2>/dev/null; echo $HOSTNAME")
    must(name not in seen.split(), f"{name!r} is told: {seen!r}")


CONFINEMENT.table(
    check(
        "command-line-of-the-kernel-is-hidden",
        "What the machine was started with.",
        Run("cat /proc/cmdline", out=b""),
        exceptions=without(
            Backend.LANDLOCK, Backend.LOCAL, reason="/proc is the host's, with the kernel's command line"
        ),
    )
)


# --- network --------------------------------------------------------------------------------------------------------


@CONFINEMENT.check(exceptions=OPEN)
def tcp_to_the_host_fails(trial: Trial) -> None:
    """A server on every address of the host, reached by the loopback and by its outward address."""
    with bait_server(socket.AF_INET, ("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        for address in addresses():
            result = trial.run(f"exec 3<>/dev/tcp/{address}/{port} && echo CONNECTED", timeout=5)
            must(result.stdout == b"", f"{address}: {brief(result)}")


@CONFINEMENT.check(exceptions=OPEN)
def udp_to_the_host_fails(trial: Trial) -> None:
    """A datagram to every address of the host."""
    with bait_receiver() as receiver:
        port = receiver.getsockname()[1]
        for address in addresses():
            trial.run(f"echo leak > /dev/udp/{address}/{port}", timeout=5)
        trial.run("sleep 0.1")
        try:
            data = receiver.recv(100)
        except BlockingIOError:
            return
        must(False, f"the host received {data!r}")


@CONFINEMENT.check(exceptions=OPEN)
def unix_sockets_of_the_host_are_unreachable(trial: Trial) -> None:
    """A socket in a folder that everybody may use, and one with an abstract name."""
    code = (
        "import socket, sys; socket.socket(socket.AF_UNIX).connect(bytes.fromhex(sys.argv[1]).decode()); "
        "print('CONNECTED')"
    )
    with bait_folder() as folder:
        for name in (str(folder / "socket"), "\0" + trial.token):
            with bait_server(socket.AF_UNIX, name):
                result = trial.run(python(code, name.encode().hex()))
                must(b"CONNECTED" not in result.stdout and result.exit_code == 1, f"{name!r}: {brief(result)}")


CONFINEMENT.table(
    check(
        "socket-families-that-namespaces-do-not-hold-are-closed",
        "Sockets that lead to a hypervisor, to radio hardware or into the kernel: vsock, bluetooth, packet, raw.",
        Run(
            python(
                "import socket\n"
                "for name, family, kind in (('vsock', 40, 1), ('vsock datagram', 40, 2), ('bluetooth', 31, 3), "
                "('packet', 17, 3), ('raw', 2, 3), ('tipc', 30, 1), ('can', 29, 3), ('nfc', 39, 3)):\n"
                "    try: socket.socket(family, kind, 1 if name in ('raw', 'can') else 0)\n"
                "    except OSError: continue\n"
                "    print(name)\n"
            ),
            code=0,
            out=b"",
        ),
        exceptions=OPEN,
    )
)

# --- privileges -----------------------------------------------------------------------------------------------------


@CONFINEMENT.check(exceptions=OPEN)
def capabilities_are_empty_and_cannot_grow(trial: Trial) -> None:
    """The kernel's own words about a command: capabilities, no-new-privileges, a system call filter."""
    lines = trial.out("cat /proc/self/status").splitlines()
    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    held = {name: facts[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb") if int(facts[name], 16)}
    must(not held, f"capabilities {held}")
    must(facts["NoNewPrivs"] == "1", "new privileges can be had")
    must(facts["Seccomp"] == "2", "no system call filter")


@CONFINEMENT.check(exceptions=OPEN)
def user_is_not_root_inside_or_outside(trial: Trial) -> None:
    """All user and group ids as a command sees them, and as the host sees them where it runs on this machine."""
    lines = trial.out("grep -E '^(Uid|Gid):' /proc/self/status").splitlines()
    must(all("0" not in line.split()[1:] for line in lines), f"ids {lines}")
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(trial.run, f"bash -c 'sleep 1; echo slept' {trial.token}")
        found: list[str] = []
        while not running.done():
            found += _users_of(trial.token)
        must(running.result().stdout == b"slept\n", brief(running.result()))
    must(found or trial.backend is Backend.DOCKER, "the host does not see the command")
    must("0" not in found, "the command's user is root outside")


def _users_of(word: str) -> list[str]:
    """Users of the processes on this machine that have a word in their arguments."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # it ended meanwhile
            if path.name.isdigit() and word.encode() in (path / "cmdline").read_bytes():
                found += re.findall(r"^Uid:\t(.*)$", (path / "status").read_text(), re.MULTILINE)[0].split()
    return found


_NAMESPACES = """
import ctypes, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
clone = dict(x86_64=56, aarch64=220).get(platform.machine())
def cloned(number, *words):
    pid = libc.syscall(number, *words)
    if pid == 0: os._exit(0)
    if pid > 0: os.waitpid(pid, 0)
    return pid > 0
kinds = dict(user=0x10000000, mount=0x20000, net=0x40000000, pid=0x20000000, ipc=0x8000000, uts=0x4000000,
             cgroup=0x2000000)
for name, flag in kinds.items():
    for flags in (flag, flag | kinds['user']):
        if os.fork() == 0:
            if libc.unshare(flags) == 0: print(name, hex(flags), flush=True)
            os._exit(0)
        os.wait()
        if clone and cloned(clone, flags | 17, 0, 0, 0, 0): print('clone', name, hex(flags), flush=True)
        if clone and cloned(435, struct.pack('=8Q', flags, 0, 0, 0, 17, 0, 0, 0), 64): print('clone3', name, hex(flags))
"""
_DEVICES = """
import os, stat
paths = {'/dev/' + name for name in '''sda vda nvme0n1 mem kmem port kmsg kvm fuse net/tun loop-control loop0
         vhost-vsock vsock uinput rtc0 hpet nvram mapper/control watchdog console tty0 tty1 ttyS0 dri/card0
         nvidia0'''.split()}
for folder, _, names in os.walk('/dev'): paths |= {os.path.join(folder, name) for name in names}
harmless = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
for path in sorted(paths):
    try: status = os.stat(path)
    except OSError: continue
    device = (os.major(status.st_rdev), os.minor(status.st_rdev))
    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)): continue
    if device in harmless and not stat.S_ISBLK(status.st_mode): continue
    try: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError: continue
    print(path, device)
"""
_KEYRINGS = """
import ctypes, platform, sys
call = ctypes.CDLL(None, use_errno=True).syscall
add, key = {'x86_64': (248, 250), 'aarch64': (217, 219)}.get(platform.machine(), (None, None))
if add is None: sys.exit(0)
for ring in (-1, -2, -3, -4, -5):
    if call(add, b'user', b'conformance', b'secret', 6, ring) >= 0: print('KEPT', ring)
if call(key, 0, -4, 1) >= 0 or call(key, 1, b'conformance') >= 0: print('RING')
"""

CONFINEMENT.table(
    attack(
        "namespaces-mounts-devices-and-roots-cannot-be-made",
        "unshare -Ur true && echo UNSHARED; unshare -m true && echo UNSHARED; unshare -n true && echo UNSHARED; "
        "mount -t tmpfs x /tmp && echo MOUNTED; mount --bind / /tmp && echo MOUNTED; umount -l /proc && echo "
        "UNMOUNTED; mknod n c 1 3 && echo MKNOD; mknod b b 8 0 && echo MKNOD; chroot / true && echo CHROOTED; "
        "nsenter -t 1 -m true && echo ENTERED; pivot_root . . && echo PIVOTED; swapoff -a 2>&1 && echo SWAP; "
        "hostname x && echo NAMED; echo m",
        timed_out=None,
        holds=lambda result, _: result.stdout.replace(b"SWAP\n", b"") == b"m\n",
        unsafe=True,
    ),
    check(
        "user-namespaces-cannot-be-made",
        "Every kind of namespace, through the bare system call, alone and inside a new user namespace.",
        Run(python(_NAMESPACES), code=0, out=b""),
        unsafe=True,
    ),
    check(
        "devices-of-the-host-are-closed",
        "Everything in /dev, and well-known devices by name, is opened.",
        Run(python(_DEVICES), code=0, out=b""),
        unsafe=True,
    ),
    attack(
        "kernel-log-is-unreadable",
        "dmesg 2>/dev/null | head -c 100; head -c 100 /dev/kmsg 2>/dev/null; head -c 100 /proc/kmsg 2>/dev/null; :",
        out=b"",
        timed_out=None,
        exceptions=OPEN,
    ),
    attack("kernel-keyrings-are-closed", python(_KEYRINGS), code=0, out=b"", unsafe=True),
)
