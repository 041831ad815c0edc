"""The outside half against a supervisor that misbehaves."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sandboxes import Backend, EntryKind, FileEntry, Limits, SandboxError, SandboxUnavailable
from sandboxes.boot import PathAlias
from sandboxes.client import STARTS, SupervisedSandbox
from sandboxes.inside.frames import FrameBuffer, pack
from sandboxes.opening import launcher as launcher_of
from sandboxes.sandbox import Terms
from sandboxes.transport import DeadlinePassed, TransportClosed

Answer = Callable[[dict[str, object]], bytes | None]


class FakeTransport:
    """Answers requests with a function; None is silence, b"" the end."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._buffer, self._out = answer, FrameBuffer(), b""
        self.closed = False

    def send(self, data: bytes, deadline: float) -> None:
        self._buffer.feed(data)
        while frame := self._buffer.next():
            reply = self._answer(frame[0])
            if reply == b"":
                raise TransportClosed("gone")
            self._out += reply or b""

    def receive(self, deadline: float) -> bytes:
        if not self._out:
            assert deadline > time.monotonic() - 1
            raise DeadlinePassed("silence")
        data, self._out = self._out[:7], self._out[7:]
        return data

    def ready(self) -> None:
        pass

    def diagnosis(self) -> str:
        return "last words"

    def close(self, *, patience: float = 2.0) -> None:
        self.closed = True


class FakeLauncher:
    backend = Backend.BUBBLEWRAP

    def __init__(self, answer: Answer, refuse: int = 0) -> None:
        self.limits = Limits()
        self.answer, self.refuse = answer, refuse
        self.transports: list[FakeTransport] = []
        self.tries = 0

    def start(self, workdir: str | None) -> tuple[FakeTransport, bytes, PathAlias]:
        self.tries += 1
        if self.tries <= self.refuse:
            raise SandboxError("not this time")
        self.transports.append(FakeTransport(self.answer))
        return self.transports[-1], b"", PathAlias("/workspace", "/workspace")


FACTS = {"exit_code": 0, "timed_out": False, "truncated": False, "seconds": 0.0, "out": 2, "err": 1}


def good(head: dict[str, object]) -> bytes:
    body = b"okE" if head["op"] == "run" else b""
    return pack({"id": head["id"], "ok": True, **FACTS, "rows": []}, body)


def test_a_good_supervisor() -> None:
    sandbox = SupervisedSandbox(FakeLauncher(good))
    sandbox.open({})
    result = sandbox.run("x")
    assert (result.stdout, result.stderr) == (b"ok", b"E")


def failing(mode: str) -> Answer:
    def answer(head: dict[str, object]) -> bytes | None:
        if head["op"] != "run":
            return good(head)
        return {
            "silent": None,
            "gone": b"",
            "wrong id": pack({"id": 999, "ok": True, **FACTS}),
            "garbage": b"\xff" * 40,
            "lost": pack({"id": head["id"], "ok": False, "kind": "lost", "message": "processes survive"}),
            "system": pack({"id": head["id"], "ok": False, "kind": "system", "message": "EAGAIN"}),
        }[mode]

    return answer


@pytest.mark.parametrize("mode", ["silent", "gone", "wrong id", "garbage", "lost", "system"])
def test_a_lost_supervisor_is_an_error_and_then_dead_until_opened(mode: str) -> None:
    launcher = FakeLauncher(failing(mode))
    sandbox = SupervisedSandbox(launcher)
    sandbox.open({})
    with pytest.raises(SandboxError, match="lost"):
        sandbox.run("x", timeout=0.1)
    assert launcher.transports[0].closed
    assert not sandbox.alive
    for call in (lambda: sandbox.run("y"), sandbox.snapshot, lambda: sandbox.put({}), lambda: sandbox.read("a")):
        with pytest.raises(SandboxError, match=r"dead.*open\(\)"):
            call()
    sandbox.open({})
    assert sandbox.starts == 2


def test_an_interrupt_in_a_request_ends_the_sandbox() -> None:
    def answer(head: dict[str, object]) -> bytes:
        if head["op"] == "run":
            raise KeyboardInterrupt
        return good(head)

    launcher = FakeLauncher(answer)
    sandbox = SupervisedSandbox(launcher)
    sandbox.open({})
    with pytest.raises(KeyboardInterrupt):
        sandbox.run("x")
    assert launcher.transports[0].closed


def test_starts_are_tried_a_bounded_number_of_times() -> None:
    launcher = FakeLauncher(good, refuse=STARTS - 1)
    SupervisedSandbox(launcher).open({})
    assert launcher.tries == STARTS
    launcher = FakeLauncher(good, refuse=1000)
    with pytest.raises(SandboxError, match="3 tries: not this time"):
        SupervisedSandbox(launcher).open({})
    assert launcher.tries == STARTS


def test_unavailable_is_not_tried_again() -> None:
    launcher = FakeLauncher(good)

    def start(workdir: str | None) -> tuple[FakeTransport, bytes, PathAlias]:
        launcher.tries += 1
        raise SandboxUnavailable("no kernel")

    launcher.start = start  # type: ignore[method-assign]
    with pytest.raises(SandboxUnavailable):
        SupervisedSandbox(launcher).open({})
    assert launcher.tries == 1


def test_closed_is_closed() -> None:
    sandbox = SupervisedSandbox(FakeLauncher(good))
    sandbox.open({})
    sandbox.close()
    sandbox.close()
    for call in (lambda: sandbox.open({}), lambda: sandbox.run("x")):
        with pytest.raises(SandboxError, match="closed"):
            call()


def test_before_the_first_episode() -> None:
    with pytest.raises(SandboxError, match=r"open\(\) first"):
        SupervisedSandbox(FakeLauncher(good)).run("x")


@pytest.mark.parametrize(
    "files",
    [
        {"/abs": b""},
        {"../up": b""},
        {"a/../b": b""},
        {"": b""},
        {"x": FileEntry(content=None)},
        {"x": FileEntry(EntryKind.SYMLINK)},
        {"x": FileEntry(EntryKind.OTHER)},
    ],
)
def test_bad_files_are_the_callers_mistake(files: dict[str, FileEntry | bytes]) -> None:
    sandbox = SupervisedSandbox(FakeLauncher(good))
    with pytest.raises(ValueError):
        sandbox.open(files)
    sandbox.open({})
    with pytest.raises(ValueError):
        sandbox.put(files)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_bad_timeouts(timeout: float) -> None:
    sandbox = SupervisedSandbox(FakeLauncher(good))
    sandbox.open({})
    with pytest.raises(ValueError, match="timeout"):
        sandbox.run("x", timeout=timeout)
    with pytest.raises(ValueError, match="state"):
        sandbox.run("x", state="dirty")  # type: ignore[arg-type]


class Varied(FakeLauncher):
    """Remembers with which limits and image each start was asked for."""

    def __init__(self) -> None:
        super().__init__(good)
        self.asked: list[tuple[int, str | None]] = []

    def varied(self, limits: Limits, terms: Terms) -> Varied:
        other = Varied()
        other.limits, other.asked = limits, self.asked
        self.asked.append((limits.processes, terms.image))
        return other


def test_terms_start_another_supervisor_only_where_they_differ() -> None:
    launcher = Varied()
    sandbox = SupervisedSandbox(launcher)
    eight = Terms({"A": "x"}, limits={"processes": 8})
    for terms, starts, processes in (
        (None, 1, 128),
        (Terms({"A": "x"}), 1, 128),  # variables need no other one
        (eight, 2, 8),
        (Terms(limits={"processes": 8}), 2, 8),
        (Terms(image="x:1", limits={"processes": 8}), 3, 8),
        (Terms(image="x:1"), 4, 128),
        (None, 5, 128),
    ):
        sandbox.open({}, terms=terms)
        assert (sandbox.starts, sandbox.limits.processes) == (starts, processes)
    sandbox.open({}, terms=eight)
    sandbox.reset()  # as a pool does: the next episode may ask for the same
    assert sandbox.starts == 6
    assert launcher.asked == [(8, None), (8, "x:1"), (128, "x:1"), (8, None)]


@pytest.mark.parametrize("backend", [Backend.BUBBLEWRAP, Backend.LANDLOCK, Backend.LOCAL])
def test_backends_without_images_say_so(backend: Backend) -> None:
    assert launcher_of(backend, Limits()).varied(Limits(processes=8), Terms()).limits.processes == 8
    with pytest.raises(
        SandboxUnavailable, match=f"the {backend} sandbox has no images, and 'x:1' is asked for; remedy"
    ):
        SupervisedSandbox(launcher_of(backend, Limits())).open({}, terms=Terms(image="x:1"))
    with pytest.raises(SandboxUnavailable, match=f"the {backend} sandbox has no network, and a judge asks for one"):
        SupervisedSandbox(launcher_of(backend, Limits())).open({}, terms=Terms(network="bridge"))
    if backend is not Backend.BUBBLEWRAP:
        with pytest.raises(SandboxUnavailable, match=f"the {backend} sandbox cannot mount /tests, /logs; remedy"):
            SupervisedSandbox(launcher_of(backend, Limits())).open({}, terms=Terms(folders=("/tests", "/logs")))
        with pytest.raises(SandboxUnavailable, match=f"the {backend} sandbox has no processes of its own"):
            SupervisedSandbox(launcher_of(backend, Limits())).open({}, terms=Terms(background=True))
