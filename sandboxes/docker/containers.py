"""One container: the flags that confine it, the bytes to and from it, and that none is left behind."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import secrets
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandboxes.boot import GRADER, GRADER_MB, SHM_MB, UID, command_line
from sandboxes.docker.engines import Engine, EngineFailed, addresses, client, engine_errors, explain, find_engines
from sandboxes.owner import owner, owner_lives, run_id
from sandboxes.sandbox import Limits, SandboxUnavailable, Terms
from sandboxes.transport import DeadlinePassed, TransportClosed

# -- Bytes to and from a container, over the connection that an engine gives for `attach` -----------------------------
# What the container writes comes in frames of the engine: one byte that names the stream, three of zero, four of
# length.

_HEADER = struct.Struct(">BxxxL")
_STDOUT = 1
_READ = 1 << 18
_MOST_ERRORS = 1 << 14


class AttachTransport:
    """A supervisor in a container. See `sandboxes.transport.Transport`.

    Args:
        stream: What docker-py's `attach_socket` returned; kept, because its response object holds the connection.
        ask: Called after a failure: what the engine knows about the container.
        find_pid: Asks the engine for the process id of the supervisor.
        remove: Called once, with the seconds it may take: kills and removes the container.
    """

    _closed = True  # until the object is complete, for `__del__`

    def __init__(
        self, stream: Any, ask: Callable[[], str], find_pid: Callable[[], int], remove: Callable[[float], None]
    ) -> None:
        self._stream, self._ask, self._find_pid, self._remove = stream, ask, find_pid, remove
        self._socket: socket.socket = getattr(stream, "_sock", stream)
        self._socket.setblocking(False)
        self._reader, self._writer, self._sender = select.poll(), select.poll(), select.poll()
        self._reader.register(self._socket, select.POLLIN)
        self._writer.register(self._socket, select.POLLOUT)
        # An engine whose container died ends its own half, and may read no further: nothing else would end the wait.
        self._sender.register(self._socket, select.POLLOUT | select.POLLRDHUP)
        self._raw = bytearray()
        self._left = 0  # bytes of the current frame that have not come yet
        self._kind = _STDOUT
        self._errors = bytearray()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int:
        """Process id of the supervisor, on the machine of the engine; 0 when it does not run. Raises SandboxError."""
        return self._find_pid()

    def send(self, data: bytes, deadline: float) -> None:
        """See `Transport`."""
        view = memoryview(data)
        while view:
            waiter = self._sender
            try:
                view = view[self._socket.send(view) :]
                continue
            except ssl.SSLWantReadError:
                waiter = self._reader
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass
            except OSError as error:
                raise TransportClosed(f"the supervisor is gone ({error})") from error
            if not (events := _wait(waiter, deadline)):
                raise DeadlinePassed("the supervisor does not read")
            if events & select.POLLRDHUP:
                raise TransportClosed("the supervisor is gone (end of its output)")

    def receive(self, deadline: float) -> bytes:
        """See `Transport`."""
        while True:
            data = self._next()
            if data:
                return data
            more = self._read(deadline)
            if not self._raw:
                self._raw = bytearray(more)
            else:
                self._raw += more

    def _read(self, deadline: float) -> bytes:
        while True:
            waiter = self._reader
            try:  # read before waiting: TLS may hold bytes that the socket no longer shows
                data = self._socket.recv(_READ)
            except ssl.SSLWantWriteError:
                waiter = self._writer
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            except OSError as error:
                raise TransportClosed(f"the supervisor is gone ({error})") from error
            else:
                if not data:
                    raise TransportClosed("the supervisor is gone (end of its output)")
                return data
            if not _wait(waiter, deadline):
                raise DeadlinePassed("the supervisor does not answer")

    def _next(self) -> bytes:
        """What the supervisor wrote, out of the bytes that came; empty when more must come first."""
        out = bytearray()
        raw = memoryview(self._raw)
        position = 0
        while position < len(raw):
            if not self._left:
                if len(raw) - position < _HEADER.size:
                    break
                self._kind, self._left = _HEADER.unpack_from(raw, position)
                position += _HEADER.size
                continue
            part = raw[position : position + self._left]
            position += len(part)
            self._left -= len(part)
            if self._kind == _STDOUT:
                out += part
            else:
                self._errors += part[: max(0, _MOST_ERRORS - len(self._errors))]
            part.release()
        raw.release()
        del self._raw[:position]
        return bytes(out)

    def ready(self) -> None:
        """See `Transport`. The engine has put the container into its group already."""

    def diagnosis(self) -> str:
        """See `Transport`."""
        if self._closed:
            return ""
        with contextlib.suppress(TransportClosed, DeadlinePassed):  # what it wrote to stderr last, as far as it came
            while True:
                self._raw += self._read(time.monotonic())
        self._next()
        said = self._errors.decode("utf-8", "replace").strip()
        return "; ".join(part for part in (said, self._ask()) if part)

    def close(self, *, patience: float = 2.0) -> None:
        """See `Transport`. The container is killed at once: nothing in it is worth waiting for."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._remove(max(patience, 10.0))
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        """End the connection. Without a host, a container that still lives ends by itself."""
        with contextlib.suppress(OSError):  # the engine may have ended it before
            self._socket.shutdown(socket.SHUT_RDWR)
        self.disown()

    def disown(self) -> None:
        """Close our copy of the connection and leave the other copies be (in a forked child, those of the parent)."""
        self._closed = True
        response = getattr(self._stream, "_response", None)
        if response is not None:
            response.close()
        self._stream.close()
        self._socket.close()

    def __del__(self) -> None:
        self.close(patience=0.5)


def _wait(waiter: select.poll, deadline: float) -> int:
    """The events that came before the deadline; 0 for none."""
    left = deadline - time.monotonic()
    found = waiter.poll(left * 1000) if left > 0 else []
    return found[0][1] if found else 0


# -- Making and removing containers: the flags that confine them, and that none is left behind ------------------------

SUPERVISOR_MB = 48
"""Memory of the supervisor and of what the kernel counts beside the commands' own."""
SUPERVISOR_TASKS = 3
"""The supervisor, its second thread, and what watches over a judge."""
INODES_PER_MB = 512
"""Files that a memory file system holds per MB of its size."""
REMOVE_SECONDS = 15.0
FIRST_BYTE_SECONDS = 60
"""A container whose host never speaks to it ends by itself after this time."""
OWNER, RUN, MACHINE = "turngym.owner", "turngym.run", "turngym.machine"
"""Labels of every container: who made it, in which run, on which machine."""

_MASKED = (
    *(f"/proc/{name}" for name in ("acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug")),
    *(
        f"/proc/{name}"
        for name in ("scsi", "timer_list", "timer_stats", "cmdline", "kallsyms", "key-users", "config.gz")
    ),
    *("/sys/firmware", "/sys/devices/virtual/powercap"),
)
"""What tells about the engine's machine: the engine's own list, and what `sandboxes.bubblewrap` hides."""

_INSTALLS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""What root needs to install packages."""
NO_TERMS = Terms()
_log = logging.getLogger(__name__)
_WAIT = (
    f"import select,os\nif not select.select([0],[],[],{FIRST_BYTE_SECONDS})[0]:\n"
    " os.write(2,b'no host spoke to this sandbox');os._exit(4)\n"
)


def configuration(
    engine: Engine, image: str, workspace: str, limits: Limits, terms: Terms = NO_TERMS
) -> dict[str, Any]:
    """The whole configuration of a sandbox container, as the engine's API takes it.

    No network, no capability, no new privileges, no user but 1000, nothing writable but memory file systems with a
    size, nothing mounted from the host, and bounds on memory, processes, processors, files and logs. For a judge with a
    network: root, who may install packages, and nothing else of what a container's root may do.
    """
    import docker

    ulimit = docker.types.Ulimit
    bounds = {"core": 0, "fsize": limits.file_mb << 20, "nofile": max(limits.open_files, 256)}
    if engine.kind == "podman":
        bounds["nproc"] = 4096  # its own default is more than a service with a low limit may set
    # The engine counts pages of the memory file systems, too: commands get `memory_mb` beside full ones. What commands
    # use together is watched by the supervisor; this is what holds when it does not look in time.
    memory = limits.memory_mb + sum(scratch(engine, workspace, limits, terms).values()) + SUPERVISOR_MB << 20
    api = client(engine).api
    host = api.create_host_config(
        network_mode=terms.network or "none",
        cap_drop=["ALL"],
        cap_add=list(_INSTALLS) if terms.network else None,
        security_opt=["no-new-privileges", *([f"mask={':'.join(_MASKED)}"] if engine.kind == "podman" else [])],
        privileged=False,
        pids_limit=limits.processes + SUPERVISOR_TASKS,
        mem_limit=memory,
        memswap_limit=memory,
        nano_cpus=1_000_000_000,
        read_only=not terms.network,
        tmpfs=_mounts(engine, workspace, limits, terms),
        shm_size=SHM_MB << 20,
        ulimits=[ulimit(name=name, soft=value, hard=value) for name, value in bounds.items()],
        log_config=docker.types.LogConfig(type="none"),
        auto_remove=True,
        ipc_mode="private",
        init=False,
    )
    if engine.kind == "docker":
        host["MaskedPaths"] = list(_MASKED)
    *python, program = command_line("python3")
    config: dict[str, Any] = api.create_container_config(
        image=image,
        entrypoint=python[:1],
        command=[*python[1:], _WAIT + program],
        hostname="sandbox",
        user=_user(terms),
        stdin_open=True,
        tty=False,
        environment={},
        working_dir="/",
        network_disabled=not (terms.network or terms.background),  # it takes the name localhost away, too
        healthcheck={"test": ["NONE"]} if engine.kind == "docker" else None,  # Podman makes a timer even of this
        labels={OWNER: owner(), RUN: run_id(), MACHINE: machine()},
        host_config=host,
    )
    return config


def _user(terms: Terms) -> str:
    return "0:0" if terms.network else f"{UID}:{UID}"


def scratch(engine: Engine, workspace: str, limits: Limits, terms: Terms = NO_TERMS) -> dict[str, int]:
    """The directories that commands may write to, all in memory, with their sizes in MB."""
    places = {workspace: limits.workspace_mb, "/tmp": limits.tmp_mb, "/dev/shm": SHM_MB, GRADER: GRADER_MB}
    places |= dict.fromkeys(terms.folders, GRADER_MB)
    if engine.kind == "podman" and not terms.network:  # it gives every read-only container one without a size there
        places["/var/tmp"] = limits.tmp_mb
    return places


def _mounts(engine: Engine, workspace: str, limits: Limits, terms: Terms) -> dict[str, str]:
    """Options of the memory file systems."""
    found = {}
    modes = {workspace: "0755", **dict.fromkeys((GRADER, *terms.folders), "0700")}
    uid, gid = _user(terms).split(":")
    for path, size in scratch(engine, workspace, limits, terms).items():
        mode = modes.get(path, "1777")
        ours = f"uid={uid},gid={gid},nr_inodes={INODES_PER_MB * size}"
        ours = "U,notmpcopyup" if engine.kind == "podman" else ours  # Podman knows no inodes, and `U` for the owner
        found[path] = f"rw,exec,nosuid,nodev,size={size}m,mode={mode},{ours}"
    if workspace.startswith("/root/") and not terms.network:
        # Images keep it for root alone, and it is the way to the workspace. Engines with a runc before 1.2 leave it the
        # mode that it has in the image; ours opens it.
        found["/root"] = "rw,noexec,nosuid,nodev,size=1m,mode=0711"
    if engine.kind == "podman" and not terms.network:
        found["/run"] = "rw,noexec,nosuid,nodev,size=1m,mode=0755"  # likewise without a size; root's
    return found


def new_name() -> str:
    """A name for a container, ours before the engine knows it: so it can be removed whatever became of the request."""
    return f"turngym-{secrets.token_hex(8)}"


def machine() -> str:
    """A name of this machine: two machines with one name would be asked for the processes of each other."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text:
            return text[:32]
    return os.uname().nodename


# --- removing -----------------------------------------------------------------------------------------------------

_doubtful: dict[tuple[Engine, str], int] = {}
"""Containers whose removal the engine did not confirm, and the process that owns them; tried again."""
_doubtful_lock = threading.Lock()


def remove(engine: Engine, name: str, seconds: float = REMOVE_SECONDS) -> bool:
    """Kill and remove a container; True when the engine says that it is gone.

    An engine that does not answer is asked again by `remove_doubtful`; a warning is logged. Once our end of its input
    is closed the container ends by itself, too.
    """
    try:
        _remove(engine, name, seconds)
    except EngineFailed as error:
        _log.warning("container %s on %s was not removed yet: %s", name, engine.url, error)
        with _doubtful_lock:
            _doubtful[engine, name] = os.getpid()
        return False
    with _doubtful_lock:
        _doubtful.pop((engine, name), None)
    return True


def remove_doubtful(engine: Engine | None = None, seconds: float = REMOVE_SECONDS) -> None:
    """Remove again what could not be removed before."""
    with _doubtful_lock:
        left = [key for key, pid in _doubtful.items() if pid == os.getpid() and engine in (None, key[0])]
    for where, name in left:
        if not remove(where, name, seconds):
            return  # it still does not answer


def _remove(engine: Engine, name: str, seconds: float) -> None:
    """Raises EngineFailed."""
    limit = time.monotonic() + seconds
    try:
        api = client(engine).api
        url = f"{api.base_url}/v{api.api_version}/containers/{name}"
        while True:
            left = max(0.1, limit - time.monotonic())
            reply = api.delete(url, params={"force": "1", "v": "1"}, timeout=left)
            if reply.status_code in (200, 204, 404):
                return
            # 409: the engine is removing it already, because it ended by itself. Others: it may do better next time.
            said = reply.text.strip()[:300]
            if time.monotonic() > limit:
                raise EngineFailed(f"it answered {reply.status_code}: {said}")
            if reply.status_code == 409:
                params = {"condition": "removed"}
                api.post(f"{url}/wait", params=params, timeout=max(0.1, limit - time.monotonic())).close()
            else:
                time.sleep(0.1)
    except engine_errors() as error:
        raise EngineFailed(explain(error)) from error


@atexit.register
def _remove_doubtful_at_exit() -> None:
    remove_doubtful(seconds=3.0)


def sweep_containers(run: str | None = None, hosts: Sequence[str] | None = None) -> int:
    """Remove containers of ours whose process is gone for sure, also those that were made and never started.

    Args:
        run: Remove instead every container of this run (see TURNGYM_RUN_ID), whether its process lives or not, from
            whichever machine it came.
        hosts: As in `find_engines`.

    Returns:
        How many were removed; 0 when no address is set and none of the usual sockets has an engine.

    Raises:
        SandboxUnavailable: An address is set, and no engine answers there.
        EngineFailed: An engine broke off in the middle.
    """
    try:
        engines = find_engines(hosts)
    except SandboxUnavailable:
        if all(address.source == "usual socket" for address in addresses(hosts)):
            return 0
        raise
    return sum(sweep_engine(engine, run) for engine in engines)


def sweep_engine(engine: Engine, run: str | None = None) -> int:
    """`sweep_containers` for one engine. Raises EngineFailed."""
    removed = 0
    wanted = OWNER if run is None else f"{RUN}={run}"
    try:
        rows = client(engine).api.containers(all=True, filters={"label": [wanted]})
    except engine_errors() as error:
        raise EngineFailed(f"{engine.url}: {explain(error)}") from error
    for row in rows:
        labels = row.get("Labels") or {}
        if run is None and not _orphan(engine, labels):
            continue
        _remove(engine, row["Id"], REMOVE_SECONDS)
        removed += 1
    return removed


def _orphan(engine: Engine, labels: dict[str, str]) -> bool:
    """Whether the process that made a container is gone for sure.

    Another boot of this machine is a process of the past only where no other machine can have made the container.
    """
    here = engine.local and labels.get(MACHINE) == machine()
    return owner_lives(labels.get(OWNER, ""), here=here) is False


# --- asking about one ---------------------------------------------------------------------------------------------


def process_id(engine: Engine, name: str) -> int:
    """Process id of a container's first process, as the engine's machine counts; 0 when it is gone.

    Raises:
        EngineFailed: The engine does not answer.
    """
    import docker

    try:
        return int(client(engine).api.inspect_container(name)["State"]["Pid"])
    except docker.errors.NotFound:
        return 0
    except engine_errors() as error:
        raise EngineFailed(explain(error)) from error


def last_events(engine: Engine, name: str) -> str:
    """What the engine noted about a container that was lost, in words; why it cannot say, when it cannot."""
    from email.utils import parsedate_to_datetime  # costs as much as the rest of this file, and few need it

    try:
        api = client(engine).api
        date = api.get(f"{api.base_url}/_ping", timeout=2).headers.get("Date", "")
        until = int(parsedate_to_datetime(date).timestamp()) + 1 if date else int(time.time())
        filters = json.dumps({"container": [name]})
        params = {"since": "0", "until": str(until), "filters": filters}
        reply = api.get(f"{api.base_url}/v{api.api_version}/events", params=params, timeout=3)
        events = [json.loads(line) for line in reply.text.splitlines() if line.strip()]
    except engine_errors(ValueError, EngineFailed) as error:
        return f"the engine at {engine.url} does not tell: {explain(error)}"
    return _in_words([(event.get("Action") or event.get("status") or "", _attributes(event)) for event in events])


def _attributes(event: dict[str, Any]) -> dict[str, str]:
    return (event.get("Actor") or {}).get("Attributes") or {}


def _in_words(events: Sequence[tuple[str, dict[str, str]]]) -> str:
    codes = [attributes.get("exitCode", "?") for action, attributes in events if action in ("die", "died")]
    if not codes:
        return "the engine says that the container runs" if events else ""
    actions = [action for action, _ in events]
    if "kill" in actions:
        signals = [attributes.get("signal", "9") for action, attributes in events if action == "kill"]
        return f"somebody killed the container through the engine (signal {signals[-1]})"
    if codes[-1] == "137" and "oom" in actions:
        return "the container ran out of memory and the kernel killed its supervisor"
    if codes[-1] == "137":
        return "something outside the engine killed the container's first process"
    return f"the container ended with exit code {codes[-1]}"
