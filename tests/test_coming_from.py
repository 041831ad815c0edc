"""docs/coming_from.md: our ten lines do what they say, and theirs are Python with names that their projects have."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.sync.client import connect

from agents.__main__ import main as agents_command
from sandboxes import probe
from tasks.__main__ import run as tasks_command
from tests.agents.exports.test_convert import python_with
from tests.agents.speakers import trl_template
from tests.agents.toys import model, tokenizer
from tests.shared_data import REPOSITORY
from trainers import evaluate, grpo

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = (REPOSITORY / "docs" / "coming_from.md").read_text(encoding="utf-8")
NAMES = ["Gymnasium", "TRL", "verifiers", "Harbor", "OpenEnv", "SkyRL", "Inspect"]
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^(`{3,})(\w+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "tasks": tasks_command,
    "agents": agents_command,
    "trainers.evaluate": evaluate.main,
    "trainers.grpo": grpo.main,
}
needs_a_sandbox = pytest.mark.skipif(
    not (probe("bubblewrap").ok or probe("landlock").ok), reason="no safe sandbox works here"
)


def block(name: str, side: str) -> tuple[str, str]:
    """The language and the text of a section's only block after `There` or `Here`."""
    there, here = re.split(r"^Here\b", SECTIONS[name], flags=re.MULTILINE)
    ((_, language, text),) = BLOCK.findall(there if side == "There" else here)
    return language, text


def commands(text: str) -> list[list[str]]:
    """The arguments of each line `python -m ...`, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    found = [words for line in lines if (words := shlex.split(line, comments=True))]
    assert found and all(words[:2] == ["python", "-m"] for words in found)
    return [words[2:] for words in found]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a reader of the page works: it holds the page's task."""
    (text,) = (text for _, language, text in BLOCK.findall(PAGE) if language == "yaml")
    (tmp_path / "my_tasks").mkdir()
    (tmp_path / "my_tasks" / "hello.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_ours(name: str) -> None:
    for module, *arguments in commands(block(name, "Here")[1]):
        assert COMMANDS[module](arguments) == 0, arguments


def passes(file: Path) -> list[bool]:
    return [json.loads(line)["passed"] for line in file.read_text().splitlines()]


def test_every_project_has_a_section_and_it_is_short() -> None:
    assert list(SECTIONS) == NAMES
    for name, text in SECTIONS.items():
        assert f"(#{name.lower()})" in PAGE
        for side in ("There", "Here"):
            lines = [line for line in block(name, side)[1].splitlines() if line.strip()]
            assert len(lines) <= 22, f"{name}: {side}"
        assert len(re.findall(r"^\| ", text, re.MULTILINE)) >= 6, name


@pytest.mark.parametrize("name", [name for name in NAMES if name != "Harbor"])
def test_theirs_is_python(name: str) -> None:
    language, text = block(name, "There")
    assert language == "python"
    tree = ast.parse(text)
    assert any(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body)


# -- Ours -------------------------------------------------------------------------------------------------------------


@needs_a_sandbox
def test_gymnasium(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("Gymnasium", "There")[1], "there", "exec"), {})
    assert float(capsys.readouterr().out) in (0.0, 1.0)
    exec(compile(block("Gymnasium", "Here")[1], "here", "exec"), {})
    reward, *rest = capsys.readouterr().out.split()
    assert rest == ["True", "['pass']"] and 0.9 < float(reward) <= 1


def test_skyrl(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("SkyRL", "Here")[1], "here", "exec"), {})
    assert capsys.readouterr().out == "1.0 pass\n"


@needs_a_sandbox
def test_trl(folder: Path) -> None:
    run_ours("TRL")
    assert (folder / "runs/hello/checkpoint-1").is_dir()
    assert len(passes(folder / "runs/measured/episodes_greedy.jsonl")) == 1


@needs_a_sandbox
def test_verifiers(folder: Path) -> None:
    run_ours("verifiers")
    assert passes(folder / "runs/four/episodes_sampled.jsonl") == [True] * 4


@needs_a_sandbox
def test_inspect(folder: Path) -> None:
    run_ours("Inspect")
    (log,) = (folder / "logs").iterdir()
    (sample,) = json.loads(log.read_text())["samples"]
    assert sample["scores"]["passed"]["value"] == "C"  # correct


def lay_theirs(folder: Path) -> Path:
    """Harbor's folder, as the page's lines make it."""
    language, text = block("Harbor", "There")
    *makes, runs = text.rstrip().splitlines()
    assert language == "sh" and runs == "harbor run --path hello --agent oracle"
    subprocess.run(["bash", "-ec", "\n".join(makes)], cwd=folder, check=True)
    return folder / "hello"


@needs_a_sandbox
def test_harbor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_theirs(folder)
    run_ours("Harbor")
    assert passes(folder / "runs/folder/episodes_sampled.jsonl") == [True]
    assert [path.name for path in (folder / "imported").iterdir()] == ["hello.yaml"]
    (wrong,) = re.findall(r"Had `test.sh` asked `(.*?)`, `tasks check` would refuse it", SECTIONS["Harbor"])
    verifier = folder / "hello/tests/test.sh"
    strict = verifier.read_text()
    verifier.write_text(strict.replace('[ "$(cat /app/hello.txt)" = hello ]', wrong))
    assert verifier.read_text() != strict and tasks_command(["check", "harbor:hello"]) == 1
    assert "passes although wrong: hello.txt: junk appended" in capsys.readouterr().out


@needs_a_sandbox
def test_openenv(folder: Path) -> None:
    ((module, *arguments),) = commands(block("OpenEnv", "Here")[1])
    arguments[arguments.index("--port") + 1] = "0"  # two tests may run at a time
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("TURNGYM_SERVE_TOKEN", None)
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline().split("127.0.0.1:")[1].split()[0])
            with connect(f"ws://127.0.0.1:{port}/ws") as client:

                def told(type: str, **data: object) -> dict[str, object]:
                    client.send(json.dumps({"type": type, "data": data}))
                    found: dict[str, object] = json.loads(client.recv(timeout=30))["data"]
                    return found

                assert told("reset", seed=0)["done"] is False
                end = told("step", message="```bash\necho hello > hello.txt\n```\nTASK_COMPLETE")
        finally:
            server.send_signal(signal.SIGTERM)
    assert end["done"] is True and isinstance(end["observation"], dict)
    assert end["observation"]["passed"] is True and end["observation"]["stop_reason"] == "submitted"


# -- Theirs, where the project is at hand -----------------------------------------------------------------------------


def test_trl_takes_theirs(folder: Path) -> None:
    """The trainer is made with a small model, and not run."""
    text = block("TRL", "There")[1]
    for name, here in (
        ('"Qwen/Qwen3-0.6B"', "MODEL, processing_class=TOKENS"),
        ("max_steps=1", 'max_steps=1, use_cpu=True, bf16=False, report_to="none"'),
        ("trainer.train()\n", ""),
    ):
        assert name in text
        text = text.replace(name, here)
    names = {"MODEL": model(), "TOKENS": copy.deepcopy(tokenizer(trl_template("qwen3")))}
    exec(compile(text, "there", "exec"), names)
    assert names["trainer"].reward_func_names == ["Hello"]
    played = names["Hello"]()
    played.reset()
    assert played.get_reward() == 0.0
    assert played.write("hello.txt", "hello\n") == "written" and played.get_reward() == 1.0


HARBOR = """
import sys
from pathlib import Path
from harbor.models.task.task import Task
task = Task(Path(sys.argv[1]))
assert Task.is_valid_dir(task.task_dir) and task.paths.discovered_solve_path
assert task.instruction.strip() == "Write the word hello into hello.txt."
"""
MAKES = {
    "OpenEnv": "assert app.title and Hello().step(Say(text='hello')).reward == 1.0",
    "Inspect": "made = hello(); assert len(made.dataset) == 1 and made.sandbox.type == 'docker'",
}


@pytest.mark.parametrize("name", MAKES)
def test_their_project_takes_theirs(name: str, tmp_path: Path) -> None:
    python = python_with(name.lower())
    script = f"{block(name, 'There')[1]}\n{MAKES[name]}"
    done = subprocess.run([python, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_harbor_takes_theirs(tmp_path: Path) -> None:
    command = [python_with("harbor"), "-c", HARBOR, str(lay_theirs(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
