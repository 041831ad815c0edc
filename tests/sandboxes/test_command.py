"""How every command refuses, and that Ctrl-C while one starts is one line."""

from __future__ import annotations

import importlib
import io
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from sandboxes.guard import Parser
from tests.shared_data import REPOSITORY

REFUSED = {
    "trainers.grpo": ["--tasks", "no/such"],
    "trainers.sft": ["--config", "no/such"],
    "trainers.evaluate": ["--model", "noop", "--tasks", "no/such"],
    "trainers.report": ["no/such"],
    "trainers.campaign": ["status", "no/such"],
    "tasks": ["list", "no/such"],
    "envs": ["play", "--tasks", "no/such"],
    "agents": ["show", "no/such"],
    "sandboxes": ["conformance", "--only", "no_such"],
}


def call(module: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *args]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL
    )


def call_here(module: str, *args: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has imported what takes seconds."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = importlib.import_module(module).main([*args])
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess([module, *args], code, out.getvalue(), err.getvalue())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", REFUSED)
def test_every_command_refuses_in_one_form(module: str) -> None:
    for args in (REFUSED[module], ["--no-such-flag"]):
        done = (call_here if module.startswith("trainers.") else call)(module, *args)
        said = [line for line in done.stderr.splitlines() if not line.startswith(("usage:", " "))]
        assert done.returncode == 2 and said[0].startswith(f"{module}: ") and "error:" not in said[0], done.stderr
        assert "Traceback" not in done.stderr


def test_trainers_without_a_command_lists_the_commands() -> None:
    done = call("trainers")
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 2 and said[0].startswith("trainers: needs a command")
    listed = [line.split()[2] for line in said[1:]]
    assert listed == [f"trainers.{name}" for name in ("grpo", "sft", "evaluate", "report", "campaign")]


def test_subcommands_refuse_under_the_name_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="python -m tasks")
    parser.add_subparsers(required=True).add_parser("list").add_argument("--n", type=int)
    with pytest.raises(SystemExit) as end:
        parser.parse_args(["list", "--n", "x"])
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("tasks: argument --n: invalid int value: 'x'")


@pytest.mark.parametrize(("module", "slow"), [("trainers.grpo", "transformers"), ("trainers.evaluate", "yaml")])
def test_an_interrupt_while_a_command_imports_is_one_line(module: str, slow: str, tmp_path: Path) -> None:
    fake = "import time\nprint('importing', flush=True)\ntry:\n    time.sleep(100)\nexcept BaseException:\n    pass\n"
    (tmp_path / f"{slow}.py").write_text(fake)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    command = [sys.executable, "-m", module]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and said == "interrupted while it was starting\n"
