"""Processes: nothing a command starts outlives it, nothing it does to itself or to the supervisor costs the session."""

from __future__ import annotations

from sandboxes.conformance.check import Attack, Group, Run, again, attack, check, gone, python, sees

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
