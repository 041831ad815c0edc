"""The emulator against real bash and real tools, command by command."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from benchmarks.warm_start.emulator import _PROGRAMS, State, UnsupportedCommandError, run, snapshot
from benchmarks.warm_start.episodes import act, demonstrations
from benchmarks.warm_start.habits import Recipe

ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


def _lay(folder: Path, files: State) -> None:
    for path, text in files.items():
        if text is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)


def _read(folder: Path) -> State:
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_text() for path in sorted(folder.rglob("*"))
    }


def _real(folder: Path, command: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout, done.stderr


def _compare(folder: Path, files: State, commands: list[str]) -> State:
    _lay(folder, files)
    for command in commands:
        files, exit_code, stdout, stderr = run(files, command)
        assert (exit_code, stdout, stderr) == _real(folder, command), command
        assert dict(sorted(files.items())) == _read(folder), command
    return files


def _commands(turns: tuple[tuple[str, str], ...]) -> list[str]:
    return [reply.split("\n")[1] for reply, _ in turns if reply.startswith("```")]


def test_demonstrated_commands_do_what_bash_does(tmp_path: Path) -> None:
    """Every command of enough demonstrations, wrong ones included; none may differ."""
    compared: Counter[str] = Counter()
    heavy = Recipe(habit=0.5, misname=0.3, retry=0.5, extra=0.5, endless=0.3, repeat=0.4)
    shown = [*demonstrations(200, seed=0), *demonstrations(200, seed=1, recipe=heavy)]
    for number, demonstration in enumerate(shown):
        folder = tmp_path / str(number)
        folder.mkdir()
        commands = _commands(demonstration.turns)
        assert _compare(folder, demonstration.parts.files, commands) == demonstration.files
        compared.update(command.split()[0] for command in commands)
    assert compared.total() >= 1000
    assert set(compared) == set(_PROGRAMS)


ERRORS = [
    "cat gone.txt",
    "cat a.txt gone.txt b.txt",
    "cat d",
    "cp gone.txt x.txt",
    "mv gone.txt x.txt",
    "rm gone.txt",
    "rm a.txt gone.txt",
    "rm d",
    "sed s/a/b/ gone.txt",
    "sed -i s/a/b/ gone.txt",
    "sed -i /a/d gone.txt",
    "grep red gone.txt",
    "grep zebra a.txt",
    "sort gone.txt",
    "sort -r gone.txt > x.txt",
    "head gone.txt",
    "head -n 2 gone.txt > x.txt",
    "tail -n 2 gone.txt",
    "wc -l gone.txt",
    "wc -l < gone.txt > x.txt",
    "wc -l < gone.txt",
    "tr a-z A-Z < gone.txt > x.txt",
]
RIGHT = [
    "ls",
    "echo",
    "echo red fox >> a.txt",
    "echo red fox >> new.txt",
    "echo red > a.txt",
    "cp a.txt b.txt",
    "cp a.txt d",
    "mv a.txt d",
    "mv a.txt b.txt",
    "mkdir -p d",
    "mkdir -p e",
    "sed s/red/blue/ a.txt",
    "sed -i s/red/blue/ a.txt",
    "sed -i /red/d a.txt",
    "sed /red/d a.txt > x.txt",
    "grep red a.txt > x.txt",
    "sort a.txt",
    "sort -u a.txt > b.txt",
    "sort -r a.txt",
    "head a.txt",
    "head -n 1 a.txt",
    "tail -n 1 a.txt >> b.txt",
    "tail a.txt",
    "wc -l a.txt",
    "wc -l < empty.txt",
    "tr a-z A-Z < a.txt",
    "cat a.txt b.txt > x.txt",
    "cat empty.txt",
]


@pytest.mark.parametrize("command", ERRORS + RIGHT)
def test_single_commands(command: str, tmp_path: Path) -> None:
    files: State = {"a.txt": "red fox red\nplum\nred fox red\n", "b.txt": "oslo\n", "d": None, "empty.txt": ""}
    exit_code = run(files, command).exit_code
    assert bool(exit_code) == (command in ERRORS)
    _compare(tmp_path, files, [command])


@pytest.mark.parametrize(
    "command",
    [
        "",
        "python x",
        "cat a.txt | wc",
        "cat *",
        'echo "red"',
        "echo $HOME",
        "echo a; ls",
        "ls -l",
        "rm -rf d",
        "cp -r d e",
        "cp a.txt a.txt",
        "mv d e",
        "sort a.txt > a.txt",
        "cat a.txt >b.txt",
        "cat a.txt > d",
        "cat a.txt >",
        "echo red > x.txt > y.txt",
        "grep -v red a.txt",
        "sed -n p a.txt",
        "sed s/red/blue/g a.txt",
        "tr a b < a.txt",
        "tr a-z A-Z",
        "wc a.txt",
        "head -n 0 a.txt",
        "cat ../a.txt",
        "mkdir d",
        "mkdir -p a.txt",
        "echo -n red",
        "cat",
    ],
)
def test_what_it_does_not_know_it_refuses(command: str) -> None:
    with pytest.raises(UnsupportedCommandError):
        run({"a.txt": "red\n", "d": None}, command)


def test_the_workspace_given_is_left_alone() -> None:
    files = {"a.txt": "red\n"}
    after = run(files, "rm a.txt").files
    assert files == {"a.txt": "red\n"} and after == {}


def test_every_family_acts_without_leaving_the_emulated_part() -> None:
    wild = Recipe(misname=0.9, retry=0.9, extra=1.0, endless=0.5, repeat=0.5)
    shown = list(demonstrations(4000, seed=5, recipe=wild))
    assert len(shown) == 4000
    again = act(Random(0), shown[0].family, shown[0].parts, wild)
    assert again == act(Random(0), shown[0].family, shown[0].parts, wild)


def test_a_snapshot_is_what_a_sandbox_would_show() -> None:
    found = snapshot({"b.txt": "red\n", "a": None})
    assert list(found) == ["a", "b.txt"]
    assert found["a"].kind == "dir" and found["a"].content is None and found["a"].mode == 0o755
    assert found["b.txt"].content == b"red\n" and found["b.txt"].size == 4 and found["b.txt"].mode == 0o644
