"""What every package and command does first: whose packages these are, refusals, Ctrl-C, old import paths."""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import importlib.util
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

# ---------------------------------------------------------------------------------------------------------------------
# Importing our packages: one line when a name is taken or a package missing; old paths of modules that have moved.
#
# TurnGym ships five top-level packages, and three of their names (``agents``, ``envs``, ``tasks``) are also used by
# other projects. Python imports whichever comes first on the path, and ``pip`` overwrites files of the same name
# without a word, so a mix-up would otherwise show up as a strange ``AttributeError`` far from its cause.
#
# Each package calls :func:`check_packages` first thing in its ``__init__`` with its own name and the names below it;
# ``trainers`` names all five. The code lives in ``sandboxes``, the lowest package, because that name is not taken.
#
# The check costs about a millisecond: where each name would be imported from, and, for an installed wheel, whether the
# package folder still is what the wheel's ``RECORD`` lists. Other distributions are read only to name the culprit.
#
# What loads or trains weights needs packages that ``pip install turngym`` does not bring. Their imports stand where
# they are used, and :func:`missing_extra` turns the failure of any of them into the line that a command ends with.
#
# A module that the manual once showed and that stands elsewhere now is named to :func:`moved`; importing it by its old
# path warns for one release, and works.

DISTRIBUTION = "turngym"
HOME = Path(__file__).resolve().parent.parent
"""The folder that holds our five packages: the source tree, or a ``site-packages``."""

TRAIN = (
    "accelerate", "datasets", "huggingface_hub", "peft", "pyarrow", "safetensors", "tokenizers", "torch",
    "transformers", "trl",
)  # fmt: skip
"""What the extra ``train`` installs, by the names under which it is imported."""

_checked: set[str] = set()


class PackageShadowedError(ImportError):
    """Another package answers to the name of one of ours; the message is one line with the remedy."""


def check_packages(*names: str) -> None:
    """Make sure that importing each of ``names`` gives this distribution's package.

    Args:
        *names: top-level package names to check, for example ``"tasks", "sandboxes"``.

    Raises:
        PackageShadowedError: another module would be imported, or another distribution wrote into our folder.
        SystemExit: the same while Python is still starting ``python -m ...``: one line, no traceback.
    """
    for name in names:
        if name in _checked:
            continue
        problem = find_problem(name, HOME)
        if problem is not None:
            if sys.argv[:1] == ["-m"]:  # what Python puts there until the module of `python -m` is found
                raise SystemExit(problem)
            raise PackageShadowedError(problem)
        _checked.add(name)


def missing_extra(error: ImportError) -> str | None:
    """Say in one line which extra brings the package whose import failed.

    Returns:
        ``None`` where no extra brings it, or where it is installed and something else is wrong with it.
    """
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in TRAIN:
        return None
    return f'this needs {package}, which is not installed. Remedy: pip install "{DISTRIBUTION}[train]"'


def moved(modules: Mapping[str, str]) -> None:
    """Let old paths of modules be imported for one more release, each with a warning that names the new one.

    Args:
        modules: Old dotted path -> new one.
    """
    _MOVED.modules.update(modules)
    if _MOVED not in sys.meta_path:
        sys.meta_path.append(_MOVED)  # last: asked only for what no longer is there


class _Moved(MetaPathFinder, Loader):
    """Finds modules under their old paths. What it gives is a module of its own that hands on every attribute."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        return ModuleSpec(name, self, is_package=any(old.startswith(f"{name}.") for old in self.modules))

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, self.modules[module.__name__]
        warnings.warn(f"{old} is {new} now; the old path goes with the next release", FutureWarning, stacklevel=2)
        vars(module)["__getattr__"] = lambda name: getattr(importlib.import_module(new), name)


_MOVED = _Moved()


def find_problem(name: str, home: Path) -> str | None:
    """Say in one line what stands in the way of our package ``name`` that belongs in ``home``; None if nothing does."""
    found = _import_location(name)
    ours = home / name
    if found is not None and found != ours:
        return _shadowed(name, found)
    if found is None or not (ours / "__init__.py").is_file():
        return (
            f"{DISTRIBUTION}: its package '{name}' is missing from {home}; a package that was uninstalled may have "
            f"taken it along. Remedy: pip install --force-reinstall --no-deps {DISTRIBUTION}"
        )
    if _altered(name, home):
        other = claimant(name, home)
        if other is not None:
            return (
                f"{DISTRIBUTION}: the package '{other}' is installed in the same place and writes into the folder "
                f"'{name}' too ({ours}). Remedy: use a separate virtual environment, or "
                f"pip uninstall {other} && pip install --force-reinstall --no-deps {DISTRIBUTION}"
            )
    return None


def claimant(name: str, site: Path) -> str | None:
    """Name the other distribution installed in ``site`` whose files include the top-level package ``name``, if any."""
    for info in sorted(site.glob("*.dist-info")):
        distribution = info.name.split("-")[0].replace("_", "-")
        if distribution.lower() == DISTRIBUTION:
            continue
        if any(path.startswith(f"{name}/") for path in _recorded(info)):
            return distribution
    return None


def _import_location(name: str) -> Path | None:
    """Return the folder (or single file) that ``import name`` gives, without importing it; None if there is none."""
    module = sys.modules.get(name)
    if module is not None:
        origin = getattr(module, "__file__", None)
    else:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec is not None else None
    if origin is None:  # nothing at all, or a folder without __init__.py
        return None
    path = Path(origin).resolve()
    return path.parent if path.name.startswith("__init__.") else path


def _shadowed(name: str, found: Path) -> str:
    """Compose the line for a module elsewhere on the path that hides our package ``name``."""
    other = claimant(name, found.parent)
    if other is not None:
        return (
            f"{DISTRIBUTION}: 'import {name}' gives the package '{other}' ({found}) instead of ours. Remedy: use a "
            f"separate virtual environment, or pip uninstall {other}"
        )
    return (
        f"{DISTRIBUTION}: 'import {name}' gives {found} instead of our package. Remedy: run from another folder, or "
        f"rename {found.name}"
    )


def _altered(name: str, home: Path) -> bool:
    """Whether the installed folder ``name`` differs from the wheel: changed ``__init__.py``, or entries not ours.

    A source tree has no ``RECORD`` and is never altered: its owner edits it.
    """
    info = next(iter(home.glob(f"{DISTRIBUTION}-*.dist-info")), None)
    if info is None:
        return False
    recorded = _recorded(info)
    init = f"{name}/__init__.py"
    expected = recorded.get(init, "")
    digest = base64.urlsafe_b64encode(hashlib.sha256((home / init).read_bytes()).digest()).rstrip(b"=").decode()
    if expected and expected != f"sha256={digest}":
        return True
    entries = {path.split("/")[1] for path in recorded if path.startswith(f"{name}/")} | {"__pycache__"}
    return any(entry.name not in entries for entry in os.scandir(home / name))


def _recorded(info: Path) -> dict[str, str]:
    """Read the ``RECORD`` of a ``.dist-info`` folder: path of each installed file -> its hash (empty if absent)."""
    try:
        with (info / "RECORD").open(newline="", encoding="utf-8") as file:
            return {row[0]: row[1] if len(row) > 1 else "" for row in csv.reader(file) if row}
    except FileNotFoundError:  # some system packages come without one: then nothing is known about their files
        return {}


# -- What the command lines of all five packages share: how they refuse, and Ctrl-C while they start ------------------
# A refusal is `COMMAND: what is wrong and what to do` on standard error (`tasks: ...`, `trainers.grpo: ...`), with
# exit code 2.


class Parser(argparse.ArgumentParser):
    """Refuses arguments as the commands refuse everything else; its subcommands' parsers do, too."""

    def error(self, message: str) -> NoReturn:
        """Show the usage and the complaint; ends the program with exit code 2."""
        self.print_usage(sys.stderr)
        command, _, _ = self.prog.removeprefix("python -m ").partition(" ")
        self.exit(2, f"{command}: {message} (--help lists the arguments)\n")


def add_command(
    commands: Any, name: str, about: str, run: Callable[[argparse.Namespace], int], *, description: str, example: str
) -> argparse.ArgumentParser:
    """Add a command to what `add_subparsers` returned; `run` of what is parsed is its function.

    Args:
        commands: What `Parser.add_subparsers` returned.
        name: The command.
        about: One line of the list of commands.
        run: Takes what was parsed, returns the exit code.
        description: The head of its help.
        example: A whole command line, for the foot of its help.
    """
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def positive(text: str) -> int:
    """A number of an option that counts from 1.

    Raises:
        argparse.ArgumentTypeError: It is less.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def plain(text: str) -> str:
    """Text that may hold what a hostile command wrote, safe to show: one line, nothing a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def leave_with(main: Callable[[], int]) -> NoReturn:
    """Run a command line and end the process with its exit code.

    A reader that has seen enough (`| head`) is no error of ours. Ctrl-C is one line and exit code 130.
    """
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer has nowhere to go
        code = 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def leave_when_interrupted() -> None:
    """From a package's `__init__`: until `started`, Ctrl-C ends `python -m PACKAGE...` with one line and exit code 130.

    Its imports take seconds. An exception among them would be shown as a traceback, or be caught by what is imported.
    """
    mine = sys.argv[:1] == ["-m"]  # so it reads while the package of the command is imported
    if (
        mine
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _leave)


def started() -> None:
    """The command itself begins: Ctrl-C is an exception again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os.write(2, b"interrupted while it was starting\n")
    os._exit(130)
