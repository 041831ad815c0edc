"""`python -m sandboxes`, run as a program; its shell through a real terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pexpect
import pytest

from sandboxes import Backend, conformance, probe
from sandboxes.__main__ import main
from sandboxes.conformance import Check, Trial, Wrong
from tests.sandboxes.conftest import REPOSITORY

COMMANDS = ("doctor", "build", "shell", "sweep", "conformance")


def program(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandboxes", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"example: python -m sandboxes {command}" in capsys.readouterr().out


def test_mistakes_are_one_line_and_exit_code_2(
    tmp_path: Path, safe_backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, words in (
        (["shell", safe_backend, "--workdir", "relative"], "absolute path"),
        (["shell", safe_backend, "--put", str(tmp_path / "no")], "no such folder"),
        (["shell", safe_backend, "--save", str(tmp_path / "full")], "nothing is overwritten"),
        (["shell", safe_backend, "--save", str(tmp_path / "no" / "no")], "there is no folder"),
        (["conformance", safe_backend, "--only", "nonsense"], "nonsense"),
        (["build", "--offline", "--base", "debian"], "leave out"),
        (["sweep", "--run", "not an id"], "not an id"),
    ):
        assert main([*map(str, arguments)]) == 2, arguments
        said = capsys.readouterr().err
        assert said.startswith("sandboxes: ") and said.count("\n") == 1 and words in said, said
    for arguments in (["shell", "jail"], ["shell", "--timeout", "-1"], ["fly"], []):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2


def test_doctor_tells_the_same_to_people_and_programs() -> None:
    table, found = program("doctor", COLUMNS="40"), program("doctor", "--json")
    known = json.loads(found.stdout)
    assert table.returncode == found.returncode == (0 if known["auto"] else 1)
    assert table.stderr == found.stderr == ""
    lines = table.stdout.splitlines()
    for row in known["backends"]:
        (line,) = [line for line in lines if line.startswith(row["backend"] + " ") and line.split()[1] in ("yes", "no")]
        assert line.split()[1] == ("yes" if row["ok"] else "no")
        for text in (row["reason"].splitlines()[0], row["remedy"].splitlines()[0] if row["remedy"] else ""):
            assert text in line, "nothing is wrapped outside a terminal"
        assert bool(row["remedy"]) is not row["ok"]
    assert [row["backend"] for row in known["backends"] if not row["safe"]] == ["local"]
    for name in ("kernel", "Landlock", "user namespaces", "memory of a sandbox", "engine"):
        assert any(line.startswith(name) and known["facts"][name].splitlines()[0] in line for line in lines), name
    assert lines[-1] == f"auto would use: {known['auto'] or 'nothing: no safe backend works here'}"


@pytest.mark.docker
def test_doctor_names_the_engine_and_the_image() -> None:
    address = os.environ.get("TURNGYM_TEST_ENGINE")
    if not address:
        pytest.skip("TURNGYM_TEST_ENGINE names no engine")
    facts = json.loads(program("doctor", "--json", DOCKER_HOST=address).stdout)["facts"]
    assert f"at {address} (DOCKER_HOST)" in facts["engine"]
    assert "is there, " in facts["image"]
    facts = json.loads(program("doctor", "--json", DOCKER_HOST=address, TURNGYM_IMAGE="none:such").stdout)["facts"]
    assert facts["image"] == "none:such is not there; python -m sandboxes build makes it"


def test_an_engine_that_is_missing_is_a_refusal() -> None:
    for arguments in (("build", "--host", "unix:///nowhere.sock"), ("shell", "docker"), ("conformance", "docker")):
        done = program(*arguments, DOCKER_HOST="unix:///nowhere.sock")
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith("sandboxes: ") and "unix:///nowhere.sock" in done.stderr


def test_sweep_counts() -> None:
    done = program("sweep", "--run", "a-run-that-never-was")
    said = "removed 0 folders, 0 control groups, 0 containers, 0 processes\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_conformance_in_short(safe_backend: Backend) -> None:
    listed = program("conformance", "--list")
    assert listed.returncode == 0
    names = re.findall(r"^  ([\w-]+): ", listed.stdout, re.M)
    assert len(names) == len(conformance.CHECKS) >= 60
    done = program("conformance", safe_backend, "--only", *names[:2])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines[:2]] == names[:2] and len(lines) == 3
    assert lines[2].startswith(f"{safe_backend}: 2 checks: 2 ok")
    data = json.loads(program("conformance", safe_backend, "--only", names[0], "--json").stdout)
    assert data["passed"] and [check["name"] for check in data["checks"]] == names[:1]


def test_a_wrong_check_is_shown_and_exits_with_1(
    safe_backend: Backend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def body(trial: Trial) -> None:
        raise Wrong(trial.out("echo seen").strip())

    monkeypatch.setattr(conformance, "CHECKS", [Check("never-holds", "tests", body)])
    assert main(["conformance", str(safe_backend)]) == 1
    assert "wrong     never-holds  (seen)\n" in capsys.readouterr().out
    assert main(["conformance", str(safe_backend), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


# --- shell, from a pipe ---------------------------------------------------------------------------------------------


def test_lines_are_commands_with_a_state(safe_backend: Backend) -> None:
    lines = "x=1; cd /tmp\necho $x; pwd\n(exit 3)\necho $?; echo err >&2\nsleep 60\nexit 7\n"
    done = program("shell", safe_backend, "--timeout", "1", stdin=lines)
    assert done.returncode == 7
    assert done.stdout == "1\n/tmp\n3\n"
    assert re.fullmatch(r"err\n\(killed after 1\.\d seconds\)\n", done.stderr), done.stderr


def test_a_folder_goes_in_and_the_workspace_comes_out(safe_backend: Backend, tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "a").mkdir(parents=True)
    (given / "a" / "data \u00e9.bin").write_bytes(bytes(range(256)))
    (given / "run").write_text("#!/bin/sh\necho ran\n")
    (given / "run").chmod(0o755)
    (given / "link").symlink_to("run")
    os.mkfifo(given / "fifo")
    lines = "./run && ./link\nhead -c 2000000 /dev/zero > big\nln -s /etc/passwd evil\nmkfifo pipe; rm run; pwd\n"
    words = ["--put", str(given), "--save", str(tmp_path / "saved"), "--workdir", "/data/project"]
    done = program("shell", safe_backend, *words, stdin=lines)
    assert (done.returncode, done.stdout) == (0, "ran\nran\n/data/project\n"), done.stderr
    saved = {str(path.relative_to(tmp_path / "saved")): path for path in (tmp_path / "saved").rglob("*")}
    assert sorted(saved) == ["a", "a/data \u00e9.bin", "big"]
    assert saved["a/data \u00e9.bin"].read_bytes() == bytes(range(256)) and saved["big"].stat().st_size == 2_000_000
    assert "'evil', 'link', 'pipe'" in done.stderr
    assert (given / "run").exists()


# --- shell, in a terminal -------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(safe_backend: Backend, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts the shell in a terminal, inside a bash that notes the terminal's settings before and after."""
    started = []

    def start(*words: str, size: tuple[int, int] = (24, 80), then: str = "") -> Any:
        line = (
            f"stty -g > {tmp_path}/before; {sys.executable} -m sandboxes shell {safe_backend} {' '.join(words)} & "
            f"echo $! > {tmp_path}/pid; fg >/dev/null; {then} echo code $?; stty -g > {tmp_path}/after; echo over"
        )
        child = pexpect.spawn(
            "/bin/bash",
            ["--norc", "-c", f"set -m; {line}"],
            cwd=str(REPOSITORY),
            env={**os.environ, "TERM": "dumb"},
            dimensions=size,
            timeout=120,
            encoding="utf-8",
        )
        child.delaybeforesend = None
        started.append(child)
        child.expect_exact(f"({safe_backend}) ")
        return child

    yield start
    for child in started:
        child.close(force=True)


def ended(child: Any, tmp_path: Path, code: int) -> None:
    child.expect(r"code (\d+)\r\n")
    assert int(child.match.group(1)) == code
    child.expect_exact("over")
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text(), "the terminal is as it was"


def test_a_session_in_a_terminal(terminal: Callable[..., Any], safe_backend: Backend, tmp_path: Path) -> None:
    child = terminal("--save", str(tmp_path / "saved"))
    child.sendline("x=4; echo $((x * 10 + 2)); stty size; pwd")
    child.expect_exact("42\r\n24 80\r\n/workspace\r\n")
    child.setwinsize(33, 111)
    child.sendline("until stty size | grep '^33 111$'; do sleep 0.05; done")  # it comes when it comes
    child.expect_exact("33 111\r\n")
    child.sendline("echo go''od; cat > typed")
    child.expect_exact("good\r\n")  # what is typed before the line editor is done would be text, the end of file too
    child.sendline("hello")
    child.sendeof()
    child.expect_exact("$ ")
    # What the program itself says: from then on a key is for it, where an echo of the line may come before it runs.
    child.sendline("sh -c 'echo u''p; exec sleep 1000'")
    child.expect_exact("up\r\n")
    child.sendintr()
    child.expect_exact("^C")
    child.sendline("echo code=$?")
    child.expect_exact("code=130\r\n")
    child.sendline("sh -c 'echo u''p; exec sleep 1000'")
    child.expect_exact("up\r\n")
    child.send("\x1a")
    child.expect("Stopped +sh -c")
    child.sendline("kill %1; exit 5")
    child.expect_exact("exit 5\r\n")
    if child.expect([r"There are (running|stopped) jobs", "code 5\r\n"]) == 0:
        child.sendline("exit 5")
        ended(child, tmp_path, 5)
    assert eventually_there(tmp_path / "saved" / "typed") == "hello\n"
    assert sorted(os.listdir(tmp_path / "saved")) == ["typed"], "the shell left no history or the like"


def eventually_there(path: Path) -> str:
    for _ in range(200):
        if path.exists() and path.read_text():
            break
        time.sleep(0.05)
    return path.read_text()


def test_much_in_and_much_out(terminal: Callable[..., Any], tmp_path: Path) -> None:
    child = terminal()
    child.sendline("stty -echo; PS1=; head -c 400000 | tr -d '\\n' | wc -c; seq 200000 | tail -1; yes")
    child.expect_exact("yes\r\n")
    for _ in range(4000):
        child.send("x" * 99 + "\n")
    child.expect_exact("396000\r\n200000\r\n")
    child.expect_exact("y\r\ny\r\ny\r\n")
    child.sendintr()
    child.sendline("echo a''live")
    child.expect_exact("alive\r\n")
    child.send("\x1d")
    ended(child, tmp_path, 137)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_gives_the_terminal_back(
    terminal: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    child = terminal()
    os.kill(int((tmp_path / "pid").read_text()), number)
    ended(child, tmp_path, 128 + number)


def test_a_stop_gives_the_terminal_back_and_it_goes_on(terminal: Callable[..., Any], tmp_path: Path) -> None:
    child = terminal(then=f"echo stopped $?; stty -g > {tmp_path}/while; read; fg >/dev/null;")
    child.sendline("x=7; echo s''et")
    child.expect_exact("set\r\n")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTSTP)
    child.expect_exact("stopped 148\r\n")  # the outer bash has the terminal now
    child.setwinsize(22, 66)
    child.sendline("")
    child.sendline("stty size; echo $x; exit 3")
    child.expect_exact("22 66\r\n7\r\n")
    ended(child, tmp_path, 3)
    assert (tmp_path / "while").read_text() == (tmp_path / "before").read_text()


def test_a_lost_sandbox_gives_the_terminal_back(
    terminal: Callable[..., Any], safe_backend: Backend, tmp_path: Path
) -> None:
    child = terminal()
    pid = int((tmp_path / "pid").read_text())
    if safe_backend is Backend.DOCKER:
        client = docker.DockerClient(os.environ["TURNGYM_TEST_ENGINE"])
        owners = {c.labels["turngym.owner"]: c for c in client.containers.list(filters={"label": "turngym.owner"})}
        (mine,) = [found for owner, found in owners.items() if owner.startswith(f"{pid}-")]
        mine.kill()
        client.close()
    else:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        inside = [int(each) for task in tasks for each in (task / "children").read_text().split()]
        assert inside
        for each in inside:
            os.kill(each, signal.SIGKILL)
    child.expect_exact(f"sandboxes: {safe_backend} sandbox lost")
    ended(child, tmp_path, 1)


def test_auto_is_the_default() -> None:
    if not any(probe(backend).ok for backend in (Backend.BUBBLEWRAP, Backend.LANDLOCK)):
        pytest.skip("no safe backend works here")
    assert program("shell", stdin="echo hi\n").stdout == "hi\n"
