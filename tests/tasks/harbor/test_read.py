"""Harbor task folders as tasks: read, refused with the reason, played, and judged as they say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import docker
import pytest

from sandboxes import Backend, open_sandbox
from sandboxes.client import SupervisedSandbox
from sandboxes.docker.dockerfile import build
from sandboxes.sandbox import EntryKind
from tasks.__main__ import run
from tasks.assertions.base import Verdict
from tasks.assertions.grade import Grade
from tasks.harbor.read import load, read_folder
from tasks.images import image_of
from tasks.judges import JudgeUse
from tasks.model import TaskError
from tasks.place import CannotBegin
from tasks.proof import play
from tasks.sources import load_tasks
from tasks.task import Task
from tests.sandboxes.conftest import ENGINE_VARIABLE, engine_for, require
from tests.tasks.harbor.given import FORGERY, GIVEN, HELLO, TOML, write_all, write_task

Parts = Mapping[str, str | bytes]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("harbor"))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SupervisedSandbox]:
    require(Backend.BUBBLEWRAP)
    with open_sandbox(Backend.BUBBLEWRAP) as made:
        yield made


def read(folder: Path, files: Parts) -> Task:
    return read_folder(write_task(folder / "task", files))


def refusal(folder: Path, files: Parts) -> str:
    with pytest.raises(TaskError) as caught:
        read(folder, files)
    return str(caught.value).replace(str(folder), "")


# -- What a folder says ------------------------------------------------------------------------------------------------


def test_what_a_folder_says_is_in_the_task(tmp_path: Path) -> None:
    toml = TOML + '[environment]\nmemory_mb = 2048\n[environment.env]\nMODE = "fast"\n'
    task = read(tmp_path, {"task.toml": toml, **{k: v for k, v in GIVEN["steps"].items() if k != "task.toml"}})
    assert (task.id, task.intent, task.difficulty) == ("task", "Write hello into hello.txt.", "easy")
    assert task.tags == ("harbor", "files") and task.workdir == "/app" and image_of(task) is None
    assert task.environment == {"MODE": "fast"} and task.limits.memory_mb == 2048
    assert (task.budget.command_seconds, task.budget.episode_seconds) == (60.0, 60.0)
    files = {path: (entry.kind, entry.content, entry.mode) for path, entry in task.files().items()}
    assert files == {
        "bin": (EntryKind.DIR, None, 0o755),
        "bin/run.sh": (EntryKind.FILE, b"#!/bin/sh\nsort data/list.txt\n", 0o755),
        "data": (EntryKind.DIR, None, 0o755),
        "data/list.txt": (EntryKind.FILE, b"b\na\n", 0o644),
    }


@pytest.mark.parametrize(
    ("name", "use"), [("plain", JudgeUse.NEITHER), ("forged", JudgeUse.STARTS), ("steps", JudgeUse.NEITHER)]
)
def test_judges_that_run_the_agents_code_are_known(given: Path, name: str, use: JudgeUse) -> None:
    assert read_folder(given / name).judge_use is use


def test_canaries_are_left_out(tmp_path: Path) -> None:
    text = "<!-- harbor-canary GUID 1 -->\n# canary 2\n\n# Write it\nNow.\n"
    assert read(tmp_path, {"instruction.md": text, "tests/test.sh": HELLO}).intent == "# Write it\nNow."


DOCKERFILES = {
    "own base": ("FROM node:22\nWORKDIR /app\n", True),
    "own package": ("FROM debian\nRUN apt-get update && apt-get install -y nginx\nWORKDIR /app\n", True),
    "own user": ("FROM debian\nRUN useradd me\nUSER me\nWORKDIR /app\n", True),
    "our packages": (
        "FROM debian:bookworm-slim\nRUN apt-get install -y --no-install-recommends jq bc\nWORKDIR /app\n",
        False,
    ),
    "nothing": ("FROM python:3.12-slim\nENV A=1\nWORKDIR /app\nCMD bash\n", False),
    "own path": ("FROM debian\nENV PATH=/opt/x/bin:$PATH\nWORKDIR /app\n", True),
    "own modules": ("FROM debian\nENV PYTHONPATH=/opt/x\nWORKDIR /app\n", True),
    "an extended variable": ("FROM debian\nENV B=/opt\nENV C=$B/x\nWORKDIR /app\n", True),
    "one that only an engine reads": ("FROM debian\nENV A it's\nWORKDIR /app\n", True),
    "what a sandbox sets": ("FROM python\nENV HOME=/root PYTHONDONTWRITEBYTECODE=1 a.b=1\nWORKDIR /app\n", False),
}


@pytest.mark.parametrize("case", DOCKERFILES)
def test_only_what_our_sandboxes_lack_needs_an_image(tmp_path: Path, case: str) -> None:
    text, own = DOCKERFILES[case]
    task = read(tmp_path, {"environment/Dockerfile": text, "tests/test.sh": HELLO})
    assert (image_of(task) is not None) is own
    if task.dockerfile is not None:
        assert "CMD" not in task.dockerfile.text and task.dockerfile.text.startswith("FROM ")


def test_the_image_gives_what_extends_its_variables_and_the_task_the_rest(tmp_path: Path) -> None:
    text = "FROM a AS one\nENV OLD=1\nFROM b\nENV A=1 B=/opt HOME=/x\nENV A=$B/a\nENV LANG C.UTF-8\nWORKDIR /app\n"
    task = read(tmp_path, {"environment/Dockerfile": text, "tests/test.sh": HELLO})
    assert task.environment == {"B": "/opt", "LANG": "C.UTF-8"}
    assert task.dockerfile is not None and "ENV A=$B/a\n" in task.dockerfile.text


# -- What is refused, with the place and the remedy --------------------------------------------------------------------


def config(more: str) -> Parts:
    return {"task.toml": TOML + more, "tests/test.sh": HELLO}


def dockerfile(text: str) -> Parts:
    return {
        "environment/Dockerfile": f"FROM debian\nWORKDIR /app\n{text}\n",
        "environment/a.txt": "a",
        "tests/test.sh": HELLO,
    }


REFUSED: dict[str, tuple[Parts, str]] = {
    "no toml": ({"task.toml": "a = = 1", "tests/test.sh": HELLO}, "task.toml: is no TOML"),
    "type": ({"task.toml": "[agent]\ntimeout_sec = 'x'\n", "tests/test.sh": HELLO}, "toml:2: agent.timeout_sec: must"),
    "steps": (config("[[steps]]\nname = 'one'\n"), "task.toml:9: steps: several steps"),
    "windows": (config("[environment]\nos = 'windows'\n"), "task.toml:10: environment.os: windows is not supported"),
    "gpus": (config("[environment]\ngpus = 1\n"), "environment.gpus: sandboxes have no accelerator"),
    "health": (config("[environment.healthcheck]\ncommand = 'true'\n"), "environment.healthcheck: a command before"),
    "mcp": (config("[[environment.mcp_servers]]\nname = 'x'\n"), "environment.mcp_servers: sandboxes have no network"),
    "collect": (config("[[verifier.collect]]\ncommand = 'x'\n"), "verifier.collect: commands in other"),
    "long": ({**config(""), "task.toml": TOML.replace("20", "7200")}, "verifier.timeout_sec: more than 3600 s"),
    "host value": (config("[environment.env]\nKEY = '${KEY}'\n"), "task.toml:10: environment.env.KEY: takes its value"),
    "owned": (config("[environment.env]\nHOME = '/x'\n"), "environment.HOME: 'HOME' belongs to the sandbox"),
    "artifact": (
        {"task.toml": "artifacts = ['/var/log/x']\n[environment]\nworkdir = '/app'\n", "tests/test.sh": HELLO},
        "artifacts[0]: '/var/log/x' lies outside of the workdir",
    ),
    "compose": ({"environment/docker-compose.yaml": "", "tests/test.sh": HELLO}, "several containers"),
    "own verifier": (
        {**config("[verifier.environment]\ncpus = 1\n"), "tests/Dockerfile": "FROM debian"},
        "verifier.environment: a verifier with an image of its own",
    ),
    "no test": ({}, "tests/test.sh: is missing: it is what judges the task"),
    "no words": ({"instruction.md": "\n", "tests/test.sh": HELLO}, "intent"),
    "python test": ({"tests/test.sh": "#!/usr/bin/env python3\n"}, "test.sh:1: is run by `#!/usr/bin/env p"),
    "latin": ({"instruction.md": b"\xff\xfe", "tests/test.sh": HELLO}, "instruction.md: is not UTF-8 text"),
    "add": (dockerfile("ADD https://x.y/z.tar /app/"), "Dockerfile:3: `ADD https://x.y/z.tar /app/` unpacks"),
    "outside": (dockerfile("COPY a.txt /etc/a.txt"), "Dockerfile:3: `COPY ... /etc/a.txt` brings files to where"),
    "absent": (dockerfile("COPY b.txt ."), "Dockerfile:3: COPY names 'b.txt', which is not beside"),
    "leaves": (dockerfile("COPY ../../secret ."), "COPY names '../../secret', which is not beside"),
    "stage": (dockerfile("COPY --from=x /a /app/a"), "brings what is not in the task's folder"),
    "run after": (dockerfile("COPY a.txt .\nRUN make"), "Dockerfile:4: RUN comes after a COPY"),
    "run in": (dockerfile("RUN git init"), "Dockerfile:3: RUN runs in the workdir"),
    "run names": (dockerfile("WORKDIR /\nRUN touch /app/x\nWORKDIR /app"), "RUN names the workdir /app"),
    "base variable": ({"environment/Dockerfile": "ARG A=1\nFROM x:$A\n", "tests/test.sh": HELLO}, "without variables"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_refused_with_the_reason(tmp_path: Path, case: str) -> None:
    files, said = REFUSED[case]
    assert said in refusal(tmp_path, files)


def test_links_and_fifos_are_neither_followed_nor_opened(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "task", {"tests/test.sh": HELLO})
    os.mkfifo(folder / "tests" / "pipe.sh")
    with pytest.raises(TaskError, match="pipe.sh: is neither a file, a folder nor a link"):
        read_folder(folder)
    (folder / "tests" / "pipe.sh").unlink()
    (folder / "tests" / "out.txt").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="out.txt: is a link"):
        read_folder(folder)
    (folder / "tests" / "out.txt").unlink()
    (folder / "instruction.md").unlink()
    (folder / "instruction.md").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="instruction.md: is no plain file"):
        read_folder(folder)


# -- A folder of folders -----------------------------------------------------------------------------------------------


def test_all_are_named_or_those_that_can_be_run_are_taken(given: Path, tmp_path: Path) -> None:
    assert {task.id for task in load_tasks(f"harbor:{given}")} == set(GIVEN)
    write_task(given / "unfit", config("[environment]\ngpus = 1\n"))
    try:
        with pytest.raises(TaskError, match="sandboxes have no accelerator"):
            load_tasks(f"harbor:{given}")
        assert {task.id for task in load(f"{given}?unfit=skip")} == set(GIVEN)
        assert run(["import", f"harbor:{given}", str(tmp_path / "other")]) == 2
        assert not (tmp_path / "other").exists()
    finally:
        shutil.rmtree(given / "unfit")
    assert [task.id for task in load(f"{given}?ids=parts,plain")] == ["parts", "plain"]
    assert [task.id for task in load_tasks(given / "plain")] == ["plain"]  # known by its shape
    for spec, said in {
        f"{given}?ids=nope": "has no nope",
        f"{given}?idz=a": "did you mean 'ids'?",
        f"{given}?unfit=maybe": "unfit must be one of",
        f"{tmp_path}": "holds no Harbor tasks",
        "": "name a folder",
    }.items():
        with pytest.raises(TaskError, match=said.replace("?", r"\?")):
            load(spec)


def test_import_writes_task_files_that_are_the_same(given: Path, tmp_path: Path) -> None:
    assert run(["import", f"harbor:{given}?unfit=skip", str(tmp_path / "mine")]) == 0
    wanted = {task.id: task.content_hash for task in load(f"{given}?unfit=skip")}
    assert {task.id: task.content_hash for task in load_tasks(tmp_path / "mine")} == wanted


# -- Played and judged -------------------------------------------------------------------------------------------------


def played(task: Task, sandbox: SupervisedSandbox, *commands: str) -> Grade:
    return play(task, sandbox, commands).grade


def verdict(grade: Grade) -> Verdict:
    (deciding,) = grade.deciding
    return deciding.verdict


@pytest.mark.parametrize("name", ["plain", "steps", "parts", "hangs-on-work", "forged", "windows"])
def test_the_solution_passes_and_doing_nothing_does_not(given: Path, sandbox: SupervisedSandbox, name: str) -> None:
    task = read_folder(given / name)
    assert task.oracle is not None
    assert played(task, sandbox, *task.oracle.commands).passed
    assert verdict(played(task, sandbox)) is Verdict.FAIL


def test_parts_are_shown_and_the_reward_decides(given: Path, sandbox: SupervisedSandbox) -> None:
    found = played(read_folder(given / "parts"), sandbox, "touch a.txt")
    assert {result.name: (result.score, result.weight) for result in found.results} == {
        "verifier.reward": (0.0, 1.0),
        "verifier.first": (1.0, 0.0),
        "verifier.second": (0.0, 0.0),
        "verifier.lines": (None, 0.0),
    }
    assert found.rate == 0.0


@pytest.mark.parametrize(("name", "said"), [("hangs", "ran out of time"), ("silent", "wrote neither reward.json")])
def test_a_verifier_that_fails_by_itself_gives_no_verdict(
    given: Path, sandbox: SupervisedSandbox, name: str, said: str
) -> None:
    found = played(read_folder(given / name), sandbox)
    assert verdict(found) is Verdict.ERROR and said in found.results[0].detail and found.rate is None


def test_what_hangs_on_the_agents_work_is_a_fail(given: Path, sandbox: SupervisedSandbox) -> None:
    found = played(read_folder(given / "hangs-on-work"), sandbox, "echo 'while True: pass' >work.py")
    assert verdict(found) is Verdict.FAIL and found.results[0].broke


@pytest.mark.parametrize("text", ["nan", "inf", "2", "-0.1", "half", "", '{"reward": "x"}', "[1]", '{"reward": 1e999}'])
def test_what_is_no_reward_is_no_verdict(tmp_path: Path, sandbox: SupervisedSandbox, text: str) -> None:
    kind = "json" if text[:1] in ("{", "[") else "txt"
    task = read(tmp_path, {"tests/test.sh": f"cat >/logs/verifier/reward.{kind} <<'E'\n{text}\nE\n"})
    assert verdict(played(task, sandbox)) is Verdict.ERROR
    lets = {
        "tests/test.sh": f"echo 0 >/logs/verifier/reward.{kind}; [ -f in ] && cat in >/logs/verifier/reward.{kind}\n"
    }
    task = read(tmp_path / "agents", lets)
    assert verdict(played(task, sandbox, f"cat >in <<'E'\n{text}\nE")) is Verdict.FAIL  # the agent's doing


@pytest.mark.parametrize("name", ["plain", "forged", "steps"])
def test_an_agent_that_writes_the_reward_gains_nothing(given: Path, sandbox: SupervisedSandbox, name: str) -> None:
    assert verdict(played(read_folder(given / name), sandbox, FORGERY)) is Verdict.FAIL


def test_a_hostile_solution_is_no_solution(given: Path, sandbox: SupervisedSandbox) -> None:
    task = read_folder(given / "hostile")
    assert task.oracle is not None
    assert verdict(played(task, sandbox, *task.oracle.commands)) is Verdict.FAIL


@pytest.mark.parametrize("name", ["docker", "image"])
def test_an_image_is_refused_where_there_are_none(given: Path, sandbox: SupervisedSandbox, name: str) -> None:
    with pytest.raises(CannotBegin, match="which only the docker sandbox can give"):
        played(read_folder(given / name), sandbox)


def test_the_landlock_sandbox_has_the_paths_too(given: Path) -> None:
    require(Backend.LANDLOCK)
    task = read_folder(given / "steps")
    assert task.oracle is not None
    with open_sandbox(Backend.LANDLOCK) as sandbox:
        assert played(task, sandbox, *task.oracle.commands).passed


@pytest.mark.docker
def test_an_image_of_its_own_is_built_and_played(given: Path) -> None:
    if not os.environ.get(ENGINE_VARIABLE):
        pytest.skip(f"{ENGINE_VARIABLE} names no container engine")
    task, missing = read_folder(given / "docker"), read_folder(given / "image")
    assert task.dockerfile is not None and task.oracle is not None
    build(task.dockerfile.text, hosts=[os.environ[ENGINE_VARIABLE]])
    try:
        with engine_for(Backend.DOCKER), open_sandbox(Backend.DOCKER) as sandbox:
            assert played(task, sandbox, *task.oracle.commands).passed
            assert verdict(played(task, sandbox, FORGERY)) is Verdict.FAIL
            with pytest.raises(CannotBegin, match="'no-such-image:7' is not on this engine"):
                played(missing, sandbox)
    finally:
        with closing(docker.DockerClient(os.environ[ENGINE_VARIABLE])) as client:
            client.images.remove(str(image_of(task)), force=True)
