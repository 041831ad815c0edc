"""Choosing a backend: probes that really run one, and `open_sandbox`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from sandboxes.bubblewrap import BubblewrapLauncher
from sandboxes.client import SupervisedSandbox
from sandboxes.landlock import LandlockLauncher
from sandboxes.local import LocalLauncher
from sandboxes.sandbox import Backend, Limits, SandboxError, SandboxUnavailable
from sandboxes.transport import Launcher

AUTO = (Backend.BUBBLEWRAP, Backend.LANDLOCK)
"""What `auto` tries, in this order. An unsafe backend is never among them."""

_REMEDY = {
    Backend.DOCKER: "use bubblewrap or landlock",
    Backend.BUBBLEWRAP: "install bubblewrap 0.8 or newer, and allow unprivileged user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1; on Ubuntu 24.04 also kernel.apparmor_restrict_unprivileged_userns=0); "
    "inside a container it needs --privileged, so use landlock there",
    Backend.LANDLOCK: "Linux 5.13 or newer with landlock among the lsm= modules, and a python3 in /usr/bin",
    Backend.LOCAL: "run as a user other than root, or set TURNGYM_LOCAL_AS_ROOT=1 on a machine that may be lost",
}


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a backend works on this machine.

    Attributes:
        backend: Which.
        ok: It ran a command.
        reason: Why not, or what it proved.
        remedy: What to do about it; empty when it works.
    """

    backend: Backend
    ok: bool
    reason: str
    remedy: str = ""


@cache
def probe(backend: Backend | str) -> Probe:
    """Run one command in a backend. The answer is kept for the life of this process."""
    backend = Backend(backend)
    if backend is Backend.DOCKER:
        return Probe(backend, False, "the docker backend is not in this version", _REMEDY[backend])
    try:
        with SupervisedSandbox(launcher(backend, Limits())) as sandbox:
            sandbox.open({"probe.txt": "alive\n"})
            result = sandbox.run("cat probe.txt")
            if result.stdout != b"alive\n":
                raise SandboxError(f"a test command answered {result.exit_code}: {result.stderr_text.strip()}")
    except SandboxError as error:
        return Probe(backend, False, str(error), _REMEDY[backend])
    return Probe(backend, True, "ran a command")


def launcher(backend: Backend, limits: Limits, **options: Any) -> Launcher:
    """The launcher of a backend.

    Args:
        backend: Which.
        limits: What commands may use.
        options: Options of that backend (`allow_root` for local).

    Raises:
        SandboxUnavailable: The backend is not in this version.
    """
    if backend is Backend.BUBBLEWRAP:
        return BubblewrapLauncher(limits, **options)
    if backend is Backend.LANDLOCK:
        return LandlockLauncher(limits, **options)
    if backend is Backend.LOCAL:
        return LocalLauncher(limits, **options)
    raise SandboxUnavailable(f"the {backend} backend is not in this version; {_REMEDY[backend]}")


def choose(backend: Backend | str = "auto") -> Backend:
    """Resolve `auto` to the first safe backend that works here; a name is checked and returned.

    Raises:
        SandboxUnavailable: None works. The message has one line per backend: why not, and the remedy.
        ValueError: No such backend.
    """
    if backend != "auto":
        try:
            return Backend(backend)
        except ValueError:
            names = ", ".join(["auto", *Backend])
            raise ValueError(f"unknown sandbox backend {backend!r}; known: {names}") from None
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
        backend: `auto` (bubblewrap, else landlock), or a name of `Backend`.
        limits: What commands may use; default `Limits()`.
        options: Options of the backend (`allow_root=True` for local).

    Raises:
        SandboxUnavailable: The backend cannot work here; the message names the remedy.
        ValueError: No such backend.
    """
    chosen = choose(backend)
    if chosen is not Backend.LOCAL:
        found = probe(chosen)
        if not found.ok:
            raise SandboxUnavailable(f"{chosen}: {found.reason}\n  remedy: {found.remedy}")
    return SupervisedSandbox(launcher(chosen, limits or Limits(), **options))
