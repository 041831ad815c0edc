"""Bytes, spoofing and the protocol: what a command wrote comes back, and nothing speaks for the machinery."""

from __future__ import annotations

import json
from typing import Any

from sandboxes.conformance.check import Group, Trial, Wrong, brief, holders, must, python, without
from sandboxes.inside.frames import pack
from sandboxes.sandbox import Backend, SandboxError

GROUP = Group("output")

# --- bytes ----------------------------------------------------------------------------------------------------------

GROUP.attack(
    "streams-and-exit-code-are-real",
    "echo out; echo err >&2; (exit 3)",
    lambda r: (r.exit_code, r.stdout, r.stderr) == (3, b"out\n", b"err\n"),
)
GROUP.attack(
    "binary-output-is-byte-exact",
    "printf '\\000\\001\\377\\376\\r\\nx'",
    lambda r: r.stdout == b"\0\1\xff\xfe\r\nx",
)
GROUP.attack("invalid-utf8-is-byte-exact", "printf '\\xff\\xfe\\x80abc\\n'", lambda r: r.stdout == b"\xff\xfe\x80abc\n")
GROUP.attack(
    "escape-sequences-are-byte-exact",
    "printf 'a\\rb\\x1b[31mred\\x1b[0m\\n'",
    lambda r: r.stdout == b"a\rb\x1b[31mred\x1b[0m\n",
)
GROUP.attack("output-without-newline-is-kept", "printf x; printf y >&2", lambda r: (r.stdout, r.stderr) == (b"x", b"y"))
GROUP.attack(
    "output-of-a-process-substitution-is-collected",
    "printf 'b\\na\\n' > >(sort); sleep 0.3",
    lambda r: r.stdout == b"a\nb\n",
)
GROUP.attack("broken-pipe-ends-its-writer", "yes | head -1; echo ${PIPESTATUS[0]}", lambda r: r.stdout == b"y\n141\n")


@GROUP.check()
def every_byte_value_survives_both_streams(trial: Trial) -> None:
    """All 256 values, on both streams at the same time, in turn."""
    result = trial.python("import os\nfor i in range(256): os.write(1, bytes([i])); os.write(2, bytes([255 - i]))")
    must(result.stdout == bytes(range(256)), f"stdout: {brief(result)}")
    must(result.stderr == bytes(range(255, -1, -1)), f"stderr: {brief(result)}")


@GROUP.check()
def long_output_is_cut_to_head_and_tail(trial: Trial) -> None:
    """A hundred thousand lines: the first and the last come, with a marker between, and the exit code is real."""
    result = trial.attack("seq 100000; seq 100000 >&2; exit 5")
    must(result.exit_code == 5 and result.truncated and not result.timed_out, brief(result))
    for name, data in (("stdout", result.stdout), ("stderr", result.stderr)):
        ends = data.startswith(b"1\n2\n3\n") and data.endswith(b"99999\n100000\n") and b"bytes not shown" in data
        must(ends and len(data) <= trial.limits.output_bytes + 200, f"{name} of {len(data)} bytes: {brief(result)}")


@GROUP.check()
def output_at_the_cap_is_whole(trial: Trial) -> None:
    """Exactly as many bytes as are shown."""
    size = trial.limits.output_bytes // 2 * 2
    result = trial.run(f"head -c {size} /dev/zero")
    must(result.stdout == bytes(size) and not result.truncated, f"{len(result.stdout)} of {size} bytes")


# --- input and terminals --------------------------------------------------------------------------------------------

_NO_TERMINALS = without(
    Backend.LANDLOCK, reason="no pseudo-terminals in commands: /dev/ptmx would lead to the terminals of the host"
)

GROUP.attack("standard-input-is-empty", "cat; read x; echo rc=$?", lambda r: r.stdout == b"rc=1\n" and not r.timed_out)
GROUP.attack("interpreter-without-input-ends", "python3", lambda r: r.exit_code == 0 and not r.timed_out)
GROUP.attack("interactive-shell-ends-with-its-input", "bash -i <<< 'echo inner'", lambda r: b"inner" in r.stdout)
GROUP.attack(
    "there-is-no-controlling-terminal",
    "read y </dev/tty; echo rc=$?; tty",
    lambda r: not r.timed_out and b"rc=1\n" in r.stdout and b"not a tty" in r.stdout,
)
GROUP.attack(
    "pseudo-terminal-of-a-command-ends-with-it",
    python("import pty; pty.spawn(['/bin/bash', '-c', 'echo in-pty; tty'])"),
    lambda r: b"in-pty" in r.stdout and not r.timed_out,
    exceptions=_NO_TERMINALS,
)


@GROUP.check()
def interactive_program_works_and_frees_the_sandbox(trial: Trial) -> None:
    """A Python prompt through `spawn`, with the state of the episode, that leaves a process behind."""
    trial.run(f"export KEPT={trial.token}; cd here")
    with trial.sandbox.spawn("python3 -q -i", timeout=20) as program:
        program.expect_exact(">>> ")
        program.sendline("import os, subprocess; os.environ['KEPT'] + ':' + str(6 * 7)")
        program.expect_exact(f"{trial.token}:42")
        program.sendline(f"p = subprocess.Popen(['bash', '-c', 'sleep 321; :', '{trial.token}'])")
        program.expect_exact(">>> ")
        try:
            trial.run("echo meanwhile")
        except SandboxError:
            pass
        else:
            raise Wrong("a command ran beside the interactive program")
    trial.lives()
    left = trial.run(holders("/proc/[0-9]*/cmdline", trial.token))
    must(left.stdout == b"" and left.exit_code != 0, f"processes are left: {brief(left)}")


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

GROUP.attack(
    "printed-prompts-and-markers-are-only-text",
    "echo \"$PS1\"; history | tail -2; echo 'EXIT0END'; printf '\\n<deadbeef:0>\\n#STATE-OK'; false",
    lambda r: r.exit_code == 1 and b"EXIT0END\n\n<deadbeef:0>\n#STATE-OK" in r.stdout,
)
GROUP.attack(
    "shell-holds-no-secret-of-the-protocol",
    "set | grep -aiE 'nonce|sentinel|token|secret|__c'; env | grep -aiE 'nonce|sentinel|token|secret'; false",
    lambda r: not r.stdout.replace(b"KEPT", b""),
)


@GROUP.check()
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


@GROUP.check()
def streams_of_the_supervisor_are_out_of_reach(trial: Trial) -> None:
    """Its descriptors, memory, environment and maps, through /proc, by its own number and as parent."""
    result = trial.attack(
        "for p in 1 $PPID; do for f in fd/0 fd/1 fd/2 mem environ maps auxv syscall stack fdinfo/0 map_files cwd "
        "root exe; do "
        "(exec 3</proc/$p/$f) 2>/dev/null && head -c 1 /proc/$p/$f 2>/dev/null >/dev/null && echo READ $p/$f; "
        "case $f in fd/*|mem) (exec 3>>/proc/$p/$f) 2>/dev/null && echo WROTE $p/$f;; esac; "
        "done; ls /proc/$p/fd 2>/dev/null; done; :"
    )
    must(result.stdout == b"" and result.exit_code == 0, brief(result))


@GROUP.check()
def no_descriptor_of_the_machinery_is_open(trial: Trial) -> None:
    """Whatever a program inherits is one of its streams or its own shell's memory file."""
    result = trial.python(
        "import os\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    try: target = os.readlink('/proc/self/fd/' + name)\n"
        "    except OSError: continue\n"
        "    if int(name) > 2 and not target.startswith('/memfd:'): print(name, target)"
    )
    must(result.exit_code == 0 and result.stdout == b"", brief(result))


@GROUP.check()
def forged_state_harms_only_the_shell_that_forged_it(trial: Trial) -> None:
    """Garbage, too much, and a false end are written to the memory files of the shell."""
    for command in (
        "for fd in $(ls /proc/self/fd); do [ $fd -gt 2 ] && echo '#STATE-OK' 2>/dev/null >&$fd; done; exec true",
        "head -c 30M /dev/zero >&201; exec true",
        r"printf '\0\0\0\0\0\0\0\0\0#STATE-OK' >&201; kill -9 $$",
        r"printf 'a\0b\0c\0d\0/nowhere\0declare -x\0$(\0}\0\0#STATE-OK' >&201; exit 1",
    ):
        trial.run(command)
        alive = trial.run("/bin/echo ok")
        must(alive.stdout.endswith(b"ok\n"), f"after {command!r}: {brief(alive)}")
    trial.again()
    trial.attack("true", where="/workspace")


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


def _tamper(trial: Trial, answer: bytes | None) -> None:
    """Exchange the next answer (None: it never comes): that must become an error, and open() must help."""
    trial.sandbox._transport = _Tampered(trial.sandbox._transport, answer)
    starts = trial.sandbox.starts
    try:
        result = trial.run("echo x", timeout=0.2)
    except SandboxError:
        pass
    else:
        raise Wrong(f"a result was made of it: {brief(result)}")
    try:
        trial.run("echo x")
    except SandboxError:
        pass
    else:
        raise Wrong("a sandbox that was lost answers again by itself")
    trial.sandbox.open({"a": "1"})
    must(trial.out("cat a") == "1" and trial.sandbox.starts == starts + 1, "open() did not start a fresh one")


@GROUP.check()
def answer_that_never_comes_is_an_error(trial: Trial) -> None:
    """The supervisor's answer is held back until the host's own deadline."""
    _tamper(trial, None)


@GROUP.check()
def answer_to_another_question_is_an_error(trial: Trial) -> None:
    """A well-formed answer with the number of another request."""
    _tamper(trial, pack({**_FORGED, "id": 77_777_777}, b"pwn"))


@GROUP.check()
def answer_that_is_no_frame_is_an_error(trial: Trial) -> None:
    """Bytes that are no frame, and a frame whose head is no JSON."""
    _tamper(trial, b"HTTP/1.1 200 OK\r\n\r\n" + bytes(64))
    text = json.dumps(_FORGED)[:-1].encode()
    _tamper(trial, len(text).to_bytes(4, "big") + bytes(4) + text)


@GROUP.check()
def lost_supervisor_is_an_error_and_open_starts_another(trial: Trial) -> None:
    """The machinery is taken away under a running episode."""
    transport = trial.sandbox._transport
    must(transport is not None, "no supervisor")
    transport.close(patience=0.0)  # type: ignore[union-attr]
    try:
        result = trial.run("echo x")
    except SandboxError:
        trial.sandbox.open({"a": "1"})
        must(trial.out("cat a") == "1", "open() did not start a fresh one")
        return
    raise Wrong(f"a result was made of it: {brief(result)}")
