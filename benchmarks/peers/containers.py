"""The usual ways to run an agent's commands in Docker: docker-py's exec_run and archives, and the command line."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from typing import Self

from benchmarks.peers.work import FILES, STATELESS, Done
from sandboxes.docker.engines import Engine, client
from sandboxes.owner import owner, run_id

WORKSPACE = "/workspace"
UID = 1000


def archive() -> bytes:
    """The files of an episode as a tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folder = tarfile.TarInfo("data")
        folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o755, UID, UID
        tar.addfile(folder)
        for path, text in FILES.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.uid, entry.gid = len(text), 0o644, UID, UID
            tar.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def unpacked(data: bytes, below: str) -> dict[str, bytes]:
    """Every file of a tar file, by its path without the folder `below`."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for entry in tar:
            file = tar.extractfile(entry)
            if entry.isreg() and file is not None:
                found[entry.name.removeprefix(below)] = file.read()
    return found


class Container:
    """A container that sleeps, for exec. It has no limits and a writable root: what is simplest, and fastest."""

    def __init__(self, engine: Engine, image: str) -> None:
        self.engine = engine
        self._container = client(engine).containers.create(
            image,
            ["infinity"],
            entrypoint=["/bin/sleep"],
            network_mode="none",
            user=str(UID),
            working_dir=WORKSPACE,
            labels={"turngym.owner": owner(), "turngym.run": run_id()},
        )
        try:
            self._container.start()
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """Its id."""
        return str(self._container.id)

    def run(self, command: str) -> bytes:
        """One exec_run; returns its stdout."""
        done = self._container.exec_run(["bash", "-c", command], workdir=WORKSPACE, demux=True)
        return done.output[0] or b""

    def put(self, tar: bytes) -> None:
        """One put_archive."""
        if not self._container.put_archive(WORKSPACE, tar):
            raise RuntimeError("put_archive was refused")

    def get(self) -> dict[str, bytes]:
        """One get_archive."""
        chunks, _ = self._container.get_archive(WORKSPACE)
        return unpacked(b"".join(chunks), "workspace/")

    def close(self) -> None:
        """Remove it."""
        self._container.remove(force=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def naive_episode(engine: Engine, image: str, tar: bytes) -> Done:
    """A container for one episode: create, start, put_archive, six times exec_run, get_archive, remove."""
    with Container(engine, image) as container:
        container.put(tar)
        said = tuple(container.run(command) for command in STATELESS)
        return Done(said, container.get())


class CommandLine:
    """`docker exec` of the command line, once per command, in a container that is kept."""

    def __init__(self, engine: Engine, image: str, tar: bytes) -> None:
        self._container = Container(engine, image)
        self._tar = tar
        self._words = [*command_line(engine), "exec", "-i", self._container.name, "bash", "-c"]

    def run(self, command: str, data: bytes = b"") -> bytes:
        """One `docker exec`; returns its stdout."""
        return subprocess.run([*self._words, command], input=data, capture_output=True, check=True).stdout

    def episode(self) -> Done:
        """One episode: one exec to empty and fill the workspace, six commands, one to read it."""
        self.run("rm -rf -- /workspace/* && tar -xC /workspace", self._tar)
        said = tuple(self.run(command) for command in STATELESS)
        return Done(said, unpacked(self.run("tar -cC /workspace ."), "./"))

    def close(self) -> None:
        """Remove the container."""
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def command_line(engine: Engine) -> list[str]:
    """The start of a docker command line that speaks to an engine."""
    return ["docker", "--context", engine.context] if engine.context else ["docker", "--host", engine.url]


def has_command_line() -> bool:
    """Whether the docker program is installed."""
    return shutil.which("docker") is not None


def run_true(engine: Engine, image: str) -> None:
    """`docker run --rm IMAGE true`."""
    words = [*command_line(engine), "run", "--rm", "--network", "none", "--entrypoint", "/bin/true", image]
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True)
