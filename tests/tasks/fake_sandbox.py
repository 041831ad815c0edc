"""A sandbox without walls, for tests of what uses one: a temporary folder and a fresh bash per command."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from sandboxes.sandbox import (
    Backend,
    CommandResult,
    EntryKind,
    FileEntry,
    Files,
    JudgeIsolation,
    Limits,
    Snapshot,
    Terms,
)


class FakeSandbox:
    backend = Backend.LOCAL

    def __init__(self, snapshot_file_bytes: int = 1024 * 1024) -> None:
        self.limits = Limits(snapshot_file_bytes=snapshot_file_bytes)
        self.root = Path(tempfile.mkdtemp(prefix="fake-sandbox-"))
        self.closed = False

    def open(self, files: Files, *, workdir: str | None = None, terms: Terms | None = None) -> None:
        self.reset()
        self.put(files)

    def run(
        self, command: str, *, timeout: float | None = None, state: Literal["agent", "clean"] = "agent"
    ) -> CommandResult:
        try:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.root,
                capture_output=True,
                timeout=timeout or self.limits.command_seconds,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            return CommandResult(137, late.stdout or b"", late.stderr or b"", timed_out=True)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    @property
    def judge_isolation(self) -> JudgeIsolation:
        return JudgeIsolation.NONE

    def judge(
        self, command: str, files: Mapping[str, str], *, timeout: float, env: Mapping[str, str], private: bool
    ) -> CommandResult:
        with tempfile.TemporaryDirectory(prefix="fake-grader-") as folder:
            for path, text in files.items():
                target = Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", errors="surrogateescape")
            words = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
            # In a bash of its own: what the agent's program kills is its judge, not what runs the tests.
            inner = f"export GRADER={folder} HOME={folder}\n{words}{command}"
            return self.run(f"bash -c {shlex.quote(inner)}; exit $?", timeout=timeout, state="clean")

    def twin(self) -> FakeSandbox:
        return type(self)()

    def seal(self) -> None:
        pass

    def put(self, files: Files) -> None:
        for path, given in files.items():
            entry = given if isinstance(given, FileEntry) else FileEntry(content=_bytes(given))
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.kind is EntryKind.DIR:
                target.mkdir(exist_ok=True)
            elif entry.kind is EntryKind.SYMLINK:
                target.symlink_to(entry.target or "")
            else:
                target.write_bytes(entry.content or b"")
                target.chmod(entry.mode)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def listing(self) -> list[str]:
        return [path + ("/" if entry.kind is EntryKind.DIR else "") for path, entry in self.snapshot().items()]

    def snapshot(self) -> Snapshot:
        found = sorted(self._entries(self.root), key=lambda pair: pair[0])
        return {path.relative_to(self.root).as_posix(): entry for path, entry in found}

    def _entries(self, folder: Path) -> Iterator[tuple[Path, FileEntry]]:
        """Everything below a folder. One that a command locked is opened for the look: a real sandbox sees into it."""
        mode = stat.S_IMODE(folder.stat().st_mode)
        folder.chmod(mode | stat.S_IRWXU)
        try:
            for path in list(folder.iterdir()):
                yield path, self._entry(path, path.lstat())
                if path.is_dir() and not path.is_symlink():
                    yield from self._entries(path)
        finally:
            folder.chmod(mode)

    def _entry(self, path: Path, status: os.stat_result) -> FileEntry:
        mode = status.st_mode & 0o777
        if stat.S_ISLNK(status.st_mode):
            return FileEntry(EntryKind.SYMLINK, None, 0o777, os.readlink(path))
        if stat.S_ISDIR(status.st_mode):
            return FileEntry(EntryKind.DIR, None, mode)
        if stat.S_ISREG(status.st_mode):
            fits = status.st_size <= self.limits.snapshot_file_bytes
            return FileEntry(EntryKind.FILE, path.read_bytes() if fits else None, mode, size=status.st_size)
        return FileEntry(EntryKind.OTHER, None, mode)

    def snapshot_hash(self) -> str:
        return hashlib.sha256(repr(sorted(self.snapshot().items())).encode()).hexdigest()

    def spawn(self, program: str, *, timeout: float | None = None) -> Any:
        raise NotImplementedError

    def reset(self) -> None:
        self._remove()
        self.root.mkdir()

    def close(self) -> None:
        self._remove()
        self.closed = True

    def _remove(self) -> None:
        """Also folders that a command locked."""
        if self.root.exists():
            try:
                shutil.rmtree(self.root)
            except PermissionError:
                subprocess.run(["chmod", "-R", "u+rwX", self.root], check=True)
                shutil.rmtree(self.root)

    def __enter__(self) -> FakeSandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content
