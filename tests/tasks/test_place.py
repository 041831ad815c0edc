"""What a task asks of its place: each field valid, wrong in ten ways, and as agent, oracle and grader meet it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes import Backend, SupervisedSandbox, open_sandbox
from sandboxes.boot import UID
from sandboxes.docker.dockerfile import tag_of
from sandboxes.docker.engines import client, find_engines
from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.check import build_images, prove_all
from tasks.grading import grade_folder
from tasks.model import TaskError
from tasks.place import CannotBegin, begin, lacking, refuse_unplaceable, start_of
from tasks.proof import Status, prove
from tasks.show import describe
from tasks.sources.fieldnotes import from_record, to_record
from tasks.task import Task
from tasks.yaml import dump_task, load_task, parse_task
from tests.sandboxes.conftest import engine_for, require
from tests.tasks.fake_sandbox import FakeSandbox

HEAD = "schema_version: 2\nid: demo\nintent: x\nassertions: [{kind: file_exists, path: b}]\n"
SERVICE = "{name: a, command: b, ready: c}"

VALID = {
    "environment": "environment: {TZ: UTC, _x9: ''}",
    "setup": "setup:\n  - git init -q repo\n  - |\n    cd repo\n    touch a",
    "services": f"services: [{SERVICE}, {{name: b, command: c, ready: d, ready_seconds: 0.5}}]",
    "image": "image: registry.example:5000/team/debian-git:1",
    "dockerfile": 'dockerfile: {text: "FROM debian-git:1\\nRUN touch /made\\n"}',
    "limits": "limits: {memory_mb: 512, processes: 64, workspace_mb: 32}",
    "budget": "budget: {episode_seconds: 600}",
}

_NO_IMAGE = "is no name of an image: write it as the engine lists it, such as debian-with-git:1"
_LOADS = "makes programs load code, graders among them, from where the agent may write: set it in the command"
_OWNED = "belongs to the sandbox or its shell: choose another name"
_NO_NAME = "is no name of a variable: use letters, digits and '_', a letter or '_' first"
_LIMITS = "(valid: memory_mb, processes, workspace_mb)"

# What stands in the file from line 5 on, the line and key of the message, and its words.
INVALID = [
    ("environment: [TZ]", 5, "environment", "needs a mapping of keys to values, but has a list"),
    ("environment: TZ", 5, "environment", "needs a mapping of keys to values, but has the text"),
    ("environment:\n  A: x\n  TZ: 3", 7, "environment.TZ", 'text is meant here: put it in quotes: "3"'),
    ("environment: {A: yes}", 5, "environment.A", 'text is meant here: put it in quotes: "yes"'),
    ("environment: {A: }", 5, "environment.A", "has no value"),
    ("environment: {A: [x]}", 5, "environment.A", "must be a valid string, but is a list"),
    ("environment: {1A: x}", 5, "environment.1A", f"'1A' {_NO_NAME}"),
    ("environment: {A-B: x}", 5, "environment.A-B", f"'A-B' {_NO_NAME}"),
    ("environment:\n  PATH: /x", 6, "environment.PATH", f"'PATH' {_OWNED}"),
    ("environment: {HOME: /x}", 5, "environment.HOME", f"'HOME' {_OWNED}"),
    ("environment: {BASHOPTS: x}", 5, "environment.BASHOPTS", f"'BASHOPTS' {_OWNED}"),
    ("environment: {GRADER: x}", 5, "environment.GRADER", f"'GRADER' {_OWNED}"),
    ("environment: {LD_PRELOAD: ./x.so}", 5, "environment.LD_PRELOAD", f"'LD_PRELOAD' {_LOADS}"),
    ("environment: {PYTHONPATH: src}", 5, "environment.PYTHONPATH", f"'PYTHONPATH' {_LOADS}"),
    ('environment: {A: "a\\0b"}', 5, "environment.A", "holds a NUL character, which no variable can"),
    (f"environment: {{A: {'x' * 33000}}}", 5, "environment", "32768 are allowed: lay a file instead"),
    ("setup: git init", 5, "setup", "needs a list: write each item on its own line"),
    ("setup: {run: a}", 5, "setup", "needs a list: write each item on its own line"),
    ("setup:\n  - ls\n  - 1", 7, "setup[1]", 'text is meant here: put it in quotes: "1"'),
    ("setup: [true]", 5, "setup[0]", 'text is meant here: put it in quotes: "true"'),
    ("setup: [~]", 5, "setup[0]", "has no value"),
    ("setup: ['']", 5, "setup[0]", "is blank: write a command, or leave it out"),
    ("setup:\n  - '  '", 6, "setup[0]", "is blank: write a command, or leave it out"),
    ('setup: ["a\\rb"]', 5, "setup[0]", "holds a carriage return: bash would take it as text"),
    ('setup: ["a\\0b"]', 5, "setup[0]", "holds a NUL character, which no command can"),
    ("setup:\n  - echo a: b", 6, "setup[0]", "because of a `: ` in it: put the text in quotes"),
    ("setup: [[a]]", 5, "setup[0]", "must be a valid string, but is a list"),
    (f"services: {SERVICE}", 5, "services", "needs a list: write each item on its own line"),
    ("services: [serve]", 5, "services[0]", "needs a mapping of keys to values, but has the text"),
    ("services:\n  - {name: a, command: b}", 6, "services[0].ready", "is missing"),
    ("services: [{command: b, ready: c}]", 5, "services[0].name", "is missing"),
    ("services: [{name: a, ready: c}]", 5, "services[0].command", "is missing"),
    ("services: [{name: A b, command: b, ready: c}]", 5, "services[0].name", "use lower case letters, digits"),
    ("services: [{name: a, command: '', ready: c}]", 5, "services[0].command", "is blank: write a command"),
    ("services: [{name: a, command: b, ready: ' '}]", 5, "services[0].ready", "is blank: write a command"),
    (f"services: [{SERVICE[:-1]}, ready_seconds: 0}}]", 5, "services[0].ready_seconds", "must be greater than 0"),
    (f"services: [{SERVICE[:-1]}, ready_seconds: 301}}]", 5, "services[0].ready_seconds", "or equal to 300"),
    (f"services: [{SERVICE[:-1]}, ready_second: 1}}]", 5, "services[0].ready_second", "did you mean 'ready_seconds'?"),
    (f"services:\n  - {SERVICE}\n  - {SERVICE}", 7, "services[1].name", "two services are named 'a': rename one"),
    ("image: ''", 5, "image", f"'' {_NO_IMAGE}"),
    ("image: 3", 5, "image", 'text is meant here: put it in quotes: "3"'),
    ("image: true", 5, "image", 'text is meant here: put it in quotes: "true"'),
    ("image: [a]", 5, "image", "must be a valid string, but is a list"),
    ("image: a b:1", 5, "image", f"'a b:1' {_NO_IMAGE}"),
    ("image: ':1'", 5, "image", f"':1' {_NO_IMAGE}"),
    ("image: {name: a}", 5, "image", "put the text in quotes"),
    ("image: a;b", 5, "image", f"'a;b' {_NO_IMAGE}"),
    ("image: -a", 5, "image", f"'-a' {_NO_IMAGE}"),
    ("image: $IMAGE", 5, "image", f"'$IMAGE' {_NO_IMAGE}"),
    ("image: débian", 5, "image", _NO_IMAGE),
    ('image: "a\\n"', 5, "image", _NO_IMAGE),
    ("dockerfile: Dockerfile", 5, "dockerfile", "has no file beside it: write its lines under text"),
    ("dockerfile: 3", 5, "dockerfile", "needs a mapping of keys to values, but has a number"),
    ("dockerfile: {}", 5, "dockerfile.text", "is missing"),
    ("dockerfile: {text: FROM a, path: b}", 5, "dockerfile.path", "unknown key 'path': (valid: text)"),
    ("dockerfile: {text: ''}", 5, "dockerfile.text", "the Dockerfile has no FROM: name an image of the engine"),
    ("dockerfile: {text: RUN ls}", 5, "dockerfile.text", "the Dockerfile has RUN before its first FROM"),
    ("dockerfile: {text: 'FROM $BASE'}", 5, "dockerfile.text", "name an image as the engine lists it, without"),
    ('dockerfile: {text: "FROM a\\nCOPY x y"}', 5, "dockerfile.text", "has `COPY x y`, and no folder to take it from"),
    ('dockerfile: {text: "FROM a\\nadd http://x y"}', 5, "dockerfile.text", "has `ADD http://x y`, and no folder"),
    ('dockerfile: {text: "FROM a\\nONBUILD RUN ls"}', 5, "dockerfile.text", "has ONBUILD, which only another build"),
    ('dockerfile: {text: "# syntax=x\\nFROM a"}', 5, "dockerfile.text", "has the directive `# syntax=`: leave it out"),
    ("image: a\ndockerfile: {text: FROM a}", 6, "dockerfile", "stands beside image, and only one of them can be"),
    ("limits: 512", 5, "limits", "needs a mapping of keys to values, but has a number"),
    ("limits: [memory_mb]", 5, "limits", "needs a mapping of keys to values, but has a list"),
    ("limits: {memory: 5}", 5, "limits.memory", f"did you mean 'memory_mb'? {_LIMITS}"),
    ("limits: {file_mb: 3}", 5, "limits.file_mb", _LIMITS),
    ("limits:\n  memory_mb: 31", 6, "limits.memory_mb", "must be greater than or equal to 32, but is a number 31"),
    ("limits: {memory_mb: 70000}", 5, "limits.memory_mb", "must be less than or equal to 65536"),
    ("limits: {memory_mb: '512'}", 5, "limits.memory_mb", "must be a valid integer, but is the text"),
    ("limits: {memory_mb: 64.5}", 5, "limits.memory_mb", "must be a valid integer, but is a number 64.5"),
    ("limits: {processes: 3}", 5, "limits.processes", "must be greater than or equal to 4"),
    ("limits: {processes: true}", 5, "limits.processes", "must be a valid integer, but is a boolean"),
    ("limits: {workspace_mb: 0}", 5, "limits.workspace_mb", "must be greater than or equal to 1"),
    ("budget: {episode_seconds: 0}", 5, "budget.episode_seconds", "must be greater than 0, but is a number 0"),
    ("budget:\n  episode_seconds: -1", 6, "budget.episode_seconds", "must be greater than 0, but is a number -1"),
    ("budget: {episode_seconds: 86401}", 5, "budget.episode_seconds", "must be less than or equal to 86400"),
    ("budget: {episode_seconds: .inf}", 5, "budget.episode_seconds", "must be a finite number"),
    ("budget: {episode_seconds: .nan}", 5, "budget.episode_seconds", "must be a finite number"),
    ("budget: {episode_seconds: '60'}", 5, "budget.episode_seconds", "must be a valid number, but is the text"),
    ("budget: {episode_seconds: 1m}", 5, "budget.episode_seconds", 'must be a valid number, but is the text "1m"'),
    ("budget: {episode_seconds: [60]}", 5, "budget.episode_seconds", "must be a valid number, but is a list"),
    ("budget: {episode_seconds: true}", 5, "budget.episode_seconds", "must be a valid number, but is a boolean"),
    ("budget: {episode_second: 60}", 5, "budget.episode_second", "did you mean 'episode_seconds'?"),
]


@pytest.mark.parametrize(("text", "line", "key", "words"), INVALID, ids=[row[0][:40] for row in INVALID])
def test_what_is_wrong_is_said_with_line_key_and_remedy(text: str, line: int, key: str, words: str) -> None:
    with pytest.raises(TaskError) as error:
        parse_task(f"{HEAD}{text}\n", "f.yaml")
    (problem,) = error.value.problems
    assert (problem.file, problem.line, problem.key) == ("f.yaml", line, key)
    assert words in problem.message


@pytest.mark.parametrize("field", VALID)
def test_a_field_counts_where_it_is_given_and_needs_version_2(field: str) -> None:
    bare, task = parse_task(HEAD), parse_task(f"{HEAD}{VALID[field]}\n")
    assert task.content_hash != bare.content_hash
    assert (task.problem_hash != bare.problem_hash) == (field != "budget") == (task.meaning != bare.meaning)
    again = parse_task(dump_task(task))
    assert again == task and again.content_hash == task.content_hash
    assert describe(task) != describe(bare)
    with pytest.raises(TaskError, match=r"unknown key '\w+' in version 1: write schema_version: 2"):
        parse_task(f"{HEAD}{VALID[field]}\n".replace("version: 2", "version: 1"))
    if field == "budget":
        assert from_record(to_record(task)).content_hash == task.content_hash
        return
    with pytest.raises(TaskError) as error:
        to_record(task)
    assert any(problem.key.startswith(field) for problem in error.value.problems)


def test_defaults_written_out_change_nothing() -> None:
    said = f"{HEAD}environment: {{}}\nsetup: []\nservices: []\nlimits: {{}}\n"
    assert parse_task(said).content_hash == parse_task(HEAD).content_hash
    assert parse_task(said.replace("version: 2", "version: 1")).schema_version == 1


def test_a_dockerfile_is_read_beside_the_task_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"

    def load(name: str) -> Task:
        path.write_text(f"{HEAD}dockerfile: {name}\n")
        return load_task(path)

    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/File").write_bytes(b"FROM debian-git:1\r\nRUN touch /made\r\n")
    first = load("docker/File")
    assert first.content_hash == parse_task(f"{HEAD}{VALID['dockerfile']}\n").content_hash
    (tmp_path / "docker/File").write_bytes(b"FROM debian-git:2\n")
    assert load("docker/File").content_hash != first.content_hash
    (tmp_path / "latin").write_bytes(b"FROM a # \xe9\n")
    for name, words in (
        ("none", "'none' cannot be read beside the task file: No such file or directory"),
        ("docker", "'docker' cannot be read beside the task file: Is a directory"),
        ("../demo", "'../demo' is not in the folder of the task file: put the Dockerfile there"),
        ("latin", "'latin' is not UTF-8 text: save it as UTF-8"),
    ):
        with pytest.raises(TaskError) as error:
            load(name)
        assert str(error.value) == f"{path}:5: dockerfile: {words}"


# -- Behaviour --------------------------------------------------------------------------------------------------------

SERVE = """\
import os, socket
place = socket.socket(socket.AF_UNIX)
place.bind("orders.sock")
place.listen()
while True:
    with place.accept()[0] as one:
        one.sendall(b"code " + os.environ["CODE"].encode() + b"\\n")
"""
ASK = (
    'python3 -c \'import socket\ns = socket.socket(socket.AF_UNIX); s.connect("orders.sock"); '
    'print(s.recv(99).decode(), end="")\''
)
SERVICES = [{"name": "orders", "command": "exec python3 serve.py", "ready": "test -S orders.sock"}]


def make(**changes: Any) -> Task:
    content: dict[str, Any] = {
        "schema_version": 2,
        "id": "place",
        "intent": "Write the code of the service into code.txt; keep out/ as it is.",
        "workspace": {"files": {"serve.py": SERVE}},
        "environment": {"CODE": "K-17"},
        "setup": ['mkdir out; LEFT=x; cd out; echo "$CODE" > seed', 'pwd > here; echo "[$LEFT]" > left; sleep 99 &'],
        "assertions": [
            {"kind": "file_matches", "path": "code.txt", "pattern": r"\Acode K-17\n?\Z"},
            {"kind": "file_unchanged", "path": "out"},
            {"kind": "command", "command": 'test "$CODE" = K-17'},
        ],
        "oracle": {"commands": ['echo "code $CODE" > code.txt']},
        **changes,
    }
    return Task.model_validate(content)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SupervisedSandbox]:
    require(Backend.BUBBLEWRAP)
    with open_sandbox(Backend.BUBBLEWRAP) as opened:
        yield opened


@pytest.mark.bubblewrap
def test_setup_makes_the_start_and_leaves_only_files(sandbox: SupervisedSandbox) -> None:
    task = make()
    begin(task, sandbox)
    start = sandbox.snapshot()
    assert start["out/seed"].content == b"K-17\n" and start["here"].content == b"/workspace\n"
    assert start["left"].content == b"[]\n"
    assert sandbox.run('pwd; echo "$LEFT$CODE"; pgrep sleep').stdout == b"/workspace\nK-17\n"
    assert start_of(task, sandbox) == start
    proof = prove(task, sandbox)
    assert proof.status is Status.PROVEN, proof.problems
    assert len(set(proof.hashes)) == 1 and proof.noop_rate == pytest.approx(2 / 3)


SEALED = {
    "schema_version": 2,
    "id": "sealed",
    "intent": "Add a line to notes.txt; keep rules/.",
    "setup": [
        "mkdir rules; echo keep > rules/one; chmod 444 rules/one; chmod 555 rules; echo a > notes.txt",
        "cp rules/one /tmp/two; echo x > /dev/shm/three; mkdir -m 0 /tmp/closed; (setsid sleep 99 &)",
    ],
    "assertions": [
        {"kind": "file_matches", "path": "notes.txt", "pattern": r"\Aa\nb\n\Z"},
        {"kind": "file_unchanged", "path": "rules"},
    ],
    "oracle": {"commands": ["echo b >> notes.txt"]},
}


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(Backend.BUBBLEWRAP, marks=pytest.mark.bubblewrap),
        pytest.param(Backend.DOCKER, marks=pytest.mark.docker),
    ],
)
def test_a_sealed_start_is_the_workspace_alone_and_the_agents_own(backend: Backend) -> None:
    with engine_for(backend):
        require(backend)
        with open_sandbox(backend) as opened:
            task = Task.model_validate(SEALED)
            begin(task, opened)
            assert opened.run("ls -A /tmp /dev/shm; pgrep sleep").stdout == b"/dev/shm:\n\n/tmp:\n"
            assert opened.run("stat -c '%u %a' rules/one rules notes.txt | sort -u").stdout.split() == (
                f"{UID} 444 {UID} 555 {UID} 644".encode().split()
            )
            assert opened.run("echo >> rules/one || rm -f rules/one || mv rules/one . ").exit_code == 1
            start = opened.snapshot_hash()
            begin(task, opened)
            assert opened.snapshot_hash() == start
            # Modes do not keep their owner out: the grade does.
            assert opened.run("echo b >> notes.txt; chmod u+w rules rules/one && echo > rules/one").exit_code == 0
            end = Outcome(opened.snapshot(), start_of(task, opened), None, ())
            assert [str(result.verdict) for result in grade(task, end).results] == ["pass", "fail"]
            proof = prove(task, opened)
            assert proof.status is Status.PROVEN, proof.problems


@pytest.mark.bubblewrap
def test_a_service_answers_until_the_end(sandbox: SupervisedSandbox) -> None:
    gone = {"kind": "command", "command": f"! {ASK} 2>/dev/null", "name": "nobody answers"}
    task = make(
        services=SERVICES, oracle={"commands": ["true", f"{ASK} > code.txt"]}, assertions=[*make().assertions, gone]
    )
    proof = prove(task, sandbox)
    assert proof.status is Status.PROVEN, proof.problems
    begin(task, sandbox)
    assert sandbox.services() == [None]
    sandbox.run("pkill python3")  # the agent may end it: no error
    for _ in range(500):
        if sandbox.services() != [None]:
            break
        time.sleep(0.02)
    assert sandbox.services() == [128 + 15] and sandbox.run(ASK).exit_code == 1


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"setup": ["true", "echo a; echo because >&2; exit 3"]},
            "place: setup[1]: `echo a; echo because >&2; exit 3` ended with 3: because",
        ),
        (
            {"setup": ["sleep 9"], "budget": {"command_seconds": 0.2}},
            "place: setup[0]: `sleep 9` ran out of time after 0.2 s",
        ),
        (
            {"services": [{"name": "a", "command": "exit 4", "ready": "sleep 0.2; false"}]},
            "place: services[0]: the service 'a' ended with 4: it must stay in the foreground",
        ),
        (
            {"services": [{"name": "a", "command": "sleep 9", "ready": "ls no; false", "ready_seconds": 2}]},
            "place: services[0]: the service 'a' was not ready in 2 s: `ls no; false` ended with 1: ls: cannot",
        ),
        (
            {"services": [{"name": "a", "command": "sleep 99 & exit", "ready": "sleep 0.2"}]},
            "place: services[0]: the service 'a' ended with 0: it must stay in the foreground",
        ),
        (
            {"image": "debian-with-git:1"},
            "place: asks for the image 'debian-with-git:1', which only the docker",
        ),
    ],
    ids=["setup", "time", "ended", "not ready", "daemon", "image"],
)
def test_a_task_that_cannot_begin_is_an_error_of_the_task(
    sandbox: SupervisedSandbox, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(CannotBegin) as error:
        begin(make(**changes), sandbox)
    assert str(error.value).startswith(words)


@pytest.mark.bubblewrap
def test_check_finds_what_setup_breaks_or_does_not_repeat(sandbox: SupervisedSandbox) -> None:
    broken, random = make(setup=["exit 3"]), make(setup=["echo $RANDOM$RANDOM > out"])
    imaged = make(id="imaged", image="x")
    proofs = list(prove_all([broken, random, imaged], sandbox.twin, 1))
    assert [proof.status for proof in proofs] == [Status.FAILED, Status.FAILED, Status.UNDECIDED]
    assert proofs[0].problems == ("setup[0]: `exit 3` ended with 3",)
    assert "must come out the same (clock, random numbers, process ids?)" in proofs[1].problems[-1]
    assert proofs[2].problems[0].endswith("which only the docker sandbox can give; here it is bubblewrap")


@pytest.mark.bubblewrap
def test_a_folder_is_graded_against_the_start_that_setup_made(sandbox: SupervisedSandbox, tmp_path: Path) -> None:
    task = make()
    begin(task, sandbox)
    for path, entry in sandbox.snapshot().items():
        target = tmp_path / path
        target.mkdir() if entry.content is None else target.write_bytes(entry.content)
    (tmp_path / "code.txt").write_text("code K-17\n")
    assert grade_folder(task, tmp_path, backend="bubblewrap").grade.passed
    (tmp_path / "out/seed").write_text("other\n")
    (verdict,) = [r for r in grade_folder(task, tmp_path, backend="bubblewrap").grade.results if r.score == 0.0]
    assert (verdict.name, verdict.detail) == ("file_unchanged:out", "out/seed: changed (was 5 bytes, is 6)")


@pytest.mark.bubblewrap
def test_limits_hold_for_their_task_alone(sandbox: SupervisedSandbox) -> None:
    fill = "head -c 8000000 /dev/zero > big"
    begin(make(limits={"workspace_mb": 4, "processes": 8}), sandbox)
    assert (sandbox.limits.workspace_mb, sandbox.limits.processes, sandbox.limits.memory_mb) == (4, 8, 256)
    assert sandbox.run(fill).exit_code == 1
    begin(make(limits={"workspace_mb": 100}), sandbox)
    assert sandbox.run("df -m . | tail -1 | awk '{print $2}'").stdout == b"100\n"
    begin(make(), sandbox)
    assert sandbox.limits.workspace_mb == 64 and sandbox.run(fill).exit_code == 0


def test_images_are_refused_by_name_where_there_are_none() -> None:
    tasks = [make(id="a", image="x:1"), make(id="b"), make(id="c", image="y:2")]
    assert lacking(tasks[0], Backend.DOCKER) is None and lacking(tasks[1], Backend.LOCAL) is None
    with pytest.raises(TaskError) as error:
        refuse_unplaceable(tasks, Backend.LANDLOCK)
    assert [problem.file for problem in error.value.problems] == ["a", "c"]
    with FakeSandbox() as fake, pytest.raises(CannotBegin, match="here it is local"):
        begin(tasks[0], fake)


@pytest.mark.docker
def test_services_and_setup_in_a_container() -> None:
    with engine_for(Backend.DOCKER):
        require(Backend.DOCKER)
        with open_sandbox(Backend.DOCKER) as opened:
            task = make(services=SERVICES, oracle={"commands": ["true", f"{ASK} > code.txt"]})
            proof = prove(task, opened)
            assert proof.status is Status.PROVEN, proof.problems
            missing = make(image="turngym-shell:no-such-tag")
            with pytest.raises(CannotBegin, match="place: image: the image 'turngym-shell:no-such-tag' is not on this"):
                begin(missing, opened)
            text = "FROM turngym-shell:bookworm\nUSER root\nRUN echo made > /etc/made\n"
            built = make(dockerfile={"text": text}, setup=["cp /etc/made made", "mkdir out"])
            try:
                with pytest.raises(CannotBegin, match="dockerfile: it is not built on this engine; remedy: python -m"):
                    begin(built, opened)
                assert build_images([built, task]) == []
                proof = prove(built, opened)
                assert proof.status is Status.PROVEN, proof.problems
                begin(built, opened)
                assert opened.read("made") == b"made\n"
                # What an image lays outside of the workspace is what the agent can read and not change.
                tried = opened.run("chmod 666 /etc/made; echo x > /etc/made; rm -f /etc/made; mv -f made /etc/made")
                assert tried.exit_code and opened.run("cat /etc/made; stat -c %u /etc/made").stdout == b"made\n0\n"
                begin(built, opened)
                begin(task, opened)
                assert opened.run("cat /etc/made").exit_code == 1
            finally:
                for engine in find_engines():
                    client(engine).api.remove_image(tag_of(text), force=True)
            (problem,) = build_images([make(dockerfile={"text": "FROM turngym-shell:no-such-tag"})])
            assert "'turngym-shell:no-such-tag' is not on the engine at" in problem.message
