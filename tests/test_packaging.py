"""What a user installs: the wheel's contents, its dependencies, and life beside another package with our names."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.shared_data import REPOSITORY

PACKAGES = {"envs", "agents", "trainers", "tasks", "sandboxes"}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")

pytestmark = pytest.mark.xdist_group("wheel")  # one worker builds the wheel once


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=240
    )
    if check:
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no build folder stays in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, folder / "tree" / name, ignore=IGNORED)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder / "tree" / name)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", folder]
    run(sys.executable, "-m", "pip", "wheel", *options, folder / "tree", cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_top_level_is_our_five_packages(wheel: Path) -> None:
    version = PROJECT["version"]
    assert {name.split("/")[0] for name in contents(wheel)} == PACKAGES | {f"turngym-{version}.dist-info"}


def test_every_file_of_the_packages_travels(wheel: Path) -> None:
    tree = {
        path.relative_to(REPOSITORY).as_posix()
        for name in PACKAGES
        for path in (REPOSITORY / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert contents(wheel) - {name for name in contents(wheel) if ".dist-info/" in name} == tree


@pytest.mark.parametrize(
    "pattern",
    [
        r"tasks/library/.+\.yaml",
        r"tasks/templates/.+",
        r"trainers/configs/quickstart\.yaml",
        r"trainers/templates/.+\.j2",
        r"agents/models/quickstart/.+\.safetensors",
        r"agents/models/quickstart/tokenizer\.json",
        *(f"{package}/py\\.typed" for package in sorted(PACKAGES)),
        r"turngym-.+\.dist-info/licenses/LICENSE",
    ],
)
def test_what_a_user_needs_is_in_the_wheel(wheel: Path, pattern: str) -> None:
    assert any(re.fullmatch(pattern, name) for name in contents(wheel))


def constraints() -> dict[str, str]:
    pins = {}
    for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, separator, version = line.partition("==")
            assert separator and re.fullmatch(r"[0-9][0-9a-z.]*", version), f"not an exact pin: {line}"
            pins[canonicalize_name(name)] = version
    return pins


def declared() -> list[Requirement]:
    """What the core and all extras name, without the extras that other extras hold."""
    extras = PROJECT["optional-dependencies"].values()
    every = map(Requirement, [*PROJECT["dependencies"], *(text for extra in extras for text in extra)])
    return [requirement for requirement in every if requirement.name != PROJECT["name"]]


def test_constraints_satisfy_what_the_project_declares() -> None:
    pins = constraints()
    for requirement in declared():
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_constraints_pin_the_whole_closure() -> None:
    """Every package that the declared ones pull in on this machine has a pin."""
    pins = constraints()
    missing, seen = {}, set()
    todo = [(requirement, "turngym") for requirement in declared()]
    while todo:
        requirement, wanted_by = todo.pop()
        name = canonicalize_name(requirement.name)
        key = (name, *sorted(requirement.extras))
        # A CUDA build of torch names its exact CUDA packages itself.
        if key in seen or name.startswith(("nvidia-", "cuda-")) or name == "triton":
            continue
        seen.add(key)
        if name not in pins:
            missing[name] = wanted_by
            continue
        try:
            needs = importlib.metadata.requires(requirement.name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that is not installed here
        for text in needs:
            need = Requirement(text)
            markers = [{"extra": extra} for extra in requirement.extras] or [{"extra": ""}]
            if need.marker is None or any(need.marker.evaluate(marker) for marker in markers):
                todo.append((need, requirement.name))
    assert missing == {}


@pytest.fixture(scope="session")
def dependencies() -> Path:
    """The folder of installed packages that the tests themselves run on."""
    return Path(sysconfig.get_path("purelib"))


def environment(folder: Path, dependencies: Path) -> Path:
    """Make a virtual environment that sees the dependencies, but not a TurnGym installed beside them.

    A plain folder named in a ``.pth`` file goes behind the environment's own packages, and the ``.pth`` files in it
    (an editable installation is one) are not read.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    return folder / "bin/python"


def install(python: Path, *what: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    options = ["--python", python, "install", "--no-deps", "--no-compile", "--quiet", "--disable-pip-version-check"]
    return run(sys.executable, "-m", "pip", *options, *what, cwd=cwd, check=False)


@pytest.mark.slow
def test_the_wheel_alone_in_a_foreign_folder(wheel: Path, dependencies: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", dependencies)
    assert install(python, wheel, cwd=tmp_path).returncode == 0
    work = tmp_path / "work"
    work.mkdir()
    made = run(python, "-c", "import gymnasium as g; print(g.make('envs:ClawGym-v0').spec.id)", cwd=work)
    assert made.stdout.strip() == "ClawGym-v0"
    assert "quickstart" in run(python, "-m", "trainers.grpo", "--help", cwd=work).stdout
    listed = run(python, "-m", "tasks", "list", "library,library:dialogues,library:turns", cwd=work).stdout
    shipped = len(list((REPOSITORY / "tasks/library").rglob("*.yaml")))
    assert f"{shipped} tasks" in listed
    run(python, "-m", "tasks", "new", "mine", cwd=work)
    assert [path.relative_to(work).as_posix() for path in work.rglob("*.yaml")] == ["my_tasks/mine.yaml"]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["before", "after"])
def test_beside_openai_agents(wheel: Path, dependencies: Path, tmp_path: Path, order: str) -> None:
    """Both ship ``agents``: the trainer says so in one line, and what needs no ``agents`` works."""
    python = environment(tmp_path / "venv", dependencies)
    other = ["openai-agents"]
    for what in [other, [wheel]] if order == "before" else [[wheel], other]:
        done = install(python, *what, cwd=tmp_path)
        if done.returncode != 0 and what is other:
            pytest.skip("openai-agents cannot be installed here (no package registry?)")
        assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    work.mkdir()
    for module in (["trainers.grpo", "--help"], ["trainers.evaluate", "--help"]):
        result = run(python, "-m", *module, cwd=work, check=False)
        lines = result.stderr.strip().splitlines()
        assert result.returncode != 0 and len(lines) == 1, result.stderr
        assert "openai-agents" in lines[0] and "Remedy" in lines[0]
    run(python, "-c", "import gymnasium as g; g.make('envs:ClawGym-v0')", cwd=work)
    assert " tasks" in run(python, "-m", "tasks", "list", cwd=work).stdout


EXTENDING = (REPOSITORY / "docs/extending.md").read_text(encoding="utf-8")


def page_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", EXTENDING, re.DOTALL | re.MULTILINE)


def test_an_example_of_each_kind_is_about_twenty_lines() -> None:
    files = [code for code in page_blocks("python") if code.startswith("# my_turngym/")]
    assert len(files) == 3
    assert max(len(code.splitlines()) for code in files) <= 22


@pytest.mark.slow
def test_the_manuals_examples_of_ones_own(wheel: Path, dependencies: Path, tmp_path: Path) -> None:
    """Policy, reward and operators as docs/extending.md has them, installed beside the wheel, from a foreign folder."""
    python = environment(tmp_path / "venv", dependencies)
    package = tmp_path / "package"
    (package / "my_turngym").mkdir(parents=True)
    (package / "my_turngym/__init__.py").touch()
    (project,) = page_blocks("toml")
    (package / "pyproject.toml").write_text(project)
    programs = []
    for code in page_blocks("python"):
        place = re.match(r"# (my_turngym/\w+\.py)\n", code)
        if place:
            (package / place[1]).write_text(code)
        else:
            programs.append(code)
    for what in ([wheel], ["--no-build-isolation", package]):
        done = install(python, *what, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    work.mkdir()
    assert [run(python, "-c", code, cwd=work).stdout for code in programs] == ["NoOpPolicy\n", ""]
    (commands,) = page_blocks("sh")
    for line in commands.splitlines():
        head, *rest = shlex.split(line)
        assert head == "python"
        run(python, *rest, cwd=work)

    def episodes(pattern: str) -> list[dict[str, Any]]:
        files = sorted((work / "runs").glob(pattern))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    one = episodes("one/**/*.jsonl")
    assert len(one) == 4 and all("touch done.txt" in str(episode) for episode in one)
    early = episodes("early/**/*.jsonl")
    assert [(e["reward"], e["passed"]) for e in early] == [(1.0, True)] * 4
    assert all((e["environment"]["reward"], e["environment"]["own_reward"]) == ("early", True) for e in early)
    learned = episodes("mine/trajectories/*.jsonl")
    assert learned and {e["reward"] for e in learned} <= {0.0, 0.5, 1.0}
    wrong = run(python, "-m", "trainers.evaluate", "--model", "one-comand:x", cwd=work, check=False)
    assert wrong.returncode == 2 and "did you mean 'one-command:'" in wrong.stderr
    wrong = run(python, "-m", "trainers.evaluate", "--model", "noop", "--reward", "erly", cwd=work, check=False)
    assert wrong.returncode == 2 and "unknown reward 'erly': did you mean 'early'" in wrong.stderr
