"""Interactive programs through pexpect."""

from __future__ import annotations

import secrets

import pexpect
import pytest

from sandboxes import Backend, Limits, SandboxError, SupervisedSandbox, open_sandbox
from sandboxes.conformance.check import holders


def test_an_interactive_program(sandbox: SupervisedSandbox) -> None:
    sandbox.run("export Q=7; cd /tmp")
    program = sandbox.spawn("python3 -i", timeout=60)
    program.expect(">>> ")
    program.sendline("import os; print(os.environ['Q'], os.isatty(0), os.get_terminal_size().columns)")
    program.expect_exact(b"7 True 80\r\n")
    program.sendline("exit(3)")
    program.expect(pexpect.EOF)
    assert program.wait() == 3 == program.exitstatus
    assert not program.isalive()
    assert sandbox.run("echo $Q; pwd").stdout == b"7\n/tmp\n"


def test_the_sandbox_is_taken_while_a_program_runs(sandbox: SupervisedSandbox) -> None:
    mark = f"mark{secrets.token_hex(8)}"  # landlock and local see the processes of others, too
    with sandbox.spawn(f"(exec -a {mark} cat); sleep 300", timeout=60) as program:
        with pytest.raises(SandboxError, match="close it first"):
            sandbox.run("ls")
        program.sendline("hello")
        program.expect("hello\r\nhello\r\n")
        with pytest.raises(pexpect.TIMEOUT):
            program.expect("never", timeout=0.1)
        assert program.isalive()
    assert program.exitstatus == 137
    left = sandbox.run(holders("/proc/[0-9]*/cmdline", mark))
    assert left.stdout == b"" and left.exit_code != 0


def test_size_control_keys_and_much_input(sandbox: SupervisedSandbox) -> None:
    program = sandbox.spawn("trap 'stty size; echo got it' INT; echo up; while :; do sleep 0.05; done", timeout=60)
    program.expect("up")
    program.setwinsize(11, 99)
    program.sendintr()
    program.expect("11 99\r\ngot it")
    program.close()
    program = sandbox.spawn("stty -echo -icanon; echo up; head -c 200000 | wc -c", timeout=60)
    program.expect("up")
    program.send(b"x" * 200_000)
    program.expect("200000")
    assert program.wait() == 0


def test_a_flood_of_a_program_ends_it(safe_backend: Backend) -> None:
    with open_sandbox(safe_backend, limits=Limits(flood_bytes=300_000)) as sandbox:
        sandbox.open({})
        program = sandbox.spawn("yes", timeout=60)
        program.expect(pexpect.EOF)
        assert program.exitstatus == 137
        assert sandbox.run("echo ok").stdout == b"ok\n"


def test_closing_a_program_of_a_dead_sandbox_does_nothing(safe_backend: Backend) -> None:
    with open_sandbox(safe_backend) as sandbox:
        sandbox.open({})
        with pytest.raises(SandboxError, match="lost"), sandbox.spawn("cat", timeout=60) as program:
            sandbox._transport.close(patience=0.0)  # type: ignore[union-attr]
            program.expect("never")
        program.close()
        sandbox.open({})
        assert sandbox.run("echo ok").stdout == b"ok\n"


def test_a_program_that_does_not_end_ends_its_sandbox(safe_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.terminal.END_SECONDS", 0.2)
    with open_sandbox(safe_backend) as sandbox:
        sandbox.open({})
        program = sandbox.spawn("cat", timeout=60)
        monkeypatch.setattr(sandbox, "stream_send", lambda head, body=b"": None)  # as if nobody listened
        with pytest.raises(SandboxError, match="did not end a program in 0 seconds"):
            program.close()
        assert not sandbox.alive


def test_a_program_that_uses_too_much_is_ended(sandbox: SupervisedSandbox) -> None:
    with sandbox.spawn("python3", timeout=30) as program:
        program.expect(">>> ")
        program.sendline("import mmap; m = mmap.mmap(-1, 700 << 20)")
        program.expect(">>> ")
        program.sendline("for i in range(0, 700 << 20, 4096): m[i] = 1\n")
        program.expect(pexpect.EOF)
    assert program.exitstatus == 137
    assert sandbox.run("echo alive").stdout == b"alive\n"
