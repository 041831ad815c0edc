"""Bait on the host's side: files, sockets and processes that no command may reach. All of it ends with its `with`."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def bait_folder() -> Iterator[Path]:
    """A folder that everybody on the host may read and write."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


@contextlib.contextmanager
def bait_file(content: str) -> Iterator[Path]:
    """A file that everybody on the host may read and write."""
    with bait_folder() as folder:
        path = folder / "bait"
        path.write_text(content)
        path.chmod(0o666)
        yield path


@contextlib.contextmanager
def bait_process(word: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that sleeps, with a word in its arguments and another (`word` reversed) in its environment."""
    command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()", word]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={"BAIT": word[::-1]}) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def bait_server(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[socket.socket]:
    """A listening stream socket of the host."""
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)
        if family is socket.AF_UNIX and isinstance(address, str) and not address.startswith("\0"):
            os.chmod(address, 0o777)
        server.listen()
        yield server


@contextlib.contextmanager
def bait_receiver() -> Iterator[socket.socket]:
    """A UDP socket of the host, on every address, that does not block."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 0))
        receiver.setblocking(False)
        yield receiver


def addresses() -> list[str]:
    """Addresses that lead to this host: the loopback, and the one it would use to reach others (nothing is sent)."""
    found = ["127.0.0.1"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # no route: only the loopback is tried
        found.append(probe.getsockname()[0])
    return found
