"""Which sandbox works here, and opening it; removing what killed processes left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandboxes import bubblewrap, cgroup
from sandboxes import local as folder
from sandboxes.client import SupervisedSandbox
from sandboxes.docker.containers import sweep_containers
from sandboxes.landlock import LandlockLauncher
from sandboxes.local import LocalLauncher
from sandboxes.nodes import ADDRESS_VARIABLE, RayLauncher
from sandboxes.sandbox import REMOTE, Backend, Limits, SandboxError, SandboxUnavailable, backend_of
from sandboxes.transport import Launcher

# -- Choosing a backend: probes that really run one, and `open_sandbox` -----------------------------------------------

AUTO = (Backend.DOCKER, Backend.BUBBLEWRAP, Backend.LANDLOCK)
"""What `auto` tries, in this order. An unsafe backend is never among them."""

_NO_ENGINE = (
    "start an engine (sudo systemctl start docker, or rootless Docker or Podman) or name one with DOCKER_HOST; "
    "without one, use bubblewrap or landlock"
)
_NO_IMAGE = "python -m sandboxes build"
_ENGINE_FAILS = "the engine's own log says more; does `docker run --rm --network none IMAGE true` work?"
_NO_NAMESPACES = (
    "allow unprivileged user namespaces: sysctl user.max_user_namespaces=10000 and, on Debian, "
    "kernel.unprivileged_userns_clone=1, on Ubuntu 24.04 kernel.apparmor_restrict_unprivileged_userns=0; "
    "inside a container that takes --privileged, so use landlock there"
)
_REMEDY = {
    Backend.DOCKER: _NO_ENGINE,
    Backend.BUBBLEWRAP: "install bubblewrap 0.8 or newer",
    Backend.LANDLOCK: "Linux 5.13 or newer with landlock among the lsm= modules, and a python3 in /usr/bin",
    Backend.LOCAL: "run as a user other than root, or set TURNGYM_LOCAL_AS_ROOT=1 on a machine that may be lost",
}
_ENVIRONMENT = {
    Backend.DOCKER: (
        *("TURNGYM_DOCKER_HOSTS", "TURNGYM_IMAGE", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"),
        *("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "XDG_RUNTIME_DIR"),
    ),
    Backend.LOCAL: ("TURNGYM_LOCAL_AS_ROOT",),
}
"""Variables that a backend reads: a probe made with other values says nothing."""

LACKS = {
    Backend.BUBBLEWRAP: "gives tasks no image of their own and verifiers no network",
    Backend.LANDLOCK: "gives tasks no image of their own, services no sockets, and verifiers no network and no mounts",
    Backend.LOCAL: "gives tasks no image of their own, and verifiers no network and no mounts",
}
"""What tasks may ask for and a backend cannot give, in words that follow its name."""

_LAUNCHERS: dict[Backend, Callable[..., Launcher]] = {
    Backend.BUBBLEWRAP: bubblewrap.BubblewrapLauncher,
    Backend.LANDLOCK: LandlockLauncher,
    Backend.LOCAL: LocalLauncher,
}
"""Docker's is loaded when it is asked for, with docker-py."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a backend works on this machine.

    Attributes:
        backend: Which, on this machine or on the nodes of a cluster.
        ok: It ran a command.
        reason: Why not, or what it proved.
        remedy: What to do about it; empty when it works.
    """

    backend: Backend
    ok: bool
    reason: str
    remedy: str = ""


_probes: dict[tuple[str, ...], Probe] = {}
_probing = threading.Lock()


def probe(backend: Backend | str, **options: Any) -> Probe:
    """Run one command in a backend. The answer is kept for the life of this process.

    Args:
        backend: Which; with `ray:` before it, on one node of a cluster.
        options: Options of that backend, as in `open_sandbox`.
    """
    seen = [f"{name}={options[name]!r}" for name in sorted(options)]
    variables = (*_ENVIRONMENT.get(backend_of(backend), ()), *([ADDRESS_VARIABLE] if _remote(backend) else ()))
    key = (backend, *seen, *(f"{name}={os.environ.get(name)!r}" for name in variables))
    with _probing:
        if key not in _probes:
            _probes[key] = _probe(backend, options)
        return _probes[key]


def _remote(name: str) -> bool:
    """Whether sandboxes of this name run on the nodes of a cluster."""
    return name.startswith(REMOTE)


def _probe(name: str, options: dict[str, Any]) -> Probe:
    backend = backend_of(name)
    try:
        with SupervisedSandbox(launcher(name, Limits(), **options), name) as sandbox:
            sandbox.open({"probe.txt": "alive\n"})
            result = sandbox.run("cat probe.txt")
            if result.stdout != b"alive\n":
                raise SandboxError(f"a test command answered {result.exit_code}: {result.stderr_text.strip()}")
    except SandboxError as error:
        return Probe(backend, False, *_reason_and_remedy(backend, error))
    except ValueError as error:
        if not _set_wrongly(backend):
            raise
        return Probe(backend, False, str(error), "correct that variable, or unset it")
    return Probe(backend, True, "ran a command")


def _set_wrongly(backend: Backend) -> bool:
    """Whether a variable may be what is wrong, so that `auto` must still try the others."""
    return any(os.environ.get(name) for name in _ENVIRONMENT.get(backend, ()))


def _reason_and_remedy(backend: Backend, error: SandboxError) -> tuple[str, str]:
    """Why a backend does not work, without how often it was tried, and what to do about it."""
    text = str(error)
    if backend is Backend.BUBBLEWRAP and "bwrap: " in text:
        said = text[text.index("bwrap: ") :]
        if any(words in said for words in ("amespace", "uid map", "gid map")):
            return f"user namespaces are refused here ({said})", _NO_NAMESPACES
        return said, _REMEDY[backend]
    if "\n" not in text:
        reason, mark, remedy = text.partition("; remedy: ")
        if mark:
            return reason, remedy
    if backend is Backend.DOCKER and "no container engine answers" not in text:
        return text, _NO_IMAGE if "is not on this engine" in text else _ENGINE_FAILS
    return text, _REMEDY[backend]


def launcher(name: str, limits: Limits, **options: Any) -> Launcher:
    """The launcher of a backend.

    Args:
        name: Which, with `ray:` before it for the nodes of a cluster.
        limits: What commands may use.
        options: Options of that backend (`image`, `hosts` for docker; `allow_root` for local).
    """
    if _remote(name):
        return RayLauncher(launcher(backend_of(name), limits, **options))
    backend = Backend(name)
    if backend is Backend.DOCKER:
        from sandboxes.docker.launcher import DockerLauncher

        return DockerLauncher(limits, **options)
    return _LAUNCHERS[backend](limits, **options)


def choose(name: str = "auto") -> str:
    """Resolve `auto` to the first safe backend that works on this machine; a name is checked and returned.

    Raises:
        SandboxUnavailable: None works. The message has, for each backend, why not and the remedy.
        ValueError: No such backend.
    """
    if name != "auto":
        backend = backend_of(name)
        return name if _remote(name) else backend
    failures = []
    for candidate in AUTO:
        found = probe(candidate)
        if found.ok:
            return candidate
        failures.append(f"  {candidate}: {found.reason}\n    remedy: {found.remedy}")
    raise SandboxUnavailable(
        "no safe sandbox backend works on this machine:\n"
        + "\n".join(failures)
        + "\n  (backend='local' runs commands without any confinement; it is never chosen by itself)"
    )


def open_sandbox(backend: Backend | str = "auto", *, limits: Limits | None = None, **options: Any) -> SupervisedSandbox:
    """A sandbox, not yet started: `open(files)` starts its first episode.

    Args:
        backend: `auto` (docker, else bubblewrap, else landlock), or a name of `Backend`; with `ray:` before it
            (`ray:bubblewrap`), the sandbox is on a node of a Ray cluster.
        limits: What commands may use; default `Limits()`.
        options: Options of the backend: `image="name:tag"` and `hosts=[address, ...]` for docker, `allow_root=True` for
            local. With `auto` there can be none, because it is not known which backend they are for.

    Raises:
        SandboxUnavailable: The backend cannot work here; the message names the remedy.
        ValueError: No such backend.
    """
    chosen = choose(backend)
    if backend_of(chosen) is not Backend.LOCAL:
        found = probe(chosen, **options)
        if not found.ok:
            raise SandboxUnavailable(f"{chosen}: {found.reason}\n  remedy: {found.remedy}")
    return SupervisedSandbox(launcher(chosen, limits or Limits(), **options), chosen)


# -- Removing what hosts left behind that could not clean up: killed with SIGKILL, or with the machine's power --------
# Each backend does this by itself for its own kind when a process opens its first sandbox; single processes of
# bubblewrap, which run nothing, wait for `sweep`. That does all of it, and can end a whole run.


@dataclass(frozen=True, slots=True)
class Swept:
    """How many of each kind were removed.

    Attributes:
        folders: Private folders of landlock and local, with the processes of their users.
        cgroups: Control groups, with the processes in them; one per sandbox.
        containers: Containers, also those that were made and never started.
        processes: Processes of bubblewrap that waited for one that was killed; they never ran anything.
    """

    folders: int = 0
    cgroups: int = 0
    containers: int = 0
    processes: int = 0


def sweep(run: str | None = None) -> Swept:
    """Remove what belongs to processes that are gone for sure.

    What cannot be told from here (made on another machine, or in another PID namespace) stays.

    Args:
        run: Remove instead everything of this run, whether its processes live or not: the value of TURNGYM_RUN_ID, or
            the token of one process. Its sandboxes are lost; their hosts get a `SandboxError`. A bubblewrap sandbox
            without a control group leaves nothing that could be found, and ends with its host.

    Raises:
        SandboxUnavailable: An engine is named by a setting and does not answer. Folders and groups are removed by then.
        SandboxError: An engine broke off.
    """
    groups = cgroup.sweep(run)  # first, so that nothing still writes into the folders
    folders = folder.sweep(run)
    processes = bubblewrap.sweep() if run is None else 0  # they tell no run
    return Swept(folders=folders, cgroups=groups, containers=sweep_containers(run), processes=processes)
