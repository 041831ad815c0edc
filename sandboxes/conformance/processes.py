"""Conformance of processes and limits: nothing outlives its command, bombs and floods end with theirs."""

from __future__ import annotations

from functools import partial

from sandboxes.conformance.check import Attack, Group, Run, Trial, again, attack, check, gone, python, sees, without
from sandboxes.conformance.check import attack as any_attack
from sandboxes.sandbox import Backend, CommandResult

# ---------------------------------------------------------------------------------------------------------------------
# Processes: nothing a command starts outlives it, nothing it does to itself or to the supervisor costs the session.

PROCESSES = Group("processes")

_SHORT = 1.5
"""Time-out of a command that never ends by itself."""


def _stands_still(file: str) -> Run:
    """A step: nothing writes to a file any more."""
    return Run(
        f'a=$(stat -c %s {file}); sleep 0.3; b=$(stat -c %s {file}); [ "$a" = "$b" ] && echo stable',
        out=b"stable\n",
    )


PROCESSES.table(
    check(
        "background-process-does-not-hold-the-command",
        "A process in the background keeps stdout open.",
        Attack("bash -c 'sleep 300; :' @token@ & echo started", code=0, out=b"started\n"),
        gone(),
    ),
    check(
        "daemon-does-not-outlive-its-command",
        "A writer in a session of its own, that ignores every signal it can.",
        Attack(
            '(setsid nohup bash -c \'trap "" HUP INT TERM QUIT; while :; do date >> /workspace/bg.txt; sleep 0.02; '
            "done' @token@ >/dev/null 2>&1 &); echo d",
            code=0,
            out=b"d\n",
        ),
        _stands_still("/workspace/bg.txt"),
        gone(),
    ),
    check(
        "double-forked-daemon-does-not-outlive-its-command",
        "Two forks, a session and a process group of its own, all signals ignored, all streams closed.",
        Run(
            python(
                "import os, signal, sys, time\n"
                "if os.fork() == 0:\n"
                "    os.setsid()\n"
                "    for n in range(1, 65):\n"
                "        try: signal.signal(n, signal.SIG_IGN)\n"
                "        except (OSError, ValueError): pass\n"
                "    if os.fork() == 0:\n"
                "        os.setpgid(0, 0)\n"
                "        for fd in range(300):\n"
                "            try: os.close(fd)\n"
                "            except OSError: pass\n"
                "        while True:\n"
                "            open('/tmp/alive', 'a').write('x'); time.sleep(0.02)\n"
                "    os._exit(0)\n"
                "os.wait(); time.sleep(0.1); print('started')",
                "@token@",
            ),
            out=b"started\n",
        ),
        _stands_still("/tmp/alive"),
        gone(),
    ),
    check(
        "stopped-and-nested-processes-do-not-outlive-a-timeout",
        "Stopped processes, shells in shells, a pipeline that never ends, a process in every state.",
        Attack(
            "for i in 1 2 3; do bash -c 'kill -STOP $$' @token@ & done; "
            'bash -c \'bash -c "bash -c \\"sleep 100; :\\" @token@; :" @token@; :\' @token@ | cat | cat',
            timeout=_SHORT,
            timed_out=True,
            code=137,
        ),
        gone(),
    ),
    check(
        "kept-background-process-ends-with-the-next-plain-command",
        "A writer kept on purpose goes on during the next command, and is gone after it.",
        Run(
            "(setsid bash -c 'while :; do echo x >> /tmp/grow; sleep 0.02; done' @token@ >/dev/null 2>&1 &); sleep 0.2",
            keep=True,
        ),
        Run(
            "stat -c %s /tmp/grow; sleep 0.5; stat -c %s /tmp/grow",
            code=0,
            holds=lambda result, _: len(set(result.stdout.split())) == 2,
        ),
        gone(),
    ),
    check(
        "kept-background-process-ends-with-the-episode",
        "A process kept on purpose writes on while the next episode begins.",
        Run(
            "(setsid bash -c 'while :; do echo x >> /workspace/bg; done' @token@ >/dev/null 2>&1 &); sleep 0.2",
            keep=True,
        ),
        again,
        sees("the new episode is empty", lambda found: not found),
        gone(),
        Run("sleep 0.2; ls -A", code=0, out=b""),
    ),
    attack(
        "spinning-processes-end-with-their-command",
        "for i in 1 2 3 4; do (while :; do :; done) & done; echo s",
        out=b"s\n",
    ),
    attack("busy-loop-of-builtins-is-timed-out", "while :; do :; done", timed_out=True, timeout=_SHORT),
    attack(
        "shell-that-ignores-signals-is-timed-out",
        "trap '' INT TERM HUP QUIT TSTP; while :; do :; done",
        timed_out=True,
        code=137,
        timeout=_SHORT,
    ),
    attack("shell-that-stops-itself-is-timed-out", "kill -STOP $$; echo resumed", timed_out=True, timeout=_SHORT),
    attack(
        "suspended-shell-costs-nothing",
        "suspend -f; echo s",
        timed_out=None,
        holds=lambda result, _: result.exit_code in (0, 137),
        timeout=_SHORT,
    ),
    attack(
        "zombies-cost-nothing",
        python("import os, time\nfor i in range(30):\n  if os.fork() == 0: os._exit(0)\ntime.sleep(0.2)") + "; echo z",
        out=b"z\n",
    ),
    attack(
        "exit-code-of-the-shell-is-not-that-of-an-orphan", "(setsid bash -c 'sleep 0.05; exit 66' &); exit 5", code=5
    ),
)

# --- the supervisor -------------------------------------------------------------------------------------------------

PROCESSES.table(
    attack(
        "supervisor-cannot-be-killed",
        "for p in 1 $PPID; do for s in KILL TERM INT HUP SEGV STOP USR1 ALRM; do kill -$s $p; done; done; sleep 0.2; "
        "echo still",
        out=b"still\n",
        unsafe=True,
    ),
    attack("killing-everything-ends-only-the-command", "(sleep 100 &); kill -9 -1; echo after", unsafe=True),
    attack(
        "supervisor-cannot-be-choked",
        "for p in 1 $PPID; do prlimit --pid $p --nofile=3:3 --as=1000:1000 && echo LIMITS; renice 19 -p $p && echo "
        "NICE; taskset -p 1 $p >/dev/null && taskset -cp 0 $p && echo CPU; chrt -i -p 0 $p && echo CHRT; "
        "ionice -c 3 -p $p && echo IO; (echo 1000 > /proc/$p/oom_score_adj) && echo OOM; "
        "(echo 0 > /proc/$p/coredump_filter) && echo CORE; done; renice 19 -u $(id -u) >/dev/null && echo NICE; :",
        lacks=(b"LIMITS", b"NICE", b"CPU", b"CHRT", b"IO", b"OOM", b"CORE"),
        unsafe=True,
    ),
    attack(
        "supervisor-cannot-be-traced",
        python(
            "import ctypes, os, sys\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "buffer = ctypes.create_string_buffer(64)\n"
            "vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)\n"
            "for pid in (1, int(sys.argv[1])):\n"
            "    for request in (16, 0x4206):  # attach, seize\n"
            "        if libc.ptrace(request, pid, None, None) == 0: print('TRACED', pid)\n"
            "    if libc.process_vm_readv(pid, vector, 1, vector, 1, 0) >= 0: print('READ', pid)\n"
            "    if libc.process_vm_writev(pid, vector, 1, vector, 1, 0) >= 0: print('WROTE', pid)\n"
            "    try: fd = os.pidfd_open(pid)\n"
            "    except (OSError, AttributeError): continue\n"
            "    if libc.syscall(438, fd, 0, 0) >= 0: print('TOOK A DESCRIPTOR', pid)\n"
        )
        + " $PPID; echo done",
        out=b"done\n",
        unsafe=True,
    ),
    attack(
        "oom-victim-is-the-command-not-the-supervisor",
        "cat /proc/self/oom_score_adj; (echo -1000 > /proc/self/oom_score_adj) 2>/dev/null; "
        "cat /proc/self/oom_score_adj",
        out=b"1000\n1000\n",
    ),
)


# -- Limits: bombs and floods end with their command, the machine stays usable, and the session lives -----------------

LIMITS = Group("limits")

_BOMB = 2.0
"""Seconds that a bomb may go on."""
_LONG = 60.0
"""Time-out of what must be ended by a limit, not by time."""
_WATCHED = without(
    Backend.LANDLOCK,
    reason="the workspace is a folder of the host's disk: it is watched, and can be exceeded for a moment",
)
_UNSEEN = without(
    Backend.BUBBLEWRAP,
    Backend.LANDLOCK,
    reason="without a memory cgroup, memory files are bounded one by one and in number, not in sum",
)

flood = partial(any_attack, code=137, timeout=_LONG, stress=True)
"""A row: output without end, which must end the command and be cut."""
bomb = partial(any_attack, fails=True, timed_out=None, timeout=_BOMB, stress=True, unsafe=True)
"""A row: what grows until it is stopped, by a limit or by its time."""
stress = partial(check, stress=True, unsafe=True)
"""A row: what uses up the machine for a moment."""


def _cut(stream: str, result: CommandResult, trial: Trial) -> bool:
    return result.truncated and len(getattr(result, stream)) <= 70_000


def _last(result: CommandResult) -> int:
    """The number that a program printed last."""
    return int(result.stdout.split()[-1])


def _ended_or(most: int, result: CommandResult) -> bool:
    """The command was ended, or counted no more than this."""
    return result.exit_code != 0 or _last(result) <= most


# --- output ---------------------------------------------------------------------------------------------------------

LIMITS.table(
    flood("endless-output-is-ended-and-cut", "yes", holds=partial(_cut, "stdout")),
    flood("endless-errors-are-ended-and-cut", "yes >&2", holds=partial(_cut, "stderr")),
    flood("endless-binary-output-is-ended-and-cut", "cat /dev/urandom", holds=partial(_cut, "stdout")),
    flood(
        "flood-of-many-writers-is-ended",
        "for i in 1 2 3 4 5 6; do (trap '' TERM HUP; yes $i) & (yes $i >&2) & done; wait",
        holds=partial(_cut, "stdout"),
    ),
)

# --- processes ------------------------------------------------------------------------------------------------------

_START_PROCESSES = """
import subprocess, sys, time
kept = []
for _ in range(int(sys.argv[1])):
    try: kept.append(subprocess.Popen(['sleep', '60']))
    except OSError: break
time.sleep(1); print('ALIVE', sum(p.poll() is None for p in kept))
"""
_START_THREADS = """
import threading, time
threading.stack_size(65536)
count = 0
try:
    for _ in range(5000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); count += 1
except RuntimeError: pass
import os; os.write(1, b'%d\\n' % count); os._exit(0)
"""

LIMITS.table(
    bomb("fork-bomb-ends-with-its-command", ":(){ :|:& };:", fails=False),
    bomb(
        "fork-bomb-in-python-ends-with-its-command",
        python("import os\nwhile 1:\n  try: os.fork()\n  except OSError: pass"),
    ),
    bomb(
        "fork-bomb-of-daemons-ends-with-its-command",
        python(
            "import os, signal\n"
            "for n in range(1, 65):\n"
            "    try: signal.signal(n, signal.SIG_IGN)\n"
            "    except (OSError, ValueError): pass\n"
            "while 1:\n"
            "    try:\n"
            "        if os.fork() == 0: os.setsid()\n"
            "    except OSError: pass\n"
        ),
    ),
    bomb(
        "chain-of-executions-ends-with-its-command",
        "cat > again <<'EOF'\n#!/bin/bash\nsetsid \"$0\" &\nexit 0\nEOF\nchmod +x again; ./again; sleep 30",
    ),
    stress(
        "processes-are-bounded",
        "Three times as many processes as are allowed.",
        Attack(
            lambda trial: python(_START_PROCESSES, str(3 * trial.limits.processes)),
            timeout=_LONG,
            holds=lambda result, trial: _ended_or(trial.limits.processes, result),
        ),
    ),
    stress(
        "threads-are-bounded",
        "Five thousand threads in one process: they end, or are ended, with the command.",
        Attack(
            python(_START_THREADS),
            timeout=_LONG,
            holds=lambda result, trial: (
                trial.backend is Backend.LANDLOCK or _ended_or(trial.limits.processes + 256, result)
            ),
        ),
    ),
)

# --- memory ---------------------------------------------------------------------------------------------------------

_HOLD_IN_PROCESSES = """
import subprocess, sys, time
hog = 'import sys, time; x = b"x" * (int(sys.argv[1]) << 20); print(1, flush=True); time.sleep(60)'
kept = [subprocess.Popen([sys.executable, '-S', '-c', hog, sys.argv[1]], stdout=subprocess.PIPE) for _ in range(8)]
for p in kept: p.stdout.readline()
time.sleep(1); print('ALIVE', sum(p.poll() is None for p in kept))
"""
_HOLD_SHARED = """
import mmap, sys, time
size, kept = int(sys.argv[1]) << 20, []
for _ in range(24): kept.append(mmap.mmap(-1, size)); kept[-1].write(b'x' * size)
time.sleep(1); print('HELD')
"""
_HOLD_FILES = """
import os, sys, time
kept, mark = [], b'x' * (1 << 20)
for _ in range(int(sys.argv[1]) // 8):
    kept.append(os.memfd_create('x'))
    for _ in range(8): os.write(kept[-1], mark)
time.sleep(1); print('HELD')
"""

LIMITS.table(
    bomb(
        "memory-bomb-ends-with-its-command",
        python("x = []\nwhile 1: x.append(bytearray(b'x') * (16 << 20))"),
        timeout=_LONG,
        timed_out=False,
    ),
    stress(
        "memory-of-all-processes-together-is-bounded",
        "Eight processes that each hold a quarter of what is allowed, all at the same time.",
        Attack(
            lambda trial: python(_HOLD_IN_PROCESSES, str(trial.limits.memory_mb // 4)),
            timeout=_LONG,
            holds=lambda result, _: _ended_or(4, result),
        ),
    ),
    stress(
        "shared-memory-counts-as-memory",
        "Shared anonymous memory, three times what is allowed, in one process.",
        Attack(
            lambda trial: python(_HOLD_SHARED, str(max(1, trial.limits.memory_mb // 8))),
            timeout=_LONG,
            timed_out=None,
            fails=True,
            lacks=(b"HELD",),
        ),
    ),
    stress(
        "memory-files-count-as-memory",
        "Memory files that no process maps, four times what is allowed.",
        Attack(
            lambda trial: python(_HOLD_FILES, str(4 * trial.limits.memory_mb)),
            timeout=_LONG,
            timed_out=None,
            fails=True,
            lacks=(b"HELD",),
        ),
        exceptions=_UNSEEN,
    ),
)

# --- files ----------------------------------------------------------------------------------------------------------


def _file_in_bounds(result: CommandResult, trial: Trial) -> bool:
    return _last(result) <= trial.limits.file_mb << 20


LIMITS.table(
    check(
        "one-file-is-bounded",
        "A file of twice the limit, and a hole of 40 GB.",
        Attack(
            lambda trial: f"head -c {2 * trial.limits.file_mb}M /dev/zero > big; stat -c %s big; rm -f big",
            holds=_file_in_bounds,
        ),
        Attack("truncate -s 40G hole; stat -c %s hole 2>/dev/null || echo 0", holds=_file_in_bounds),
    ),
    check(
        "open-files-are-bounded",
        "Twice as many open files as are allowed, after an attempt to raise the limit.",
        Attack(
            python(
                "import resource\n"
                "try: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))\n"
                "except (ValueError, OSError): pass\n"
                "kept = []\n"
                "try:\n"
                "    while len(kept) < 5000: kept.append(open('/dev/null'))\n"
                "except OSError: pass\n"
                "print(len(kept))\n"
            ),
            code=0,
            holds=lambda result, trial: _last(result) <= trial.limits.open_files,
        ),
    ),
    stress(
        "workspace-is-bounded",
        "File after file, twenty times what one may hold; afterwards files still come out and commands run.",
        Attack(
            lambda trial: (
                f"for i in $(seq 20); do head -c {trial.limits.file_mb - 4}M /dev/zero > f$i || break; "
                "sleep 0.06; done; du -sm /workspace | cut -f1"
            ),
            timeout=_LONG,
            timed_out=None,
            holds=lambda _, trial: (
                sum(entry.size or 0 for entry in trial.sandbox.snapshot().values()) >> 20 <= trial.limits.workspace_mb
            ),
        ),
        Run("rm -f f*; echo small > s; cat s", out=b"small\n"),
        exceptions=_WATCHED,
    ),
    stress(
        "writing-without-end-is-ended",
        "Two gigabytes in many files: not all of it may be written, wherever the workspace lies.",
        Attack(
            "for i in $(seq 40); do head -c 50M /dev/zero > g$i || exit 1; sleep 0.1; done; echo all",
            timeout=_LONG,
            lacks=(b"all",),
        ),
        Run("rm -rf g* x i /tmp/x /dev/shm/x /var/tmp/x; echo c", out=b"c\n"),
    ),
    stress(
        "full-disks-do-not-stop-the-session",
        "The workspace, /tmp and /dev/shm are filled; then a heredoc, a command and a grading read.",
        Attack(
            "for f in /tmp/x /dev/shm/x /workspace/x; do (head -c 60M /dev/zero > $f) 2>/dev/null; done; "
            "head -c 60M /dev/zero > /workspace/y; :",
            timeout=_LONG,
            timed_out=None,
        ),
        Run("cat <<< small; exit 3", holds=lambda result, _: result.exit_code in (3, 1)),
        lambda trial: trial.sandbox.listing(),
        lambda trial: trial.sandbox.snapshot(),
        again,
        Run("cat <<< small; head -c 10M /dev/zero > x; stat -c %s x", code=0, out=f"small\n{10 << 20}\n".encode()),
    ),
    stress(
        "forty-thousand-files-cost-nothing",
        "As many empty files as the disk takes, and then nothing is left after a reset.",
        Attack(
            "mkdir -p i; seq 40000 | (cd i && xargs touch 2>/dev/null); ls i | wc -l",
            timeout=_LONG,
            timed_out=None,
            holds=lambda _, trial: len(trial.sandbox.snapshot()) <= trial.limits.snapshot_entries,
        ),
        again,
        sees("nothing is left", lambda found: not found),
    ),
    stress(
        "number-of-files-is-bounded",
        "More empty files than a workspace of this size needs: the command is ended, or the files are refused.",
        Attack(
            "mkdir -p i; seq 90000 | (cd i && xargs touch 2>/dev/null); ls -f i | wc -l",
            timeout=_LONG,
            timed_out=None,
            holds=lambda result, _: (result.exit_code == 137 and b"files]" in result.stderr) or _last(result) < 90_000,
        ),
        exceptions=_WATCHED,
    ),
)
