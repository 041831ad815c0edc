from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sandboxes import open_sandbox
from sandboxes.sandbox import Backend, SandboxUnavailable
from tasks.assertions.base import Outcome, Verdict
from tasks.assertions.grade import Grade, grade
from tasks.assertions.grader import SandboxGrader
from tasks.assertions.script import Script
from tasks.model import TaskError
from tasks.place import begin
from tasks.sources import load_tasks
from tasks.sources.clawgym import MOUNT
from tasks.task import Task
from tests.tasks.sources.upstream import write_folder

CHECK = """\
import json, os, sys
workspace = sys.argv[1]
print(json.dumps({
    "made": os.path.exists(os.path.join(workspace, "out.json")),
    "fixed": float(os.path.exists("MOUNT/in.txt")),
    "half": 0.5,
}))
""".replace("MOUNT", MOUNT)


def packed(folder: Path, archive: Path, prefix: str = "") -> Path:
    with tarfile.open(archive, "w:xz") as stream:
        for path in sorted(folder.rglob("*")):
            stream.add(path, prefix + str(path.relative_to(folder)), recursive=False)
    return archive


def graded(task: Task, *commands: str, backend: str = "bubblewrap", message: str | None = None) -> Grade:
    try:
        with open_sandbox(backend) as sandbox:
            begin(task, sandbox)
            initial = sandbox.snapshot()
            for command in commands:
                sandbox.run(command)
            before = sandbox.snapshot()
            grader = SandboxGrader(sandbox)
            transcript = ({"role": "assistant", "content": message or ""},)
            found = grade(task, Outcome(before, initial, message, transcript, grader))
            assert "reward/check.py" not in sandbox.listing(), "the judge stayed behind"
            return found
    except SandboxUnavailable as reason:
        pytest.skip(str(reason))


def test_a_folder_and_an_archive_give_the_same_tasks(tmp_path: Path) -> None:
    root = tmp_path / "tasks"
    for name in ("task_0001", "task_0000"):
        files = {"in.txt": b"one\r\n", "d/\xd1\x84.bin".encode("latin-1").decode(): b"\xff\x00", "run.sh": b"echo\r\n"}
        write_folder(root, name, check=CHECK, files=files, user_query=f"Make out.json for {name}.")
    archive = packed(root, tmp_path / "tasks.tar.xz")
    deep = packed(root, tmp_path / "deep.tar.xz", "some/folder/")
    tasks = load_tasks(root)
    assert [task.id for task in tasks] == ["task_0000", "task_0001"]
    assert tasks[0].workdir == MOUNT and tasks[0].oracle is None
    assert tasks[0].files()["in.txt"].content == b"one\r\n"
    for spec in (f"clawgym:{root}", archive, f"clawgym:{archive}", f"clawgym:{deep}"):
        assert [task.content_hash for task in load_tasks(spec)] == [task.content_hash for task in tasks]
    assert load_tasks(root / "task_0001")[0].content_hash == tasks[1].content_hash
    chosen = load_tasks(f"clawgym:{archive}?ids=task_0001&prefix=eval-")
    assert [task.id for task in chosen] == ["eval-task_0001"]
    assert chosen[0].content_hash == tasks[1].content_hash


@pytest.mark.parametrize("name", ["отчёт.txt", "naïve ɑ.txt", "a b'c\"d$.txt", "-n.txt"])
def test_odd_names_are_laid_and_graded(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, check=f"import os\nprint(float(os.path.exists({name!r})))", files={name: b"x"})
    task = load_tasks(packed(tmp_path, tmp_path.parent / "odd.tar.xz"))[0]
    assert name in task.files()
    assert graded(task).rate == 1.0


@pytest.mark.bubblewrap
def test_each_sub_score_is_a_result_and_the_rate_their_mean(tmp_path: Path) -> None:
    write_folder(tmp_path, check=CHECK, files={"in.txt": b"x"})
    task = load_tasks(tmp_path)[0]
    idle, done = graded(task), graded(task, "echo {} > out.json")
    assert [(result.name, result.score) for result in idle.results] == [
        ("reward.made", 0.0),
        ("reward.fixed", 1.0),
        ("reward.half", 0.5),
    ]
    assert idle.rate == pytest.approx(0.5) and done.rate == pytest.approx(2.5 / 3)


def test_without_mounts_the_path_is_replaced(tmp_path: Path) -> None:
    write_folder(tmp_path, check=CHECK, files={"in.txt": b"x"})
    assert graded(load_tasks(tmp_path)[0], backend=Backend.LANDLOCK).rate == pytest.approx(0.5)


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    ("check", "rate", "detail"),
    [
        ("print('{}')", 0.0, ""),
        ("print('0.25')", 0.25, ""),
        ("raise SystemExit(3)", None, "exit code 3"),
        ("import no_such_module", None, "No module named 'no_such_module'"),
        ("print('done')", None, "did not print JSON"),
        ("print('{\"a\": NaN}')", None, "nan"),
        ("print('{\"a\": 1.5}')", None, "not in [0, 1]"),
        ("print('[1]')", None, "neither an object"),
    ],
)
def test_what_judges_may_print(tmp_path: Path, check: str, rate: float | None, detail: str) -> None:
    write_folder(tmp_path, check=check)
    found = graded(load_tasks(tmp_path)[0])
    assert found.rate == rate
    assert not found.passed
    assert detail in " ".join(result.detail for result in found.errors)
    assert (rate is None) == any(result.verdict is Verdict.ERROR for result in found.results)


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    "plant",
    [
        "mkdir reward && echo 'print(1)' > reward/check.py && echo 'raise SystemExit' > reward/json.py",
        "ln -s /etc reward",
        "mkfifo reward",
        "mkdir -p reward/x && touch reward/x/y && chmod 000 reward/x && chmod 500 reward",
        "echo 'raise SystemExit' > json.py; echo 'raise SystemExit' > sitecustomize.py; export PYTHONPATH=$PWD",
        "mkdir -p ~/bin; printf '#!/bin/sh\\necho 1\\n' > ~/bin/python3; chmod +x ~/bin/python3; PATH=~/bin:$PATH",
    ],
)
def test_what_the_agent_plants_does_not_judge_it(tmp_path: Path, plant: str) -> None:
    write_folder(tmp_path, check="import json\nprint(json.dumps({'a': 0.25}))")
    assert graded(load_tasks(tmp_path)[0], plant).rate == 0.25


@pytest.mark.bubblewrap
def test_a_full_workspace_does_not_make_an_error(tmp_path: Path) -> None:
    write_folder(tmp_path, check="print('{\"a\": 0.25}')")
    assert graded(load_tasks(tmp_path)[0], "head -c 200M /dev/zero > big; head -c 1M /dev/zero > more").rate == 0.25


@pytest.mark.bubblewrap
def test_a_judge_that_reads_the_payload(tmp_path: Path) -> None:
    check = (
        "import json, os\nsaid = json.load(open(os.environ['OPENCLAW_REWARD_PAYLOAD']))\n"
        "print(json.dumps({'query': said['user_query'] == ' Say  hi. ', 'said': said['final_message'] == 'hi',\n"
        "    'id': said['task_id'] == 'task_0000', 'chat': said['transcript'][0]['content'] == 'hi'}))"
    )
    write_folder(tmp_path, check=check, user_query=" Say  hi. ", input_mount_dir=...)
    task = load_tasks(tmp_path)[0]
    assert task.files() == {}
    assert graded(task, message="hi").passed
    assert graded(task, message="no").rate == 0.5


@pytest.mark.bubblewrap
def test_a_package_that_is_missing_is_an_error_even_if_the_judge_goes_on(tmp_path: Path) -> None:
    guarded = "try:\n    import yaml\nexcept ImportError:\n    yaml = None\nprint(float(yaml is not None))"
    write_folder(tmp_path, check=guarded)
    found = graded(load_tasks(tmp_path)[0])
    assert found.rate == 1.0 or "No module named 'yaml'" in found.errors[0].detail


@pytest.mark.bubblewrap
def test_another_runner_is_run_as_it_is(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, check="print('0.75')")
    (folder / "reward" / "reward.sh").write_text("echo log\npython3 reward/check.py\n", encoding="utf-8")
    task = load_tasks(tmp_path)[0]
    assert isinstance(task.assertions[0], Script) and task.assertions[0].mode == "last_float"
    assert graded(task).rate == 0.75


def test_broken_folders_are_all_named(tmp_path: Path) -> None:
    write_folder(tmp_path, "task_0000")
    write_folder(tmp_path, "task_0001", user_query=3, task_id=...)
    (write_folder(tmp_path, "task_0002") / "reward" / "check.py").unlink()
    (write_folder(tmp_path, "task_0003") / "data_entry.json").write_text('{"task_id": \n', encoding="utf-8")
    write_folder(tmp_path, "task_0004", task_id="task_0000", user_query="Else.")
    write_folder(tmp_path, "task_0005", input_mount_dir="relative")
    (write_folder(tmp_path, "task_0006") / "reward" / "check.py").write_bytes(b"\xff")
    with pytest.raises(TaskError) as caught:
        load_tasks(tmp_path)
    found = [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]
    assert found[:3] == [
        "task_0001/data_entry.json: task_id: must be a text",
        "task_0001/data_entry.json: user_query: must be a text",
        "task_0002/reward/check.py: is missing: it is what judges the task",
    ]
    assert found[3].startswith("task_0003/data_entry.json: is no JSON: ")
    assert found[4] == "task_0004: task_id: the id 'task_0000' stands in two folders"
    assert found[5].startswith("task_0005: workdir: ") and "absolute" in found[5]
    assert found[6].startswith("task_0006/reward/check.py: cannot be used: ")
    assert len(found) == 7


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("clawgym:", "name a folder or archive"),
        ("clawgym:{0}/none", "there is no such file or folder"),
        ("clawgym:{0}/empty", "holds no ClawGym tasks"),
        ("clawgym:{0}/good?idz=a", "did you mean 'ids'"),
        ("clawgym:{0}/damaged.tar.xz", "cannot be read"),
        ("clawgym:{0}/cut.tar", "cannot be read"),
        ("clawgym:{0}/device.tar", "neither a file, a folder nor a symbolic link"),
        ("clawgym:{0}/up.tar", "leads out of the archive"),
        ("clawgym:{0}/good?ids=task_0009", "has no task_0009"),
    ],
)
def test_what_is_no_source(tmp_path: Path, spec: str, message: str) -> None:
    good = tmp_path / "good"
    write_folder(good)
    whole = packed(good, tmp_path / "damaged.tar.xz").read_bytes()
    (tmp_path / "damaged.tar.xz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "cut.tar").write_bytes(b"no archive")
    for name, kind, path in (("device", tarfile.CHRTYPE, "t/input_files/x"), ("up", tarfile.REGTYPE, "../t/reward/x")):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as stream:
            member: Any = tarfile.TarInfo(path)
            member.type = kind
            stream.addfile(member, io.BytesIO(b""))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError) as caught:
        load_tasks(spec.format(tmp_path))
    assert message in str(caught.value)


def test_a_judge_that_fails_may_be_the_agents_doing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, check="raise SystemExit(3)")
    hashes = []
    for query, wanted in (("", "error"), ("?on_failure=error", "error"), ("?on_failure=fail", "fail")):
        (task,) = load_tasks(f"clawgym:{folder}{query}")
        (script,) = task.assertions
        assert isinstance(script, Script) and script.on_failure == wanted
        hashes.append(task.content_hash)
    assert hashes[0] == hashes[1] != hashes[2]
    with pytest.raises(TaskError, match="on_failure must be one of error, fail"):
        load_tasks(f"clawgym:{folder}?on_failure=pass")
