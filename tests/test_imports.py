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


def rooms(package: str, root: Path) -> dict[str, set[str]]:
    """Which folders and modules right inside a package import which others; imports for type checkers are left out."""
    found: dict[str, set[str]] = {}
    for path in sorted((root / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for_types = {id(part) for node in ast.walk(tree) if _for_types(node) for part in ast.walk(node)}
        here = path.relative_to(root / package).parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in for_types and node.module:
                for name in (f"{node.module}.{alias.name}" for alias in node.names):
                    _, _, inside = name.partition(f"{package}.")
                    room = inside.split(".")[0]
                    known = (root / package / room).is_dir() or (root / package / f"{room}.py").is_file()
                    if name.startswith(f"{package}.") and known and room != here:
                        found.setdefault(here, set()).add(room)
    return found


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def circles(edges: dict[str, set[str]]) -> list[str]:
    """Rooms from which imports lead back to themselves."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            new = edges.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen

    return sorted(room for room in edges if room in reached(room))


def against(order: list[list[str]], edges: dict[str, set[str]]) -> list[str]:
    """Imports that point from a lower room of an order to a higher one."""
    height = {room: n for n, group in enumerate(order) for room in group}
    pairs = [(a, b) for a, below in edges.items() for b in below if a in height and b in height]
    return sorted(f"{a} imports {b}" for a, b in pairs if height[a] > height[b])


def order_of(package: str) -> list[list[str]]:
    """The order that a package's `__init__` states: `a, b -> c -> d` after "Inside, imports point one way:"."""
    doc = ast.get_docstring(ast.parse((REPOSITORY / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    _, _, said = doc.partition("Inside, imports point one way:")
    chain = " ".join(said.split("\n\n")[0].split()).strip(" .`")
    return [[room.strip(" `") for room in group.split(",")] for group in chain.split("->")]


@pytest.mark.parametrize("package", HOUSE)
def test_inside_a_package_imports_point_one_way(package: str) -> None:
    edges, order = rooms(package, REPOSITORY), order_of(package)
    assert circles(edges) == []
    assert len(order) > 2, "the package says no order"
    assert [room for group in order for room in group if not list((REPOSITORY / package).glob(f"{room}*"))] == []
    assert against(order, edges) == []


def test_a_circle_and_an_import_against_the_order_are_found(tmp_path: Path) -> None:
    (tmp_path / "tasks/low").mkdir(parents=True)
    (tmp_path / "tasks/low/a.py").write_text("def f():\n    from tasks.high import x\n")
    (tmp_path / "tasks/high.py").write_text("from tasks.low import a\nfrom tasks import middle\n")
    (tmp_path / "tasks/middle.py").write_text("if TYPE_CHECKING:\n    from tasks.high import x\n")
    edges = rooms("tasks", tmp_path)
    assert edges == {"low": {"high"}, "high": {"low", "middle"}}
    assert circles(edges) == ["high", "low"]
    assert against([["high"], ["middle"], ["low"]], edges) == ["low imports high"]
