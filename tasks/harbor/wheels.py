"""The wheels that grade a task where nothing is installed: TurnGym's, and those of what `tasks grade` imports."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from tasks.model import Problem, TaskError

TURNGYM = "turngym"
NEEDED = ("annotated-types", "pydantic", "pydantic-core", "PyYAML", "regex", "typing-extensions", "typing-inspection")
"""Distributions that `python -m tasks grade` imports for tasks that are judged by their workspace."""
GRADER = "tasks/grading.py"
"""What a wheel of TurnGym holds."""
_HOW = "`pip wheel --no-deps --wheel-dir dist .` in the checkout builds one: then --wheel dist/turngym-*.whl"
_NOT_CARRIED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_DATE = (1980, 1, 1, 0, 0, 0)


def grading_wheels(given: Sequence[Path] = ()) -> dict[str, bytes]:
    """Return the wheels that a grader needs: file name to content, sorted.

    Args:
        given: Wheels to take. What is needed and not among them is collected from the packages that are installed
            beside this one: they are made wheels again, for the same Python and machine.

    Raises:
        TaskError: A file is no wheel, a needed distribution is missing, or TurnGym runs from a checkout and its wheel
            is not given.
    """
    wheels: dict[str, bytes] = {}
    there: set[str] = set()
    for path in given:
        content = _read(path)
        wheels[path.name] = content
        there.add(_canonical(path.name.split("-")[0]))
    for name in (TURNGYM, *NEEDED):
        if _canonical(name) not in there:
            file, content = _rebuilt(name)
            wheels[file] = content
    return dict(sorted(wheels.items()))


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = set(archive.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        raise TaskError(Problem(f"is no wheel that can be read ({error})", str(path))) from error
    if path.suffix != ".whl" or path.name.count("-") < 4:
        raise TaskError(Problem("is no wheel: its name must be NAME-VERSION-PYTHON-ABI-PLATFORM.whl", str(path)))
    if _canonical(path.name.split("-")[0]) == TURNGYM and GRADER not in names:
        raise TaskError(Problem(f"cannot grade: it holds no {GRADER}. {_HOW}", str(path)))
    return content


def _rebuilt(name: str) -> tuple[str, bytes]:
    """Make a wheel of an installed distribution: its files, and a new list of them."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise TaskError(
            f"grading needs {name}, which is not installed here: give its wheel with --wheel FILE"
        ) from None
    files = _carried(found)
    if name == TURNGYM and GRADER not in files:
        raise TaskError(f"TurnGym runs from a checkout here, and a grader needs its wheel: {_HOW}")
    info = next((path.partition("/")[0] for path in files if path.endswith(".dist-info/WHEEL")), None)
    if info is None:
        raise TaskError(f"{name} was not installed from a wheel: give its wheel with --wheel FILE")
    tags = [line.partition(": ")[2].strip() for line in files[f"{info}/WHEEL"].decode().splitlines() if "Tag: " in line]
    parts = [sorted({tag.split("-")[n] for tag in tags}) for n in range(3)]
    stem = f"{info.removesuffix('.dist-info')}-{'-'.join('.'.join(part) for part in parts)}"
    rows = [f"{path},{_hash(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    return f"{stem}.whl", _zipped(files)


def _carried(found: Distribution) -> dict[str, bytes]:
    kept: dict[str, bytes] = {}
    for file in sorted(found.files or (), key=str):
        path = file.as_posix()
        if ".." in file.parts or "__pycache__" in file.parts or path.endswith(".pyc"):
            continue  # programs in `bin`, and what this machine compiled
        if ".dist-info/" in path and file.name in _NOT_CARRIED:
            continue
        kept[path] = Path(str(found.locate_file(file))).read_bytes()
    return kept


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """The same files, the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return out.getvalue()


def _hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-")
