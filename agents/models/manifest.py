"""What a folder of weights held when it was written: name, size and hash of every file, in `turngym_files.json`.

The list is written last and in one step, so that a folder which has one was whole; whoever reads the folder compares. A
folder without one (a model from elsewhere, one of an older release) is taken as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.atomic_file import atomic_file

MANIFEST = "turngym_files.json"
BY_HAND = f"If the folder was changed on purpose, remove its {MANIFEST}."
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was written.

    Attributes:
        path: The file.
        what: What is wrong with it, in words that follow its name.
    """

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


def write_manifest(folder: Path) -> None:
    """List every file of a folder, those of folders in it included, as they are now.

    Raises:
        OSError: A file cannot be read, or the list cannot be written.
    """
    _write(folder, {name: _described(folder / name) for name in _names(folder)})


def replace_file(folder: Path, name: str, text: str) -> None:
    """Give one file of a listed folder another content; at each moment the folder is whole by its list.

    Between the two writes of the list it admits the old content and the new one.

    Raises:
        OSError: It cannot be written.
    """
    files = {listed: _described(folder / listed) for listed in _names(folder)}
    content = text.encode("utf-8")
    new = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _write(folder, files, {name: new})
    with atomic_file(folder / name) as file:
        file.write(text)
    _write(folder, {**files, name: new})


def damage_of(
    folder: Path, *, needs_list: bool = False, leave_out: Callable[[str], bool] | None = None
) -> list[Damage]:
    """The files of a folder that are missing or are not what was written; none where no list says what they were.

    Args:
        folder: Of weights.
        needs_list: Whoever wrote the folder lists its files: without a list it is damaged.
        leave_out: Names that are not compared.
    """
    path = folder / MANIFEST
    if not path.exists():
        return [Damage(path, "is missing")] if needs_list else []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        files, new = document["files"], document.get("or", {})
        accepted = {name: [entry, *([new[name]] if name in new else [])] for name, entry in files.items()}
        wanted = {name: entries for name, entries in accepted.items() if leave_out is None or not leave_out(name)}
        found = [_compared(folder / name, entries) for name, entries in wanted.items()]
    except OSError as error:
        return [Damage(path, f"cannot be read ({error.strerror})")]
    except (ValueError, KeyError, TypeError, AttributeError):
        what = "is not the list of files that was written" if path.stat().st_size else "is empty"
        return [Damage(path, what)]
    return [damage for damage in found if damage is not None]


def _compared(path: Path, accepted: list[Mapping[str, Any]]) -> Damage | None:
    """How a file differs from every content that its list admits."""
    sizes, hashes = [int(entry["size"]) for entry in accepted], {str(entry["sha256"]) for entry in accepted}
    try:
        size = path.stat().st_size
        if size in sizes and sha256_of(path) in hashes:
            return None
    except FileNotFoundError:
        return Damage(path, "is missing")
    except OSError as error:
        return Damage(path, f"cannot be read ({error.strerror})")
    if not size and any(sizes):
        return Damage(path, f"is empty ({sizes[0]:,} bytes were written)")
    if size not in sizes:
        return Damage(
            path, f"is {'shorter' if size < sizes[0] else 'longer'} than written ({size:,} of {sizes[0]:,} bytes)"
        )
    return Damage(path, "differs from what was written (another sha256)")


def _names(folder: Path) -> list[str]:
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in files if name != MANIFEST)


def _described(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": sha256_of(path)}


def _write(folder: Path, files: Mapping[str, Any], new: Mapping[str, Any] | None = None) -> None:
    document = {"format": _FORMAT, "files": dict(files), **({"or": dict(new)} if new else {})}
    with atomic_file(folder / MANIFEST) as file:
        file.write(json.dumps(document, indent=1) + "\n")


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
