"""Each dependency that is declared is used, and each that is used is declared, in the core and in every extra."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sandboxes import guard
from tests.shared_data import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"])
PACKAGES = ("sandboxes", "tasks", "envs", "agents", "trainers")
CORE_COMMANDS = ("trainers/evaluate.py", "trainers/reporting/folder.py", "trainers/report.py", "agents/__main__.py")
"""Beside every file of `sandboxes`, `tasks` and `envs`: what `pip install turngym` promises to run."""

UNDECLARED = {
    "verifiers": "a peer of a benchmark, in an interpreter of its own that the benchmark is told",
    "trackio": "an option of transformers, which refuses `report_to trackio` where it is missing",
    "triton": "comes with torch where there is a GPU; the kernels are imported only there",
    "pydantic-core": "half of pydantic, which requires one exact version of it",
    "latex2sympy2-extended": "half of math-verify, which requires one exact version of it",
}
NOT_IMPORTED = {
    "gguf": "transformers reads the weights of `smollm2` with it",
    "mkdocs": "a command: make docs",
    "mypy": "a command: make check",
    "pre-commit": "a command, of those who want its hooks",
    "pytest-timeout": "a plugin of pytest: the setting `timeout`",
    "ruff": "a command: make check",
    "types-pexpect": "read by mypy",
    "types-pyyaml": "read by mypy",
    "types-regex": "read by mypy",
}
BY_NAME = {"import_module", "importorskip", "_package"}
"""Functions that import what their first argument names."""


def requirements(texts: Iterable[str]) -> set[str]:
    """Names of distributions; an extra that holds ours names it, too."""
    return {canonicalize_name(Requirement(text).name) for text in texts} - {PROJECT["name"]}


CORE = requirements(PROJECT["dependencies"])
DECLARED = {extra: requirements(texts) for extra, texts in PROJECT["optional-dependencies"].items()}


@cache
def distributions() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


def distribution_of(module: str) -> str:
    """The distribution that brings a module; where none is installed, of the same name."""
    top = module.partition(".")[0]
    return canonicalize_name(distributions().get(top, [top])[0])


def foreign(module: str) -> bool:
    top = module.partition(".")[0]
    return top not in sys.stdlib_module_names and top not in (*PACKAGES, "tests", "benchmarks")


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that a file imports, inside functions and by a name that stands there, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in BY_NAME:
                yield str(node.args[0].value)


def at_import(tree: ast.Module) -> Iterator[str]:
    """What is imported when a file is: nothing that stands in a function, or that only a type checker reads."""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If):
            todo += node.orelse if "TYPE_CHECKING" in ast.unparse(node.test) else [*node.body, *node.orelse]
        elif isinstance(node, ast.Try | ast.With | ast.ClassDef):
            todo += node.body


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


@cache
def used_in(path: Path) -> frozenset[str]:
    return frozenset(distribution_of(name) for name in imported(parsed(path)) if foreign(name))


def used_by(paths: Iterable[Path]) -> set[str]:
    return set().union(*map(used_in, paths))


@cache
def core_files() -> frozenset[Path]:
    """All that is imported when the commands of the core start."""
    found: set[Path] = set()
    todo = [*files("sandboxes", "tasks", "envs"), *(REPOSITORY / name for name in CORE_COMMANDS)]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        for name in at_import(parsed(path)):
            parts = name.split(".")
            if parts[0] in PACKAGES:
                places = [REPOSITORY.joinpath(*parts[:n]) for n in range(1, len(parts) + 1)]
                beside = (option for place in places for option in (place / "__init__.py", place.with_suffix(".py")))
                todo += [option for option in beside if option.is_file()]
    return frozenset(found)


def test_what_the_packages_import_is_declared() -> None:
    every = CORE.union(*(DECLARED[extra] for extra in EXTRAS if extra != "dev"), UNDECLARED)
    assert used_by(files(*PACKAGES)) - every == set()


def test_the_core_imports_at_its_start_only_what_it_declares() -> None:
    found = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in core_files()
        for name in at_import(parsed(path))
        if foreign(name) and distribution_of(name) not in CORE | UNDECLARED.keys()
    }
    assert found == set()


def test_what_the_core_declares_is_used_by_the_core() -> None:
    assert CORE - used_by(core_files()) == set()


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_extra_declares_is_used(extra: str) -> None:
    where = files(*PACKAGES, "tests", "benchmarks") if extra == "dev" else files(*PACKAGES)
    assert DECLARED[extra] - used_by(where) - NOT_IMPORTED.keys() == set()
    assert DECLARED[extra] & CORE == set()


def test_what_tests_and_benchmarks_import_comes_with_dev() -> None:
    every = CORE.union(*(DECLARED[extra] for extra in ("train", "ray", "serve", "dev", "ifbench")), UNDECLARED)
    assert used_by(files("tests", "benchmarks")) - every == set()
    assert {"turngym[train]", "turngym[ray]", "turngym[serve]"} <= set(PROJECT["optional-dependencies"]["dev"])


def test_each_exception_is_still_one() -> None:
    declared = CORE.union(*DECLARED.values())
    used = used_by(files(*PACKAGES, "tests", "benchmarks"))
    assert UNDECLARED.keys() <= used - declared
    assert NOT_IMPORTED.keys() <= declared - used


def test_the_remedy_knows_what_the_extra_brings() -> None:
    """`guard.TRAIN` names imports; those of the extra `train`, and no other."""
    assert {distribution_of(name) for name in guard.TRAIN} == DECLARED["train"]


def test_an_import_in_a_function_is_found_and_is_none_at_the_start() -> None:
    tree = ast.parse(
        "import a.b\ndef f():\n    from c import d\n    _package('e.f')\ntry:\n    import g\nfinally: pass\n"
    )
    assert sorted(imported(tree)) == ["a.b", "c", "e.f", "g"]
    assert sorted(at_import(tree)) == ["a.b", "g"]
