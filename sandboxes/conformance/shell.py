"""Conformance of the shell: text, state, output and the protocol."""

from __future__ import annotations

import json
import time
from typing import Any

from sandboxes import client
from sandboxes.conformance.check import (
    SECONDS,
    Attack,
    Group,
    Run,
    Step,
    Trial,
    again,
    attack,
    brief,
    check,
    gone,
    lives,
    must,
    must_refuse,
    puts,
    python,
    reads,
    sees,
    without,
)
from sandboxes.inside.frames import pack
from sandboxes.sandbox import Backend, CommandResult, FileEntry

# -- Shell text and shell state: whatever a command does to its shell, the next one finds the state that was kept -----

SHELL = Group("shell")

# --- text -----------------------------------------------------------------------------------------------------------

SHELL.table(
    attack("unterminated-double-quote-is-an-error-at-once", 'echo "abc', fails=True),
    attack("unterminated-single-quote-is-an-error-at-once", "echo 'it", fails=True),
    attack("incomplete-if-is-an-error-at-once", "if true; then", fails=True),
    attack("stray-parenthesis-is-an-error", "echo a )", fails=True),
    attack("unterminated-heredoc-ends-with-the-command", "cat <<EOF\nabc", out=b"abc\n"),
    attack(
        "trailing-backslash-continues-nothing",
        "echo a \\",
        holds=lambda result, _: result.stdout.rstrip(b"\\ \n") == b"a",
    ),
    attack("only-a-remark-succeeds", "# nothing here", code=0, out=b"", err=b""),
    attack("empty-command-succeeds", "", code=0, out=b"", err=b""),
    attack("five-kilobyte-line-arrives-whole", "echo " + "A" * 5000, out=b"A" * 5000 + b"\n"),
    attack("huge-line-arrives-whole", f"x={'B' * 300_000}; echo ${{#x}}; unset x", out=b"300000\n"),
    attack(
        "heredoc-with-quotes-arrives-as-typed",
        "cat <<'EOF'\n$a `b` \\ \"'\n\tEOF\nEOF",
        code=0,
        out=b"$a `b` \\ \"'\n\tEOF\n",
    ),
    attack("nul-byte-in-a-command-is-refused", "echo a\0b; echo ran", fails=True, lacks=(b"ran",)),
    attack("bytes-that-are-no-utf8-arrive", "echo '\udcff\udcfe'", code=0, out=b"\xff\xfe\n"),
    check(
        "command-over-the-limit-is-not-run",
        "A command one byte above the limit, which would print something.",
        Attack(
            lambda trial: "echo ran; #".ljust(trial.limits.command_bytes + 1, "x"), fails=True, out=b"", says=b"limit"
        ),
    ),
)

# --- the end of a command -------------------------------------------------------------------------------------------

_SIGNALS = {"KILL": 9, "TERM": 15, "SEGV": 11, "HUP": 1, "PIPE": 13, "ABRT": 6}

SHELL.table(
    attack("exit-ends-only-its-command", "exit 7", code=7),
    attack("exec-of-a-shell-ends-its-command", "exec bash", code=0),
    attack("exec-of-a-program-ends-its-command", "exec echo x", code=0, out=b"x\n"),
    attack("shell-that-kills-itself-ends-only-its-command", "kill -9 $$; echo no", code=137),
    attack("errexit-ends-only-its-command", "set -e; false; echo no", code=1),
    attack("nounset-ends-only-its-command", "set -u; echo $NOPE; echo no", fails=True, says=b"unbound", out=b""),
    attack("exit-trap-runs-inside-its-command", "trap 'echo bye' EXIT; echo x; exit 4", out=b"x\nbye\n"),
    check(
        "exit-status-is-honest-for-signals",
        "A shell that ends by a signal, of its own or of a child.",
        *(Attack(f"kill -{name} $$; sleep 20", code=128 + number) for name, number in _SIGNALS.items()),
        *(Attack(f"bash -c 'kill -{name} $$'", code=128 + number) for name, number in _SIGNALS.items()),
        *(Run(f"exit {code}", code=code % 256) for code in (0, 1, 2, 124, 137, 255, 256)),
    ),
    check(
        "timeout-keeps-output-and-the-state-from-before",
        "A command changes everything, prints, and never ends.",
        Run("v=before; cd /tmp"),
        Run(
            "echo part; echo err >&2; v=after; cd /; echo x > /workspace/f; sleep 60",
            timeout=1.0,
            timed_out=True,
            code=137,
            out=b"part\n",
            err=b"err\n",
        ),
        Run("echo $v $?; pwd; cat /workspace/f", code=0, out=b"before 137\n/tmp\nx\n"),
    ),
)

# --- the state ------------------------------------------------------------------------------------------------------

_TRAPS = ("shopt -s extdebug; trap false DEBUG", "trap exit DEBUG", "set -n", "trap 'exit 9' ERR RETURN USR1")
_BUILTINS = (
    "printf builtin eval exit declare command trap source kill read shopt umask alias pwd return unset set "
    "export test true exec local readonly shift hash type enable"
)
_FAKE = FileEntry(content=b"#!/bin/sh\necho fake\n", mode=0o755)

SHELL.table(
    attack("builtin-name-as-function-can-be-unset", "unset -f :; echo k", out=b"k\n"),
    attack("prompt-variables-do-nothing", "PROMPT_COMMAND='exit 5'; PS1=''; PS0=x; echo p", out=b"p\n"),
    check(
        "state-is-kept-between-commands",
        "Variables, arrays, functions, aliases, options, umask and the exit code.",
        Run("E='a b'; export E; v=$'1\\n2'; arr=(x 'y z'); declare -A map=([k]=v); readonly r=1; f() { echo F$1; }"),
        Run("alias ll='echo LL'; shopt -s nullglob; set -u; umask 077; export -f f; (exit 42)"),
        Run(
            'echo "$?|$E|$v|${arr[1]}|${map[k]}|$r"; f 1; ll; bash -c "f 2"; umask; echo *.none; env | grep ^E=',
            code=0,
            out=b"42|a b|1\n2|y z|v|1\nF1\nLL\nF2\n0077\n\nE=a b\n",
        ),
        Run("echo $UNSET", fails=True),
    ),
    check(
        "tracing-is-for-one-command",
        "`set -vx`, then an ordinary command.",
        Attack("set -vx; echo traced", out=b"traced\n", says=b"echo traced"),
        Run("echo x", out=b"x\n", err=b""),
    ),
    check(
        "traps-and-noexec-are-for-one-command",
        "A DEBUG trap that skips every command, `set -n`, and a trap on every signal.",
        *(step for trap in _TRAPS for step in (Attack(trap, timed_out=None), Run("false; echo x", code=0, out=b"x\n"))),
    ),
    check(
        "redirections-are-for-one-command",
        "`exec` takes the streams of the shell away.",
        Attack("exec >/dev/null 2>&1; echo hidden", out=b"", err=b""),
        Attack("exec 1>/workspace/log; echo logged", out=b""),
        reads("log", b"logged\n"),
        Attack("exec </dev/zero; echo z", code=0, out=b"z\n"),
        Run("echo out; echo err >&2; cat", out=b"out\n", err=b"err\n"),
    ),
    check(
        "limits-set-by-a-command-are-for-that-command",
        "`ulimit` down to nothing.",
        Attack("ulimit -f 0 -n 12 -t 1 -v 100000; ulimit -u 1; echo x"),
        Run("ulimit -n", code=0, out=b"@open_files@\n"),
        Run("echo more > f; cat f; ls | cat", code=0, has=b"more\n"),
    ),
    check(
        "umask-and-closed-workspace-change-nothing-for-us",
        "`umask 777; chmod 000 /workspace`, then files go in and out, and the command that repairs it works.",
        Run("export KEPT=@token@; cd here"),
        Run("umask 777; chmod 000 /workspace; echo c", out=b"c\n"),
        Run("/usr/bin/printenv KEPT PWD", out=b"@token@\n/workspace/here\n"),
        puts({"in/a": b"mine"}),
        reads("in/a", b"mine"),
        sees("in/a has mode 644", lambda found: found["in/a"].mode == 0o644),
        Run("umask 022; chmod 755 /workspace; cd /workspace; echo c; cat in/a", out=b"c\nmine"),
        lives("/workspace"),
        Run("umask 777"),
        again,
        Run("umask", code=0, out=b"0022\n"),
    ),
    check(
        "missing-path-is-back-in-the-next-command",
        "`unset PATH`.",
        Attack("unset PATH; ls"),
        Run("ls", code=0),
    ),
    check(
        "redefined-builtins-change-nothing-for-us",
        "Functions and aliases in the place of everything a shell is made of.",
        Attack("alias echo=false exit=: exec=:; " + " ".join(f"{name}() {{ :; }};" for name in _BUILTINS.split())),
        Run("Y=2; \\cd /tmp"),
        Run('/bin/echo "$KEPT$Y"; /bin/pwd', out=b"@token@2\n/tmp\n"),
        Run("echo x", clean=True, out=b"x\n"),
        again,
        Run("echo x; declare -F; alias", code=0, out=b"x\n"),
    ),
    check(
        "removed-directory-leads-back-to-the-workspace",
        "The shell removes the directory it stands in.",
        Run("export KEPT=@token@; cd /workspace"),
        Run("mkdir -p gone && cd gone && rmdir ../gone; pwd >/dev/null; echo x", out=b"x\n"),
        Run("cd /workspace && echo ok; echo $KEPT", out=b"ok\n@token@\n"),
        lives("/workspace"),
    ),
    check(
        "readonly-variables-lock-nobody-out",
        "`readonly` on the variables a shell itself needs.",
        Attack("readonly PWD HOME OLDPWD PATH IFS SHELLOPTS BASHOPTS FOO=1; echo r", out=b"r\n"),
        Run("FOO=2; echo no", fails=True),
        Run("echo $FOO; ls | cat; cat /dev/null", code=0, holds=lambda result, _: result.stdout.startswith(b"1\n")),
        Run("cd /tmp 2>/dev/null"),
        again,
        Run("FOO=2; PATH=$PATH; HOME=x; echo $FOO", out=b"2\n"),
    ),
    check(
        "huge-state-costs-at-most-itself",
        "Variables of several megabytes, ten thousand functions, a value full of odd bytes.",
        Attack("big=$(head -c 1500000 /dev/zero | tr '\\0' a)", timed_out=None),
        Attack("bigger=$(head -c 5000000 /dev/zero | tr '\\0' a)", timed_out=None),
        Attack(
            "for i in $(seq 500); do eval \"f$i() { echo $i; }\"; done; odd=$'\\1\\177\\377\\n\\t\\\\\\'\"`$('",
            timed_out=None,
        ),
        Run("f7; printf %s \"$odd\" | od -An -tx1 | tr -d ' \\n'", out=b"7\n017fff0a095c2722602428"),
    ),
    check(
        "startup-file-of-the-agent-is-not-ours",
        "BASH_ENV and ENV name a file that prints and exits.",
        Attack(
            "echo 'echo pwned; exit 3' > /workspace/be.sh; export BASH_ENV=/workspace/be.sh ENV=/workspace/be.sh; "
            "echo b",
            out=b"b\n",
        ),
        Run("echo x", code=0, out=b"x\n"),
        Run("bash -c 'echo y'", clean=True, code=0, out=b"y\n"),
        Run("unset BASH_ENV ENV"),
        Run("bash -c 'echo y'", code=0, out=b"y\n"),
    ),
    check(
        "clean-state-knows-nothing-of-the-agent",
        "PATH, functions, aliases, variables of the loader, options: all planted before a grader's command.",
        puts({"bin/cat": _FAKE, "bin/id": _FAKE, "bin/python3": _FAKE, "answer": b"true\n"}),
        Run(
            "export PATH=/workspace/bin EVIL=1 LD_PRELOAD=/workspace/evil.so LD_LIBRARY_PATH=/workspace "
            "PYTHONPATH=/workspace PYTHONSTARTUP=/workspace/x IFS=/ PS4=x GREP_OPTIONS=-v LANG=xx BASHOPTS_=1; "
            "cat() { echo fake; }; export -f cat; alias grep='echo fake'; set -f -u; shopt -s nocasematch; umask 777; "
            "cd bin; enable -n echo test"
        ),
        Run(
            "pwd; cat answer; grep -c true answer; umask; echo ${EVIL-none} ${LD_PRELOAD-none} ${PYTHONPATH-none}; "
            "echo a*; [[ A == a ]] || echo cased; x='a/b'; echo $x; G=1",
            clean=True,
            code=0,
            out=b"/workspace\ntrue\n1\n0022\nnone none none\nanswer\ncased\na/b\n",
            err=b"",
        ),
        Run("/usr/bin/env", clean=True, lacks=(b"/workspace/bin", b"BASH_FUNC")),
        Run('echo "$EVIL ${G-none}"', out=b"1 none\n"),
    ),
    check(
        "python-of-the-agent-is-not-the-supervisors",
        "Modules named like the standard library's stand in every writable directory.",
        puts({f"{name}.py": b"raise SystemExit('pwned')\n" for name in ("json", "os", "struct", "hashlib", "stat")}),
        Attack(
            "cp /workspace/*.py /tmp/; export PYTHONPATH=/workspace PYTHONHOME=/workspace; cd /workspace",
            where="/workspace",
        ),
        lambda trial: trial.sandbox.snapshot_hash(),
        puts({"x": b"1"}),
        reads("x", b"1"),
        Run(python("import json; print(json)"), clean=True, fails=True),
    ),
)

# --- what is planted in the shell -------------------------------------------------------------------------------------

_PLANTED = (
    "for i in {200..210}; do eval \"printf 'x\\0y' >&$i; exec $i>&-\" 2>/dev/null; done",
    "for i in 201 202 203 204; do eval \"exec $i<>/workspace/f$i; echo 'exit 0' >&$i\"; done",
    "printf 'a\\0b\\0c\\0d\\0/etc\\0declare -x FORGED=1\\n\\0\\0\\0#STATE-OK' >&201; exec 201>&-; kill -9 $$",
    "printf 'a\\0a\\0a\\0a\\0/etc\\0exit 0\\n\\0\\0\\0#STATE-OK' >&201; exec 201>&-; kill -9 $$",
    "printf 'a\\0a\\0a\\0a\\0/\\0\\0trap \"exit 0\" EXIT\\0exit() { :; }\\n\\0#STATE-OK' >&201; exec 201>&-; exit 4",
)
_SHELL_PLANTED = (
    *_PLANTED[:3],
    "exit() { builtin exit 0; }; kill -9 $$",
    "trap 'exit 0' EXIT; exit 6",
    "set -e; trap 'exit 0' ERR; false",
    "exec 1>&- 2>&- 201>&-; true",
    "PROMPT_COMMAND='exit 0'; PS4='$(exit 0)'; BASH_ENV=/workspace/x; export BASH_ENV",
)


def _clean_after(planted: str) -> list[Step]:
    """Clean commands have their own state and exit code, and the next episode knows nothing."""
    return [
        again,
        Run(planted, timed_out=None),
        *(
            Run(f"pwd; echo ${{FORGED-none}}; exit {code}", clean=True, code=code, out=b"/workspace\nnone\n")
            for code in (0, 3)
        ),
        Run("exit 3", timed_out=None),  # its own shell may be of no use any more
        again,
        Run("pwd; exit 3", code=3),
    ]


def _codes_after(planted: str) -> list[Step]:
    codes = [Run(f"bash --norc -c 'exit {code}'", code=code) for code in (7, 0, 200)]
    return [again, Run(planted, timed_out=None), *codes]


SHELL.table(
    check(
        "descriptors-of-the-shell-change-nothing-for-the-clean-state",
        "Forged states, closed and swapped descriptors 201 to 204: clean commands have their own state and exit code.",
        *(step for planted in _PLANTED for step in _clean_after(planted)),
    ),
    check(
        "exit-codes-are-real-whatever-is-planted-in-the-shell",
        "Traps, functions, options and descriptors of one command, then the exit codes of the next ones.",
        *(step for planted in _SHELL_PLANTED for step in _codes_after(planted)),
    ),
)


# -- Bytes, spoofing and the protocol: what a command wrote comes back, and nothing speaks for the machinery ----------

OUTPUT = Group("output")

# --- bytes ----------------------------------------------------------------------------------------------------------


def _cut_to_ends(result: CommandResult, trial: Trial) -> bool:
    """Both streams have head and tail, and a marker between."""
    return all(
        data.startswith(b"1\n2\n3\n")
        and data.endswith(b"99999\n100000\n")
        and b"bytes not shown" in data
        and len(data) <= trial.limits.output_bytes + 200
        for data in (result.stdout, result.stderr)
    )


def _at_the_cap(trial: Trial) -> int:
    return trial.limits.output_bytes // 2 * 2


OUTPUT.table(
    attack("streams-and-exit-code-are-real", "echo out; echo err >&2; (exit 3)", code=3, out=b"out\n", err=b"err\n"),
    attack("binary-output-is-byte-exact", "printf '\\000\\001\\377\\376\\r\\nx'", out=b"\0\1\xff\xfe\r\nx"),
    attack("invalid-utf8-is-byte-exact", "printf '\\xff\\xfe\\x80abc\\n'", out=b"\xff\xfe\x80abc\n"),
    attack("escape-sequences-are-byte-exact", "printf 'a\\rb\\x1b[31mred\\x1b[0m\\n'", out=b"a\rb\x1b[31mred\x1b[0m\n"),
    attack("output-without-newline-is-kept", "printf x; printf y >&2", out=b"x", err=b"y"),
    attack("output-of-a-process-substitution-is-collected", "printf 'b\\na\\n' > >(sort); sleep 0.3", out=b"a\nb\n"),
    attack("broken-pipe-ends-its-writer", "yes | head -1; echo ${PIPESTATUS[0]}", out=b"y\n141\n"),
    check(
        "every-byte-value-survives-both-streams",
        "All 256 values, on both streams at the same time, in turn.",
        Run(
            python("import os\nfor i in range(256): os.write(1, bytes([i])); os.write(2, bytes([255 - i]))"),
            holds=lambda result, _: result.stdout == bytes(range(256)) == result.stderr[::-1],
        ),
    ),
    check(
        "long-output-is-cut-to-head-and-tail",
        "A hundred thousand lines: the first and the last come, with a marker between, and the exit code is real.",
        Attack(
            "seq 100000; seq 100000 >&2; exit 5",
            code=5,
            holds=lambda result, trial: result.truncated and _cut_to_ends(result, trial),
        ),
    ),
    check(
        "output-at-the-cap-is-whole",
        "Exactly as many bytes as are shown.",
        Run(
            lambda trial: f"head -c {_at_the_cap(trial)} /dev/zero",
            holds=lambda result, trial: result.stdout == bytes(_at_the_cap(trial)) and not result.truncated,
        ),
    ),
)

# --- input and terminals --------------------------------------------------------------------------------------------

OUTPUT.table(
    attack("standard-input-is-empty", "cat; read x; echo rc=$?", out=b"rc=1\n"),
    attack("interpreter-without-input-ends", "python3", code=0),
    attack("interactive-shell-ends-with-its-input", "bash -i <<< 'echo inner'", has=b"inner"),
    attack(
        "there-is-no-controlling-terminal",
        "read y </dev/tty; echo rc=$?; tty",
        has=b"rc=1\n",
        holds=lambda result, _: b"not a tty" in result.stdout,
    ),
    attack(
        "pseudo-terminal-of-a-command-ends-with-it",
        python("import pty; pty.spawn(['/bin/bash', '-c', 'echo in-pty; tty'])"),
        has=b"in-pty",
        exceptions=without(
            Backend.LANDLOCK,
            reason="no pseudo-terminals in commands: /dev/ptmx would lead to the terminals of the host",
        ),
    ),
)


@OUTPUT.check()
def interactive_program_works_and_frees_the_sandbox(trial: Trial) -> None:
    """A Python prompt through `spawn`, with the state of the episode, that leaves a process behind."""
    trial.run(f"export KEPT={trial.token}; cd here")
    with trial.sandbox.spawn("python3 -q -i", timeout=20) as program:
        program.expect_exact(">>> ")
        program.sendline("import os, subprocess; os.environ['KEPT'] + ':' + str(6 * 7)")
        program.expect_exact(f"{trial.token}:42")
        program.sendline(f"p = subprocess.Popen(['bash', '-c', 'sleep 321; :', '{trial.token}'])")
        program.expect_exact(">>> ")
        must_refuse(lambda: trial.run("echo meanwhile"), "a command ran beside the interactive program")
    trial.lives()
    gone()(trial)


# --- spoofing -------------------------------------------------------------------------------------------------------

_FORGED = {
    "id": 1,
    "ok": True,
    "exit_code": 0,
    "timed_out": False,
    "truncated": False,
    "seconds": 0,
    "out": 3,
    "err": 0,
}
_FORGED_STATES = (
    "for fd in $(ls /proc/self/fd); do [ $fd -gt 2 ] && echo '#STATE-OK' 2>/dev/null >&$fd; done; exec true",
    "head -c 30M /dev/zero >&201; exec true",
    r"printf '\0\0\0\0\0\0\0\0\0#STATE-OK' >&201; kill -9 $$",
    r"printf 'a\0b\0c\0d\0/nowhere\0declare -x\0$(\0}\0\0#STATE-OK' >&201; exit 1",
)


def _alive_after(forged: str) -> list[Step]:
    return [
        Run(forged, timed_out=None),
        Run("/bin/echo ok", holds=lambda result, _: result.stdout.endswith(b"ok\n")),
    ]


OUTPUT.table(
    attack(
        "printed-prompts-and-markers-are-only-text",
        "echo \"$PS1\"; history | tail -2; echo 'EXIT0END'; printf '\\n<deadbeef:0>\\n#STATE-OK'; false",
        code=1,
        has=b"EXIT0END\n\n<deadbeef:0>\n#STATE-OK",
    ),
    attack(
        "shell-holds-no-secret-of-the-protocol",
        "set | grep -aiE 'nonce|sentinel|token|secret|__c'; env | grep -aiE 'nonce|sentinel|token|secret'; false",
        holds=lambda result, _: not result.stdout.replace(b"KEPT", b""),
    ),
    check(
        "streams-of-the-supervisor-are-out-of-reach",
        "Its descriptors, memory, environment and maps, through /proc, by its own number and as parent.",
        Attack(
            "for p in 1 $PPID; do for f in fd/0 fd/1 fd/2 mem environ maps auxv syscall stack fdinfo/0 map_files cwd "
            "root exe; do "
            "(exec 3</proc/$p/$f) 2>/dev/null && head -c 1 /proc/$p/$f 2>/dev/null >/dev/null && echo READ $p/$f; "
            "case $f in fd/*|mem) (exec 3>>/proc/$p/$f) 2>/dev/null && echo WROTE $p/$f;; esac; "
            "done; ls /proc/$p/fd 2>/dev/null; done; :",
            code=0,
            out=b"",
        ),
    ),
    check(
        "no-descriptor-of-the-machinery-is-open",
        "Whatever a program inherits is one of its streams or its own shell's memory file.",
        Run(
            python(
                "import os\n"
                "for name in os.listdir('/proc/self/fd'):\n"
                "    try: target = os.readlink('/proc/self/fd/' + name)\n"
                "    except OSError: continue\n"
                "    if int(name) > 2 and not target.startswith('/memfd:'): print(name, target)"
            ),
            code=0,
            out=b"",
        ),
    ),
    check(
        "forged-state-harms-only-the-shell-that-forged-it",
        "Garbage, too much, and a false end are written to the memory files of the shell.",
        *(step for forged in _FORGED_STATES for step in _alive_after(forged)),
        again,
        Attack("true", where="/workspace"),
    ),
)


@OUTPUT.check()
def forged_answers_on_any_descriptor_are_only_output(trial: Trial) -> None:
    """A well-formed reply frame is written to every descriptor a command holds, and to those of its parents."""
    forged = pack({**_FORGED, "id": trial.sandbox._next_id + 2}, b"pwn").hex()
    result = trial.attack(
        python(
            "import os, sys\n"
            "data = bytes.fromhex(sys.argv[1])\n"
            "for number in range(1, 300):\n"
            "    try: os.write(number, data)\n"
            "    except OSError: pass\n"
            "for pid in {1, os.getppid(), int(sys.argv[2])}:\n"
            "    for number in range(0, 16):\n"
            "        try:\n"
            "            fd = os.open(f'/proc/{pid}/fd/{number}', os.O_WRONLY | os.O_NONBLOCK)\n"
            "            if not os.path.sameopenfile(fd, 1) and not os.path.sameopenfile(fd, 2): os.write(fd, data)\n"
            "        except OSError: pass\n"
            "sys.exit(9)",
            forged,
        )
        + " $PPID"
    )
    must(result.exit_code == 9, f"a forged answer was taken: {brief(result)}")
    must(result.stdout == bytes.fromhex(forged) == result.stderr, f"not the bytes that were written: {brief(result)}")


# --- the host's side ------------------------------------------------------------------------------------------------


HELD_BACK = 1.0
"""Seconds for which an answer is waited for that never comes."""


class _Tampered:
    """A transport whose answers are held back or exchanged on their way to the host."""

    def __init__(self, inner: Any, answer: bytes | None) -> None:
        self._inner, self._answer = inner, answer

    def receive(self, deadline: float) -> bytes:
        if self._answer is not None:
            return self._answer
        now = time.monotonic()
        must(deadline < now + client.GRACE + SECONDS, "the host would wait long after the command's time-out")
        while True:  # a sooner end of the same wait: the answer is there at once, and is not handed on
            self._inner.receive(min(deadline, now + HELD_BACK))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _tamper(answer: bytes | None) -> Step:
    """Exchange the next answer (None: it never comes): that must become an error, and open() must help."""

    def step(trial: Trial) -> None:
        trial.sandbox._transport = _Tampered(trial.sandbox._transport, answer)
        starts = trial.sandbox.starts
        must_refuse(lambda: trial.run("echo x", timeout=0.2), "a result was made of it")
        must_refuse(lambda: trial.run("echo x"), "a sandbox that was lost answers again by itself")
        trial.sandbox.open({"a": "1"})
        must(trial.out("cat a") == "1" and trial.sandbox.starts == starts + 1, "open() did not start a fresh one")

    return step


_NO_JSON = json.dumps(_FORGED)[:-1].encode()

OUTPUT.table(
    check(
        "answer-that-never-comes-is-an-error",
        "The supervisor's answer is held back, and the host's own deadline passes.",
        _tamper(None),
    ),
    check(
        "answer-to-another-question-is-an-error",
        "A well-formed answer with the number of another request.",
        _tamper(pack({**_FORGED, "id": 77_777_777}, b"pwn")),
    ),
    check(
        "answer-that-is-no-frame-is-an-error",
        "Bytes that are no frame, and a frame whose head is no JSON.",
        _tamper(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(64)),
        _tamper(len(_NO_JSON).to_bytes(4, "big") + bytes(4) + _NO_JSON),
    ),
)


@OUTPUT.check()
def lost_supervisor_is_an_error_and_open_starts_another(trial: Trial) -> None:
    """The machinery is taken away under a running episode."""
    transport = trial.sandbox._transport
    must(transport is not None, "no supervisor")
    transport.close(patience=0.0)  # type: ignore[union-attr]
    must_refuse(lambda: trial.run("echo x"), "a result was made of it")
    trial.sandbox.open({"a": "1"})
    must(trial.out("cat a") == "1", "open() did not start a fresh one")
