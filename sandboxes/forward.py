"""A socket here for an engine's socket there: one `ssh` per host, kept for the life of this process.

The remote end runs `cat` on a pipe that this process holds. Its echo proves that the connection stands, and when this
process ends, however it ends, the pipe closes, `cat` ends and ssh with it.

docker-py speaks ssh itself (`use_ssh_client=True`), but not as sandboxes need it (7.2, `docker/transport/sshconn.py`):
its connection is the pipes of one `ssh` per request, behind a socket that no `poll` can wait for and that heeds no
time-out, so neither the deadline of a command nor that of a request could be held. It runs `docker system dial-stdio`
there, which needs Docker's own program and leaves no choice of the socket (rootless engines, Podman). And the words
with which ssh refuses go to the terminal, not into the error. Through a forwarded socket an engine is as one here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from sandboxes.owner import is_owner, owner, owner_lives
from sandboxes.sandbox import SandboxError

SECONDS = 20.0
"""How long ssh may take to connect."""
REMOTE_SOCKET = "/var/run/docker.sock"
_PREFIX = "turngym-ssh-"


class ForwardFailed(SandboxError):
    """ssh could not connect; the message holds its own words."""


class _Forward:
    """One running ssh."""

    def __init__(self, url: str) -> None:
        ssh = shutil.which("ssh")
        if ssh is None:
            raise ForwardFailed("the program ssh is not installed; remedy: apt-get install openssh-client")
        parts = urlsplit(url)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner()}.", dir="/tmp"))
        self.path = str(self._folder / "engine.sock")
        options = ["BatchMode=yes", "ExitOnForwardFailure=yes", f"ConnectTimeout={SECONDS:.0f}", "ControlMaster=no"]
        options += ["ControlPath=none", "ServerAliveInterval=15", "ServerAliveCountMax=3", "StreamLocalBindUnlink=yes"]
        words = [ssh, "-T", *(word for option in options for word in ("-o", option))]
        words += ["-L", f"{self.path}:{parts.path.rstrip('/') or REMOTE_SOCKET}"]
        words += ["-p", str(parts.port)] if parts.port else []
        words += ["-l", parts.username] if parts.username else []
        try:
            self._process = subprocess.Popen(
                [*words, "--", parts.hostname or "", "cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            self._folder.rmdir()
            raise
        try:
            self._wait(url)
        except BaseException:
            self.end()
            raise

    def _wait(self, url: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it ended already: its own words say why, below
            os.write(self._process.stdin.fileno(), b"ready\n")
        limit = time.monotonic() + SECONDS + 5
        said = b""
        while not said.endswith(b"ready\n"):
            if not select.select([self._process.stdout], [], [], max(0.0, limit - time.monotonic()))[0]:
                raise ForwardFailed(f"ssh did not connect to {url} within {SECONDS + 5:.0f} seconds")
            data = os.read(self._process.stdout.fileno(), 1 << 12)
            if not data:
                self._process.wait()
                raise ForwardFailed(f"ssh to {url} ended: {self._last_words()}")
            said += data

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        text = self._process.stderr.read().decode("utf-8", "replace").strip()
        return text or f"exit code {self._process.returncode}"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Stop ssh and remove the socket."""
        self._process.kill()
        self._process.wait()
        self.disown()
        shutil.rmtree(self._folder, ignore_errors=True)

    def disown(self) -> None:
        """Close our ends of its pipes."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):  # a pipe that broke before is closed all the same
                    stream.close()


_forwards: dict[str, _Forward] = {}
_lock = threading.Lock()


def forward(url: str) -> str:
    """The `unix://` address of a local socket that leads to the engine of `ssh://[user@]host[:port][/path]`.

    A forward that broke is made anew.

    Raises:
        ForwardFailed: ssh is missing, or could not connect.
    """
    with _lock:
        found = _forwards.get(url)
        if found is not None and not found.alive:
            found.end()
            found = None
        if found is None:
            _sweep()
            found = _forwards[url] = _Forward(url)
        return f"unix://{found.path}"


def _sweep() -> None:
    """Remove socket folders of processes that were killed."""
    for path in Path("/tmp").glob(_PREFIX + "*.*"):
        token = path.name.removeprefix(_PREFIX).partition(".")[0]
        if is_owner(token) and owner_lives(token, here=True) is False:
            shutil.rmtree(path, ignore_errors=True)  # another process may sweep at the same time


@atexit.register
def _end_all() -> None:
    for made in _forwards.values():
        made.end()
    _forwards.clear()


def _disown_all() -> None:
    global _lock
    _lock = threading.Lock()
    for made in _forwards.values():
        made.disown()
    _forwards.clear()


os.register_at_fork(after_in_child=_disown_all)
