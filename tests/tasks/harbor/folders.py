"""What tests of Harbor folders share: a wheel of this checkout, and their scripts run without a container."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sandboxes.boot import environment
from sandboxes.sandbox import FileEntry
from tasks.harbor.wheels import grading_wheels
from tests.shared_data import REPOSITORY

WHEEL = "turngym-0.0.0-py3-none-any.whl"
PYTHON = Path(sys.base_prefix, "bin")
"""A Python that finds none of the packages of the environment that the tests run in."""


@cache
def wheel_bytes() -> bytes:
    """What grading needs of TurnGym, as a wheel: no build, which takes seconds."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for package in ("tasks", "sandboxes"):
            for path in sorted((REPOSITORY / package).rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    archive.write(path, path.relative_to(REPOSITORY))
        archive.writestr("turngym-0.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: turngym\nVersion: 0.0.0\n")
    return out.getvalue()


def wheel_file(folder: Path) -> Path:
    path = folder / WHEEL
    path.write_bytes(wheel_bytes())
    return path


@cache
def judges() -> dict[str, bytes]:
    """The wheels that grade, made once: packing them takes a second."""
    with tempfile.TemporaryDirectory() as folder:
        return grading_wheels([wheel_file(Path(folder))])


def lay(folder: Path, files: Mapping[str, FileEntry]) -> Path:
    for path, entry in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(entry.content or b"")
        target.chmod(entry.mode)
    return folder


@dataclass(frozen=True)
class Judged:
    code: int
    rewards: dict[str, Any] | None
    text: str | None
    said: str


class Trial:
    """One Harbor task played on this machine: paths of the container stand for paths in a folder."""

    def __init__(self, task: Path, folder: Path, workdir: str = "/workspace") -> None:
        self.task, self.folder, self.workdir = task, folder, workdir
        self.workspace, self.logs = folder / "workspace", folder / "logs"
        for made in (self.workspace, self.logs):
            made.mkdir(parents=True)
        with tarfile.open(task / "environment/workspace.tar") as archive:
            archive.extractall(self.workspace, filter="tar")

    def solve(self) -> subprocess.CompletedProcess[str]:
        return self._run("solution/solve.sh", environment(str(self.workspace), "/tmp"))

    def judge(self) -> Judged:
        done = self._run("tests/test.sh", {})
        rewards, text = self.logs / "reward.json", self.logs / "reward.txt"
        return Judged(
            done.returncode,
            json.loads(rewards.read_text()) if rewards.exists() else None,
            text.read_text() if text.exists() else None,
            done.stdout + done.stderr,
        )

    def _run(self, script: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        text = (self.task / script).read_text()
        for inside, here in (
            (self.workdir, str(self.workspace)),
            ("/logs/verifier", str(self.logs)),
            ("PATH=/usr/local/bin", f"PATH={PYTHON}"),
            ('here=$(cd -- "$(dirname', f'here={self.task / "tests"} # $(cd -- "$(dirname'),
        ):
            text = text.replace(inside, here)
        copy = self.folder / "script.sh"
        copy.write_text(text)
        return subprocess.run(
            ["bash", str(copy)], cwd=self.folder, env=dict(env) or None, capture_output=True, text=True, timeout=120
        )
