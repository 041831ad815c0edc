"""The wheels that a grader is given: those of the user, and what is installed made wheels again."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest

import tasks.harbor.wheels
from tasks.harbor.wheels import NEEDED, grading_wheels
from tasks.model import TaskError
from tests.tasks.harbor.folders import WHEEL, judges, wheel_bytes, wheel_file


@pytest.fixture(scope="module")
def wheels() -> dict[str, bytes]:
    return judges()


def test_what_is_needed_is_there_once(wheels: dict[str, bytes]) -> None:
    names = [name.split("-")[0].replace("_", "-").lower() for name in wheels]
    assert sorted(names) == sorted(["turngym", *map(str.lower, NEEDED)])
    assert wheels[WHEEL] == wheel_bytes()


@pytest.mark.parametrize("name", ["pydantic", "PyYAML"])
def test_a_wheel_made_again_is_whole(wheels: dict[str, bytes], name: str) -> None:
    file = next(file for file in wheels if file.lower().startswith(f"{name.lower()}-"))
    assert file.split("-")[1] == distribution(name).version
    with zipfile.ZipFile(io.BytesIO(wheels[file])) as archive:
        assert archive.testzip() is None
        (record,) = (path for path in archive.namelist() if path.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert {path for path, _, _ in rows} == set(archive.namelist())
        for path, digest, size in rows:
            if path != record:
                content = archive.read(path)
                found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={found}", str(len(content)))
        assert not [path for path in archive.namelist() if path.endswith(".pyc") or path.startswith("..")]


def test_the_same_packages_give_the_same_bytes(wheels: dict[str, bytes], tmp_path: Path) -> None:
    again = grading_wheels([wheel_file(tmp_path)])
    assert {name: hashlib.sha256(content).hexdigest() for name, content in again.items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in wheels.items()
    }


def test_a_given_wheel_replaces_the_installed_one(tmp_path: Path) -> None:
    mine = tmp_path / "PyYAML-9.9-cp39-cp39-linux_x86_64.whl"
    mine.write_bytes(wheel_bytes())
    names = list(grading_wheels([wheel_file(tmp_path), mine]))
    assert [name for name in names if name.lower().startswith("pyyaml")] == [mine.name]


def refused(*given: Path) -> str:
    with pytest.raises(TaskError) as caught:
        grading_wheels(given)
    return str(caught.value)


def test_files_that_are_no_wheels_are_refused(tmp_path: Path) -> None:
    assert "cannot be read" not in refused(tmp_path / "missing.whl") and "missing.whl" in refused(
        tmp_path / "missing.whl"
    )
    text = tmp_path / "turngym-1-py3-none-any.whl"
    text.write_text("no archive")
    assert "is no wheel that can be read" in refused(text)
    named = tmp_path / "turngym.whl"
    named.write_bytes(wheel_bytes())
    assert "its name must be" in refused(named)
    empty = tmp_path / "turngym-2-py3-none-any.whl"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("turngym/__init__.py", "")
    assert "holds no tasks/grading.py" in refused(empty) and "pip wheel --no-deps" in refused(empty)


def test_a_checkout_says_how_to_build_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "turngym-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: turngym\nVersion: 1\n")
    (info / "RECORD").write_text("turngym-1.dist-info/METADATA,,\n")
    monkeypatch.setattr(tasks.harbor.wheels, "distribution", lambda name: PathDistribution(info))
    assert "runs from a checkout" in refused() and "`pip wheel --no-deps --wheel-dir dist .`" in refused()


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.harbor.wheels, "NEEDED", ("no-such-package",))
    assert "grading needs no-such-package" in refused(wheel_file(tmp_path))
