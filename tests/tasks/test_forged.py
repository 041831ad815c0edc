"""No program of the agent makes a judge pass: the library's judges and upstream's, on each backend that works."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sandboxes import Backend, open_sandbox
from sandboxes.sandbox import JudgeIsolation, Sandbox
from tasks.assertions.base import Outcome
from tasks.assertions.grade import Grade, grade
from tasks.assertions.grader import SandboxGrader
from tasks.assertions.script import Script
from tasks.judges import JudgeUse
from tasks.place import begin
from tasks.sources import load_tasks
from tasks.task import Task
from tests.sandboxes.conftest import SAFE_BACKENDS, engine_for, require
from tests.shared_data import shared
from tests.tasks.forging import FORGE

EVAL = "data/clawgym/clawgym_eval.tar.xz"
_NAMED = re.compile(r"[\w./-]+\.(?:py|sh|bash|pl|rb|js)\b")
"""Programs that a judge may start, as its text names them."""


@pytest.fixture(scope="module", params=SAFE_BACKENDS, ids=str)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with engine_for(Backend(request.param)):
        require(request.param)
        with open_sandbox(request.param) as opened:
            opened.open({})
            assert opened.judge_isolation is JudgeIsolation.FULL
            yield opened


def forged(task: Task, sandbox: Sandbox) -> Grade:
    """The grade of an agent whose every program is the forging one."""
    text = "\n".join(["", *(part for a in task.assertions for part in _texts(a))])
    names = {name.lstrip("./") for name in (*_NAMED.findall(text), *_NAMED.findall(task.intent), *task.files())}
    names = {name for name in names if _NAMED.fullmatch(name) and not name.startswith(("root/", "usr/", "bin/"))}
    begin(task, sandbox)
    initial = sandbox.snapshot()
    there = {path.split("/")[-1] for path in names}
    for name in sorted({*names, *(f"{folder}/{file}" for folder in _folders(task, text) for file in there)}):
        sandbox.put({name: FORGE})
    sandbox.run("find . -type f -exec chmod +x {} +")
    return grade(task, Outcome(sandbox.snapshot(), initial, "done", grader=SandboxGrader(sandbox, task)))


def _texts(assertion: object) -> Iterator[str]:
    for item in getattr(assertion, "inner", ()) or (assertion,):
        yield getattr(item, "command", "")
        yield from getattr(item, "files", {}).values()


def _folders(task: Task, text: str) -> list[str]:
    """Folders that the judge or the request names, where a program may be looked for."""
    found = set(re.findall(r"[\"'`]([\w-]+)/?[\"'`]", text)) & {"scripts", "tools", "output", "src", "bin", "tests"}
    return sorted(found | {"scripts", "output", "tools"})


HOSTILE = {
    "types": b'[1, null, {"a": [], "b": {"c": null}}, "x", 1e999, true]',
    "an object": b'{"": null, "items": 3, "name": [[]], "total": "x", "results": {"0": null}}',
    "no text": b"\xff\xfe\x00" * 99,
}
_READ = re.compile(r"[\w./-]+\.(?:json|jsonl|csv|tsv|md|txt|ya?ml|html|log|xml|ini|toml)\b")
"""Files that a judge may read, as its text names them."""


def made_hostile(task: Task, sandbox: Sandbox, how: str) -> Grade:
    """The grade of an agent that leaves something hostile under every name that its judge or its request has."""
    text = "\n".join([task.intent, *(part for a in task.assertions for part in _texts(a))])
    names = {name.lstrip("./") for name in _READ.findall(text)}
    names = {name for name in names if not name.startswith("root/")}
    names |= {f"{folder}/{name}" for folder in ("output", "reports") for name in names if "/" not in name}
    begin(task, sandbox)
    initial = sandbox.snapshot()
    if how == "fifo":
        sandbox.put(dict.fromkeys(names, b""))  # with the folders above them
        made = f"import os\nfor name in {sorted(names)!r}: os.path.isdir(name) or os.unlink(name) or os.mkfifo(name)\n"
        assert sandbox.run(f"python3 -c \"$(cat <<'EOF'\n{made}EOF\n)\"").exit_code == 0
    else:
        for name in names:
            sandbox.put({name: HOSTILE[how]})
    return grade(task, Outcome(sandbox.snapshot(), initial, "done", grader=SandboxGrader(sandbox, task)))


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ("types", slice(0, None, 2)),
        ("fifo", slice(1, None, 2)),
        *(pytest.param(how, slice(None), marks=pytest.mark.whole) for how in (*HOSTILE, "fifo")),
    ],
)
def test_no_file_makes_an_upstream_judge_err(how: str, part: slice) -> None:
    """CI leaves one thing to every other judge and another to the rest."""
    tasks = load_tasks(f"clawgym:{shared(EVAL)}")[part]
    with open_sandbox("landlock") as sandbox:
        results = {task.id: made_hostile(task, sandbox, how) for task in tasks}
    assert {name: found.results for name, found in results.items() if found.rate is None} == {}
    assert not any(found.passed for found in results.values())


@pytest.mark.parametrize("name", ["failing-test", "calculator", "repair-backup-script", "submission-pack"])
def test_the_librarys_judges(sandbox: Sandbox, name: str) -> None:
    (task,) = load_tasks(f"library:{name}")
    found = forged(task, sandbox)
    assert not found.passed and not found.errors, found.results
    assert not any("forged" in result.name for result in found.results)


def test_upstreams_judges_that_start_programs(sandbox: Sandbox) -> None:
    tasks = [task for task in load_tasks(f"clawgym:{shared(EVAL)}") if task.judge_use is JudgeUse.STARTS]
    assert len(tasks) >= 10
    problems = []
    for task in tasks:
        assert isinstance(task.assertions[0], Script)
        found = forged(task, sandbox)
        if found.passed or found.rate is None or any("forged" in result.name for result in found.results):
            problems.append((task.id, found.results[:3]))
    assert problems == []
