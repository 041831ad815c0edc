"""Calls to the Linux kernel that the standard library lacks: prctl, Landlock, seccomp, System V IPC. Through ctypes.

Sources: landlock(7), seccomp(2), prctl(2), and the kernel's `include/uapi/linux/landlock.h`. What traces a judge stands
in `sandboxes.inside.judge`.
"""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
PR_SET_CHILD_SUBREAPER = 36

# Landlock system calls have one number on every architecture.
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446

FS_EXECUTE, FS_WRITE_FILE, FS_READ_FILE, FS_READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
FS_REFER, FS_IOCTL_DEV = 1 << 13, 1 << 15
_FS_BITS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many file-system rights each ABI knows: REFER came with 2, TRUNCATE with 3, IOCTL_DEV with 5."""
_FILE_RIGHTS = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | 1 << 14 | FS_IOCTL_DEV
READ = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR
DEVICE = FS_READ_FILE | FS_WRITE_FILE | 1 << 14 | FS_IOCTL_DEV
ALL = (1 << 16) - 1


class KernelError(OSError):
    """A system call failed; the message names it."""


def _call(name: str, number: int, *args: object) -> int:
    result = _libc.syscall(ctypes.c_long(number), *args)
    if result < 0:
        code = ctypes.get_errno()
        raise KernelError(code, f"{name}: {os.strerror(code)}")
    return result


def prctl(option: int, *args: int) -> None:
    """Change how the kernel treats this process. Raises KernelError."""
    values = [ctypes.c_ulong(value) for value in (args + (0, 0, 0, 0))[:4]]
    if _libc.prctl(ctypes.c_int(option), *values) < 0:
        code = ctypes.get_errno()
        raise KernelError(code, f"prctl({option}): {os.strerror(code)}")


def landlock_abi() -> int:
    """The kernel's Landlock ABI, 0 where Landlock is absent or switched off."""
    try:
        return _call("landlock", SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except KernelError:
        return 0


class Domain:
    """A Landlock ruleset: what a process that enters it may still touch. Everything not allowed is denied.

    Args:
        allowed: (path, rights) pairs; a path that does not exist is left out.
        handled: The rights that are denied where no rule allows them; None stands for all that this kernel knows, with
            TCP and, from ABI 6 on, signals and abstract unix sockets to processes outside of the domain.
        signals: With `handled`: deny signals to processes outside of the domain as well (from ABI 6 on).
    """

    def __init__(self, allowed: list, handled: int | None = None, signals: bool = False) -> None:
        abi = landlock_abi()
        if not abi:
            raise KernelError(38, "Landlock is not available in this kernel")
        known = (1 << _FS_BITS_BY_ABI.get(abi, 16)) - 1
        fields = [known]
        if handled is not None:
            fields = [known := known & handled, *([0, 2] if signals and abi >= 6 else [])]
        elif abi >= 4:
            fields += [3, 3] if abi >= 6 else [3]  # bind and connect of TCP; then abstract unix sockets and signals
        attr = struct.pack(f"={len(fields)}Q", *fields)
        self.fd = _call("landlock_create_ruleset", SYS_LANDLOCK_CREATE_RULESET, attr, ctypes.c_size_t(len(attr)), 0)
        for path, rights in allowed:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # not on this system: nothing to allow
            try:
                rights &= known
                if not os.path.isdir(path):
                    rights &= _FILE_RIGHTS
                rule = struct.pack("=Qi", rights, fd)
                _call("landlock_add_rule", SYS_LANDLOCK_ADD_RULE, ctypes.c_int(self.fd), 1, rule, 0)
            finally:
                os.close(fd)

    def enter(self) -> None:
        """Restrict the calling thread and its future children, for good."""
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        _call("landlock_restrict_self", SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_int(self.fd), 0)


# --- seccomp ------------------------------------------------------------------------------------------------------

_ARCHES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""machine -> (AUDIT_ARCH value of the kernel, column in the table below)."""
_DENIED = {
    # name: (x86_64, aarch64)
    "socket": (41, 198),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "truncate": (76, 45),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
}
_ALWAYS = (
    *("add_key", "request_key", "keyctl"),
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "open_by_handle_at"),
    *("unshare", "setns"),
)
"""Denied also where namespaces hold the rest: keyrings outlive a reset, the others lead around this filter, and in a
user namespace of its own a command would have capabilities, which engines forbid (Docker) or not (Podman)."""
_CLONE, _CLONE3 = (56, 220), 435
_NEW_NAMESPACES = 0x7E020000
"""Flags of `clone` that make namespaces. Those of `clone3` lie in memory, where no filter reads: programs are told that
the kernel has no such call, and take `clone`."""
_NAMESPACES_HOLD = ("socket", "shmget", "semget", "msgget", "mq_open", "mount")
"""Denied where there are no namespaces."""
_OF_OTHERS = ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd")
"""What reaches into other processes: denied to every command, on every backend (see `command_program`)."""
_FAMILIES = (1, 2, 10, 16)
"""Sockets that namespaces hold: unix, IPv4, IPv6, netlink. Others lead out, such as AF_VSOCK to the hypervisor."""
_ONLY_SELF = {
    # name: (x86_64, aarch64, {argument: the one value that is allowed})
    "prlimit64": (302, 261, {0: 0}),
    "setpriority": (141, 140, {0: 0, 1: 0}),
    "ioprio_set": (251, 30, {0: 1, 1: 0}),
    "sched_setaffinity": (203, 122, {0: 0}),
    "sched_setscheduler": (144, 119, {0: 0}),
    "sched_setparam": (142, 118, {0: 0}),
    "sched_setattr": (314, 274, {0: 0}),
}
"""Allowed on the calling process only: a command could choke its supervisor with them, which has the same user."""


def _step(code: int, jump_true: int, jump_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)


_LOAD, _EQUAL, _AT_LEAST, _HAS, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _NOTIFY, _DENY, _KILL = 0x7FFF0000, 0x7FC00000, 0x00050000 | 1, 0x80000000
_UNKNOWN = 0x00050000 | 38


def architecture() -> tuple | None:
    """This machine's AUDIT_ARCH value and its column in the tables above; None where there is none."""
    return _ARCHES.get(os.uname().machine) if struct.calcsize("P") == 8 else None


def _known_calls_only(audit: int, column: int) -> list:
    """The start of every filter: calls of another architecture kill, and the number of the call is loaded."""
    program = [_step(_LOAD, 0, 0, 4), _step(_EQUAL, 1, 0, audit), _step(_ANSWER, 0, 0, _KILL), _step(_LOAD, 0, 0, 0)]
    if column == 0:  # the x32 twin of every x86_64 call
        program += [_step(_AT_LEAST, 0, 1, 0x40000000), _step(_ANSWER, 0, 0, _DENY)]
    return program


def command_program() -> bytes | None:
    """A second filter, for commands and not for their supervisor: no process reaches into another one.

    None on an unknown architecture. Before ABI 3 Landlock does not know `truncate`, which could empty a grader's file.
    """
    arch = architecture()
    if arch is None:
        return None
    program = _known_calls_only(*arch)
    for name in (*_OF_OTHERS, *(["truncate"] if 0 < landlock_abi() < 3 else [])):
        program += [_step(_EQUAL, 0, 1, _DENIED[name][arch[1]]), _step(_ANSWER, 0, 0, _DENY)]
    return b"".join([*program, _step(_ANSWER, 0, 0, _ALLOW)])


HANDOVER = 0x7467
"""Flags of a `landlock_restrict_self` that is answered by whoever listens (see `listening_program`), not the kernel."""


def listening_program() -> bytes | None:
    """A filter whose listener is told of `landlock_restrict_self(-1, HANDOVER)`, and of nothing else.

    So a tracer can hand a descriptor to a process that it has stopped; None on an unknown architecture.
    """
    arch = architecture()
    if arch is None:
        return None
    return b"".join(
        [
            *(_step(_LOAD, 0, 0, 4), _step(_EQUAL, 0, 5, arch[0])),
            *(_step(_LOAD, 0, 0, 0), _step(_EQUAL, 0, 3, SYS_LANDLOCK_RESTRICT_SELF)),
            *(_step(_LOAD, 0, 0, 16 + 8), _step(_EQUAL, 0, 1, HANDOVER)),
            *(_step(_ANSWER, 0, 0, _NOTIFY), _step(_ANSWER, 0, 0, _ALLOW)),
        ]
    )


def filter_program(sockets: bool) -> bytes | None:
    """A seccomp filter as BPF bytes: the calls above fail with EPERM. None on an unknown architecture.

    Args:
        sockets: Deny also what namespaces would hold, not only odd families of sockets. Without a network namespace
            this is what closes UDP, raw and unix sockets (`socketpair` stays), and without an IPC namespace shared
            memory that outlives the sandbox.
    """
    arch = architecture()
    if arch is None:
        return None
    column = arch[1]
    program = _known_calls_only(*arch)
    for name in (*_ALWAYS, *(_NAMESPACES_HOLD if sockets else ())):
        program += [_step(_EQUAL, 0, 1, _DENIED[name][column]), _step(_ANSWER, 0, 0, _DENY)]
    program += [_step(_EQUAL, 0, 1, _CLONE3), _step(_ANSWER, 0, 0, _UNKNOWN)]
    checks = [_step(_LOAD, 0, 0, 16), _step(_HAS, 0, 1, _NEW_NAMESPACES)]
    checks += [_step(_ANSWER, 0, 0, _DENY), _step(_ANSWER, 0, 0, _ALLOW)]
    program += [_step(_EQUAL, 0, len(checks), _CLONE[column]), *checks]
    if not sockets:
        checks = [_step(_EQUAL, len(_FAMILIES) - index, 0, family) for index, family in enumerate(_FAMILIES)]
        checks = [_step(_LOAD, 0, 0, 16), *checks, _step(_ANSWER, 0, 0, _DENY), _step(_ANSWER, 0, 0, _ALLOW)]
        program += [_step(_EQUAL, 0, len(checks), _DENIED["socket"][column]), *checks]
    for *numbers, allowed in _ONLY_SELF.values():
        checks = []
        for argument, value in allowed.items():  # the low half of the argument; the kernel reads no more of an int
            checks += [_step(_LOAD, 0, 0, 16 + 8 * argument), _step(_EQUAL, 1, 0, value), _step(_ANSWER, 0, 0, _DENY)]
        checks.append(_step(_ANSWER, 0, 0, _ALLOW))
        program += [_step(_EQUAL, 0, len(checks), numbers[column]), *checks]
    return b"".join([*program, _step(_ANSWER, 0, 0, _ALLOW)])


def enter_filter(program: bytes, listen: bool = False) -> int:
    """Put a seccomp filter on the calling thread and its future children.

    Returns:
        With `listen`, the descriptor that is told of calls (seccomp_unotify(2)); else 0.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    holder = ctypes.create_string_buffer(fprog, len(fprog))
    number = (317, 277)[_ARCHES[os.uname().machine][1]]
    return _call("seccomp", number, ctypes.c_uint(1), ctypes.c_uint(8 if listen else 0), ctypes.byref(holder))


# --- System V IPC -------------------------------------------------------------------------------------------------


def clear_ipc() -> None:
    """Remove every System V object of this IPC namespace. Only for a namespace of our own."""
    for table, remove in (
        ("shm", lambda ident: _libc.shmctl(ident, 0, None)),
        ("sem", lambda ident: _libc.semctl(ident, 0, 0, None)),
        ("msg", lambda ident: _libc.msgctl(ident, 0, None)),
    ):
        try:
            fd = os.open(f"/proc/sysvipc/{table}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # a kernel without System V IPC
        text = b""
        while data := os.read(fd, 1 << 16):
            text += data
        os.close(fd)
        rows = text.splitlines()[1:]
        for row in rows:
            remove(int(row.split()[1]))
