"""Judges: whatever a grader's command is, and however it starts the agent's program, that program cannot reach it."""

from __future__ import annotations

from collections.abc import Mapping

from sandboxes.conformance.check import OPEN, SECONDS, Group, Run, Step, Trial, brief, check, must, puts, python
from sandboxes.sandbox import JudgeIsolation

JUDGES = Group("judges")

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

_JUDGES = {
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


def _judged(command: str, files: Mapping[str, str], out: bytes, *, private: bool = True) -> Step:
    """A step: a judge ends by itself and says this."""

    def step(trial: Trial) -> None:
        result = trial.sandbox.judge(command, files, timeout=SECONDS, env={}, private=private)
        must(result.stdout == out and not result.timed_out, f"{command!r}: {brief(result)}")

    return step


def _holds(judge: str, way: str) -> Step:
    """A step: a judge of this kind starts the hostile program in this way, and neither is disturbed."""
    file, command = _JUDGES[judge]
    text = _SCRIPTS[file].format(way=way) if file == "check.py" else _SCRIPTS[file]
    files = {file: text, "secret": "SECRET\n"}

    def step(trial: Trial) -> None:
        trial.sandbox.put({"attack.py": ("#!/usr/bin/env python3\n" + ATTACK)})
        trial.run("chmod +x attack.py; rm -f won.txt")
        result = trial.sandbox.judge(command, files, timeout=SECONDS, env={"EXPECTED": "42"}, private=True)
        must(result.stdout == b'{"real": 1}\n' and result.exit_code == 0, f"{judge}, {way}: {brief(result)}")
        won = trial.sandbox.read("won.txt").decode()
        must(not won, f"{judge}, {way}: the agent's program could {', '.join(won.splitlines())}")

    return step


JUDGES.table(
    check(
        "judges-are-apart",
        "The sandbox says that it keeps judges apart.",
        lambda trial: must(trial.sandbox.judge_isolation is JudgeIsolation.FULL, "judge_isolation is not full"),
        exceptions=OPEN,
    ),
    check(
        "every-way-to-start-a-program-is-confined",
        "A judge in Python starts a hostile program in every way that Python knows.",
        *(_holds("python -I", way) for way in WAYS.values()),
        exceptions=OPEN,
        unsafe=True,
    ),
    check(
        "every-kind-of-judge-is-out-of-reach",
        "Judges in Python, bash and awk, plain commands and pipes start a hostile program.",
        *(_holds(judge, WAYS["system"]) for judge in _JUDGES),
        exceptions=OPEN,
        unsafe=True,
    ),
    check(
        "nothing-to-wait-for-is-left",
        "A fifo, a socket and a device where a judge reads: it does not wait for them.",
        Run("mkfifo report.txt; mkdir -p deep/er; mkfifo deep/er/x; chmod 000 deep; mknod zero c 1 5 2>/dev/null; :"),
        Run(python("import socket; s = socket.socket(socket.AF_UNIX); s.bind('sock')"), timed_out=None),
        _judged('chmod 700 deep; cat report.txt deep/er/x sock; ls; echo "$?"', {}, b"deep\nhere\n0\n", private=False),
    ),
)


@JUDGES.check()
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
    files = {"check.py": "import json, os\nprint(json.dumps({'real': 1}))\n"}
    for program in ("python3", "python3 -I", "python3 -S"):
        _judged(f'{program} "$GRADER/check.py"', files, b'{"real": 1}\n')(trial)


_HELPED = """
import os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
subprocess.run([sys.executable, os.path.join(here, "helper.py")], check=True)
subprocess.run(["diff", "out.txt", os.path.join(here, "wanted")], check=True)
assert os.listdir(here)
"""
_OWN_FILES = {"wanted": "42\n", "helper.py": "print(42)\n", "check.py": _HELPED}
_READERS = (
    'diff out.txt "$GRADER/wanted"',
    'cmp out.txt "$GRADER/wanted"',
    'timeout 9 diff "$GRADER/wanted" out.txt',
    'grep -qxf "$GRADER/wanted" out.txt',
    'cat "$GRADER/wanted" | cmp - out.txt',
    'test "$(cat out.txt)" = "$(python3 -I "$GRADER/helper.py")"',
    'cd "$GRADER" && python3 -m helper >/dev/null',
    "python3 -I -c \"import os; assert open(os.environ['GRADER'] + '/wanted').read()\"",
    'read x < "$GRADER/wanted"; [ "$x" = 42 ]',
    'python3 -I "$GRADER/check.py" >/dev/null',
    'python3 -c "import sys; assert sys.stdin.read()" < "$GRADER/wanted"',
)
_FOREVER = ("sleep 60", "while :; do :; done", "for i in {1..40}; do while :; do :; done & done; wait")


def _leaves_nothing(command: str, seconds: float = SECONDS, *, private: bool = True) -> Step:
    """A step: after a judge its files and its variable are gone."""

    def step(trial: Trial) -> None:
        trial.sandbox.judge(command, {"secret": trial.token}, timeout=seconds, env={}, private=private)
        look = "cat /turngym-grader/*/* 2>/dev/null; ls -A /turngym-grader 2>/dev/null; env | grep GRADER; :"
        Run(look, out=b"")(trial)

    return step


def _is_timed_out(command: str) -> Step:
    def step(trial: Trial) -> None:
        result = trial.sandbox.judge(command, {}, timeout=0.5, env={}, private=False)
        must(result.timed_out, f"{command!r}: {brief(result)}")

    return step


JUDGES.table(
    check(
        "a-judge-reads-its-files-with-any-tool",
        "What the judge itself starts on its own files works: interpreters, comparisons, helpers of its own.",
        puts({"out.txt": "42\n"}),
        *(_judged(f"{command} && echo right", _OWN_FILES, b"right\n", private=False) for command in _READERS),
    ),
    check(
        "the-files-of-a-judge-are-gone",
        "After a judge, in the middle of it, after a flood and after a time-out.",
        _leaves_nothing("true"),
        _leaves_nothing("sleep 60", 0.3),
        _leaves_nothing("yes", private=False),  # of a private one nothing is printed, so nothing floods
        _leaves_nothing("kill -9 $$"),
    ),
    check(
        "judges-leave-no-descriptor",
        "As many judges as there are descriptors below those that a shell is started with.",
        *(_judged('cat "$GRADER/n"', {"n": f"{number}"}, f"{number}".encode()) for number in range(220)),
        exceptions=OPEN,
    ),
    check(
        "a-judge-on-a-busy-machine-has-its-time",
        "What a judge waits for counts, what it computes counts, and so do a hundred processes of it.",
        *(_is_timed_out(command) for command in _FOREVER),
    ),
)
