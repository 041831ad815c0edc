"""The core without the extra `train`: its commands really run where none of the extra's packages can be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import SandboxUnavailable, guard, open_sandbox
from tests.agents.policies.fake_endpoint import endpoint, said
from tests.shared_data import REPOSITORY
from tests.trainers.fake_run import make_run

BLOCK = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {guard.TRAIN!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
INSTALL = 'pip install "turngym[train]"'
TASKS = "library:archive-old-logs,library:broken-csv"
MODULES = sorted(
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
    for package in ("sandboxes", "tasks", "envs")
    for path in (REPOSITORY / package).rglob("*.py")
    if path.name != "__main__.py" and "samples" not in path.parts and "templates" not in path.parts
)


SERVER = """
import json, os, runpy, sys
import agents.__main__, sandboxes.__main__, tasks.__main__, trainers.evaluate, trainers.report

def run(streams, cwd, env, module, args):
    for number, flags in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        os.dup2(os.open(streams[number], flags), number)
    os.chdir(cwd)
    os.environ.update(env)
    sys.argv = ["-m", *args]
    runpy.run_module(module, run_name="__main__", alter_sys=True)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(*json.loads(line))
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Imports once what takes seconds; each command is a copy of it that runs a module as `python -m` does."""


class Core:
    """A Python without the extra, and with it every one that it starts: Python imports `sitecustomize`."""

    def __init__(self, folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(BLOCK)
        self.env = {**os.environ, "PYTHONPATH": f"{folder}:{REPOSITORY}", "NO_PROXY": "127.0.0.1", "COLUMNS": "120"}
        self.streams = [Path(os.devnull), folder / "stdout", folder / "stderr"]
        self.server = subprocess.Popen(
            [sys.executable, "-W", "ignore:::runpy", "-c", SERVER],
            env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, cwd: Path, module: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`python -m MODULE ARGS`."""
        for stream in self.streams[1:]:
            stream.write_text("")
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps([[*map(str, self.streams)], str(cwd), env, module, args]) + "\n")
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        return subprocess.CompletedProcess([module, *args], code, *(s.read_text() for s in self.streams[1:]))

    def works(self, cwd: Path, module: str, *args: str, **env: str) -> str:
        """The same, which must end well; returns its output."""
        done = self.run(cwd, module, *args, **env)
        assert done.returncode == 0, done
        return done.stdout

    def runs(self, program: str) -> str:
        """The output of a program of a process of its own."""
        done = subprocess.run(
            [sys.executable, "-c", program], env=self.env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done
        return done.stdout


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    made = Core(tmp_path_factory.mktemp("core"))
    with made.server:
        yield made


@pytest.fixture(scope="module")
def played(core: Core, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations of the two scripted policies, made without the extra."""
    try:
        open_sandbox("auto").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox works here: {error}")
    folder = tmp_path_factory.mktemp("played")
    for model in ("oracle", "noop"):
        core.works(folder, "trainers.evaluate", "--model", model, "--tasks", TASKS, "--output_dir", model)
    return folder


def test_the_extra_is_out_of_reach(core: Core) -> None:
    imports = (f"try: import {package}\nexcept ImportError: print('{package}')" for package in guard.TRAIN)
    assert core.runs("\n".join(imports)).split() == list(guard.TRAIN)


def test_everything_below_the_agents_can_be_imported(core: Core) -> None:
    core.runs(f"import importlib\nfor name in {MODULES!r}: importlib.import_module(name)")


def test_scripted_policies_are_measured(played: Path) -> None:
    for model, passed in (("oracle", 2), ("noop", 0)):
        arm = json.loads((played / model / "evaluation.json").read_text())["arms"]["sampled"]
        assert (arm["passed"], arm["graded"]) == (passed, 2)
        environment = json.loads((played / model / "environment.json").read_text())
        assert environment["torch_threads"] is None and environment["gpus"] is None


def test_an_endpoint_is_measured(core: Core, played: Path, tmp_path: Path) -> None:
    with endpoint(lambda body: said("TASK_COMPLETE")) as server:
        core.works(
            tmp_path, "trainers.evaluate", "--model", f"openai:tiny@{server.url}", "--tasks", TASKS,
            "--output_dir", "out", OPENAI_API_KEY="none",
        )  # fmt: skip
    arm = json.loads((tmp_path / "out/evaluation.json").read_text())["arms"]["sampled"]
    assert (arm["passed"], arm["graded"]) == (0, 2)


def test_evaluations_are_compared(core: Core, played: Path) -> None:
    said = core.works(played, "trainers.evaluate", "--compare", "noop", "oracle")
    assert "+100.0 points [" in said


def test_stored_episodes_are_shown_replayed_and_converted(core: Core, played: Path, tmp_path: Path) -> None:
    episodes = str(played / "oracle/episodes_sampled.jsonl")
    assert "archive-old-logs" in core.works(tmp_path, "agents", "show", episodes)
    for command in ("replay", "rescore"):
        assert "broken-csv" in core.works(tmp_path, "agents", command, episodes)
    core.works(tmp_path, "agents", "convert", episodes, "notes.jsonl", "--to", "fieldnotes")


def test_replay_of_a_models_episodes_names_what_is_missing(core: Core, played: Path, tmp_path: Path) -> None:
    """Their ids are of a tokenizer that only the extra can load; grades alone need none."""
    lines = (played / "oracle/episodes_sampled.jsonl").read_text().splitlines()
    changed = [json.dumps(json.loads(line) | {"tokenizer": "0" * 16}) for line in lines]
    (tmp_path / "model.jsonl").write_text("\n".join(changed) + "\n")
    done = core.run(tmp_path, "agents", "replay", "model.jsonl")
    assert done.returncode == 2 and not done.stderr, done
    said = " ".join(done.stdout.split())
    assert INSTALL in said and "`rescore` compares grades alone" in said
    core.works(tmp_path, "agents", "rescore", "model.jsonl")


def test_a_run_is_reported(core: Core, tmp_path: Path) -> None:
    make_run(tmp_path / "run", steps=4, n_held_out=6)
    core.works(tmp_path, "trainers.report", "run")
    assert (tmp_path / "run/report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    "command",
    [
        ["sandboxes", "doctor", "--json"],
        ["tasks", "list"],
        ["tasks", "check", "library:archive-old-logs"],
        ["tasks", "list", "gsm8k:sample"],
        ["trainers.grpo", "--help"],
    ],
    ids=" ".join,
)
def test_commands_run(core: Core, played: Path, tmp_path: Path, command: list[str]) -> None:
    assert core.works(tmp_path, *command)


@pytest.mark.parametrize(
    "command",
    [
        ["trainers.grpo", "--dry-run"],
        ["trainers.sft", "--dry-run"],
        ["trainers.evaluate", "--tasks", TASKS],
        ["trainers.evaluate", "--model", "owner/name", "--tasks", TASKS],
        ["trainers.evaluate", "--model", "oracle", "--env", "GSM8K-v0", "--tasks", "gsm8k:hub"],
        ["trainers.evaluate", "--model", "oracle", "--env", "GSM8K-v0", "--tasks", "gsm8k:rows.parquet"],
        ["agents", "replay", "{played}/oracle/episodes_sampled.jsonl", "--model", "quickstart"],
    ],
    ids=" ".join,
)
def test_what_needs_the_extra_says_so_in_one_line(core: Core, played: Path, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    done = core.run(tmp_path, *(part.format(played=played) for part in command))
    assert done.returncode == 2, done
    (line,) = done.stderr.strip().splitlines()
    assert INSTALL in line and "which is not installed" in line
    assert not (tmp_path / "runs").exists()


def test_a_package_that_no_extra_brings_is_not_promised() -> None:
    assert guard.missing_extra(ModuleNotFoundError("No module named 'wandb'", name="wandb")) is None
    assert guard.missing_extra(ImportError("cannot import name 'x' from 'torch'", name="torch")) is None
