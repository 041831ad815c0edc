"""Container engines: where they are looked for, how they are reached (also over ssh), and why one does not answer."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sandboxes.owner import is_owner, owner, owner_lives
from sandboxes.sandbox import SandboxError, SandboxOutage, SandboxUnavailable

if TYPE_CHECKING:
    import docker


# -- A socket here for an engine's socket there: one `ssh` per host, kept for the life of this process ----------------
# The remote end runs `cat` on a pipe that this process holds. Its echo proves that the connection stands, and when
# this process ends, however it ends, the pipe closes, `cat` ends and ssh with it.
#
# docker-py speaks ssh itself (`use_ssh_client=True`), but not as sandboxes need it (7.2,
# `docker/transport/sshconn.py`): its connection is the pipes of one `ssh` per request, behind a socket that no `poll`
# can wait for and that heeds no time-out, so neither the deadline of a command nor that of a request could be held. It
# runs `docker system dial- stdio` there, which needs Docker's own program and leaves no choice of the socket (rootless
# engines, Podman). And the words with which ssh refuses go to the terminal, not into the error. Through a forwarded
# socket an engine is as one here.

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


# -- Finding container engines: every address that may have one is tried, and why each fails is told ------------------
# The first of these that is set decides; what is set and does not answer is an error, never skipped for the next:
#
# 1. the `hosts` argument
# 2. TURNGYM_DOCKER_HOSTS, a list with commas
# 3. DOCKER_HOST
# 4. DOCKER_CONTEXT, or the current context of ~/.docker/config.json
# 5. the usual sockets of Docker, Docker Desktop, rootless Docker and Podman: the first that answers
#
# An address is `unix:///path`, `tcp://host:port` (with DOCKER_TLS_VERIFY and DOCKER_CERT_PATH), or `ssh://user@host`.

HOSTS_VARIABLE = "TURNGYM_DOCKER_HOSTS"
CONNECT_SECONDS = 5.0
"""How long an engine may take to accept a connection and to tell its version."""
REQUEST_SECONDS = 60.0
"""Deadline of any one request to an engine."""
_POOL = 64
"""Idle connections kept per engine."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine may be.

    Attributes:
        url: `unix://`, `tcp://`, `ssh://` or `https://`.
        source: Which setting named it.
        context: The docker context whose TLS files go with it; empty without one.
    """

    url: str
    source: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answered.

    Attributes:
        url: Its address.
        source: Which setting named it.
        kind: `docker` or `podman`.
        version: Its version.
        cpus: Its number of processors.
        context: The docker context whose TLS files go with it; empty without one.
    """

    url: str
    source: str
    kind: str
    version: str
    cpus: int = 1
    context: str = ""

    @property
    def local(self) -> bool:
        """Whether it is reached without a network."""
        return self.url.startswith("unix://")


class EngineFailed(SandboxError):
    """One engine does not do what it should. The message says why, without naming the engine."""


def addresses(hosts: Sequence[str] | None = None) -> list[Address]:
    """Where to look, by the order above.

    Raises:
        ValueError: An address of a kind that is not known.
        SandboxUnavailable: A docker context is named that does not exist.
    """
    if hosts is not None:
        names = [hosts] if isinstance(hosts, str) else list(hosts)
        if not names:
            raise ValueError("hosts is empty; leave it out to look in the usual places")
        return [Address(_checked(name), "hosts") for name in names]
    listed = [name.strip() for name in os.environ.get(HOSTS_VARIABLE, "").split(",") if name.strip()]
    if listed:
        return [Address(_checked(name), HOSTS_VARIABLE) for name in listed]
    if os.environ.get("DOCKER_HOST"):
        return [Address(_checked(os.environ["DOCKER_HOST"]), "DOCKER_HOST")]
    context, source = _context_name()
    if context:
        return [_context_address(context, source)]
    return [Address(f"unix://{path}", "usual socket") for path in _usual_sockets()]


def find_engines(hosts: Sequence[str] | None = None) -> list[Engine]:
    """The engines that answer: all of a list, the first of the usual sockets.

    Args:
        hosts: Addresses; default: see the top of this file.

    Raises:
        SandboxUnavailable: None answers; the message names every address tried and why.
        ValueError: An address of a kind that is not known.
    """
    failures: list[tuple[Address | Engine, str]] = []
    found = answering(hosts, failures, ask)
    if not found:
        raise unreachable(failures)
    return found


def answering(
    hosts: Sequence[str] | None,
    failures: list[tuple[Address | Engine, str]],
    how: Callable[[Address], Engine],
) -> list[Engine]:
    """As `find_engines`, where that none answers is no error.

    Args:
        hosts: Addresses.
        failures: Those that do not answer are added here, with the reason.
        how: Asks an address, as `ask` does.
    """
    found: list[Engine] = []
    for address in addresses(hosts):
        try:
            found.append(how(address))
        except EngineFailed as error:
            failures.append((address, str(error)))
        if found and address.source == "usual socket":
            break
    return found


def unreachable(failures: Sequence[tuple[Address | Engine, str]]) -> SandboxOutage:
    """The error that names every address tried and why it failed."""
    lines = [f"    {address.url} ({address.source}): {why}" for address, why in failures]
    return SandboxOutage("no container engine answers:\n" + "\n".join(lines))


def ask(address: Address) -> Engine:
    """Ask what is behind an address.

    Raises:
        EngineFailed: Nothing there, or it does not answer as an engine does.
    """
    _knock(address.url)
    try:
        api = _client(address.url, address.context).api
        facts = api.get(f"{api.base_url}/version", timeout=CONNECT_SECONDS).json()
        version = str(facts["Version"])
        names = [str(part.get("Name", "")) for part in facts.get("Components") or []]
        info = api.get(f"{api.base_url}/v{api.api_version}/info", timeout=2 * CONNECT_SECONDS).json()
        cpus = max(1, int(info.get("NCPU") or 1))
    except SandboxError:
        raise
    except engine_errors(KeyError, TypeError, AttributeError, ValueError) as error:
        raise EngineFailed(explain(error)) from error
    kind = "podman" if any("podman" in name.lower() for name in names) else "docker"
    return Engine(address.url, address.source, kind, version, cpus, address.context)


def client(engine: Engine) -> docker.DockerClient:
    """The docker client of an engine: one per process (also after a fork), shared by its threads.

    Raises:
        EngineFailed: The engine does not answer, or the forward to it cannot be made.
        SandboxUnavailable: The Python package docker is missing.
    """
    return _client(engine.url, engine.context)


_clients: dict[tuple[str, str], Any] = {}
_clients_lock = threading.Lock()


def _client(url: str, context: str) -> Any:
    docker = _library()

    try:
        reached = forward(url) if url.startswith("ssh://") else url
    except ForwardFailed as error:
        raise EngineFailed(str(error)) from error
    with _clients_lock:
        found = _clients.get((reached, context))
    if found is not None:
        return found
    try:
        lowest = _make(reached, context, docker.constants.MINIMUM_DOCKER_API_VERSION)
        made = _make(reached, context, lowest.api.version(api_version=False)["ApiVersion"])
    except engine_errors() as error:
        raise EngineFailed(explain(error)) from error
    with _clients_lock:
        return _clients.setdefault((reached, context), made)


def _make(url: str, context: str, version: str) -> Any:
    """A client that has asked nothing yet, and that heeds no proxy and no other CA of the environment."""
    docker = _library()
    made = docker.DockerClient(
        base_url=url, version=version, timeout=REQUEST_SECONDS, tls=_tls(url, context), max_pool_size=_POOL
    )
    made.api.trust_env = False
    return made


def _library() -> Any:
    """The package docker, which takes 0.2 seconds to load. Raises SandboxUnavailable when it is missing."""
    try:
        import docker
    except ImportError as error:
        remedy = "pip install docker"
        raise SandboxUnavailable(f"the Python package docker is missing ({error}); remedy: {remedy}") from error
    return docker


def _forget_clients() -> None:
    """A forked child must not share the connections of its parent."""
    global _clients_lock
    _clients_lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget_clients)


def _tls(url: str, context: str) -> Any:
    """TLS settings of an address, as docker-py wants them; False for none."""
    import docker

    if context:
        settings = docker.context.ContextAPI.get_context(context).TLSConfig
        return settings if settings is not None else False
    if not url.startswith(("tcp://", "https://")):
        return False
    return docker.utils.kwargs_from_env().get("tls") or url.startswith("https://")


# --- addresses ----------------------------------------------------------------------------------------------------


def _checked(url: str) -> str:
    """An address in its full form. Raises ValueError for an unknown kind."""
    if url.startswith("/"):
        url = f"unix://{url}"
    if not url.startswith(("unix:///", "tcp://", "ssh://", "http://", "https://")):
        raise ValueError(f"{url!r} is no address of an engine; use unix:///path, tcp://host:port or ssh://user@host")
    if not url.startswith("unix") and not urlsplit(url).hostname:
        raise ValueError(f"{url!r} names no host")
    return url


def _usual_sockets() -> list[str]:
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return [
        "/var/run/docker.sock",
        str(Path.home() / ".docker/run/docker.sock"),
        f"{runtime}/docker.sock",
        f"{runtime}/podman/podman.sock",
        "/run/podman/podman.sock",
    ]


def _context_name() -> tuple[str, str]:
    """The docker context in use and who says so; empty for the default one."""
    name = os.environ.get("DOCKER_CONTEXT", "")
    if name:
        return ("", "") if name == "default" else (name, "DOCKER_CONTEXT")
    path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        name = json.loads(path.read_text("utf-8")).get("currentContext") or ""
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return "", ""
    except (ValueError, AttributeError) as error:
        raise SandboxUnavailable(
            f"{path} cannot be read as JSON ({error}); remedy: repair it or set DOCKER_HOST"
        ) from error
    return ("", "") if name == "default" else (name, str(path))


def _context_address(name: str, source: str) -> Address:
    docker = _library()
    context = docker.context.ContextAPI.get_context(name)
    if context is None or not context.Host:
        raise SandboxUnavailable(
            f"{source} names the docker context {name!r}, which has no endpoint here; "
            "remedy: `docker context ls` shows those there are, `docker context use default` leaves it"
        )
    return Address(_checked(context.Host), f"context {name!r} of {source}", name)


# --- why not ------------------------------------------------------------------------------------------------------


def _knock(url: str) -> None:
    """Connect and hang up: the plainest reasons are told without loading the client library. Raises EngineFailed."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as knock:
                knock.settimeout(CONNECT_SECONDS)
                knock.connect(parts.path)
        elif parts.scheme != "ssh":
            port = parts.port or (2376 if parts.scheme == "https" else 2375)
            socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
    except OSError as error:
        raise EngineFailed(_explain_os(error)) from error


def engine_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What docker-py, requests and the socket raise when the engine (not our code) failed, and `others`; for `except`.

    A function, so that only a failure loads the libraries: they take 0.2 seconds.
    """
    import docker
    import urllib3

    return docker.errors.DockerException, urllib3.exceptions.HTTPError, OSError, *others  # all of requests are OSErrors


def explain(error: BaseException) -> str:
    """Why a request to an engine failed, in few words."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ECONNREFUSED):
            return _explain_os(seen)
        seen = seen.__cause__ or seen.__context__
    text = str(getattr(error, "explanation", None) or error) or type(error).__name__
    if "timed out" in text.lower():
        return "it does not answer in time"
    return text.strip()


def _explain_os(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such socket"
    if isinstance(error, PermissionError):
        return "permission denied; add yourself to the group docker and log in again, or use a rootless engine"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there; start the engine"
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_SECONDS:.0f} seconds"
    return error.strerror or str(error)
