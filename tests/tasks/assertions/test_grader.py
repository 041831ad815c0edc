"""Graders in real sandboxes, and what agents prepare for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxes import Backend, SandboxError, open_sandbox, probe
from sandboxes.sandbox import Sandbox
from tasks.assertions import AssertionResult, grade
from tasks.assertions.base import Outcome
from tasks.assertions.grader import SandboxGrader
from tasks.proof import Status, prove
from tasks.task import Task


@pytest.fixture(
    scope="module",
    params=[pytest.param(Backend.BUBBLEWRAP, marks=pytest.mark.bubblewrap), Backend.LANDLOCK],
    ids=lambda b: str(b),
)
def shared_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    found = probe(request.param)
    if not found.ok:
        pytest.skip(f"{request.param} does not work here: {found.reason}")
    with open_sandbox(request.param) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(shared_sandbox: Sandbox) -> Sandbox:
    shared_sandbox.open({})
    return shared_sandbox


CHECK = """
import json, os, re, sys
print(json.dumps({"real": json.__file__.startswith(sys.prefix + "/lib"), "home": os.listdir(os.environ["HOME"]) == ["check.py"]}))
"""  # noqa: E501


def script(**keys: Any) -> dict[str, Any]:
    return {"kind": "script", "name": "s", "command": 'python3 -I "$GRADER/check.py"', **keys}


def judge(sandbox: Sandbox, assertion: dict[str, Any]) -> list[AssertionResult]:
    task = Task.model_validate({"id": "t", "intent": "do", "assertions": [assertion]})
    files = sandbox.snapshot()
    return list(grade(task, Outcome(files, {}, grader=SandboxGrader(sandbox))).results)


PLANTS = {
    "modules": "for name in sitecustomize usercustomize json re os conftest; do "
    "echo 'raise SystemExit(7)' > $name.py; done",
    "modules in tmp": "for name in sitecustomize json re; do echo 'raise SystemExit(7)' > /tmp/$name.py; done",
    "user site": "d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d; "
    "for name in sitecustomize usercustomize json; do echo 'raise SystemExit(7)' > $d/$name.py; done; "
    "echo 'import os; os._exit(7)' > $d/x.pth",
    "programs": "mkdir bin; printf '#!/bin/sh\\necho 1.0' > bin/python3; chmod +x bin/python3; "
    'cp bin/python3 bin/rm; cp bin/python3 bin/mkdir; export PATH="$PWD/bin:$PATH"; hash -p "$PWD/bin/python3" python3',
    "programs here": "printf '#!/bin/sh\\necho 1.0' > python3; chmod +x python3; export PATH=.:$PATH",
    "functions": "python3() { echo 1.0; }; printf() { :; }; rm() { :; }; mkdir() { :; }; "
    "export -f python3 printf rm mkdir; "
    "alias python3='echo 1.0'; shopt -s expand_aliases",
    "variables": "echo 'echo 1.0; exit 0' > env.sh; export BASH_ENV=$PWD/env.sh ENV=$PWD/env.sh PYTHONPATH=$PWD "
    "PYTHONSTARTUP=$PWD/env.sh PYTHONHOME=/nowhere "
    "LD_PRELOAD=$PWD/x.so GRADER=$PWD TMPDIR=$PWD HOME=$PWD BASH=/bin/echo",
    "start files": "for f in .bashrc .bash_profile .profile .bash_login .pythonrc; do "
    "echo 'echo 1.0; exit 0' > $f; done",
    "traps and options": "trap 'echo 1.0' EXIT DEBUG ERR; set -eu; set -o noexec; umask 777; cd /; exec 1>/dev/null",
    "a watcher": "(while :; do for f in /tmp/turngym-*/*; do echo 'print(1.0)' > $f; done; done) & disown",
    "guesses": "ln -s / /tmp/turngym-; mkdir -p /tmp/turngym-grader; mkfifo /tmp/turngym-x; chmod 500 .",
}


@pytest.mark.parametrize("command", PLANTS.values(), ids=PLANTS.keys())
@pytest.mark.parametrize("isolated", ["python3 -I", "python3"])
def test_nothing_planted_is_used(sandbox: Sandbox, command: str, isolated: str) -> None:
    sandbox.run(command)
    results = judge(sandbox, script(command=f'{isolated} "$GRADER/check.py"', files={"check.py": CHECK}))
    assert [(r.name, str(r.verdict), r.detail) for r in results] == [("s.real", "pass", ""), ("s.home", "pass", "")]


def test_what_was_left_running_is_ended_first(sandbox: Sandbox) -> None:
    watcher = (
        "(while :; do for f in /tmp/turngym-*/*; do echo 'print(1.0)' > $f; done; touch alive; done) 2>/dev/null &"
    )
    sandbox.run(watcher, keep_background=True)
    assert sandbox.run("until [ -e alive ]; do :; done; rm alive", keep_background=True).exit_code == 0
    results = judge(sandbox, script(files={"check.py": CHECK}))
    assert [r.name for r in results] == ["s.real", "s.home"]


def test_the_agent_never_meets_the_files(sandbox: Sandbox) -> None:
    look = "ls -AR /tmp . 2>/dev/null; env | grep -c GRADER"
    before = sandbox.run(look).stdout
    assert b"check" not in before
    judge(sandbox, script(files={"deep/check.py": "print(1)"}, command='python3 -I "$GRADER/deep/check.py"'))
    assert sandbox.run(look).stdout == before
    judge(sandbox, script(command="sleep 30", files={"check.py": ""}, timeout=0.3))
    judge(sandbox, script(command="exec 2>&-; kill -9 $PPID $$", files={"check.py": ""}))
    judge(sandbox, script(command="yes", files={"check.py": ""}, timeout=0.3))
    assert sandbox.run("ls -A /tmp | wc -l").stdout.strip() in (b"0", b"1")


def test_the_shell_of_the_agent_is_as_it_left_it(sandbox: Sandbox) -> None:
    sandbox.run("mkdir sub; cd sub; x=1; f() { echo f; }")
    judge(sandbox, script(command="cd /; unset x; echo 1"))
    assert sandbox.run("pwd; echo $x; f").stdout.split()[1:] == [b"1", b"f"]


def test_files_arrive_byte_for_byte(sandbox: Sandbox) -> None:
    text = 'it\'s \\n %s $HOME `x` "q" \t\u00e9\u4e2d\U0001f600\n\n' + "'" * 5000 + "\x01\r\n" + "x" * 300_000 + "end"
    command = 'python3 -I -c \'import sys, os; print(len(open(os.environ["GRADER"] + "/t", newline="").read()))\''
    grader = SandboxGrader(sandbox)
    assert int(grader.run(command, {"t": text}).stdout) == len(text)
    digest = grader.run('sha256sum < "$GRADER/t"; sha256sum < "$GRADER/a b/\'c"', {"t": text, "a b/'c": text}).stdout
    assert len(set(digest.split(b"\n")[:2])) == 1
    big = {f"{i}/f": "y" * 500_000 for i in range(5)}
    assert grader.run('cat "$GRADER"/*/f | wc -c', big).stdout.strip() == b"2500000"
    assert grader.run('wc -c < "$GRADER/empty"', {"empty": ""}).stdout.strip() == b"0"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("print(float('nan'))", "did not print JSON|score is nan"),
        ("print(1.5)", "not in"),
        ("print('true')", "neither an object"),
        ('print(\'{"a": {"b": 1}}\')', "no number"),
        ("print('1' * 10_000_000)", "more than the sandbox keeps|exit code|out of time"),
        ("pass", "printed nothing"),
        ("while True: pass", "out of time"),
        ("import nothing_like_it", "No module named 'nothing_like_it'"),
        ("print(1); raise SystemExit(3)", "exit code 3"),
        ("import os, signal; print(1, flush=True); os.kill(os.getpid(), signal.SIGKILL)", "exit code 137"),
    ],
)
def test_a_grader_that_fails_is_an_error(sandbox: Sandbox, program: str, why: str) -> None:
    endless = program.startswith("while")
    (result,) = judge(sandbox, script(files={"check.py": program}, timeout=2.0 if endless else 30.0))
    assert result.verdict == "error" and result.score is None
    assert re.search(why, result.detail), result.detail


def test_names_that_were_drawn_do_not_show(sandbox: Sandbox) -> None:
    first, second = (judge(sandbox, script()) for _ in range(2))
    assert first == second and "turngym-grader/check.py" in first[0].detail


@pytest.mark.bubblewrap
def test_an_agent_that_fills_the_disk_leaves_room_for_its_judge() -> None:
    if not probe(Backend.BUBBLEWRAP).ok:
        pytest.skip("bubblewrap does not work here")
    with open_sandbox(Backend.BUBBLEWRAP) as sandbox:
        sandbox.open({})
        sandbox.run("head -c 60M /dev/zero > big; head -c 60M /dev/zero > /tmp/big; cat /dev/zero > /tmp/rest")
        (result,) = judge(sandbox, script(files={"check.py": "#" * 100_000 + "\nprint(0.5)"}))
        assert (result.verdict, result.score) == ("fail", 0.5)


def test_a_lost_sandbox_is_the_machinerys_failure(backend_of: Backend) -> None:
    with open_sandbox(backend_of) as sandbox:
        sandbox.open({})
        grader = SandboxGrader(sandbox)
        sandbox.close()
        with pytest.raises(SandboxError):
            grader.run("true", {"check.py": ""})


@pytest.fixture
def backend_of(shared_sandbox: Sandbox) -> Backend:
    return shared_sandbox.backend


def test_tasks_with_graders_are_proven(sandbox: Sandbox) -> None:
    task = Task.model_validate(
        {
            "id": "sorted",
            "intent": "Write sort.py, which sorts lines, and sort names.txt into sorted.txt with it.",
            "workspace": {"files": {"names.txt": "b\na\n"}},
            "assertions": [
                {"kind": "command", "command": "printf '2\\n1\\n' | python3 sort.py", "stdout": "1\n2"},
                script(
                    files={
                        "check.py": "import json, pathlib\n"
                        "p = pathlib.Path('sorted.txt')\n"
                        "right = p.exists() and p.read_text() == 'a\\nb\\n'\n"
                        "print(json.dumps({'there': p.exists(), 'right': right}))\n"
                    }
                ),
                {"kind": "not", "of": {"kind": "command", "command": "grep -q os.system sort.py"}},
            ],
            "oracle": {
                "commands": [
                    "echo 'import sys; print(*sorted(sys.stdin.read().split()), sep=\"\\n\")' > sort.py",
                    "python3 sort.py < names.txt > sorted.txt",
                ],
                "alternatives": [["printf 'import os\\n' > sort.py; exit 1"]],
            },
        }
    )
    proof = prove(task, sandbox)
    assert (proof.oracle_rate, proof.status) == (1.0, Status.FAILED)
    assert proof.noop_rate is not None and proof.noop_rate < 1
    assert any("after the oracle alternative 1: s.there: fail" in problem for problem in proof.problems)
    assert task.oracle is not None
    good = task.model_copy(update={"oracle": task.oracle.model_copy(update={"alternatives": ()})})
    assert prove(good, sandbox).status is Status.PROVEN


@pytest.mark.bubblewrap
@pytest.mark.parametrize("mode", ["000", "500"])
def test_closing_the_folder_for_temporary_files_is_no_way_out(mode: str) -> None:
    if not probe(Backend.BUBBLEWRAP).ok:
        pytest.skip("bubblewrap does not work here")
    with open_sandbox(Backend.BUBBLEWRAP) as sandbox:
        sandbox.open({})
        sandbox.run(f"chmod {mode} /tmp")
        (result,) = judge(sandbox, script(command='cat "$GRADER/n"', files={"n": "0.5"}))
        assert (result.verdict, result.score) == ("fail", 0.5)
