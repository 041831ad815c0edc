"""The docker backend: one container per sandbox, on one engine or spread over several. Podman works too."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from sandboxes.boot import GRADER, WORKSPACE, PathAlias, Settings, bundle, check_workdir
from sandboxes.docker.containers import (
    NO_TERMS,
    AttachTransport,
    configuration,
    last_events,
    new_name,
    process_id,
    remove,
    remove_doubtful,
    scratch,
    sweep_engine,
)
from sandboxes.docker.engines import (
    Address,
    Engine,
    EngineFailed,
    answering,
    ask,
    client,
    engine_errors,
    explain,
    unreachable,
)
from sandboxes.inside.variables import environment, with_image
from sandboxes.sandbox import Backend, Limits, SandboxError, SandboxUnavailable, Terms

# -- Spreading containers over several engines: the one with the fewest of ours per processor comes first -------------

REST_SECONDS = 30.0
"""How long an engine that failed is asked last."""

_lock = threading.Lock()
_live: Counter[str] = Counter()
"""Our containers per engine, those being made among them."""
_resting: dict[str, float] = {}
_known: dict[Address, Engine] = {}
_turn = 0


def engines(hosts: Sequence[str] | None, failures: list[tuple[Address | Engine, str]]) -> list[Engine]:
    """Engines to try, best first. Those that failed lately come last.

    Args:
        hosts: As in `sandboxes.docker.engines.find_engines`.
        failures: Addresses that do not answer are added here, with the reason.
    """
    global _turn
    found = answering(hosts, failures, _known_engine)
    now = time.monotonic()
    with _lock:
        _turn += 1
        start = _turn % len(found) if found else 0
        turned = found[start:] + found[:start]
        return sorted(turned, key=lambda engine: (_resting.get(engine.url, 0) > now, _live[engine.url] / engine.cpus))


def _known_engine(address: Address) -> Engine:
    """What is behind an address; asked once, and again after it failed."""
    with _lock:
        engine = _known.get(address)
    if engine is None:
        engine = ask(address)
        with _lock:
            _known[address] = engine
    return engine


def entered(engine: Engine) -> None:
    """A container is being made on this engine."""
    with _lock:
        _live[engine.url] += 1


def left(engine: Engine) -> None:
    """A container of this engine is gone."""
    with _lock:
        _live[engine.url] -= 1


def failed(engine: Engine) -> None:
    """This engine did not do what it should: others are asked first for a while, and it is asked who it is again."""
    with _lock:
        _resting[engine.url] = time.monotonic() + REST_SECONDS
        for address in [address for address, known in _known.items() if known.url == engine.url]:
            del _known[address]


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _live.clear()


os.register_at_fork(after_in_child=_forget)


# -- The docker backend: one container per sandbox, on one engine or spread over several. Podman works too ------------
# The supervisor is the first process of the container and is spoken to over the engine's `attach` connection. Files go
# in and out through it, never through a mount or an archive of the engine. `sandboxes.docker.containers` has the
# flags.

IMAGE = "turngym-shell:bookworm"
IMAGE_VARIABLE = "TURNGYM_IMAGE"
MANY_PROCESSES = 1 << 20
"""RLIMIT_NPROC counts the user's processes in all containers of an engine, so the container's own limit must do."""

Started = tuple[AttachTransport, Engine, list[str]]
"""A container, where it is, and the variables that its image sets."""


def default_image() -> str:
    """The image of a sandbox for which none is named."""
    return os.environ.get(IMAGE_VARIABLE) or IMAGE


class ImageMissing(EngineFailed):
    """The image is not on an engine, or is none in which a supervisor can run. The message holds the remedy."""


class DockerLauncher:
    """Starts supervisors in containers.

    Args:
        limits: What commands may use.
        image: Image with bash and python3; default: TURNGYM_IMAGE, else `IMAGE`. Never pulled.
        hosts: Addresses of engines; default: see `sandboxes.docker.engines`.
        terms: What else an episode asks for.
    """

    backend = Backend.DOCKER

    def __init__(
        self,
        limits: Limits,
        *,
        image: str | None = None,
        hosts: Sequence[str] | None = None,
        terms: Terms = NO_TERMS,
    ) -> None:
        self.limits = limits
        self.image = image or default_image()
        self._hosts, self._terms = hosts, terms

    def start(self, workdir: str | None) -> tuple[AttachTransport, bytes, PathAlias]:
        """See `sandboxes.transport.Launcher`. Engines that fail are left out as long as another one works."""
        workspace = check_workdir(workdir or WORKSPACE)
        transport, engine, variables = _uninterrupted(lambda: self._start_somewhere(workspace))
        settings = Settings(
            workspace=workspace,
            tmp="/tmp",
            grader=GRADER,
            wipe=(*scratch(engine, workspace, self.limits, self._terms), "/dev/mqueue"),
            folders=self._terms.folders,
            background=self._terms.background,
            limits=self.limits,
            env=with_image(environment(workspace, "/tmp"), variables),
            user_processes=MANY_PROCESSES,
            own_ipc=True,
            filter="namespaces",
        )
        return transport, bundle() + settings.frame(), PathAlias(workspace, workspace)

    def varied(self, limits: Limits, terms: Terms) -> DockerLauncher:
        """See `sandboxes.transport.Launcher`."""
        return DockerLauncher(limits, image=terms.image or self.image, hosts=self._hosts, terms=terms)

    def _start_somewhere(self, workspace: str) -> Started:
        failures: list[tuple[Address | Engine, str]] = []
        unusable = 0
        for engine in engines(self._hosts, failures):
            try:
                return self._start_on(engine, workspace)
            except ImageMissing as error:
                unusable += 1
                failures.append((engine, str(error)))
            except EngineFailed as error:
                failed(engine)
                failures.append((engine, str(error)))
        if unusable and unusable == len(failures):
            if unusable == 1:
                raise SandboxUnavailable(failures[0][1])
            raise SandboxUnavailable("\n".join(f"{where.url}: {why}" for where, why in failures))
        if all(isinstance(where, Address) for where, _ in failures):
            raise unreachable(failures)
        raise SandboxError(
            "no container could be started: " + "; ".join(f"{where.url}: {why}" for where, why in failures)
        )

    def _start_on(self, engine: Engine, workspace: str) -> Started:
        """Make a container, attach to it, start it.

        Raises:
            EngineFailed: The engine did not do it; nothing is left of it.
        """
        _first_use(engine)
        remove_doubtful(engine)
        entered(engine)
        name = new_name()
        stream = None
        try:
            api = client(engine).api
            variables = self._variables(engine)
            asked = configuration(engine, self.image, workspace, self.limits, self._terms)
            api.create_container_from_config(asked, name)
            # Attached before it starts, so that no byte is missed and its input ends when we end.
            params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "detachKeys": ""}
            stream = api.attach_socket(name, params)
            api.start(name)
            transport = AttachTransport(
                stream,
                ask=lambda: last_events(engine, name),
                find_pid=lambda: process_id(engine, name),
                remove=lambda seconds: _end(engine, name, seconds),
            )
        except BaseException as error:
            if stream is not None:
                stream.close()
            _end(engine, name)
            if isinstance(error, engine_errors()):
                raise self._explained(error) from error
            raise
        _open.add(transport)
        return transport, engine, variables

    def _variables(self, engine: Engine) -> list[str]:
        """What the image sets, as `NAME=VALUE`; of our own image nothing, for a shell in any sandbox has the same."""
        if self.image == IMAGE:
            return []
        told: list[str] | None = (client(engine).api.inspect_image(self.image).get("Config") or {}).get("Env")
        return told or []

    def _explained(self, error: BaseException) -> EngineFailed:
        import docker

        said = explain(error)
        if isinstance(error, docker.errors.ImageNotFound) or "no such image" in said.lower():
            return ImageMissing(
                f"the image {self.image!r} is not on this engine; remedy: python -m sandboxes build"
                if self.image == IMAGE
                else f"the image {self.image!r} is not on this engine; remedy: build or load it there, or unset "
                f"{IMAGE_VARIABLE} and run python -m sandboxes build"
            )
        if "python3" in said and ("not found" in said or "no such file" in said):
            return ImageMissing(
                f"the image {self.image!r} has no python3, which the supervisor needs; remedy: install bash and "
                "python3 in it, or use the one that python -m sandboxes build makes"
            )
        return EngineFailed(said)


def _end(engine: Engine, name: str, seconds: float = 10.0) -> None:
    try:
        remove(engine, name, seconds)
    finally:
        left(engine)


_open: weakref.WeakSet[AttachTransport] = weakref.WeakSet()
_used: set[str] = set()
_log = logging.getLogger(__name__)


def _first_use(engine: Engine) -> None:
    """Before the first container of this process on an engine: remove what killed processes left there."""
    if engine.url in _used:
        return
    try:
        sweep_engine(engine)
    except EngineFailed as error:  # what others left there must not keep us from working
        _log.warning("containers of killed processes were not all removed: %s", error)
    else:
        _used.add(engine.url)


@atexit.register
def _close_all() -> None:
    """Remove every container that was not closed, so that nothing is left when the host ends."""
    for transport in list(_open):
        transport.close(patience=0.5)


def _disown_all() -> None:
    for transport in list(_open):
        transport.disown()


os.register_at_fork(after_in_child=_disown_all)


def _uninterrupted(job: Callable[[], Started]) -> Started:
    """Run a job on a thread of its own when signals may interrupt this one.

    Ctrl-C between a request and its reply would leave a container that nobody knows. This way the job runs to its end
    and what it made is closed there.
    """
    if threading.current_thread() is not threading.main_thread():
        return job()
    future: Future[Started] = Future()

    def work() -> None:
        try:
            future.set_result(job())
        except BaseException as error:  # handed to the caller, who waits for it
            future.set_exception(error)

    threading.Thread(target=work, name="sandbox-start").start()
    try:
        return future.result()
    except BaseException:
        future.add_done_callback(_close_result)  # at once when it has failed, later when it was interrupted
        raise


def _close_result(future: Future[Started]) -> None:
    if future.exception() is None:
        future.result()[0].close()
