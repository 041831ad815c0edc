"""The floors: bash without any isolation, on this machine, in a folder of a memory file system."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path
from typing import Self

from benchmarks.peers.work import COMMANDS, FILES, STATELESS, Done
from sandboxes.inside.variables import environment

BASH = "/bin/bash"


def spawn_bash(command: str, env: dict[str, str], null: int) -> bytes:
    """Fork and exec one bash, read its two pipes to their end, wait for it; returns its stdout."""
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate((null, out_end, err_end))]
    pid = os.posix_spawn(BASH, ["bash", "--norc", "--noprofile", "-c", command], env, file_actions=actions)
    os.close(out_end)
    os.close(err_end)
    said = _read_all(out, err)
    os.close(out)
    os.close(err)
    os.waitpid(pid, 0)
    return said


def _read_all(out: int, err: int) -> bytes:
    poller = select.poll()
    for fd in (out, err):
        poller.register(fd, select.POLLIN)
    chunks, left = [], 2
    while left:
        for fd, _ in poller.poll():
            data = os.read(fd, 1 << 16)
            if not data:
                poller.unregister(fd)
                left -= 1
            elif fd == out:
                chunks.append(data)
    return b"".join(chunks)


class PersistentBash:
    """One bash for all commands of all episodes: commands come on one descriptor, statuses go out on another.

    Nothing can be faster that still runs these commands in a bash. It neither isolates, nor ends what a command leaves
    behind, nor survives an `exit`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        command_end, self._commands = os.pipe()
        self._statuses, status_end = os.pipe()
        loop = f'while IFS= read -rd "" -u {command_end} _c; do eval "$_c"; echo $? >&{status_end}; done'
        self._process = subprocess.Popen(
            [BASH, "--norc", "--noprofile", "-c", loop],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(command_end, status_end),
            env=environment(str(root), "/tmp"),
            bufsize=0,
        )
        os.close(command_end)
        os.close(status_end)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        self._poller = select.poll()
        for fd in (self._out, self._err, self._statuses):
            os.set_blocking(fd, False)
            self._poller.register(fd, select.POLLIN)

    def run(self, command: str) -> bytes:
        """Run one command; returns its stdout."""
        os.write(self._commands, command.encode() + b"\0")
        chunks: list[bytes] = []
        over = False
        while not over:
            for fd, _ in self._poller.poll():
                over = over or fd == self._statuses
                data = os.read(fd, 1 << 16)
                if not data:
                    raise RuntimeError("the persistent bash ended")
                if fd == self._out:
                    chunks.append(data)
        try:
            while data := os.read(self._out, 1 << 16):
                chunks.append(data)
        except BlockingIOError:
            pass
        return b"".join(chunks)

    def episode(self) -> Done:
        """One episode."""
        refill(self.root)
        first, *others = COMMANDS
        said = (self.run(f"cd {self.root}; {first}"), *(self.run(command) for command in others))
        return Done(said, contents(self.root))

    def close(self) -> None:
        """End it."""
        os.close(self._commands)
        self._process.communicate()
        os.close(self._statuses)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Plain:
    """A new bash for each command through `subprocess.run`, in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self._env = environment(str(root), "/tmp")

    def episode(self) -> Done:
        """One episode."""
        refill(self.root)
        said = tuple(self._run(command) for command in STATELESS)
        return Done(said, contents(self.root))

    def _run(self, command: str) -> bytes:
        return subprocess.run(
            [BASH, "-c", command], cwd=self.root, env=self._env, capture_output=True, stdin=subprocess.DEVNULL
        ).stdout


def refill(root: Path) -> None:
    """Empty a folder and write the files of an episode."""
    empty(str(root))
    os.mkdir(root / "data")
    for path, text in FILES.items():
        with open(f"{root}/{path}", "w") as file:
            file.write(text)


def empty(folder: str) -> None:
    """Remove everything in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                empty(entry.path)
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)


def contents(root: Path, below: str = "") -> dict[str, bytes]:
    """Every file of a folder, by its path."""
    found = {}
    with os.scandir(f"{root}/{below}") as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found.update(contents(root, f"{below}{entry.name}/"))
            elif entry.is_file(follow_symlinks=False):
                with open(entry.path, "rb") as file:
                    found[below + entry.name] = file.read()
    return found
