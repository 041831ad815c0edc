"""Sandboxes on the machines of a Ray cluster: each is an actor there, spoken to as a sandbox here (`ray:bubblewrap`).

Ray places, reaches and ends the actors; the backend after `ray:` confines the commands on their machine. An actor holds
the pipes of one supervisor, and one call carries a request and its whole answer.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import re
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

from sandboxes.boot import PathAlias, sources
from sandboxes.inside.frames import FrameBuffer
from sandboxes.local import warn_of_no_confinement
from sandboxes.sandbox import Backend, Limits, SandboxError, SandboxOutage, SandboxUnavailable, Terms
from sandboxes.transport import FAMILY_SECONDS, Launcher, Transport, TransportClosed

ADDRESS_VARIABLE = "RAY_ADDRESS"
CPUS = 0.25
"""Of a core, that Ray sets aside for a sandbox: most of an episode is the policy's turn. With it `Limits.memory_mb`."""
PLACE_SECONDS = 60.0
"""How long a sandbox waits for room on a node, and for its process there."""
LATE_SECONDS = 3.0
"""What an answer of a node may take beyond the time that its sandbox had for it."""
_CONNECT_SECONDS = 5.0
Found = TypeVar("Found")

# -- The cluster ------------------------------------------------------------------------------------------------------

_connecting = threading.Lock()
_process = 0
"""Who connected: a copy of it made by fork has no connection, though Ray believes so there."""


def connect(address: str | None = None) -> Any:
    """Make this process a driver of a Ray cluster that runs already; returns the module `ray`.

    One that is connected stays as it is. No cluster is ever started.

    Args:
        address: `HOST:PORT`, or `auto` for the one that this machine is a node of; default RAY_ADDRESS, else `auto`.

    Raises:
        SandboxUnavailable: Ray is not installed, no cluster answers, or it cannot be used from here.
    """
    global _process
    try:
        import ray
    except ImportError as error:
        raise SandboxUnavailable('Ray is not installed; remedy: pip install "turngym[ray]"') from error
    with _connecting:
        if ray.is_initialized():
            if _process not in (0, os.getpid()):
                raise SandboxUnavailable(
                    f"this process was forked from process {_process}, whose connection to Ray it cannot use; remedy: "
                    "start it with the method spawn, or open the first sandbox after forking"
                )
        else:
            where = address or os.environ.get(ADDRESS_VARIABLE) or "auto"
            _refuse_silent(where)
            try:
                with _own_signals():
                    ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR)
            except Exception as error:  # ConnectionError, RuntimeError of versions that differ, and Ray's own
                raise SandboxUnavailable(_no_cluster(where, str(error).partition("\n")[0])) from error
            _close_first()
        _process = os.getpid()
    return ray


def _refuse_silent(address: str) -> None:
    """Refuse an address where nobody listens: Ray would try for two minutes, and then end this process."""
    if address == "auto":
        return
    place = re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):([0-9]{1,5})", address, re.ASCII)
    if place is None:
        raise SandboxUnavailable(f"{address!r} is no address of a Ray cluster; remedy: HOST:PORT, or auto")
    try:
        socket.create_connection((place[1].strip("[]"), int(place[2])), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SandboxUnavailable(_no_cluster(address, str(error))) from error


def on_each_node(job: Callable[[], Found]) -> list[Found]:
    """What a job returns on each node that has cores for sandboxes, as the cluster is now.

    Raises:
        SandboxUnavailable: See `connect`; or the job failed on a node, which the message names.
    """
    ray = connect()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = []
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU", 0) >= CPUS:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            work = ray.remote(_do).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
            asked.append((node["NodeManagerHostname"], work.remote(job)))
    found = []
    for name, reference in asked:
        try:
            found.append(_answer(reference, PLACE_SECONDS))
        except SandboxError as error:
            raise SandboxUnavailable(f"on the node {name}: {error}") from error
    return found


def _do(job: Callable[[], Found]) -> Found:
    return job()


def _no_cluster(address: str, why: str) -> str:
    return (
        f"no Ray cluster can be used at {address} ({why}); remedy: `ray start --head` on one machine, `ray start "
        f"--address HOST:6379` on the others, start on one of them, and name another cluster with {ADDRESS_VARIABLE}"
    )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what this process does on SIGTERM: Ray sets a handler of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# -- On the node ------------------------------------------------------------------------------------------------------


class Host:
    """The actor: holds one supervisor on its node. `close` may come while `exchange` waits.

    Args:
        launcher: Starts it there.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._transport: Transport | None = None
        self._arrived = FrameBuffer()

    def start(self, workdir: str | None, version: str) -> tuple[PathAlias, str]:
        """Start the supervisor and send it what it begins with.

        Args:
            workdir: See `sandboxes.transport.Launcher`.
            version: See `protocol`.

        Returns:
            How its paths are shown, and the id of this node.

        Raises:
            SandboxUnavailable: The backend cannot work here, or another TurnGym is installed here.
            SandboxError: It could not be started this time.
        """
        import ray

        if version != protocol():
            raise SandboxUnavailable(
                f"{socket.gethostname()} has another version of TurnGym than the machine that asks it for a sandbox; "
                "remedy: install the same one on all nodes"
            )
        self._transport, first, alias = self._launcher.start(workdir)
        self._transport.send(first, time.monotonic() + PLACE_SECONDS)
        return alias, ray.get_runtime_context().get_node_id()

    def exchange(self, data: bytes, seconds: float) -> bytes:
        """Send bytes, and wait for a whole frame. Raises TransportClosed, DeadlinePassed; what came is kept then."""
        transport, deadline = self._running(), time.monotonic() + seconds
        if data:
            transport.send(data, deadline)
        while not self._arrived.ready:
            self._arrived.feed(transport.receive(deadline))
        return self._arrived.take()

    def ready(self) -> None:
        """See `sandboxes.transport.Transport`."""
        self._running().ready()

    def diagnosis(self) -> str:
        """See `sandboxes.transport.Transport`."""
        return self._running().diagnosis()

    def close(self, patience: float) -> None:
        """See `sandboxes.transport.Transport`."""
        if self._transport is not None:
            self._transport.close(patience=patience)

    def _running(self) -> Transport:
        if self._transport is None:
            raise TransportClosed("the supervisor was not started")
        return self._transport


@functools.cache
def protocol() -> str:
    """A hash of the supervisor's sources: both ends must understand each other."""
    return sha256(repr(sources()).encode("utf-8", "surrogatepass")).hexdigest()


# -- Here -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """Where the last sandbox of a launcher is: the next one of it, a canary for one, is placed there if that lives."""

    id: str | None = None


class RayLauncher:
    """Starts supervisors in actors.

    Args:
        inner: Starts one on the node of the actor.
        node: Shared with the launcher that this one is a variety of.

    Raises:
        SandboxUnavailable: See `connect`.
    """

    def __init__(self, inner: Launcher, node: _Node | None = None) -> None:
        self._ray = connect()
        self._inner = inner
        self._node = node or _Node()
        self.backend: Backend = inner.backend
        self.limits: Limits = inner.limits
        if inner.backend is Backend.LOCAL:
            warn_of_no_confinement()

    def start(self, workdir: str | None) -> tuple[RayTransport, bytes, PathAlias]:
        """See `sandboxes.transport.Launcher`. The first bytes are sent already."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asked = {"num_cpus": CPUS, "memory": self.limits.memory_mb << 20}
        where = self._node.id
        actor = (
            self._ray.remote(Host)
            .options(
                **asked,
                max_restarts=0,
                max_concurrency=2,
                scheduling_strategy="SPREAD" if where is None else NodeAffinitySchedulingStrategy(where, soft=True),
            )
            .remote(self._inner)
        )
        try:
            alias, self._node.id = _answer(actor.start.remote(workdir, protocol()), PLACE_SECONDS)
        except BaseException as error:
            self._ray.kill(actor)
            if not isinstance(error, _Silent):
                raise
            free = self._ray.available_resources()
            raise SandboxOutage(
                f"no sandbox was ready on the Ray cluster in {PLACE_SECONDS:.0f} seconds: it takes {CPUS} of "
                f"a core and {self.limits.memory_mb} MB, and {free.get('CPU', 0):g} cores and "
                f"{free.get('memory', 0) / 2**20:.0f} MB are free on all of them; remedy: more nodes, or fewer "
                "sandboxes at a time"
            ) from error
        return RayTransport(actor, self._node), b"", alias

    def varied(self, limits: Limits, terms: Terms) -> RayLauncher:
        """See `sandboxes.transport.Launcher`."""
        return RayLauncher(self._inner.varied(limits, terms), self._node)


class RayTransport:
    """A supervisor that an actor holds.

    What is sent travels with the next `receive`: a request and its answer are one call.

    Args:
        actor: A `Host` whose supervisor was started.
        node: Told when the actor is lost.
    """

    def __init__(self, actor: Any, node: _Node) -> None:
        self._actor, self._node = actor, node
        self._process = os.getpid()
        self._outgoing = b""
        self._closed = self._gone = False
        _open.add(self)

    def send(self, data: bytes, deadline: float) -> None:
        """See `sandboxes.transport.Transport`."""
        self._refuse_closed()
        self._outgoing += data

    def receive(self, deadline: float) -> bytes:
        """See `sandboxes.transport.Transport`."""
        self._refuse_closed()
        data, self._outgoing = self._outgoing, b""
        left = max(0.0, deadline - time.monotonic())
        with self._noting_loss():
            return bytes(_answer(self._actor.exchange.remote(data, left), left + LATE_SECONDS))

    def ready(self) -> None:
        """See `sandboxes.transport.Transport`."""
        self._refuse_closed()
        with self._noting_loss():
            _answer(self._actor.ready.remote(), PLACE_SECONDS)

    def diagnosis(self) -> str:
        """See `sandboxes.transport.Transport`."""
        if self._closed or self._gone:
            return ""
        try:
            return str(_answer(self._actor.diagnosis.remote(), LATE_SECONDS))
        except SandboxError:
            return ""

    def close(self, *, patience: float = 2.0) -> None:
        """See `sandboxes.transport.Transport`."""
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        import ray

        if not ray.is_initialized():  # the actor ended with the connection
            return
        try:
            if not self._gone:
                with contextlib.suppress(SandboxError):
                    _answer(self._actor.close.remote(patience), patience + 2 * FAMILY_SECONDS + LATE_SECONDS)
        finally:
            ray.kill(self._actor)

    def _refuse_closed(self) -> None:
        if self._closed or self._process != os.getpid():
            raise TransportClosed("the sandbox was closed, or belongs to another process")

    @contextmanager
    def _noting_loss(self) -> Iterator[None]:
        try:
            yield
        except _Gone:
            self._gone, self._node.id = True, None
            raise


class _Gone(TransportClosed):
    """The actor, its node, or the way there is gone."""


class _Silent(_Gone):
    """No answer came in time."""


def _answer(reference: Any, seconds: float) -> Any:
    """What a call of an actor returns.

    Raises:
        SandboxError: As the actor raised it; `_Gone` where none can be expected any more.
    """
    import ray
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError

    if not ray.is_initialized():
        raise _Gone("the connection to the Ray cluster was closed")
    try:
        return ray.get(reference, timeout=seconds)
    except GetTimeoutError as error:
        raise _Silent(f"the node of the sandbox did not answer in {seconds:.0f} seconds") from error
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, SandboxError):
            raise cause from None
        raise SandboxError(f"on the node of the sandbox: {cause!r}") from error
    except RayError as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        words = " ... ".join(line[:200] for line in dict.fromkeys((said[0], said[-1])))  # the cause comes last
        raise _Gone(f"the sandbox's process or its node is gone ({type(error).__name__}: {words})") from error


_open: weakref.WeakSet[RayTransport] = weakref.WeakSet()


@functools.cache
def _close_first() -> None:
    """When this process ends, close what is open before Ray disconnects: what was registered last comes first."""
    atexit.register(_close_all)


def _close_all() -> None:
    for transport in list(_open):
        transport.close(patience=0.5)


def _forget() -> None:
    global _connecting
    _connecting = threading.Lock()


os.register_at_fork(after_in_child=_forget)
