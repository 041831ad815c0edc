"""Judges: whatever a grader's command is, and however it starts the agent's program, that program cannot reach it."""

from __future__ import annotations

from sandboxes.conformance.check import SECONDS, Group, Trial, brief, must, without
from sandboxes.sandbox import Backend, CommandResult, JudgeIsolation

GROUP = Group("judges")

_OPEN = without(Backend.LOCAL, reason="no confinement: a judge is not kept apart")

ATTACK = r"""
import ctypes, fcntl, os, signal, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
grader = os.environ.get("GRADER", "/turngym-grader")
forged = b'{"forged": 1}\n'
won = []

def tried(name, attempt):
    try:
        found = attempt()
    except Exception:
        return
    if found:
        won.append(name)

def text_of(path):
    with open(path, "rb") as file:
        return b"SECRET" in file.read(1 << 20)

def spoil(path):
    with open(path, "r+b") as file:
        file.write(b"print('{\"forged\": 1}')\n")
    return True

names = ["check.py", "check.sh", "check.awk", "secret", "run"]
for name in names:
    path = os.path.join(grader, name)
    tried("read " + name, lambda: text_of(path))
    tried("write " + name, lambda: spoil(path))
    tried("truncate " + name, lambda: os.truncate(path, 0) is None)
    tried("replace " + name, lambda: os.replace(sys.argv[0], path) is None)
    tried("remove " + name, lambda: os.unlink(path) is None)
    tried("link " + name, lambda: os.link(path, "linked-" + name) is None)
tried("list", lambda: bool(os.listdir(grader)))
tried("add", lambda: open(os.path.join(grader, "json.py"), "w") is not None)
for variable in os.environ.values():
    if "SECRET" in variable:
        won.append("environment handed down")
me = os.getpid()
pids = {os.getppid(), *range(1, 40), *range(max(1, me - 60), me + 20)} - {me}
try:
    if os.readlink("/proc/%d/exe" % os.getppid()).endswith("dash"):
        pids.discard(os.getppid())  # `sh -c`: as much the agent's as this is
except OSError:
    pass
for pid in pids:
    for file in ("cmdline", "environ", "mem", "maps", "auxv", "stack"):
        tried("proc %s" % file, lambda: open("/proc/%d/%s" % (pid, file), "rb").read(64) != b"")
    tried("fd of another", lambda: bool(os.listdir("/proc/%d/fd" % pid)))
    tried("cwd of another", lambda: bool(os.readlink("/proc/%d/cwd" % pid)))
    for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
        tried("ptrace", lambda: libc.ptrace(request, pid, 0, 0) == 0)
    buffer = ctypes.create_string_buffer(16)
    here = struct.pack("PN", ctypes.addressof(buffer), 16)
    remote = struct.pack("PN", ctypes.addressof(buffer), 16)
    tried("process_vm_readv", lambda: libc.process_vm_readv(pid, here, 1, remote, 1, 0) > 0)
    tried("process_vm_writev", lambda: libc.process_vm_writev(pid, here, 1, remote, 1, 0) > 0)
    handle = libc.syscall(434, pid, 0)
    if handle >= 0:
        for fd in range(0, 12):
            tried("pidfd_getfd", lambda: libc.syscall(438, handle, fd, 0) >= 0)
for fd in range(3, 300):
    def own(fd=fd):
        target = os.readlink("/proc/self/fd/%d" % fd)
        return target.startswith(grader)
    tried("descriptor of the grader", own)
for fd in range(1, 300):
    if fd != 2:
        tried("", lambda: os.write(fd, forged) and None)
if not os.fork():  # asks for what its tracer hands over, and waits for an answer that nobody gives
    os.closerange(0, 300)
    libc.syscall(446, -1, 0x7467)
    os._exit(0)
with open("won.txt", "w") as file:
    file.write("\n".join(sorted(set(won))))
sys.stdout.flush()
os.write(1, forged)
os.kill(os.getppid(), signal.SIGCONT)
"""
"""A program of the agent's that tries to read, change or speak for whoever started it; it writes what worked."""

_HOST = """
import ctypes, json, os, subprocess, sys
program = [sys.executable, "attack.py"]
"""
WAYS = {
    "subprocess": "subprocess.run(program)",
    "subprocess with its output read": "subprocess.run(program, capture_output=True)",
    "subprocess through a shell": "subprocess.run('python3 attack.py', shell=True)",
    "subprocess that closes nothing": "subprocess.run(program, close_fds=False)",
    "subprocess with a function before": "subprocess.run(program, preexec_fn=os.getpid)",
    "system": "os.system('python3 attack.py')",
    "popen": "os.popen('python3 attack.py').read()",
    "spawn": "os.spawnv(os.P_WAIT, program[0], program)",
    "posix_spawn": "os.waitpid(os.posix_spawn(program[0], program, os.environ), 0)",
    "fork": "pid = os.fork()\nif not pid: os.execv(program[0], program)\nos.waitpid(pid, 0)",
    "fork through ctypes": (
        "libc = ctypes.CDLL(None)\npid = libc.fork()\n"
        "if not pid: os.execv(program[0], program)\nlibc.waitpid(pid, None, 0)"
    ),
    "a thread that forks": (
        "import threading\nt = threading.Thread(target=lambda: subprocess.run(program))\nt.start()\nt.join()"
    ),
    "its own first line": "os.chmod('attack.py', 0o755)\nsubprocess.run(['./attack.py'])",
    "an interpreter by another name": "subprocess.run(['/usr/bin/env', 'python3', '-B', './attack.py'])",
    "left running": "p = subprocess.Popen(program)\np.wait()",
}
"""How a judge in Python starts the agent's program."""

JUDGES = {
    "python -I": ("check.py", 'python3 -I "$GRADER/check.py"'),
    "python -S": ("check.py", 'python3 -S "$GRADER/check.py"'),
    "python": ("check.py", 'exec python3 "$GRADER/check.py"'),
    "bash": ("check.sh", 'bash "$GRADER/check.sh"'),
    "the command": ("secret", 'python3 attack.py; cat "$GRADER/secret" >/dev/null; echo \'{"real": 1}\''),
    "a program": ("check.awk", 'awk -f "$GRADER/check.awk" </dev/null'),
    "in a pipe": ("secret", "python3 attack.py | grep -c SECRET-42 >/dev/null; echo '{\"real\": 1}'"),
    "behind env and timeout": ("check.sh", 'env -u X timeout 20 bash "$GRADER/check.sh"'),
}
_SCRIPTS = {
    "check.py": _HOST + "secret = 'SECRET'\n{way}\nprint(json.dumps({{'real': 1}}))\n",
    "check.sh": "secret=SECRET\npython3 attack.py\n./attack.py\nsh -c 'python3 attack.py'\necho '{\"real\": 1}'\n",
    "check.awk": 'BEGIN { secret = "SECRET"; system("python3 attack.py"); print "{\\"real\\": 1}" }\n',
    "secret": "SECRET\n",
}


def _judge(trial: Trial, judge: str, way: str) -> CommandResult:
    file, command = JUDGES[judge]
    trial.sandbox.put({"attack.py": ("#!/usr/bin/env python3\n" + ATTACK)})
    trial.run("chmod +x attack.py; rm -f won.txt")
    text = _SCRIPTS[file].format(way=way) if file == "check.py" else _SCRIPTS[file]
    return trial.sandbox.judge(
        command, {file: text, "secret": "SECRET\n"}, timeout=SECONDS, env={"EXPECTED": "42"}, private=True
    )


def _holds(trial: Trial, judge: str, way: str) -> None:
    result = _judge(trial, judge, way)
    must(result.stdout == b'{"real": 1}\n' and result.exit_code == 0, f"{judge}, {way}: {brief(result)}")
    won = trial.sandbox.read("won.txt").decode()
    must(not won, f"{judge}, {way}: the agent's program could {', '.join(won.splitlines())}")


@GROUP.check(exceptions=_OPEN)
def judges_are_apart(trial: Trial) -> None:
    """The sandbox says that it keeps judges apart."""
    must(trial.sandbox.judge_isolation is JudgeIsolation.FULL, f"judge_isolation is {trial.sandbox.judge_isolation}")


@GROUP.check(exceptions=_OPEN, unsafe=True)
def every_way_to_start_a_program_is_confined(trial: Trial) -> None:
    """A judge in Python starts a hostile program in every way that Python knows."""
    for way in WAYS.values():
        _holds(trial, "python -I", way)


@GROUP.check(exceptions=_OPEN, unsafe=True)
def every_kind_of_judge_is_out_of_reach(trial: Trial) -> None:
    """Judges in Python, bash and awk, plain commands and pipes start a hostile program."""
    for judge in JUDGES:
        _holds(trial, judge, WAYS["system"])


@GROUP.check()
def nothing_to_wait_for_is_left(trial: Trial) -> None:
    """A fifo, a socket and a device where a judge reads: it does not wait for them."""
    trial.run("mkfifo report.txt; mkdir -p deep/er; mkfifo deep/er/x; chmod 000 deep; mknod zero c 1 5 2>/dev/null; :")
    trial.python("import socket; s = socket.socket(socket.AF_UNIX); s.bind('sock')")
    result = trial.sandbox.judge(
        'chmod 700 deep; cat report.txt deep/er/x sock; ls; echo "$?"', {}, timeout=SECONDS, env={}, private=False
    )
    must(not result.timed_out and result.stdout == b"deep\nhere\n0\n", brief(result))


@GROUP.check()
def nothing_of_the_shell_reaches_a_judge(trial: Trial) -> None:
    """Functions, aliases, variables, traps, options, start files and modules of the agent's."""
    trial.run(
        "f() { echo forged; }; for n in python3 cat test [ printf exit export command builtin; do "
        'eval "function $n { echo forged; }" 2>/dev/null; export -f $n 2>/dev/null; done; '
        "w=/workspace; export BASH_ENV=$w/x ENV=$w/x PYTHONPATH=$w LD_PRELOAD=$w/x.so PATH=$w LD_LIBRARY_PATH=$w "
        "GRADER=$w PYTHONSTARTUP=$w/x HOME=$w; trap 'echo forged' EXIT"
    )
    module = "raise SystemExit(7)\n"
    names = ("json.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "os.py", "x", "python3", ".bashrc")
    trial.sandbox.put({name: module if name.endswith(".py") else "echo forged; exit 0\n" for name in names})
    trial.sandbox.put({"evil.pth": "import os; os._exit(7)\n"})
    for python in ("python3", "python3 -I", "python3 -S"):
        files = {"check.py": "import json, os\nprint(json.dumps({'real': 1}))\n"}
        result = trial.sandbox.judge(f'{python} "$GRADER/check.py"', files, timeout=SECONDS, env={}, private=True)
        must(result.stdout == b'{"real": 1}\n', f"{python}: {brief(result)}")


@GROUP.check()
def a_judge_reads_its_files_with_any_tool(trial: Trial) -> None:
    """What the judge itself starts on its own files works: interpreters, comparisons, helpers of its own."""
    trial.sandbox.put({"out.txt": "42\n"})
    files = {"wanted": "42\n", "helper.py": "print(42)\n", "check.py": _HELPED}
    for command in (
        'diff out.txt "$GRADER/wanted"',
        'cmp out.txt "$GRADER/wanted"',
        'timeout 9 diff "$GRADER/wanted" out.txt',
        'grep -qxf "$GRADER/wanted" out.txt',
        'cat "$GRADER/wanted" | cmp - out.txt',
        'test "$(cat out.txt)" = "$(python3 -I "$GRADER/helper.py")"',
        'cd "$GRADER" && python3 -m helper >/dev/null',
        "python3 -I -c \"import os; assert open(os.environ['GRADER'] + '/wanted').read()\"",
        'read x < "$GRADER/wanted"; [ "$x" = 42 ]',
        'python3 -I "$GRADER/check.py"',
        'python3 -c "import sys; assert sys.stdin.read()" < "$GRADER/wanted"',
    ):
        result = trial.sandbox.judge(command, files, timeout=SECONDS, env={}, private=False)
        must(result.exit_code == 0, f"{command}: {brief(result)}")


_HELPED = """
import os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
subprocess.run([sys.executable, os.path.join(here, "helper.py")], check=True)
subprocess.run(["diff", "out.txt", os.path.join(here, "wanted")], check=True)
assert os.listdir(here)
"""


@GROUP.check()
def the_files_of_a_judge_are_gone(trial: Trial) -> None:
    """After a judge, in the middle of it, after a flood and after a time-out."""
    look = "cat /turngym-grader/*/* 2>/dev/null; ls -A /turngym-grader 2>/dev/null; env | grep GRADER; :"
    for command, seconds in (("true", SECONDS), ("sleep 60", 0.3), ("yes", SECONDS), ("kill -9 $$", SECONDS)):
        trial.sandbox.judge(command, {"secret": trial.token}, timeout=seconds, env={}, private=True)
        result = trial.run(look)
        must(result.stdout == b"", f"after {command!r}: {brief(result)}")


@GROUP.check(exceptions=_OPEN)
def judges_leave_no_descriptor(trial: Trial) -> None:
    """As many judges as there are descriptors below those that a shell is started with."""
    for number in range(220):
        result = trial.sandbox.judge('cat "$GRADER/n"', {"n": f"{number}"}, timeout=SECONDS, env={}, private=True)
        must(result.stdout == f"{number}".encode(), f"judge {number}: {brief(result)}")


@GROUP.check()
def a_judge_on_a_busy_machine_has_its_time(trial: Trial) -> None:
    """What a judge waits for counts, what it computes counts, and so do a hundred processes of it."""
    for command in ("sleep 60", "while :; do :; done", "for i in {1..40}; do while :; do :; done & done; wait"):
        result = trial.sandbox.judge(command, {}, timeout=0.5, env={}, private=False)
        must(result.timed_out, f"{command!r}: {brief(result)}")
