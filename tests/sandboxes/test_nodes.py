"""Sandboxes on the nodes of a Ray cluster: the same contract, and a node that dies is the machinery's fault."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import envs  # noqa: F401  (registers them)
from sandboxes import Backend, SandboxError, SandboxPool, SandboxUnavailable, open_sandbox, opening
from sandboxes.conformance import CHECKS, conform, passed
from sandboxes.nodes import connect, on_each_node, protocol
from sandboxes.opening import choose, probe
from sandboxes.sandbox import NAMES, backend_of
from tests.clusters import Nodes
from tests.sandboxes.conftest import require
from tests.sandboxes.leftovers import arguments

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(200), pytest.mark.ray]
NAME = "ray:bubblewrap"
TRIED = [
    "streams-and-exit-code-are-real",
    "binary-output-is-byte-exact",
    "endless-output-is-ended-and-cut",
    "daemon-does-not-outlive-its-command",
    "supervisor-cannot-be-killed",
    "interactive-program-works-and-frees-the-sandbox",
    "file-above-the-cap-is-named-and-hashed",
    "files-of-the-host-are-unreadable",
    "workspace-of-a-neighbour-is-closed-by-its-real-path",
    "judges",
]


@pytest.fixture
def node(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The only node with cores."""
    require(Backend.BUBBLEWRAP)
    monkeypatch.setattr(opening, "_probes", {})
    return nodes.only()


def running(token: str) -> list[int]:
    """Processes of this machine that have a word among their arguments."""
    found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in found if pid != os.getpid() and token.encode() in arguments(pid)]


def wait(until: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_names() -> None:
    assert backend_of(NAME) is Backend.BUBBLEWRAP and choose(NAME) == NAME
    assert {name for name in NAMES if name.endswith("local")} == {"local", "ray:local"}
    for wrong in ("ray:auto", "ray:", "ray", "ray:ray:bubblewrap"):
        with pytest.raises(ValueError, match="unknown sandbox backend"):
            open_sandbox(wrong)


def test_the_same_version_is_the_same_in_every_process() -> None:
    words = [sys.executable, "-c", "from sandboxes.nodes import protocol; print(protocol())"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == protocol()


def test_without_ray_the_remedy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(opening, "_probes", {})
    assert probe(NAME).remedy == 'pip install "turngym[ray]"'
    for name in (NAME, "ray:local"):
        with pytest.raises(SandboxUnavailable, match=r'Ray is not installed\W+remedy: pip install "turngym\[ray\]"'):
            open_sandbox(name)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster can be used at 127.0.0.1:1 .*refused.*; remedy: `ray start --head`"),
        ("ray://host:10001", "is no address of a Ray cluster; remedy: HOST:PORT, or auto"),
        ("local", "is no address"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "turngym[ray]"')
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(SandboxUnavailable, match=message):
        connect(address)


def _fail() -> None:
    raise SandboxUnavailable("no engine here")


def test_each_node_with_cores_is_asked_and_one_that_fails_is_named(nodes: Nodes) -> None:
    node = nodes.only()
    assert on_each_node(_node_id) == [node.node_id], "the head has none"
    with pytest.raises(SandboxUnavailable, match=rf"on the node {socket.gethostname()}: no engine here"):
        on_each_node(_fail)


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


@pytest.mark.bubblewrap
def test_what_every_backend_must_hold(node: Any) -> None:
    verdicts = list(conform(NAME, only=TRIED, lanes=2))
    assert passed(verdicts), [str(verdict) for verdict in verdicts if not passed([verdict])]
    assert len(verdicts) >= len(TRIED)


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.bubblewrap
@pytest.mark.timeout(1200)
def test_the_whole_list(node: Any) -> None:
    verdicts = list(conform(NAME))
    assert [str(verdict) for verdict in verdicts if not passed([verdict])] == []
    assert len(verdicts) == len(CHECKS)


@pytest.mark.bubblewrap
def test_a_killed_node_is_a_lost_sandbox_and_leaves_nothing(node: Any, nodes: Nodes) -> None:
    token = secrets.token_hex(8)
    with open_sandbox(NAME) as sandbox:
        sandbox.open({"a.txt": "kept"})

        with ThreadPoolExecutor(1) as thread:
            lost = thread.submit(sandbox.run, f"exec -a {token} sleep 100", timeout=120)
            wait(lambda: running(token))
            nodes.kill(node)
            with pytest.raises(SandboxError, match="^ray:bubblewrap sandbox lost: .* or its node is gone"):
                lost.result(60)  # half of what the command had
        assert not sandbox.alive
        wait(lambda: not running(token))
        nodes.add()
        sandbox.open({})
        assert sandbox.run("ls").stdout == b"" and sandbox.starts == 2


@pytest.mark.bubblewrap
@pytest.mark.filterwarnings("ignore")
def test_an_episode_goes_on_when_its_node_is_killed(node: Any, nodes: Nodes) -> None:
    with SandboxPool(NAME, 1) as pool:
        assert pool.backend is Backend.BUBBLEWRAP
        env = gymnasium.make("ClawGym-v0", tasks="generated:quickstart?n=1&seed=1", sandbox=pool)
        env.reset(seed=0)
        env.step("```bash\necho one > first.txt; cd /tmp\n```")
        nodes.add()
        token = secrets.token_hex(8)

        def end_node() -> None:
            wait(lambda: running(token))
            nodes.kill(node)

        with ThreadPoolExecutor(1) as thread:
            killing = thread.submit(end_node)
            words = f"(exec -a {token} sleep 5); pwd; cat /workspace/first.txt"
            observation, *_, info = env.step(f"```bash\n{words}\n```")
            killing.result()
        assert "/tmp\none" in str(observation)
        assert [loss["end"] for loss in info["losses"]] == ["replayed"]
        assert pool.lost == 1
        env.close()


def _hold(address: str, token: str) -> None:
    connect(address)
    sandbox = open_sandbox(NAME)
    sandbox.open({})
    sandbox.run(f"exec -a {token} sleep 100", timeout=120)


@pytest.mark.bubblewrap
def test_a_host_that_is_killed_leaves_nothing_on_the_nodes(node: Any, nodes: Nodes) -> None:
    token = secrets.token_hex(8)
    call = f"from tests.sandboxes.test_nodes import _hold; _hold({nodes.address!r}, {token!r})"
    with subprocess.Popen([sys.executable, "-c", call], stderr=subprocess.DEVNULL) as process:
        wait(lambda: [pid for pid in running(token) if pid != process.pid])
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    wait(lambda: not running(token))
