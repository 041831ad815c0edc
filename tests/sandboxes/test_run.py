"""What commands see and keep, on every backend."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from sandboxes import Backend, EntryKind, FileEntry, Limits, Sandbox, SandboxError, SupervisedSandbox, open_sandbox
from sandboxes.opening import launcher
from tests.sandboxes.conftest import require


def out(sandbox: SupervisedSandbox, command: str, **options: object) -> str:
    result = sandbox.run(command, **options)  # type: ignore[arg-type]
    assert result.exit_code == 0, result
    return result.stdout_text


def test_is_a_sandbox(sandbox: SupervisedSandbox) -> None:
    assert isinstance(sandbox, Sandbox)


def test_streams_and_exit_code_are_real(sandbox: SupervisedSandbox) -> None:
    result = sandbox.run("printf '\\000\\377\\r\\n'; echo err >&2; (exit 3)")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"\0\xff\r\n", b"err\n")
    assert not result.timed_out
    assert not result.truncated
    assert result.seconds > 0


def test_state_is_kept(sandbox: SupervisedSandbox) -> None:
    sandbox.put({"d/x": b""})
    sandbox.run(
        "cd d; export E='a b'; v=$'1\\n2'; arr=(x 'y z'); declare -A map=([k]=v); readonly r=1; f() { echo F$1; }"
    )
    sandbox.run("alias ll='echo LL'; shopt -s nullglob; set -u; umask 077; export -f f; OLDPWD=/")
    sandbox.run("g() { ll; }")
    assert out(sandbox, 'pwd; echo "$E|$v|${arr[1]}|${map[k]}|$r"; f 1; ll') == (
        "/workspace/d\na b|1\n2|y z|v|1\nF1\nLL\n"
    )
    assert out(sandbox, "umask; bash -c 'f 2'; echo *.none; env | grep ^E=") == "0077\nF2\n\nE=a b\n"
    assert sandbox.run("echo $UNSET").exit_code == 127
    assert sandbox.run("r=2").exit_code != 0
    assert out(sandbox, "g; cd -") == "LL\n/\n"
    sandbox.run("unset E v; unalias ll; unset -f f; set +u; shopt -u nullglob sourcepath")
    assert out(sandbox, 'echo "${E-none}${v-none}"; type f ll 2>&1 | grep -c "not found"; shopt sourcepath || :') == (
        "nonenone\n2\nsourcepath     \toff\n"
    )


def test_dollar_question_is_carried(sandbox: SupervisedSandbox) -> None:
    sandbox.run("exit 42")
    assert out(sandbox, "echo $?") == "42\n"
    sandbox.run("kill -9 $$")
    assert out(sandbox, "echo $?") == "137\n"
    assert sandbox.run("# only a remark\n\n").exit_code == 0


def test_not_kept_on_purpose(sandbox: SupervisedSandbox) -> None:
    sandbox.run("set -exv; trap 'echo bye' USR1; x=1")
    result = sandbox.run("false; trap -p USR1; echo $x")
    assert (result.stdout, result.stderr) == (b"1\n", b"")
    sandbox.run("unset PATH")
    assert out(sandbox, "ls") == ""


@pytest.mark.parametrize(
    ("command", "code", "stdout", "stderr"),
    [
        ("exit 7", 7, b"", b""),
        ("exec echo replaced", 0, b"replaced\n", b""),
        ("kill -9 $$", 137, b"", b""),
        ("set -e; false; echo no", 1, b"", b""),
        ("set -u; echo $NOPE; echo no", 127, b"", b"bash: line 1: NOPE: unbound variable\n"),
        ("trap 'echo at exit' EXIT; echo body", 0, b"body\nat exit\n", b""),
        ("trap 'echo $BASH_COMMAND' DEBUG; true", 0, b"true\n", None),
        ("set -n; echo no", 0, b"", b""),
        ("cat <<'EOF'\n$a `b` \\\nEOF\necho end", 0, b"$a `b` \\\nend\n", b""),
        ("cat <<EOF\nabc", 0, b"abc\n", None),
        ('echo "abc', 2, b"", None),
        ("if true; then", 2, b"", None),
        ("echo a )", 2, b"", None),
        ("cat; read x; echo rc=$?", 0, b"rc=1\n", b""),
        ("yes | head -1; echo ${PIPESTATUS[0]}", 0, b"y\n141\n", b""),
        ("echo one; echo two > >(cat); sleep 0.1", 0, b"one\ntwo\n", b""),
        ("nosuch", 127, b"", b"bash: line 1: nosuch: command not found\n"),
        ("true\n\nnosuch", 127, b"", b"bash: line 3: nosuch: command not found\n"),
        ("echo \udcff\udcfe", 0, b"\xff\xfe\n", b""),
        ("echo \ud800", 0, b"?\n", b""),
        ("echo a\0b", 2, b"", b"bash: the command holds a NUL byte; nothing was run\n"),
        ("echo 'ü€😀'", 0, "ü€😀\n".encode(), b""),
        ("", 0, b"", b""),
    ],
)
def test_odd_commands(sandbox: SupervisedSandbox, command: str, code: int, stdout: bytes, stderr: bytes | None) -> None:
    sandbox.run("KEPT=1")
    result = sandbox.run(command)
    assert (result.exit_code, result.stdout) == (code, stdout), result
    assert stderr is None or result.stderr == stderr
    assert out(sandbox, "echo $KEPT; pwd") == "1\n/workspace\n"


def test_state_lost_by_nothing_but_the_command_itself(sandbox: SupervisedSandbox) -> None:
    sandbox.run("a=1; exit 3")
    sandbox.run("b=2; set -e; false")
    sandbox.run("c=3; exec true")
    assert out(sandbox, "echo $a$b${c-gone}") == "12gone\n"


def test_redefined_builtins_change_nothing_for_us(sandbox: SupervisedSandbox) -> None:
    names = "printf builtin eval exit declare command trap source kill read shopt umask alias pwd return unset set"
    sandbox.run("export X=1; " + " ".join(f"{name}() {{ :; }};" for name in names.split()))
    sandbox.run("Y=2; cd /tmp")
    assert sandbox.run("echo $X$Y; /bin/pwd").stdout == b"12\n/tmp\n"


@pytest.mark.parametrize("size", [5_000, 300_000])
def test_long_commands(sandbox: SupervisedSandbox, size: int) -> None:
    assert out(sandbox, f"x={'B' * size}; echo ${{#x}}; y=1") == f"{size}\n"
    assert out(sandbox, "echo $y ${#x}") == f"1 {size}\n"


def test_a_command_over_the_limit_is_not_run(sandbox: SupervisedSandbox) -> None:
    result = sandbox.run("echo no; #" + "x" * sandbox.limits.command_bytes)
    assert (result.exit_code, result.stdout) == (126, b"")
    assert b"limit" in result.stderr


def test_timeout_keeps_partial_output_and_the_state_from_before(sandbox: SupervisedSandbox) -> None:
    sandbox.run("v=before; cd /tmp")
    result = sandbox.run("echo part; echo err >&2; v=after; cd /; echo x > /workspace/f; sleep 60", timeout=1)
    assert result.timed_out
    assert (result.exit_code, result.stdout, result.stderr) == (137, b"part\n", b"err\n")
    assert out(sandbox, "echo $v $?; pwd; cat /workspace/f") == "before 137\n/tmp\nx\n"


@pytest.mark.parametrize("command", ["yes", "yes >&2", "cat /dev/urandom"])
def test_a_flood_is_ended_and_cut(sandbox: SupervisedSandbox, command: str) -> None:
    result = sandbox.run(command, timeout=60)
    assert not result.timed_out
    assert result.truncated
    assert result.exit_code == 137
    assert max(len(result.stdout), len(result.stderr)) <= sandbox.limits.output_bytes + 100
    assert b"more than" in result.stderr


def test_head_and_tail(sandbox: SupervisedSandbox) -> None:
    result = sandbox.run("seq 100000")
    assert result.exit_code == 0
    assert result.truncated
    assert result.stdout.startswith(b"1\n2\n")
    assert b"bytes not shown" in result.stdout
    assert result.stdout.endswith(b"99999\n100000\n")


def test_no_process_outlives_its_command(sandbox: SupervisedSandbox) -> None:
    started = sandbox.run(
        "sleep 300 & (setsid nohup bash -c 'while :; do echo x >> grow; done' >/dev/null 2>&1 &); echo ok"
    )
    assert started.stdout == b"ok\n"
    assert not started.timed_out, "what runs in the background does not hold it"
    size = out(sandbox, "stat -c %s grow 2>/dev/null || echo 0")
    assert out(sandbox, "sleep 0.2; stat -c %s grow 2>/dev/null || echo 0") == size


def test_memory_of_all_processes_is_bounded(sandbox: SupervisedSandbox) -> None:
    hog = "import time; x = b'x' * (60 << 20); time.sleep(60)"
    result = sandbox.run(f'for i in 1 2 3 4 5 6; do python3 -c "{hog}" & done; wait', timeout=50)
    assert not result.timed_out
    assert result.exit_code == 137
    assert b"more than 256 MB of memory" in result.stderr


def test_processes_are_bounded(sandbox: SupervisedSandbox) -> None:
    many = "import subprocess, time; [subprocess.Popen(['sleep', '50']) for _ in range(300)]; time.sleep(50)"
    result = sandbox.run(f'python3 -c "{many}"', timeout=40)
    assert not result.timed_out
    assert result.exit_code != 0
    bomb = sandbox.run("python3 -c 'import os\nwhile 1:\n  try: os.fork()\n  except OSError: pass'", timeout=2)
    assert bomb.exit_code == 137
    assert sandbox.run("echo $?").stdout == b"137\n"


def test_the_workspace_is_bounded(sandbox: SupervisedSandbox) -> None:
    command = "for i in 1 2 3 4 5 6 7 8 9; do head -c 60M /dev/zero > f$i || break; sleep 0.06; done; sync; echo all"
    result = sandbox.run(command, timeout=50)
    total = sum(entry.size or 0 for entry in sandbox.snapshot().values())
    assert total <= 4 * (sandbox.limits.workspace_mb << 20)
    if sandbox.backend in ("docker", "bubblewrap"):
        assert total <= sandbox.limits.workspace_mb << 20
    else:
        assert b"more than" in result.stderr


def test_clean_state_knows_nothing_of_the_agent(sandbox: SupervisedSandbox) -> None:
    sandbox.put({"bin/ls": FileEntry(content=b"#!/bin/sh\necho fake\n", mode=0o755)})
    sandbox.run(
        "PATH=/workspace/bin:$PATH; export EVIL=1 BASH_ENV=/workspace/bin/ls; cd bin; ls() { echo f; }; umask 777"
    )
    assert out(sandbox, "pwd; echo ${EVIL-none}; ls; umask; G=1", state="clean") == "/workspace\nnone\nbin\n0022\n"
    assert out(sandbox, "pwd; echo $EVIL ${G-none}") == "/workspace/bin\n1 none\n"


def test_files_in_and_out(sandbox: SupervisedSandbox) -> None:
    sandbox.open(
        {
            "a.txt": "text\n",
            "bin/run": FileEntry(content=b"#!/bin/sh\necho ran\n", mode=0o755),
            "empty": FileEntry(EntryKind.DIR),
            "link": FileEntry(EntryKind.SYMLINK, target="/workspace/a.txt"),
        }
    )
    assert out(sandbox, "cat link; bin/run; stat -c '%a %F' empty") == "text\nran\n755 directory\n"
    result, snapshot = sandbox.run_and_snapshot("echo new > b; rm a.txt; mkfifo p; head -c 2M /dev/zero > big")
    assert result.exit_code == 0
    assert snapshot == sandbox.snapshot()
    assert list(snapshot) == ["b", "big", "bin", "bin/run", "empty", "link", "p"]
    assert snapshot["b"] == FileEntry(content=b"new\n", mode=0o644, size=4)
    assert (snapshot["big"].content, snapshot["big"].size) == (None, 2 << 20)
    assert snapshot["link"].target == "/workspace/a.txt"
    assert snapshot["p"].kind is EntryKind.OTHER
    assert sandbox.listing() == ["b", "big", "bin/", "bin/run", "empty/", "link", "p"]
    assert sandbox.read("big") == bytes(2 << 20)
    for path in ("link", "p", "empty"):
        with pytest.raises(SandboxError, match="not a regular file"):
            sandbox.read(path)
    for path in ("nothing", "link/x"):
        with pytest.raises(FileNotFoundError):
            sandbox.read(path)
    for path in ("../x", "/etc/passwd"):
        with pytest.raises(ValueError):
            sandbox.read(path)
    assert sandbox.alive


def test_traps_for_the_grader(sandbox: SupervisedSandbox) -> None:
    sandbox.run("ln -s /etc answer; ln -s /etc/shadow s; mkfifo f; mkdir -p ro/a; echo x > ro/a/f; chmod 000 ro/a ro")
    sandbox.run("truncate -s 40G sparse; touch $'\\xff\\xfe' $'new\\nline'; umask 777; chmod 000 /workspace")
    snapshot = sandbox.snapshot()
    assert snapshot["s"].content is None
    assert snapshot["s"].target == "/etc/shadow"
    assert snapshot["ro/a/f"].content == b"x\n"
    assert {"\udcff\udcfe", "new\nline"} <= set(snapshot)
    sandbox.put({"answer/passwd": b"mine", "f": b"file now"})
    assert sandbox.read("answer/passwd") == b"mine"
    assert sandbox.read("f") == b"file now"
    assert sandbox.snapshot()["answer"].kind is EntryKind.DIR
    sandbox.reset()
    assert sandbox.snapshot() == {}


def test_put_of_many_files_and_a_full_disk(sandbox: SupervisedSandbox) -> None:
    files = {f"d{n % 7}/f{n}": str(n) for n in range(500)}
    sandbox.put(files)
    assert {path: entry.content for path, entry in sandbox.snapshot().items() if entry.kind is EntryKind.FILE} == {
        path: text.encode() for path, text in files.items()
    }
    if sandbox.backend != "bubblewrap":
        return
    with pytest.raises(SandboxError, match="No space left"):
        sandbox.put({f"big{n}": bytes(20 << 20) for n in range(4)})
    assert sandbox.alive
    sandbox.reset()
    assert sandbox.listing() == []


def test_hash_is_of_content(sandbox: SupervisedSandbox) -> None:
    sandbox.open({"a": "1", "d/b": "2"})
    first = sandbox.snapshot_hash()
    sandbox.run("touch a; cat d/b")
    assert sandbox.snapshot_hash() == first
    sandbox.run("head -c 3M /dev/zero > big")
    second = sandbox.snapshot_hash()
    sandbox.run("printf x | dd of=big bs=1 seek=2500000 conv=notrunc 2>/dev/null")
    assert len({first, second, sandbox.snapshot_hash()}) == 3
    sandbox.open({"d/b": "2", "a": "1"})
    assert sandbox.snapshot_hash() == first


def test_reset_leaves_nothing(sandbox: SupervisedSandbox) -> None:
    sandbox.run("export V=1; cd /tmp; echo x > /tmp/t; echo y > /workspace/w; f() { :; }; alias a=b; umask 0; set -u")
    if sandbox.backend == "bubblewrap":
        made = "0x" in out(sandbox, "echo z > /dev/shm/s; ipcmk -M 100 -S 1 -Q >/dev/null; ipcs -msq")
        assert made
        assert "0x" not in out(sandbox, "ipcs -msq"), "like a process, it ends with its command"
        made = "0x" in out(sandbox, "ipcmk -M 100 >/dev/null; ipcs -m", keep_background=True)
        assert made
    sandbox.reset()
    command = "pwd; echo ${V-none}; ls /tmp /workspace; declare -F; alias; umask; echo $-"
    assert out(sandbox, command) == "/workspace\nnone\n/tmp:\n\n/workspace:\n0022\nhBc\n"
    if sandbox.backend == "bubblewrap":
        assert "0x" not in out(sandbox, "ls -A /dev/shm; ipcs -msq")


@pytest.mark.parametrize("backend", ["landlock", "local"])
def test_a_workspace_that_vanished_is_a_loss(backend: str) -> None:
    require(Backend(backend))
    with open_sandbox(backend) as sandbox:
        sandbox.open({"a": "x"})
        shutil.rmtree(sandbox._alias.real)
        with pytest.raises(SandboxError, match="lost"):
            sandbox.run("true")
        sandbox.open({"a": "x"})
        assert sandbox.run("cat a").stdout == b"x"


def test_an_absolute_workdir(sandbox: SupervisedSandbox) -> None:
    sandbox.open({"in/a": "x\n"}, workdir="/data/project")
    assert sandbox.workspace == "/data/project"
    assert out(sandbox, "pwd; cat /data/project/in/a; cd in; pwd; echo y > /data/project/b") == (
        "/data/project\nx\n/data/project/in\n"
    )
    assert sandbox.read("b") == b"y\n"
    sandbox.open({})
    assert out(sandbox, "pwd; ls") == "/workspace\n"


@pytest.mark.parametrize(
    "workdir", ["relative", "/", "/usr/local", "/proc", "/a/../b", "/tmp", "/tmp/x", "/var/tmp/x", "/var", "/etc/x"]
)
def test_workdirs_that_cannot_be(sandbox: SupervisedSandbox, workdir: str) -> None:
    with pytest.raises(ValueError, match="workdir"):
        sandbox.open({}, workdir=workdir)
    sandbox.open({})
    assert out(sandbox, "pwd") == "/workspace\n"


def test_a_killed_supervisor_is_an_error_and_open_starts_another(safe_backend: str) -> None:
    with SupervisedSandbox(launcher(safe_backend, Limits())) as sandbox:  # type: ignore[arg-type]
        sandbox.open({})
        os.kill(sandbox._transport.pid, signal.SIGKILL)  # type: ignore[union-attr]
        with pytest.raises(SandboxError, match="lost"):
            sandbox.run("sleep 20", timeout=30)
        with pytest.raises(SandboxError, match="dead"):
            sandbox.run("echo x")
        sandbox.open({"a": "1"})
        assert out(sandbox, "cat a") == "1"
        assert sandbox.starts == 2
