"""What `python -m sandboxes doctor` does: run a command in every backend, and say what stands behind the answers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import warnings
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sandboxes import cgroup
from sandboxes.boot import system_python
from sandboxes.inside.kernel import landlock_abi
from sandboxes.opening import AUTO, Probe, probe
from sandboxes.sandbox import Backend, SandboxError, SandboxUnavailable

WIDE = 1000
"""Columns outside a terminal, where a program may read the lines: none is wrapped."""


def doctor(*, as_json: bool = False) -> int:
    """Print a table of the backends, and facts. Returns 0 if a safe backend works, else 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the local backend is unsafe stands in the table
        probes = [probe(backend) for backend in Backend]
    chosen = next((backend for backend in AUTO for found in probes if found.backend is backend and found.ok), None)
    known = facts()
    if as_json:
        rows = [
            {"backend": str(p.backend), "ok": p.ok, "safe": p.backend in AUTO, "reason": p.reason, "remedy": p.remedy}
            for p in probes
        ]
        auto = None if chosen is None else str(chosen)
        print(json.dumps({"auto": auto, "backends": rows, "facts": known}, indent=1))
    else:
        _show(_backends(probes))
        print()
        _show(_facts(known))
        print(f"\nauto would use: {chosen or 'nothing: no safe backend works here'}")
    return 0 if chosen else 1


def _backends(probes: list[Probe]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("backend", "works", "what was seen", "remedy"):
        table.add_column(title, overflow="fold", header_style="bold")
    for found in probes:
        seen = found.reason + (" (unsafe: no confinement, never chosen by auto)" if found.backend not in AUTO else "")
        answer = Text("yes", "green") if found.ok else Text("no", "red" if found.backend in AUTO else "yellow")
        table.add_row(Text(found.backend), answer, Text(seen), Text(found.remedy))
    return table


def _facts(known: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, fact in known.items():
        table.add_row(Text(name), Text(fact))
    return table


def _show(table: Table) -> None:
    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=WIDE, color_system=None)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def facts() -> dict[str, str]:
    """What the backends stand on, by name."""
    abi = landlock_abi()
    known = {
        "kernel": f"Linux {platform.release()} on {platform.machine()}",
        "user": "root" if os.geteuid() == 0 else f"user {os.geteuid()}",
        "Landlock": f"ABI {abi}" if abi else "absent, or switched off",
        "user namespaces": _namespaces(),
        "bubblewrap": _bubblewrap(),
        "python": _python(),
        "memory of a sandbox": f"looked at every 50 ms while a command runs; {cgroup.explain()}",
    }
    return known | _engines()


def _namespaces() -> str:
    """What the settings say; whether it is so, the probe of bubblewrap shows."""
    settings = (
        ("user.max_user_namespaces", "0"),
        ("kernel.unprivileged_userns_clone", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    )
    refusing = []
    for name, value in settings:
        path = Path("/proc/sys") / name.replace(".", "/")
        if path.exists() and path.read_text().strip() == value:
            refusing.append(f"{name}={value}")
    return f"refused by {' and '.join(refusing)}" if refusing else "no setting refuses them"


def _bubblewrap() -> str:
    try:
        done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run: {error}"
    return done.stdout.strip() or done.stderr.strip()


def _python() -> str:
    try:
        return str(system_python())
    except SandboxError as error:
        return str(error)


def _engines() -> dict[str, str]:
    """The engines that answer, and whether the image is there; else why none does."""
    from sandboxes.engines import find_engines

    try:
        engines = find_engines()
    except (SandboxUnavailable, ValueError) as error:
        return {"engine": str(error).splitlines()[0].rstrip(":")}  # each address stands with the docker backend
    known = {}
    for number, engine in enumerate(engines, 1):
        name = "engine" if len(engines) == 1 else f"engine {number}"
        known[name] = f"{engine.kind} {engine.version} at {engine.url} ({engine.source})"
        known[name.replace("engine", "image")] = _image(engine)
    return known


def _image(engine: object) -> str:
    from docker.errors import ImageNotFound

    from sandboxes.docker import default_image
    from sandboxes.engines import Engine, client, engine_errors, explain

    assert isinstance(engine, Engine)
    name = default_image()
    try:
        found = client(engine).api.inspect_image(name)
    except ImageNotFound:
        return f"{name} is not there; python -m sandboxes build makes it"
    except engine_errors() as error:
        return f"{name}: {explain(error)}"
    return f"{name} is there, {found['Size'] / 1e6:.0f} MB, made {found['Created'][:10]}"
