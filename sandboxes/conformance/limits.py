"""Limits: bombs and floods end with their command, the machine stays usable, and the session lives."""

from __future__ import annotations

from collections.abc import Callable

from sandboxes.conformance.check import Group, Trial, brief, must, python, without
from sandboxes.sandbox import Backend, CommandResult

GROUP = Group("limits")

_BOMB = 2.0
"""Seconds that a bomb may go on."""
_LONG = 60.0
"""Time-out of what must be ended by a limit, not by time."""
_WATCHED = without(
    Backend.LANDLOCK,
    reason="the workspace is a folder of the host's disk: it is watched, and can be exceeded for a moment",
)


def _flooded(stream: str) -> Callable[[CommandResult], bool]:
    def holds(result: CommandResult) -> bool:
        data = getattr(result, stream)
        return result.truncated and not result.timed_out and result.exit_code == 137 and len(data) <= 70_000

    return holds


# --- output ---------------------------------------------------------------------------------------------------------

GROUP.attack("endless-output-is-ended-and-cut", "yes", _flooded("stdout"), timeout=_LONG, stress=True)
GROUP.attack("endless-errors-are-ended-and-cut", "yes >&2", _flooded("stderr"), timeout=_LONG, stress=True)
GROUP.attack(
    "endless-binary-output-is-ended-and-cut", "cat /dev/urandom", _flooded("stdout"), timeout=_LONG, stress=True
)
GROUP.attack(
    "flood-of-many-writers-is-ended",
    "for i in 1 2 3 4 5 6; do (trap '' TERM HUP; yes $i) & (yes $i >&2) & done; wait",
    _flooded("stdout"),
    timeout=_LONG,
    stress=True,
)

# --- processes ------------------------------------------------------------------------------------------------------

GROUP.attack(
    "fork-bomb-ends-with-its-command",
    ":(){ :|:& };:",
    lambda r: r.exit_code is not None,
    timeout=_BOMB,
    stress=True,
    unsafe=True,
)
GROUP.attack(
    "fork-bomb-in-python-ends-with-its-command",
    python("import os\nwhile 1:\n  try: os.fork()\n  except OSError: pass"),
    lambda r: r.exit_code != 0,
    timeout=_BOMB,
    stress=True,
    unsafe=True,
)
GROUP.attack(
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
    lambda r: r.exit_code != 0,
    timeout=_BOMB,
    stress=True,
    unsafe=True,
)
GROUP.attack(
    "chain-of-executions-ends-with-its-command",
    "cat > again <<'EOF'\n#!/bin/bash\nsetsid \"$0\" &\nexit 0\nEOF\nchmod +x again; ./again; sleep 30",
    lambda r: r.exit_code != 0,
    timeout=_BOMB,
    stress=True,
    unsafe=True,
)


@GROUP.check(stress=True, unsafe=True)
def processes_are_bounded(trial: Trial) -> None:
    """Three times as many processes as are allowed."""
    most = trial.limits.processes
    code = (
        "import subprocess, sys, time\n"
        "kept = []\n"
        "for _ in range(int(sys.argv[1])):\n"
        "    try: kept.append(subprocess.Popen(['sleep', '60']))\n"
        "    except OSError: break\n"
        "time.sleep(1); print('ALIVE', sum(p.poll() is None for p in kept))\n"
    )
    result = trial.attack(python(code, str(3 * most)), timeout=_LONG)
    must(not result.timed_out, brief(result))
    if result.exit_code == 0:
        must(int(result.stdout.split()[-1]) <= most, brief(result))


@GROUP.check(stress=True, unsafe=True)
def threads_are_bounded(trial: Trial) -> None:
    """Five thousand threads in one process: they end, or are ended, with the command."""
    code = (
        "import threading, time\n"
        "threading.stack_size(65536)\n"
        "count = 0\n"
        "try:\n"
        "    for _ in range(5000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); count += 1\n"
        "except RuntimeError: pass\n"
        "import os; os.write(1, b'%d\\n' % count); os._exit(0)\n"
    )
    result = trial.attack(python(code), timeout=_LONG)
    must(not result.timed_out, brief(result))
    if result.exit_code == 0:
        must(int(result.stdout) <= trial.limits.processes + 256 or trial.backend is Backend.LANDLOCK, brief(result))


# --- memory ---------------------------------------------------------------------------------------------------------

GROUP.attack(
    "memory-bomb-ends-with-its-command",
    python("x = []\nwhile 1: x.append(bytearray(b'x') * (16 << 20))"),
    lambda r: r.exit_code != 0 and not r.timed_out,
    timeout=_LONG,
    stress=True,
    unsafe=True,
)


@GROUP.check(stress=True, unsafe=True)
def memory_of_all_processes_together_is_bounded(trial: Trial) -> None:
    """Eight processes that each hold a quarter of what is allowed, all at the same time."""
    part = trial.limits.memory_mb // 4
    code = (
        "import subprocess, sys, time\n"
        "hog = 'import sys, time; x = b\"x\" * (int(sys.argv[1]) << 20); print(1, flush=True); time.sleep(60)'\n"
        "kept = [subprocess.Popen([sys.executable, '-S', '-c', hog, sys.argv[1]], stdout=subprocess.PIPE) for _ in "
        "range(8)]\n"
        "for p in kept: p.stdout.readline()\n"
        "time.sleep(1); print('ALIVE', sum(p.poll() is None for p in kept))\n"
    )
    result = trial.attack(python(code, str(part)), timeout=_LONG)
    must(not result.timed_out, brief(result))
    if result.exit_code == 0:
        alive = int(result.stdout.split()[-1])
        must(alive * part <= trial.limits.memory_mb, f"{alive} processes hold {alive * part} MB: {brief(result)}")


_UNSEEN = without(
    Backend.BUBBLEWRAP,
    Backend.LANDLOCK,
    reason="without a memory cgroup, memory files are bounded one by one and in number, not in sum",
)


@GROUP.check(stress=True, unsafe=True)
def shared_memory_counts_as_memory(trial: Trial) -> None:
    """Shared anonymous memory, three times what is allowed, in one process."""
    code = (
        "import mmap, sys, time\n"
        "size, kept = int(sys.argv[1]) << 20, []\n"
        "for _ in range(24): kept.append(mmap.mmap(-1, size)); kept[-1].write(b'x' * size)\n"
        "time.sleep(1); print('HELD')\n"
    )
    part = max(1, trial.limits.memory_mb // 8)
    result = trial.attack(python(code, str(part)), timeout=_LONG)
    must(b"HELD" not in result.stdout and result.exit_code != 0, f"{24 * part} MB: {brief(result)}")


@GROUP.check(stress=True, unsafe=True, exceptions=_UNSEEN)
def memory_files_count_as_memory(trial: Trial) -> None:
    """Memory files that no process maps, four times what is allowed."""
    code = (
        "import os, sys, time\n"
        "kept, mark = [], b'x' * (1 << 20)\n"
        "for _ in range(int(sys.argv[1]) // 8):\n"
        "    kept.append(os.memfd_create('x'))\n"
        "    for _ in range(8): os.write(kept[-1], mark)\n"
        "time.sleep(1); print('HELD')\n"
    )
    result = trial.attack(python(code, str(4 * trial.limits.memory_mb)), timeout=_LONG)
    must(b"HELD" not in result.stdout and result.exit_code != 0, f"{4 * trial.limits.memory_mb} MB: {brief(result)}")


# --- files ----------------------------------------------------------------------------------------------------------


@GROUP.check()
def one_file_is_bounded(trial: Trial) -> None:
    """A file of twice the limit, and a hole of 40 GB."""
    size = trial.limits.file_mb << 20
    result = trial.attack(f"head -c {2 * size} /dev/zero > big; stat -c %s big; rm -f big")
    must(int(result.stdout.split()[-1]) <= size, brief(result))
    result = trial.attack("truncate -s 40G hole; stat -c %s hole 2>/dev/null || echo 0")
    must(int(result.stdout.split()[-1]) <= size, brief(result))


@GROUP.check()
def open_files_are_bounded(trial: Trial) -> None:
    """Twice as many open files as are allowed, after an attempt to raise the limit."""
    code = (
        "import resource\n"
        "try: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))\n"
        "except (ValueError, OSError): pass\n"
        "kept = []\n"
        "try:\n"
        "    while len(kept) < 5000: kept.append(open('/dev/null'))\n"
        "except OSError: pass\n"
        "print(len(kept))\n"
    )
    result = trial.attack(python(code))
    must(result.exit_code == 0 and int(result.stdout) <= trial.limits.open_files, brief(result))


@GROUP.check(stress=True, unsafe=True, exceptions=_WATCHED)
def workspace_is_bounded(trial: Trial) -> None:
    """File after file, twenty times what one may hold; afterwards files still come out and commands run."""
    size = trial.limits.file_mb
    result = trial.attack(
        f"for i in $(seq 20); do head -c {size - 4}M /dev/zero > f$i || break; sleep 0.06; done; "
        "du -sm /workspace | cut -f1",
        timeout=_LONG,
    )
    found = trial.sandbox.snapshot()
    total = sum(entry.size or 0 for path, entry in found.items()) >> 20
    must(total <= trial.limits.workspace_mb, f"{total} MB are written: {brief(result)}")
    must(trial.run("rm -f f*; echo small > s; cat s").stdout == b"small\n", "it cannot be used after making room")


@GROUP.check(stress=True, unsafe=True)
def writing_without_end_is_ended(trial: Trial) -> None:
    """Two gigabytes in many files: not all of it may be written, wherever the workspace lies."""
    result = trial.attack(
        "for i in $(seq 40); do head -c 50M /dev/zero > g$i || exit 1; sleep 0.1; done; echo all", timeout=_LONG
    )
    must(b"all" not in result.stdout and not result.timed_out, brief(result))
    must(trial.run("rm -rf g* x i /tmp/x /dev/shm/x /var/tmp/x; echo c").stdout == b"c\n", "it cannot be cleaned up")


@GROUP.check(stress=True, unsafe=True)
def full_disks_do_not_stop_the_session(trial: Trial) -> None:
    """The workspace, /tmp and /dev/shm are filled; then a heredoc, a command and a grading read."""
    trial.attack(
        "for f in /tmp/x /dev/shm/x /workspace/x; do (head -c 60M /dev/zero > $f) 2>/dev/null; done; "
        "head -c 60M /dev/zero > /workspace/y; :",
        timeout=_LONG,
    )
    must(trial.run("cat <<< small; exit 3").exit_code in (3, 1), "a command no longer ends as it should")
    trial.sandbox.listing()
    trial.sandbox.snapshot()
    trial.again()
    must(trial.out("cat <<< small; head -c 10M /dev/zero > x; stat -c %s x") == f"small\n{10 << 20}\n", "it stays full")


@GROUP.check(stress=True, unsafe=True)
def forty_thousand_files_cost_nothing(trial: Trial) -> None:
    """As many empty files as the disk takes, and then nothing is left after a reset."""
    trial.attack("mkdir -p i; seq 40000 | (cd i && xargs touch 2>/dev/null); ls i | wc -l", timeout=_LONG)
    must(len(trial.sandbox.snapshot()) <= trial.limits.snapshot_entries, "more entries than the limit")
    trial.again()
    must(trial.sandbox.listing() == [], "something is left")


@GROUP.check(stress=True, unsafe=True, exceptions=_WATCHED)
def number_of_files_is_bounded(trial: Trial) -> None:
    """More empty files than a workspace of this size needs: the command is ended, or the files are refused."""
    result = trial.attack("mkdir -p i; seq 90000 | (cd i && xargs touch 2>/dev/null); ls -f i | wc -l", timeout=_LONG)
    ended = result.exit_code == 137 and b"files]" in result.stderr
    must(ended or int(result.stdout.split()[-1]) < 90_000, brief(result))
