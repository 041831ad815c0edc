"""The arrows of the house: trainers -> agents -> envs -> tasks -> sandboxes, and nothing upward."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shared_data import REPOSITORY

HOUSE = ["sandboxes", "tasks", "envs", "agents", "trainers"]
"""From the lowest to the highest: a package may import itself and those before it."""

INSIDE = sorted((REPOSITORY / "sandboxes/inside").glob("*.py"))
STANDARD_LIBRARY_ONLY = [REPOSITORY / "sandboxes/supervisor.py", REPOSITORY / "sandboxes/guard.py", *INSIDE]
"""Files that run inside a sandbox, or before anything else is known to import."""


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import in a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def upward(package: str, root: Path) -> list[str]:
    """List the imports in ``root/package`` that name a package above it, or are relative."""
    above = set(HOUSE[HOUSE.index(package) + 1 :])
    wrong = []
    for path in sorted((root / package).rglob("*.py")):
        for line, name in imports(path):
            if name.startswith(".") or name.split(".")[0] in above:
                wrong.append(f"{path.relative_to(root)}:{line}: imports {name}")
    return wrong


@pytest.mark.parametrize("package", HOUSE)
def test_a_package_imports_only_itself_and_those_below(package: str) -> None:
    assert upward(package, REPOSITORY) == []


@pytest.mark.parametrize("package", HOUSE)
def test_no_package_imports_the_tests(package: str) -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in (REPOSITORY / package).rglob("*.py")
        for line, name in imports(path)
        if name.split(".")[0] in {"tests", "benchmarks"}
    ]
    assert wrong == []


def test_an_upward_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/bad.py").write_text("def f():\n    from envs.actions import parse\n    import trainers.grpo\n")
    assert upward("tasks", tmp_path) == [
        "tasks/bad.py:2: imports envs.actions",
        "tasks/bad.py:3: imports trainers.grpo",
    ]


@pytest.mark.parametrize("file", STANDARD_LIBRARY_ONLY, ids=lambda path: path.name)
def test_what_runs_inside_needs_only_the_standard_library(file: Path) -> None:
    foreign = [
        f"{file.name}:{line}: {name}"
        for line, name in imports(file)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("sandboxes.inside")
    ]
    assert foreign == []
