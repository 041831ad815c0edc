"""Bytes, spoofing and the protocol: what a command wrote comes back, and nothing speaks for the machinery."""

from __future__ import annotations

import json
from typing import Any

from sandboxes.conformance.check import (
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
    must,
    must_refuse,
    python,
    without,
)
from sandboxes.inside.frames import pack
from sandboxes.sandbox import Backend, CommandResult

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


class _Tampered:
    """A transport whose answers are held back or exchanged on their way to the host."""

    def __init__(self, inner: Any, answer: bytes | None) -> None:
        self._inner, self._answer = inner, answer

    def receive(self, deadline: float) -> bytes:
        while self._answer is None:
            self._inner.receive(deadline)  # until the deadline
        return self._answer

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
        "The supervisor's answer is held back until the host's own deadline.",
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
