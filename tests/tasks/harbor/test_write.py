"""Our tasks as Harbor folders: what is in them, what is left out and why, and that they judge as `tasks grade` does."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tasks.harbor.write
from sandboxes import Backend, open_sandbox
from sandboxes.sandbox import EntryKind, FileEntry
from tasks.__main__ import run
from tasks.assertions.base import leaves
from tasks.grading import grade_folder
from tasks.harbor.write import task_folder, why_not
from tasks.sources import load_library
from tasks.task import Task
from tasks.yaml import parse_task
from tests.sandboxes.conftest import ENGINE_VARIABLE, require
from tests.tasks.harbor.folders import Trial, judges, lay, wheel_file

LIBRARY = {task.id: task for task in load_library()}
EXISTS = {"kind": "file_exists", "path": "a.txt"}


def make(*assertions: dict[str, Any], **keys: Any) -> Task:
    data = {"id": "t", "intent": "Write a.txt.", "assertions": list(assertions) or [EXISTS], **keys}
    return Task.model_validate(data)


def text(files: dict[str, FileEntry], path: str) -> str:
    return (files[path].content or b"").decode()


def workspace_of(files: dict[str, FileEntry]) -> dict[str, FileEntry]:
    """What the archive for the agent's image lays, as entries of a workspace."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(files["environment/workspace.tar"].content or b"")) as archive:
        for item in archive:
            assert (item.uid, item.gid) == (1000, 1000)
            if item.isdir():
                found[item.name] = FileEntry(EntryKind.DIR, None, item.mode)
            elif item.issym():
                found[item.name] = FileEntry(EntryKind.SYMLINK, None, 0o777, item.linkname)
            else:
                content = archive.extractfile(item).read()  # type: ignore[union-attr]
                found[item.name] = FileEntry(EntryKind.FILE, content, item.mode, size=item.size)
    assert found.pop(".") == FileEntry(EntryKind.DIR, None, 0o755)
    return found


# -- What is in a folder -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", LIBRARY.values(), ids=LIBRARY)
def test_every_shipped_task_can_be_carried(task: Task) -> None:
    assert why_not(task) == ""
    files = task_folder(task, {"w.whl": b"wheel"})
    config = tomllib.loads(text(files, "task.toml"))
    assert config["task"]["name"] == f"turngym/{task.id}" and config["metadata"]["turngym_hash"] == task.content_hash
    assert parse_task(text(files, "tests/task.yaml"), "t").content_hash == task.content_hash
    assert task.intent in text(files, "instruction.md")
    assert workspace_of(files) == task.files()
    seen = {path for path in files if path.startswith("environment/")}
    assert seen == {f"environment/{name}" for name in ("Dockerfile", "packages.txt", "prepare.sh", "workspace.tar")}
    for path in files:
        if path.endswith(".sh"):
            subprocess.run(["bash", "-n"], input=text(files, path), text=True, check=True)


def test_modes_links_folders_and_bytes_travel() -> None:
    files = {
        "run.sh": {"text": "true\n", "mode": "0755"},
        "secret": {"text": "x", "mode": "0600"},
        "to nowhere": {"symlink": "missing"},
        "raw": {"base64": "AP8="},
        "ünï/é.txt": "x",
    }
    task = make(workspace={"files": files, "dirs": ["empty"]}, workdir="/home/me/project")
    folder = task_folder(task, {})
    assert workspace_of(folder) == task.files()
    assert folder == task_folder(task, {})
    assert "ADD workspace.tar /home/me/project/\n" in text(folder, "environment/Dockerfile")
    assert tomllib.loads(text(folder, "task.toml"))["artifacts"] == ["/home/me/project"]
    assert folder["tests/test.sh"].mode == 0o755 and "solution/solve.sh" not in folder


@pytest.mark.parametrize("said", ['say "no"\\n', "two\nlines\ttab", "\x7f\x01", "ünïcode 🦀", "'''"])
def test_texts_are_the_same_in_toml(said: str) -> None:
    task = make(tags=[said], intent=f"x{said}")
    config = tomllib.loads(text(task_folder(task, {}), "task.toml"))
    assert config["metadata"]["tags"] == [said]
    assert config["task"]["description"] == f"x{said}".strip().splitlines()[0]


def test_times_follow_the_budget_and_the_graders() -> None:
    slow = {"kind": "command", "command": "true", "timeout": 100.0}
    task = make(slow, budget={"max_turns": 10, "command_seconds": 30.0})
    config = tomllib.loads(text(task_folder(task, {}), "task.toml"))
    assert config["agent"]["timeout_sec"] == 900.0 and config["verifier"]["timeout_sec"] == 420.0


def script(**judged_in: str) -> dict[str, Any]:
    return {"kind": "script", "command": "echo 1", "judged_in": judged_in}


REFUSED = {
    "reply": (make({"kind": "number_equals", "gold": "4"}), "number_equals judges what the agent says"),
    "inside": (make({"kind": "any_of", "of": [EXISTS, {"kind": "number_equals", "gold": "4"}]}), "what the agent says"),
    "payload": (make({"kind": "script", "command": "echo 1", "payload": {}}), "script judges what the agent says"),
    "dots": (make(id="a..b"), "Harbor takes in no name"),
    "workdir": (make(workdir="/tests/here"), "is a folder of Harbor's"),
    "user": (load_library("dialogues")[0], "it has user, which the export does not carry"),
    "setup": (make(schema_version=2, setup=["true"]), "it has setup, which the export does not carry"),
    "image": (make(schema_version=2, image="x:1"), "it has image, which the export does not carry"),
    "lines": (make(schema_version=2, environment={"A": "1\n2"}), "a value of its environment has several lines"),
    "shared": (make(script(sandbox="shared"), schema_version=2), "judged by the agent's processes"),
    "network": (make(script(sandbox="fresh", network="pip"), schema_version=2), "needs a network (pip), and has none"),
    "blank": (make(workdir="/home/my work"), "characters that a Dockerfile"),
}


def test_an_oracle_that_reads_is_no_solution_in_one_script() -> None:
    reads = {"run": "cat log", "reads": {"word": "([a-z]+)"}}
    task = make(schema_version=2, turns=2, oracle={"commands": [reads, "touch {{word}}"]})
    assert why_not(task) == "" and "solution/solve.sh" not in task_folder(task, {})


def test_variables_reach_the_agents_image_as_they_are() -> None:
    task = make(schema_version=2, environment={"WORDS": 'a "b" $HOME \\ c'})
    assert 'WORDS="a \\"b\\" \\$HOME \\\\ c"' in text(task_folder(task, {}), "environment/Dockerfile")


@pytest.mark.parametrize("case", REFUSED)
def test_what_harbor_cannot_carry_is_named_with_the_reason(case: str) -> None:
    task, reason = REFUSED[case]
    assert reason in why_not(task)


# -- The command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """One empty wheel stands for those that grade."""
    monkeypatch.setattr(tasks.harbor.write, "grading_wheels", lambda given: {"w-1-py3-none-any.whl": b"wheel"})


def export(destination: Path, source: str | Path, *more: str | Path) -> int:
    wheel = wheel_file(destination.parent)
    given = ["--tasks", source, "--wheel", wheel, "--base-image", "any:1", *more]
    return run(["export", "--to", "harbor", *map(str, [destination, *given])])


def test_what_can_be_carried_is_written_and_the_rest_named(
    tmp_path: Path, light: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, assertion in (("good", EXISTS), ("bad", {"kind": "number_equals", "gold": "4"})):
        data = {"id": name, "intent": "x", "assertions": [assertion]}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(data))
    sources = f"{tmp_path / 'good.yaml'},{tmp_path / 'bad.yaml'}"
    assert export(tmp_path / "out", sources) == 1
    out, error = capsys.readouterr()
    assert "wrote 1 task folder" in out and "left out bad: number_equals judges what the agent says" in error
    assert os.listdir(tmp_path / "out") == ["good"]
    before = sorted((tmp_path / "out").rglob("*"))
    assert export(tmp_path / "out", sources) == 2
    assert "is there already and was left as it is" in capsys.readouterr().err
    assert sorted((tmp_path / "out").rglob("*")) == before


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, light: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.name == "test.sh":
            raise OSError(28, "No space left on device")
        return real(path, content)

    wheel_file(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    assert export(tmp_path / "out", "library:merge-contacts") == 2
    assert os.listdir(tmp_path / "out") == []


def test_wheels_are_kept_once(tmp_path: Path, light: None) -> None:
    sources = "library:merge-contacts,library:vat-rates"
    assert export(tmp_path / "out", sources) == 0
    one, other = (
        sorted((tmp_path / "out" / name / "tests/wheels").iterdir()) for name in ("merge-contacts", "vat-rates")
    )
    assert [path.name for path in one] == [path.name for path in other]
    assert all(a.samefile(b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("image", ["", "two words"])
def test_what_is_no_image_is_refused(
    tmp_path: Path, light: None, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(tmp_path / "out", "library:merge-contacts", "--base-image", image) == (2 if image else 0)
    assert "is no name of an image" in capsys.readouterr().err or not image


def test_wheels_of_another_python_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "regex-1-cp399-cp399-linux_x86_64.whl").write_bytes(wheel_file(tmp_path).read_bytes())
    more = ["--wheel", tmp_path / "regex-1-cp399-cp399-linux_x86_64.whl"]
    assert export(tmp_path / "out", "library:merge-contacts", *more, "--base-image", "debian:bookworm-slim") == 2
    assert "is for another Python than the 3.11 of debian:bookworm-slim" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# -- The solution ends where the oracle does ---------------------------------------------------------------------------


SOLVED = sorted(
    name for name, task in LIBRARY.items() if all(leaf.on_files for item in task.assertions for leaf in leaves(item))
)


@pytest.mark.parametrize("name", SOLVED)
def test_the_solution_passes(name: str, tmp_path: Path) -> None:
    trial = Trial(lay(tmp_path / "task", task_folder(LIBRARY[name], {})), tmp_path / "trial")
    assert not grade_folder(LIBRARY[name], trial.workspace).grade.passed
    assert trial.solve().returncode == 0
    assert grade_folder(LIBRARY[name], trial.workspace).grade.passed


STATE = [
    "mkdir sub; cd sub; x='one\ntwo'; f() { echo \"$x\"; }; alias hi='echo hello'; export Y=3",
    'f >out; pwd | sed "s|.*/||" >>out; cd - >/dev/null; hi >aliased; bash -c \'echo "$Y"\' >exported',
    "exit 3",
    "echo $? >code",
    "set -e; false; echo never >never",
    "echo on >on; shopt -s nullglob; umask 077",
    "touch private; echo *.none >glob; cat >input",
    "sleep 300 & echo $! >pid",
    "sleep 0.2; grep -q '^State:.[RSD]' /proc/$(cat pid)/status 2>/dev/null && echo alive >alive; rm pid",
    "echo 'it'\\''s \"quoted\" $HOME' >quoted; unset f; cat <<'EOF' >doc\nx\nEOF",
    "f 2>/dev/null || echo gone >gone",
]
"""Commands that tell whether the rules on state hold."""


def test_the_solution_keeps_the_state_that_a_sandbox_keeps(tmp_path: Path) -> None:
    require(Backend.LANDLOCK)
    task = make(oracle={"commands": STATE})
    trial = Trial(lay(tmp_path / "task", task_folder(task, {})), tmp_path / "trial")
    done = trial.solve()
    assert (done.returncode, done.stderr) == (0, "")
    with open_sandbox(Backend.LANDLOCK) as sandbox:
        sandbox.open({})
        for command in STATE:
            sandbox.run(command)
        wanted = {path: (entry.content, entry.mode) for path, entry in sandbox.snapshot().items()}
    found = {
        path.relative_to(trial.workspace).as_posix(): (
            path.read_bytes() if path.is_file() else None,
            path.stat().st_mode & 0o777,
        )
        for path in trial.workspace.rglob("*")
    }
    assert found == wanted and "never" not in found and "alive" not in found


# -- The verifier ------------------------------------------------------------------------------------------------------


def test_the_verifier_passes_the_solution_and_not_the_idle(tmp_path: Path) -> None:
    require(Backend.LANDLOCK)
    folder = lay(tmp_path / "task", task_folder(LIBRARY["calculator"], judges()))  # its graders run commands
    trial = Trial(folder, tmp_path / "trial")
    idle = trial.judge()
    assert idle.code == 0 and idle.rewards is not None and idle.rewards["reward"] < 1, idle.said
    trial.solve()
    done = trial.judge()
    names = [item.name for item in LIBRARY["calculator"].assertions]
    assert done.code == 0 and done.rewards == {"reward": 1.0, **dict.fromkeys(names, 1.0)}, done.said
    assert done.text == "1.0\n"


def test_nothing_in_the_workspace_reaches_the_verifier(tmp_path: Path) -> None:
    trial = Trial(lay(tmp_path / "task", task_folder(make(EXISTS), judges())), tmp_path / "trial")
    forged = f"open({str(trial.logs / 'reward.txt')!r}, 'w').write('1'); raise SystemExit(0)"
    for name in ("json.py", "zipfile.py", "sitecustomize.py", "tasks.py", "pydantic.py"):
        (trial.workspace / name).write_text(forged)
    (trial.logs / "reward.txt").write_text("1\n")
    (trial.logs / "reward.json").write_text('{"reward": 1}')
    done = trial.judge()
    assert done.rewards == {"reward": 0.0, "file_exists:a.txt": 0.0} and done.text == "0.0\n"
    shutil.rmtree(trial.workspace)  # the agent's doing, so a fail
    done = trial.judge()
    assert (done.code, done.text) == (0, "0.0\n")


def test_modes_and_links_reach_the_verifier_in_an_archive(tmp_path: Path) -> None:
    files = {"open": {"text": "x", "mode": "0664"}, "out": {"symlink": "open"}}
    checks = ({"kind": "file_mode", "path": "open", "mode": "0664"}, {"kind": "file_exists", "path": "out"})
    trial = Trial(
        lay(tmp_path / "task", task_folder(make(*checks, workspace={"files": files}), judges())), tmp_path / "x"
    )
    trial.collect()
    assert trial.judge().text == "1.0\n"
    (trial.artifacts / "left.tar").write_text("no archive")  # the agent's doing where nobody collects: in its place
    assert trial.judge().text == "0.0\n"


def test_no_verdict_writes_no_reward(tmp_path: Path) -> None:
    large = {"files": {"big.bin": {"size": 2 << 20}}}
    task = make({"kind": "file_contains", "path": "big.bin", "contains": "x"}, workspace=large)
    trial = Trial(lay(tmp_path / "task", task_folder(task, judges())), tmp_path / "trial")
    (trial.logs / "reward.txt").write_text("1\n")
    done = trial.judge()
    assert (done.code, done.rewards, done.text) == (3, None, None) and "no verdict" in done.said


# -- Harbor itself -----------------------------------------------------------------------------------------------------

LOADS = """
import json, sys
from pathlib import Path
from harbor.lint import lint_task
from harbor.models.task.task import Task
found = {}
for folder in map(Path, sys.argv[1:]):
    task = Task(folder)
    assert Task.is_valid_dir(folder)
    assert task.instruction and task.paths.discovered_solve_path
    found[task.short_name] = [f"{f.rule}: {f.path}: {f.message}" for f in lint_task(folder)]
print(json.dumps(found))
"""


def test_harbor_loads_every_shipped_task_and_finds_nothing(tmp_path: Path) -> None:
    python = os.environ.get("TURNGYM_TEST_HARBOR")
    if not python:
        pytest.skip("TURNGYM_TEST_HARBOR names no Python with harbor: .ci/peer harbor FOLDER makes one")
    folders = [lay(tmp_path / name, task_folder(task, {"w.whl": b""})) for name, task in LIBRARY.items()]
    done = subprocess.run([python, "-c", LOADS, *map(str, folders)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: [] for name in LIBRARY}


class Images:
    """Builds the two images of a task and runs them one after the other, as Harbor does."""

    def __init__(self, url: str) -> None:
        import docker

        self._client, self._made = docker.DockerClient(url), []
        self._log = docker.types.LogConfig(type="json-file")

    def build(self, folder: Path) -> str:
        image, _ = self._client.images.build(path=str(folder), network_mode="none", rm=True, forcerm=True)
        self._made.append(image.id)
        return str(image.id)

    def run(self, image: str, command: str, archives: dict[str, bytes], out: str) -> tuple[str, bytes]:
        """Return what was said, and `out` as an archive."""
        options = {"network_mode": "none", "log_config": self._log}
        container = self._client.containers.create(image, ["bash", "-c", command], **options)
        try:
            for place, archive in archives.items():
                container.put_archive(place, archive)
            container.start()
            container.wait()
            return container.logs().decode(), b"".join(container.get_archive(out)[0])
        finally:
            container.remove(force=True)

    def close(self) -> None:
        for image in self._made:
            self._client.images.remove(image, force=True)
        self._client.close()


@pytest.fixture
def images() -> Iterator[Images]:
    url = os.environ.get(ENGINE_VARIABLE)
    if not url:
        pytest.skip(f"{ENGINE_VARIABLE} names no container engine")
    made = Images(url)
    yield made
    made.close()


@pytest.mark.docker
@pytest.mark.parametrize("name", ["merge-contacts", "calculator"])
def test_both_images_are_built_and_judge(name: str, tmp_path: Path, images: Images) -> None:
    folder = lay(tmp_path / "task", task_folder(LIBRARY[name], judges(), "turngym-shell:bookworm"))
    agent, verifier = images.build(folder / "environment"), images.build(folder / "tests")
    solution = io.BytesIO()
    with tarfile.open(fileobj=solution, mode="w") as archive:
        archive.add(folder / "solution", "solution")
    for command, passed in (("bash /solution/solve.sh", True), ("true", False)):
        _, left = images.run(agent, command, {"/": solution.getvalue()}, "/workspace")
        said, logs = images.run(
            verifier, "mkdir -p /logs/verifier && /tests/test.sh", {"/": left}, "/logs/verifier/reward.json"
        )
        with tarfile.open(fileobj=io.BytesIO(logs)) as archive:
            rewards = json.load(archive.extractfile("reward.json"))  # type: ignore[arg-type]
        assert (rewards["reward"] == 1.0) is passed, said
