"""A sandbox for tests of the environments: real bash in a temporary folder, and failures on request."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from sandboxes.sandbox import Backend, CommandResult, EntryKind, FileEntry, JudgeIsolation, Limits, SandboxError
from tasks.task import Task

FIRST = {
    "id": "first",
    "intent": "Write hello into greeting.txt and keep notes.txt as it is.",
    "workspace": {"files": {"notes.txt": "keep me\n"}},
    "budget": {"max_turns": 4},
    "assertions": [
        {"kind": "file_exists", "path": "greeting.txt"},
        {"kind": "file_contains", "path": "greeting.txt", "contains": "hello"},
        {"kind": "file_unchanged", "path": "notes.txt"},
        {"kind": "file_not_exists", "path": "trash"},
    ],
    "oracle": {"commands": ["echo hello > greeting.txt"]},
}
"""Doing nothing scores 2 of 4."""


def task(**changes: object) -> Task:
    return Task.model_validate({**FIRST, **changes})


def tasks(n: int) -> list[Task]:
    return [task(id=f"t{i}", intent=f"Number {i}: write hello into greeting.txt.") for i in range(n)]


def bash(command: str) -> str:
    return f"```bash\n{command}\n```"


def kill(sandbox: object) -> None:
    """End a real sandbox as a crash would: kill -9 of the supervisor, or of what confines it, until it is gone."""
    process = sandbox._transport._process  # type: ignore[attr-defined]
    process.kill()
    process.wait()


class FakeSandbox:
    """Implements the part of the sandbox protocol that environments use. Unconfined: only for commands of the tests."""

    backend = Backend.LOCAL

    def __init__(self) -> None:
        self.limits = Limits(command_bytes=4096)
        self.root = Path(tempfile.mkdtemp(prefix="turngym-test-"))
        self.calls: list[str] = []
        self.opened = 0
        self.closed = 0
        self.maker = FakeSandbox
        self.fail: str | None = None
        """The next call of this name raises SandboxError, once."""
        self.deadly: list[str] = []
        """Commands with one of these texts end it: it answers nothing more until it is opened again."""
        self.dead = False

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == "open":
            self.dead = False
        if self.dead:
            raise SandboxError("this sandbox is dead")
        if self.fail == name:
            self.fail = None
            raise SandboxError(f"broken at {name}")

    def open(self, files, *, workdir=None):
        self._call("open")
        self.opened += 1
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        for path, entry in files.items():
            target = self.root / path
            if entry.kind is EntryKind.DIR:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                if entry.kind is EntryKind.SYMLINK:
                    target.symlink_to(entry.target)
                else:
                    target.write_bytes(entry.content)

    def run(self, command, *, timeout=None, state="agent"):
        self._call("run")
        if any(text in command for text in self.deadly):
            self.dead = True
            raise SandboxError(f"local sandbox lost at {command}")
        try:
            done = subprocess.run(
                ["bash", "-c", command], cwd=self.root, capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            return CommandResult(137, error.stdout or b"", error.stderr or b"", timed_out=True, seconds=timeout)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    judge_isolation = JudgeIsolation.FULL

    def judge(self, command, files, *, timeout, env, private):
        with tempfile.TemporaryDirectory(prefix="turngym-test-grader-") as folder:
            for path, text in files.items():
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_text(text)
            words = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
            inner = f"export GRADER={folder} HOME={folder}\n{words}{command}"
            return self.run(f"bash -c {shlex.quote(inner)}; exit $?", timeout=timeout, state="clean")

    def twin(self):
        return self.maker()

    def snapshot(self):
        self._call("snapshot")
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                found[name] = FileEntry(EntryKind.SYMLINK, None, 0o777, target=os.readlink(path))
            elif path.is_dir():
                found[name] = FileEntry(EntryKind.DIR, None, 0o755)
            else:
                content = path.read_bytes()
                found[name] = FileEntry(EntryKind.FILE, content, path.stat().st_mode & 0o777, size=len(content))
        return found

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.calls.append("close")
        self.dead = True
        self.closed += 1
        shutil.rmtree(self.root, ignore_errors=True)


class FakeSandboxes:
    """Stands in for `open_sandbox`, and keeps every sandbox that it opened."""

    def __init__(self) -> None:
        self.all: list[FakeSandbox] = []
        self.fail_next: list[str] = []
        """The sandboxes opened next fail at these calls."""
        self.deadly: list[str] = []
        """Of every sandbox; may be changed between calls."""

    def __call__(self, backend="auto", **kwargs):
        sandbox = FakeSandbox()
        sandbox.maker = self
        if self.fail_next:
            sandbox.fail = self.fail_next.pop(0)
        sandbox.deadly = self.deadly
        self.all.append(sandbox)
        return sandbox

    @property
    def last(self) -> FakeSandbox:
        return self.all[-1]
