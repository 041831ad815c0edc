"""Processes: nothing a command starts outlives it, nothing it does to itself or to the supervisor costs the session."""

from __future__ import annotations

from sandboxes.conformance.check import SECONDS, Group, Trial, brief, holders, must, python, without
from sandboxes.sandbox import Backend

GROUP = Group("processes")

_UNPROTECTED = without(Backend.LOCAL, reason="without confinement a command can do this to its own supervisor")
_SHORT = 1.5
"""Time-out of a command that never ends by itself."""

_DIGITS = str.maketrans("abcdef", "123456")


def _gone(trial: Trial, word: str) -> None:
    """No process has the word in its command line. Raises Wrong."""
    left = trial.run(holders("/proc/[0-9]*/cmdline", word))
    must(left.stdout == b"" and left.exit_code != 0, f"processes are left: {brief(left)}")


@GROUP.check()
def background_process_does_not_hold_the_command(trial: Trial) -> None:
    """A process in the background keeps stdout open."""
    result = trial.attack(f"sleep 300.{trial.token[2:8].translate(_DIGITS)} & echo started")
    must((result.exit_code, result.stdout) == (0, b"started\n") and not result.timed_out, brief(result))
    _gone(trial, f"300.{trial.token[2:8].translate(_DIGITS)}")


@GROUP.check()
def daemon_does_not_outlive_its_command(trial: Trial) -> None:
    """A writer in a session of its own, that ignores every signal it can."""
    result = trial.attack(
        "(setsid nohup bash -c 'trap \"\" HUP INT TERM QUIT; while :; do date >> /workspace/bg.txt; sleep 0.02; done' "
        f"{trial.token}d >/dev/null 2>&1 &) ; echo d"
    )
    must((result.exit_code, result.stdout) == (0, b"d\n"), brief(result))
    grown = trial.run(
        "a=$(stat -c %s /workspace/bg.txt 2>/dev/null); sleep 0.3; b=$(stat -c %s /workspace/bg.txt 2>/dev/null); "
        '[ "$a" = "$b" ] && echo stable || echo GROWING'
    )
    must(grown.stdout == b"stable\n", f"a daemon writes on: {brief(grown)}")
    _gone(trial, trial.token + "d")


@GROUP.check()
def double_forked_daemon_does_not_outlive_its_command(trial: Trial) -> None:
    """Two forks, a session and a process group of its own, all signals ignored, all streams closed."""
    result = trial.python(
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
        trial.token + "f",
    )
    must(result.stdout == b"started\n", brief(result))
    sizes = trial.out("stat -c %s /tmp/alive; sleep 0.3; stat -c %s /tmp/alive").split()
    must(len(sizes) == 2 and sizes[0] == sizes[1], f"a daemon writes on: {sizes}")
    _gone(trial, trial.token + "f")


@GROUP.check()
def stopped_and_nested_processes_do_not_outlive_a_timeout(trial: Trial) -> None:
    """Stopped processes, shells in shells, a pipeline that never ends, a process in every state."""
    result = trial.attack(
        f"for i in 1 2 3; do bash -c 'kill -STOP $$' {trial.token}s & done; "
        f'bash -c \'bash -c "bash -c \\"sleep 100; :\\" {trial.token}s; :" {trial.token}s; :\' {trial.token}s | cat '
        f"| cat",
        timeout=_SHORT,
    )
    must(result.timed_out and result.exit_code == 137, brief(result))
    _gone(trial, trial.token + "s")


@GROUP.check()
def kept_background_process_ends_with_the_next_plain_command(trial: Trial) -> None:
    """A writer kept on purpose goes on during the next command, and is gone after it."""
    command = (
        f"(setsid bash -c 'while :; do echo x >> /tmp/grow; sleep 0.02; done' {trial.token}k >/dev/null 2>&1 "
        f"&); sleep 0.2"
    )
    trial.sandbox.run(command, timeout=SECONDS, keep_background=True)
    sizes = trial.out("stat -c %s /tmp/grow; sleep 0.5; stat -c %s /tmp/grow").split()
    must(sizes[0] != sizes[1], f"it does not live on: {sizes}")
    _gone(trial, trial.token + "k")


@GROUP.check()
def kept_background_process_ends_with_the_episode(trial: Trial) -> None:
    """A process kept on purpose writes on while the next episode begins."""
    command = (
        f"(setsid bash -c 'while :; do echo x >> /workspace/bg; done' {trial.token}k >/dev/null 2>&1 &); sleep 0.2"
    )
    trial.sandbox.run(command, timeout=SECONDS, keep_background=True)
    trial.again()
    must(trial.sandbox.listing() == [], f"the new episode holds {trial.sandbox.listing()}")
    _gone(trial, trial.token + "k")
    must(trial.out("sleep 0.2; ls -A") == "", "something writes into the new episode")


GROUP.attack(
    "spinning-processes-end-with-their-command",
    "for i in 1 2 3 4; do (while :; do :; done) & done; echo s",
    lambda r: r.stdout == b"s\n" and not r.timed_out,
)
GROUP.attack("busy-loop-of-builtins-is-timed-out", "while :; do :; done", lambda r: r.timed_out, timeout=_SHORT)
GROUP.attack(
    "shell-that-ignores-signals-is-timed-out",
    "trap '' INT TERM HUP QUIT TSTP; while :; do :; done",
    lambda r: r.timed_out and r.exit_code == 137,
    timeout=_SHORT,
)
GROUP.attack(
    "shell-that-stops-itself-is-timed-out", "kill -STOP $$; echo resumed", lambda r: r.timed_out, timeout=_SHORT
)
GROUP.attack("suspended-shell-costs-nothing", "suspend -f; echo s", lambda r: r.exit_code in (0, 137), timeout=_SHORT)
GROUP.attack(
    "zombies-cost-nothing",
    python("import os, time\nfor i in range(30):\n  if os.fork() == 0: os._exit(0)\ntime.sleep(0.2)") + "; echo z",
    lambda r: r.stdout == b"z\n",
)
GROUP.attack(
    "exit-code-of-the-shell-is-not-that-of-an-orphan",
    "(setsid bash -c 'sleep 0.05; exit 66' &); exit 5",
    lambda r: r.exit_code == 5,
)

# --- the supervisor -------------------------------------------------------------------------------------------------

GROUP.attack(
    "supervisor-cannot-be-killed",
    "for p in 1 $PPID; do for s in KILL TERM INT HUP SEGV STOP USR1 ALRM; do kill -$s $p; done; done; sleep 0.2; "
    "echo still",
    lambda r: r.stdout == b"still\n",
    unsafe=True,
)
GROUP.attack(
    "killing-everything-ends-only-the-command",
    "(sleep 100 &); kill -9 -1; echo after",
    lambda r: not r.timed_out,
    unsafe=True,
)
GROUP.attack(
    "supervisor-cannot-be-choked",
    "for p in 1 $PPID; do prlimit --pid $p --nofile=3:3 --as=1000:1000 && echo LIMITS; renice 19 -p $p && echo NICE; "
    "taskset -p 1 $p >/dev/null && taskset -cp 0 $p && echo CPU; chrt -i -p 0 $p && echo CHRT; ionice -c 3 -p $p && "
    "echo IO; "
    "(echo 1000 > /proc/$p/oom_score_adj) && echo OOM; (echo 0 > /proc/$p/coredump_filter) && echo CORE; done; "
    "renice 19 -u $(id -u) >/dev/null && echo NICE; :",
    lambda r: not any(word in r.stdout for word in (b"LIMITS", b"NICE", b"CPU", b"CHRT", b"IO", b"OOM", b"CORE")),
    unsafe=True,
)
GROUP.attack(
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
    lambda r: r.stdout == b"done\n",
    unsafe=True,
)
GROUP.attack(
    "oom-victim-is-the-command-not-the-supervisor",
    "cat /proc/self/oom_score_adj; (echo -1000 > /proc/self/oom_score_adj) 2>/dev/null; cat /proc/self/oom_score_adj",
    lambda r: r.stdout == b"1000\n1000\n",
)
