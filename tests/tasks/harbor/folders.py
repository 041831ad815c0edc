"""What tests of Harbor folders share: a wheel of this checkout, and their scripts run without a container."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sandboxes.inside.variables import environment
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
        self.workspace, self.logs, self.artifacts = folder / "workspace", folder / "logs", folder / "artifacts"
        for made in (self.workspace, self.logs, self.artifacts):
            made.mkdir(parents=True)
        with tarfile.open(task / "environment/workspace.tar") as archive:
            archive.extractall(self.workspace, filter="fully_trusted")

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

    def collect(self) -> None:
        """Run the hook that keeps the workspace, and let the way of Harbor change what stands in its place."""
        (hook,) = tomllib.loads((self.task / "task.toml").read_text())["verifier"]["collect"]
        subprocess.run(["bash", "-c", self._here(hook["command"])], check=True)
        for path in self.workspace.rglob("*"):
            if path.is_symlink():
                path.unlink()
            else:
                path.chmod(path.stat().st_mode & ~0o022)

    def _here(self, text: str) -> str:
        """A script of the container with the places of this machine."""
        for inside, here in (
            (self.workdir, str(self.workspace)),
            ("/logs/verifier", str(self.logs)),
            ("/logs/artifacts/workspace.tar", str(self.artifacts / "left.tar")),
            ("PATH=/usr/local/bin", f"PATH={PYTHON}"),
            ('here=$(cd -- "$(dirname', f'here={self.task / "tests"} # $(cd -- "$(dirname'),
        ):
            text = re.sub(rf"(?<!\w){re.escape(inside)}", lambda _, here=here: here, text)
        return text

    def _run(self, script: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        copy = self.folder / "script.sh"
        copy.write_text(self._here((self.task / script).read_text()))
        return subprocess.run(
            ["bash", str(copy)], cwd=self.folder, env=dict(env) or None, capture_output=True, text=True, timeout=120
        )
