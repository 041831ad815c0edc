"""The import guard: who answers to our names, in an installed site and beside a foreign folder."""

from __future__ import annotations

import base64
import hashlib
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes import guard

OURS = ("tasks", "sandboxes", "envs", "agents", "trainers")
INIT = "from sandboxes.guard import check_packages\n\ncheck_packages({names})\n"
BELOW = {
    "tasks": ("tasks", "sandboxes"),
    "envs": ("envs", "tasks", "sandboxes"),
    "agents": ("agents", "envs", "tasks", "sandboxes"),
    "trainers": ("trainers", "agents", "envs", "tasks", "sandboxes"),
}


def record_line(site: Path, path: Path) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
    return f"{path.relative_to(site).as_posix()},sha256={digest},{path.stat().st_size}\n"


def install(site: Path, distribution: str, files: dict[str, str]) -> None:
    """Do to ``site`` what pip does with a wheel: write the files, overwrite what was there, and record them."""
    written = []
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        written.append(path)
    info = site / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("".join(record_line(site, path) for path in written))


def ours() -> dict[str, str]:
    files = {f"{name}/__init__.py": INIT.format(names=", ".join(map(repr, names))) for name, names in BELOW.items()}
    files["trainers/grpo.py"] = "print('trained')\n"
    files["sandboxes/__init__.py"] = ""
    files["sandboxes/guard.py"] = Path(guard.__file__).read_text()
    return files


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    install(site, "turngym", ours())
    return site


THEIRS = {"agents/__init__.py": "class Agent: ...\n", "agents/run.py": ""}


def python(*arguments: str, path: list[Path], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a bare Python (no site-packages, current folder first only with -m or -c) with ``path`` to import from."""
    environment = {"PYTHONPATH": ":".join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env=environment,
        cwd=cwd or path[0].parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", ["sandboxes", "tasks", "envs", "agents", "trainers"])
def test_a_clean_site_imports(site: Path, name: str) -> None:
    result = python("-c", f"import {name}", path=[site])
    assert (result.returncode, result.stderr) == (0, "")


def test_python_m_runs_in_a_clean_site(site: Path) -> None:
    assert python("-m", "trainers.grpo", path=[site]).stdout == "trained\n"


def test_installed_after_us_and_overwritten(site: Path) -> None:
    install(site, "openai_agents", THEIRS)
    result = python("-m", "trainers.grpo", path=[site])
    assert result.returncode != 0
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "openai-agents" in line and "agents" in line and "separate virtual environment" in line


def test_installed_before_us(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "openai_agents", THEIRS)
    install(site, "turngym", ours())  # pip overwrites their __init__.py with ours
    result = python("-m", "trainers.grpo", path=[site])
    (line,) = result.stderr.splitlines()
    assert result.returncode != 0 and "openai-agents" in line and "Remedy" in line


def test_the_other_was_uninstalled_and_took_our_file_along(site: Path) -> None:
    (site / "agents/__init__.py").unlink()
    result = python("-m", "trainers.grpo", path=[site])
    (line,) = result.stderr.splitlines()
    assert "'agents' is missing" in line and "--force-reinstall" in line


def test_import_raises_an_import_error_with_the_line(site: Path) -> None:
    install(site, "openai_agents", THEIRS)
    result = python("-c", "import trainers", path=[site])
    assert result.returncode != 0
    assert "PackageShadowedError: turngym:" in result.stderr.splitlines()[-1]
    caught = python("-c", "try:\n    import trainers\nexcept ImportError as error:\n    print(error)", path=[site])
    assert caught.returncode == 0 and "openai-agents" in caught.stdout


def test_another_site_first_on_the_path_is_named(site: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    install(other, "openai_agents", THEIRS)
    result = python("-m", "trainers.grpo", path=[other, site])
    (line,) = result.stderr.splitlines()
    assert "'import agents' gives the package 'openai-agents'" in line and str(other) in line


@pytest.mark.parametrize(
    ("folder", "works", "stops"),
    [
        ("agents", ["sandboxes", "tasks", "envs"], ["trainers"]),
        ("envs", ["sandboxes", "tasks"], ["agents", "trainers"]),
        ("tasks", ["sandboxes"], ["envs", "agents", "trainers"]),
    ],
)
def test_a_project_with_a_folder_of_that_name(
    site: Path, tmp_path: Path, folder: str, works: list[str], stops: list[str]
) -> None:
    project = tmp_path / "project"
    (project / folder).mkdir(parents=True)
    (project / folder / "__init__.py").write_text("")
    for name in works:
        assert python("-c", f"import {name}", path=[site], cwd=project).returncode == 0, name
    for name in stops:
        result = python("-c", f"import {name}", path=[site], cwd=project)
        last = result.stderr.splitlines()[-1]
        assert str(project / folder) in last and "Remedy: run from another folder" in last, name


def test_a_folder_without_init_shadows_nothing(site: Path, tmp_path: Path) -> None:
    (tmp_path / "project/agents").mkdir(parents=True)
    assert python("-m", "trainers.grpo", path=[site], cwd=tmp_path / "project").stdout == "trained\n"


def test_an_edit_by_hand_is_allowed(site: Path) -> None:
    with (site / "agents/__init__.py").open("a") as file:
        file.write("# looking into something\n")
    (site / "agents/scratch.py").write_text("")
    assert python("-m", "trainers.grpo", path=[site]).returncode == 0


def test_a_source_tree_wins_over_an_installed_namesake(site: Path, tmp_path: Path) -> None:
    tree, other = tmp_path / "tree", tmp_path / "other"
    shutil.copytree(site, tree, ignore=shutil.ignore_patterns("*.dist-info"))
    install(other, "openai_agents", THEIRS)
    result = python("-m", "trainers.grpo", path=[other], cwd=tree)  # -m puts the current folder first
    assert (result.returncode, result.stdout) == (0, "trained\n"), result.stderr


def test_this_checkout_has_no_problem() -> None:
    for name in OURS:
        guard.check_packages(name)


def test_an_old_path_works_and_names_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"sandboxes.of_old": "sandboxes.guard", "sandboxes.of_old.part": "sandboxes.pool"}
    monkeypatch.setattr(guard._MOVED, "modules", old)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    guard.moved({})
    with pytest.warns(FutureWarning, match=r"sandboxes\.of_old is sandboxes\.guard now") as warned:
        from sandboxes.of_old import check_packages
    assert check_packages is guard.check_packages
    assert [Path(warning.filename) for warning in warned] == [Path(__file__)]
    with pytest.raises(ImportError, match="no_such_name"):
        from sandboxes.of_old import no_such_name  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sandboxes.never_was")
    with pytest.warns(FutureWarning, match=r"sandboxes\.of_old\.part is sandboxes\.pool now"):
        from sandboxes.of_old.part import SandboxPool
    assert SandboxPool.__module__ == "sandboxes.pool"
    del sys.modules["sandboxes.of_old"], sys.modules["sandboxes.of_old.part"]
