"""Ctrl-C at any moment: no process, thread or folder stays, and what was finished can be read."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.trajectory import read_jsonl
from sandboxes import SandboxUnavailable, open_sandbox

PROGRAM = """
import json, os, random, sys, threading, time
from agents.policies.scripted import OraclePolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import write_jsonl
from envs.clawgym import ClawGymEnv
from sandboxes import SandboxPool
from sandboxes.inside.processes import descendants_of
from tests.agents.fakes import task

backend, where, marker, out, mode = sys.argv[1:]

class Slow(OraclePolicy):
    def complete(self, requests, sampling):
        if where == "policy":
            say("ready")
            time.sleep(500)
        time.sleep(random.uniform(0, 0.05))
        return super().complete(requests, sampling)

def say(word, seen=set()):
    if word not in seen:
        seen.add(word)
        print(word, flush=True)

nap = "500" if where == "step" else "0.02"
say_two = f"(exec -a {marker} sleep {nap}); echo two > said"
made = task(oracle={"commands": ["echo one > said", say_two]}, budget={"command_seconds": 600})
jobs = [Job(made, k, 0) for k in range(24 if where == "close" else 4000)]

def finished(trajectory):
    write_jsonl([trajectory], file)
    if where in ("anywhere", "own"):
        say("ready")

def stepped(state):
    if where == "step" and state.turns >= 4:
        say("ready")

try:
    with open(out, "w") as file, SandboxPool(backend, 6) as sandboxes:
        place = sandboxes if where != "own" else backend
        make_env = lambda: ClawGymEnv((), sandbox=place, prompt_style="compact")
        with RolloutEngine(Slow(), make_env, slots=4, workers=2, ahead=2, mode=mode) as engine:
            if where == "prepare":
                engine.prepare(jobs)
                say("ready")
                time.sleep(500)
            engine.run(jobs, Sampling(0.0, 200), on_episode=finished, on_round=stepped)
            say("ready")
finally:
    threads = [t.name for t in threading.enumerate() if t.name.startswith(("turngym", "sandbox-pool"))]
    print(json.dumps([threads, descendants_of(os.getpid())]), flush=True)
"""


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    try:
        open_sandbox(request.param, **({"allow_root": True} if request.param == "local" else {})).close()
    except SandboxUnavailable as error:
        pytest.skip(f"{request.param}: {error}")
    return str(request.param)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Temporary files of the program; also other users may enter, which a sandbox may be."""
    path = Path(tempfile.mkdtemp(prefix="interrupt-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


def marked(marker: str) -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and path.name != str(os.getpid()):
            try:
                line = (path / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if line.startswith(marker):
                found.append(line)
    return found


CASES = [
    ("step", 0, 1, "asynchronous"),
    ("policy", 0, 1, "lockstep"),
    ("prepare", 0, 1, "asynchronous"),
    ("close", 0, 3, "asynchronous"),
    ("own", 0, 2, "lockstep"),
    *(("anywhere", seed, 1 + seed % 3, ("asynchronous", "lockstep")[seed % 2]) for seed in range(3)),
]
BACKENDS = ("bubblewrap", "local")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("backend", "where", "seed", "times", "mode"),
    [
        pytest.param(backend, *case, marks=() if BACKENDS[number % 2] == backend else pytest.mark.whole)
        for backend in BACKENDS
        for number, case in enumerate(CASES)
    ],
    indirect=["backend"],
)
def test_ctrl_c_leaves_nothing_and_keeps_what_was_finished(
    backend: str, where: str, seed: int, times: int, mode: str, folder: Path, tmp_path: Path
) -> None:
    dice = random.Random(f"{where} {seed}")
    marker, out = f"interrupt{secrets.token_hex(6)}", tmp_path / "episodes.jsonl"
    environment = {**os.environ, "TMPDIR": str(folder), "TURNGYM_LOCAL_AS_ROOT": "1", "TURNGYM_RUN_ID": marker}
    argv = [sys.executable, "-W", "ignore", "-c", PROGRAM, backend, where, marker, str(out), mode]
    program = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "ready\n", program.communicate()[1]
        for _ in range(times):
            time.sleep(dice.uniform(0, 0.05 if where == "close" else 0.4))
            program.send_signal(signal.SIGINT)
        said, errors = program.communicate(timeout=120)
    finally:
        program.kill()
        program.wait()
    assert program.returncode != 0, errors
    if times == 1:
        assert json.loads(said.splitlines()[-1]) == [[], []]
    limit = time.monotonic() + 30
    while (left := marked(marker)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert left == []
    assert [path for path in folder.rglob("*") if path.name != "owner"] == []
    episodes = list(read_jsonl(out)) if out.exists() else []
    assert all(episode.stop_reason == "submitted" and episode.passed for episode in episodes)
    attempts = [episode.attempt for episode in episodes]
    assert len(set(attempts)) == len(attempts) and (mode == "asynchronous" or attempts == list(range(len(attempts))))
    assert len(episodes) == 24 if where == "close" else len(episodes) > 0 or where not in ("anywhere", "own")
