"""`python -m envs serve`: who may connect, what is bounded, and that nothing is left of sessions that end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

import envs.__main__ as cli
from envs.clawgym import ClawGymEnv
from envs.serve import TOKEN_VARIABLE, Limits, Server, check_access
from sandboxes import Backend, SandboxUnavailable, probe
from tests.envs.fakes import FakeSandboxes, bash, task
from tests.shared_data import REPOSITORY

TOKEN = "0123456789-abc_DEF"
SECONDS = 10.0
"""How long to wait for what must happen; it happens in milliseconds."""


class Running:
    """A server that runs in a thread, and where."""

    def __init__(self, server: Server, port: int, log: list[str]) -> None:
        self.server, self.port, self.log = server, port, log

    def url(self, path: str = "/ws", user: str = "", scheme: str = "ws") -> str:
        return f"{scheme}://{user and f'{user}@'}127.0.0.1:{self.port}{path}"


@contextmanager
def serving(limits: Limits | None = None, token: str | None = None, sandbox: str = "auto") -> Iterator[Running]:
    log: list[str] = []
    make = partial(
        ClawGymEnv, [task(budget={"max_turns": 4, "command_seconds": 30.0})], sandbox=sandbox, reward="binary"
    )
    server = Server("ClawGym-v0", "Shell tasks.", make, limits or Limits(), token=token, log=log.append)
    bound: list[int] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def until_told() -> None:
        async with server.listening("127.0.0.1", 0) as port:
            bound.append(port)
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(until_told()))
    thread.start()
    try:
        until(lambda: bool(bound))
        yield Running(server, bound[0], log)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(SECONDS)
        assert not thread.is_alive(), "the server does not end"
        loop.close()
    assert server.sessions == 0 and not sessions_alive()


def sessions_alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("session_")]


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end, "it does not come to be"
        time.sleep(0.01)


def message(type: str, **data: object) -> str:
    return json.dumps({"type": type, "data": data})


def told(client: Any, type: str, **data: object) -> dict[str, Any]:
    client.send(message(type, **data))
    return json.loads(client.recv(timeout=SECONDS))


def got(running: Running, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(running.url(path, scheme="http"), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# -- Who may connect --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org", ""])
def test_others_need_a_token(host: str) -> None:
    with pytest.raises(ValueError, match="set a token .--token or TURNGYM_SERVE_TOKEN., or leave --host out") as error:
        check_access(host, None)
    assert "\n" not in str(error.value)
    check_access(host, TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    check_access(host, None)


@pytest.mark.parametrize("token", ["", "short", "0123456789abcde/", "0123456789abcdef\n", "ümlaut-0123456789"])
def test_a_token_that_is_weak_or_fits_into_no_url_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="16 or more letters"):
        check_access("127.0.0.1", token)


def test_a_token_opens_everything_but_health(sandboxes: FakeSandboxes) -> None:
    with serving(token=TOKEN) as running:
        assert got(running, "/health") == (200, '{"status": "healthy"}')
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic %%"}, {"Authorization": TOKEN}):
            status, said = got(running, "/schema", **headers)
            assert status == 401 and "connect to http://any:TOKEN@HOST:PORT" in said and TOKEN not in said
        assert json.loads(got(running, "/metadata", Authorization=f"Bearer {TOKEN}")[1])["name"] == "ClawGym-v0"
        for user in ("", f"any:{TOKEN}x"):
            with pytest.raises(InvalidStatus, match="401"), connect(running.url(user=user)):
                pass
        with connect(running.url(user=f"any:{TOKEN}")) as client:  # as a client of OpenEnv gives it: in the URL
            assert told(client, "reset")["type"] == "observation"
        with connect(running.url(), additional_headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            assert told(client, "state")["type"] == "state"


def test_a_web_page_is_refused_and_other_paths_name_what_there_is(sandboxes: FakeSandboxes) -> None:
    with serving() as running:
        with pytest.raises(InvalidStatus, match="403"), connect(running.url(), origin=Origin("http://evil.example")):
            pass
        status, said = got(running, "/reset")
        assert status == 404 and "/ws" in said and "/schema" in said
        assert json.loads(got(running, "/schema")[1]).keys() == {"action", "observation", "state"}


# -- What is bounded --------------------------------------------------------------------------------------------------


def test_one_session_more_than_there_may_be(sandboxes: FakeSandboxes) -> None:
    with serving(Limits(sessions=1)) as running:
        with connect(running.url()) as first, connect(running.url()) as second:
            assert told(first, "reset")["type"] == "observation"
            error = json.loads(second.recv(timeout=SECONDS))["data"]
            assert error["code"] == "CAPACITY_REACHED" and "--max-sessions" in error["message"]
            with pytest.raises(ConnectionClosed, match="all 1 sessions are taken: try again later"):
                second.recv(timeout=SECONDS)
        until(lambda: running.server.sessions == 0)
        with connect(running.url()) as third:
            assert told(third, "reset")["type"] == "observation"


def test_an_idle_session_ends(sandboxes: FakeSandboxes) -> None:
    with serving(Limits(idle_seconds=1)) as running, connect(running.url()) as client:
        told(client, "reset")
        assert told(client, "step", message=bash("sleep 1.2"))["type"] == "observation"  # that is no idling
        error = json.loads(client.recv(timeout=SECONDS))["data"]
        assert error["code"] == "SESSION_ERROR" and "--idle-seconds" in error["message"]
        with pytest.raises(ConnectionClosed, match="idle for 1 seconds: connect again, and reset"):
            client.recv(timeout=SECONDS)
        until(lambda: running.server.sessions == 0)
        assert sandboxes.last.closed


def test_a_message_that_is_too_large_ends_the_session(sandboxes: FakeSandboxes) -> None:
    with serving(Limits(message_bytes=2000)) as running, connect(running.url()) as client:
        told(client, "reset")
        assert told(client, "step", message="x" * 1900)["type"] == "observation"
        with pytest.raises(ConnectionClosed, match="1009"):
            told(client, "step", message="x" * 2000)
        until(lambda: running.server.sessions == 0)
        assert running.log == [
            "a session ended: a message had more than 2000 bytes (--max-message-bytes sets the limit)"
        ]
        assert sandboxes.last.closed


@pytest.mark.parametrize("limits", [{"sessions": 0}, {"message_bytes": 10}, {"idle_seconds": float("nan")}])
def test_limits_leave_room(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(?s)is (0|10|nan): at least \d+ is needed"):
        Limits(**limits)


# -- What is left -----------------------------------------------------------------------------------------------------


async def visit(url: str, fate: int, draw: random.Random) -> None:
    """Play as a client that goes in one way of five; comes again while every session is taken."""
    while True:
        async with connect_async(url, close_timeout=SECONDS) as client:
            try:
                if await play(client, fate, draw):
                    return
            except ConnectionClosed as closed:
                assert closed.rcvd is not None and closed.rcvd.code == 1013, closed
        await asyncio.sleep(0.05)


async def play(client: Any, fate: int, draw: random.Random) -> bool:
    """Whether there was a session to play in."""
    await client.send(message("reset", seed=draw.randrange(100)))
    if fate == 0:  # gone in the reset
        await asyncio.sleep(draw.random() / 50)
        return drop(client)
    answer = json.loads(await client.recv())
    if answer["type"] == "error":
        assert answer["data"]["code"] == "CAPACITY_REACHED"
        return False
    if fate == 1:  # gone between two messages
        return drop(client)
    if fate == 2:  # gone while a command runs
        await client.send(message("step", message=bash("sleep 0.2")))
        await asyncio.sleep(draw.random() / 10)
        return drop(client)
    await client.send(message("step", message=bash("echo hello > greeting.txt")))
    await client.recv()
    await client.send(message("step", message="TASK_COMPLETE"))
    if fate == 3:  # gone while it is graded
        return drop(client)
    assert json.loads(await client.recv())["data"]["reward"] == 1.0
    return True


def drop(client: Any) -> bool:
    client.transport.abort()
    return True


async def load(url: str, clients: int) -> None:
    draw = random.Random(7)
    fates = [n % 5 for n in range(clients)]
    draw.shuffle(fates)
    async with asyncio.timeout(60), asyncio.TaskGroup() as everyone:
        for fate in fates:
            everyone.create_task(visit(url, fate, random.Random(draw.random())))


def test_fifty_clients_of_which_most_drop_out_leave_nothing(sandboxes: FakeSandboxes) -> None:
    with serving(Limits(sessions=12)) as running:
        asyncio.run(load(running.url(), 50))
        until(lambda: running.server.sessions == 0)
        assert not sessions_alive()
        assert sandboxes.all and all(sandbox.closed for sandbox in sandboxes.all)
        assert [line for line in running.log if "infrastructure" not in line] == []
        with connect(running.url()) as client:
            told(client, "reset")
            told(client, "step", message=bash("echo hello > greeting.txt"))
            assert told(client, "step", message="TASK_COMPLETE")["data"]["reward"] == 1.0


def children() -> set[str]:
    """Processes that this one started and that are still there."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found.update((thread / "children").read_text().split())
    return found


@pytest.fixture
def bubblewrap() -> str:
    found = probe(Backend.BUBBLEWRAP)
    if not found.ok:
        pytest.skip(f"bubblewrap does not work here: {found.reason}")
    return "bubblewrap"


@pytest.mark.bubblewrap
def test_real_sandboxes_end_with_their_clients(bubblewrap: str) -> None:
    before = children()
    with serving(Limits(sessions=4), sandbox=bubblewrap) as running:
        asyncio.run(load(running.url(), 10))
        until(lambda: running.server.sessions == 0)  # the last of them may not have been taken down yet
        with connect(running.url()) as client:
            told(client, "reset")
            client.send(message("step", message=bash("sleep 25")))
            time.sleep(0.3)
            assert children() > before
            client.socket.shutdown(socket.SHUT_RDWR)  # without a word, as when a machine dies
        until(lambda: running.server.sessions == 0)
        assert children() == before and running.log == []


def test_the_end_of_the_server_is_the_end_of_its_sessions(sandboxes: FakeSandboxes) -> None:
    with ExitStack() as after:
        with serving() as running:
            client = after.enter_context(connect(running.url()))
            told(client, "reset")
        with pytest.raises(ConnectionClosed, match="1001"):
            client.recv(timeout=SECONDS)
    assert all(sandbox.closed for sandbox in sandboxes.all)


def test_an_error_of_ours_is_not_hidden(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise TypeError("a mistake in the code")

    monkeypatch.setattr(ClawGymEnv, "step", broken)
    with serving() as running, connect(running.url()) as client:
        told(client, "reset")
        with pytest.raises(ConnectionClosed, match="1011"):
            told(client, "step", message="x")
        until(lambda: "a mistake in the code" in caplog.text)
        assert running.server.sessions == 0 and sandboxes.last.closed


# -- The command ------------------------------------------------------------------------------------------------------


@pytest.mark.bubblewrap
def test_the_command_serves_until_it_is_told_to_end(bubblewrap: str) -> None:
    command = [sys.executable, "-m", "envs", "serve", "ClawGym-v0", "--port", "0", "--sandbox", "bubblewrap"]
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--max-sessions", "2"],
        cwd=REPOSITORY, env={**os.environ, TOKEN_VARIABLE: TOKEN}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    with server:
        line = server.stdout.readline()
        assert (
            "sandbox bubblewrap: http://127.0.0.1:" in line
            and "(token, at most 2 sessions" in line
            and TOKEN not in line
        )
        port = int(line.split("127.0.0.1:")[1].split()[0])
        with connect(f"ws://any:{TOKEN}@127.0.0.1:{port}/ws") as client:
            assert told(client, "reset", task_id="start-project")["data"]["observation"]["task_id"] == "start-project"
            server.send_signal(signal.SIGTERM)
            assert server.stdout.read() == "ended; every sandbox is closed\n"
    assert server.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ClawGym-v0", "--host", "0.0.0.0"], "others could run commands here through 0.0.0.0: set a token"),
        (["ClawGym-v0", "--token", "x"], "the token must be 16 or more letters"),
        (["ClawGym-v0", "--max-sessions", "0"], "sessions is 0: at least 1 is needed"),
        (["ClawGym-v3"], "unknown environment 'ClawGym-v3': did you mean"),
        (["ClawGym-v1", "--tasks", "library"], "has no user (the key `user`): ClawGym-v0 plays it"),
        (["ClawGym-v0", "--tasks", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", *arguments]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith("envs: ") and said in refused and refused.count("\n") == 1


def test_a_sandbox_that_cannot_work_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*args: object, **kwargs: object) -> None:
        raise SandboxUnavailable("docker: no engine answers")

    monkeypatch.setattr(cli, "open_sandbox", none)
    assert cli.main(["serve", "ClawGym-v0", "--sandbox", "docker"]) == 3
    assert capsys.readouterr().err == "envs: docker: no engine answers\n"


def test_a_port_that_is_taken(sandboxes: FakeSandboxes, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as running:
        assert cli.main(["serve", "ClawGym-v0", "--sandbox", "local", "--port", str(running.port)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("envs: cannot listen: ") and said.endswith(
        "address already in use; name another --host or --port\n"
    )


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    assert cli.main(["serve", "ClawGym-v0"]) == 2
    assert 'Remedy: pip install "turngym[serve]"' in capsys.readouterr().err


# -- OpenEnv's own client ---------------------------------------------------------------------------------------------

PLAYS = """
import asyncio, json, sys
from openenv.core import GenericEnvClient

async def play(number, meet):
    found = []
    async with GenericEnvClient(base_url=sys.argv[1]) as env:
        start = await env.reset(seed=number, episode_id=f"e{number}")
        await meet.wait()
        block = "```bash\\n{}\\n```"
        await env.step({"message": block.format(f"echo {number} > number.txt")})
        await meet.wait()
        seen = await env.step({"message": block.format("ls; cat number.txt; echo hello > greeting.txt")})
        await meet.wait()
        end = await env.step({"message": "TASK_COMPLETE"})
        try:
            await env.step({"message": "ls"})
        except RuntimeError as error:
            refused = str(error)
        return {
            "start": [start.observation["task_id"], start.reward, start.done],
            "seen": [seen.observation["message"], seen.reward, seen.done],
            "end": [end.observation["passed"], end.reward, end.done],
            "state": await env.state(), "refused": refused,
        }

async def main():
    meet = asyncio.Barrier(3)
    print(json.dumps(await asyncio.gather(*(play(number, meet) for number in range(3)))))

asyncio.run(main())
"""


@pytest.mark.bubblewrap
def test_openenvs_client_plays_three_episodes_at_once(bubblewrap: str) -> None:
    python = os.environ.get("TURNGYM_TEST_OPENENV")
    if not python:
        pytest.skip("TURNGYM_TEST_OPENENV names no Python with openenv-core: .ci/peer openenv FOLDER makes one")
    before = children()
    with serving(Limits(sessions=3), token=TOKEN, sandbox=bubblewrap) as running:
        url = running.url("", user=f"any:{TOKEN}", scheme="http")
        done = subprocess.run([python, "-c", PLAYS, url], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        until(lambda: running.server.sessions == 0)
        assert children() == before
    for number, one in enumerate(json.loads(done.stdout)):
        assert one["start"] == ["first", None, False]
        seen = f"exit code: 0\nstdout:\nnotes.txt\nnumber.txt\n{number}"
        assert one["seen"] == [seen, 0.0, False]
        assert one["end"] == [True, 1.0, True]
        assert one["state"]["episode_id"] == f"e{number}" and one["state"]["step_count"] == 3
        assert one["refused"].startswith("Server error: step(): the episode is over (submitted)")
